"""Output for scripts: `--json`, `--version`, and completion of commands."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import BIN, run
from racks import WITHIN, Rack, means, rack
from switches import running_switch

import innet
from innet.controller.server import ControllerServer
from innet.local.ports import free_tcp_port
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect
from innet.rpc.plain import as_plain

WORKERS = 2


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(WORKERS) as running:
        yield running


def read(tor: Rack, *arguments: str) -> Any:
    """Return the JSON that a command prints."""
    done = run("innet", *arguments, "--json", "--controller", tor.controller)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_every_field_of_a_message_has_a_key_and_large_integers_stay_numbers():
    job = pb.Job(name="train", path=pb.PATH_FALLBACK, joined=[0, 1])
    job.members.add(rank=1, progress=pb.Progress(bytes_sent=1 << 60))
    plain = as_plain(job)
    assert plain.keys() == {field.name for field in pb.Job.DESCRIPTOR.fields}
    assert (plain["path"], plain["joined"], plain["counters"]) == ("PATH_FALLBACK", [0, 1], None)
    [member] = plain["members"]
    assert member["progress"]["bytes_sent"] == 1 << 60
    assert json.loads(json.dumps(plain)) == plain


def test_jobs_and_switches_can_be_read_by_a_script(tor: Rack):
    with tor.workers(WORKERS) as agents:
        means(agents, *[np.ones(1000, np.float32)] * WORKERS)
        [listed] = read(tor, "job", "list")
        job = read(tor, "job", "show", listed["name"])
        assert (job["workers"], job["joined"], job["path"]) == (WORKERS, [0, 1], "PATH_SWITCH")
        assert job["counters"]["completed"] > 0
        assert [member["rank"] for member in job["members"]] == [0, 1]
        [switch] = read(tor, "switch", "list")
        shown = read(tor, "switch", "show", switch["name"])
        assert (shown["name"], shown["reachable"]) == ("tor", True)
        assert [port["port"] for port in shown["port_counters"]] == [1, 2]
        top = read(tor, "top", "--once", "--job", job["name"], "--interval", "1.5")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", top["time"])
        assert [each["name"] for each in top["jobs"]] == [job["name"]]
        assert top["jobs"][0]["member_rates"].keys() == {"0", "1"}
        assert [each["name"] for each in top["switches"]] == ["tor"]


def test_the_doctors_findings_can_be_read_by_a_script(tor: Rack):
    with tor.job(WORKERS) as name, tor.cables(WORKERS) as links, tor.join(name, 0, links[0]):
        arguments = ["doctor", name, "--json", "--controller", tor.controller]
        done = run("innet", *arguments)
        findings = json.loads(done.stdout)
        assert done.returncode == any(
            each["severity"] in ("problem", "warning") for each in findings
        )
        assert {"rule", "statement", "evidence", "remedy"} < findings[0].keys()


def test_a_job_is_created_by_a_script_which_reads_its_token(tor: Rack, tmp_path: Path):
    created = read(tor, "job", "create", "scripted", "--switch", "tor", "--workers", "2")
    assert (created["job"]["name"], len(created["token"]) > 16) == ("scripted", True)
    tor.delete("scripted")
    token = tmp_path / "token"
    arguments = ["--switch", "tor", "--workers", "2", "--token-file", str(token)]
    created = read(tor, "job", "create", "scripted", *arguments)
    assert (created.keys(), bool(token.read_text())) == ({"job"}, True)
    tor.delete("scripted")


@pytest.mark.parametrize("options", [["--json"], []], ids=["lines", "tables"])
def test_top_goes_on_when_the_controller_comes_back(options: list[str]):
    address = f"127.0.0.1:{free_tcp_port()}"
    command = ["top", "--interval", "0.1", "--controller", address, *options]
    with running_switch(1) as switch, contextlib.ExitStack() as stack:
        with serving(address, switch.address, "before"):
            top = stack.enter_context(watching(command))
            until_line(top, "before")
        until_line(top, "the controller does not answer")
        with serving(address, switch.address, "after"):
            until_line(top, "after")


@contextlib.contextmanager
def serving(address: str, switch: str, name: str) -> Iterator[None]:
    """Run a controller at an address, with one switch."""
    with contextlib.closing(ControllerServer(address)):
        channel, stub = connect(address, WITHIN)
        with channel:
            stub.AddSwitch(pb.AddSwitchRequest(name=name, grpc_address=switch, ports=[1]))
        yield


@contextlib.contextmanager
def watching(arguments: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a command that does not end by itself, and end it."""
    command = [str(BIN / "innet"), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def until_line(process: "subprocess.Popen[str]", pattern: str) -> None:
    """Read the process's lines until one matches."""
    assert any(re.search(pattern, line) for line in process.stdout)


@pytest.mark.parametrize("command", ["innet", "innet-switch"])
def test_a_command_says_its_version_and_takes_a_short_option_for_help(command: str):
    assert run(command, "--version").stdout == f"{command.partition('-')[0]} {innet.__version__}\n"
    assert run(command, "-h").stdout == run(command, "--help").stdout


def test_the_shell_can_complete_commands():
    words = {"_INNET_COMPLETE": "complete_bash", "COMP_WORDS": "innet job s", "COMP_CWORD": "2"}
    assert run("innet", **words).stdout.split() == ["show"]
    # The command finds out which shell has started it. Bash would replace itself by a last command.
    command = ["bash", "-c", f"{BIN / 'innet'} --show-completion; true"]
    script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "_INNET_COMPLETE=complete_bash" in script
