"""The command ``innet``, run as a user runs it: its output, and its exit code."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import typer
from commands import BIN, refuse, run, run_into_full_file, run_on_full_disk, serving
from preforked import Process
from racks import TIMEOUTS, WITHIN, free_cables
from switches import Switch, running_switch

from innet import errors
from innet.controller.cli.options import parse_ports
from innet.controller.state import validation
from innet.errors import UsageError
from innet.host.join import join
from innet.machine.private_file import private_file
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect
from innet.rpc.status import code_of, error_of
from innet.terminal import signals
from innet.terminal.app import run as run_app
from innet.terminal.signals import STOP_SIGNALS, Interrupts, Stopped


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(2) as running:
        yield running


@pytest.fixture(scope="module")
def controller(switch: Switch) -> Iterator[str]:
    with serving() as (_, address):
        add = ["switch", "add", "tor", switch.address, "--ports", "1-2", "--controller", address]
        done = run("innet", *add)
        assert done.stdout == "switch tor: 8192 slots of 64 lanes, at 10.255.255.254\n", done.stderr
        yield address


def test_switches_and_jobs_are_added_shown_and_deleted(switch: Switch, controller: str):
    def innet(*arguments: str) -> str:
        done = run("innet", *arguments, INNET_CONTROLLER=controller)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    created = innet("job", "create", "mnist", "--switch", "tor", "--workers", "2", "--slots", "64")
    about, found = created.splitlines()
    assert about == "job mnist: 2 workers, slots 0 to 63 of tor, 64 lanes"
    where = f"workers find it with INNET_CONTROLLER={controller} INNET_JOB=mnist INNET_TOKEN="
    assert found.startswith(where)
    token = found.removeprefix(where)
    listed = innet("switch", "list")
    for word in ("tor", switch.address, "1,2", "10.255.255.254", "8128 of 8192", "yes"):
        assert word in listed
    of_switch = innet("switch", "show", "tor")
    assert re.search(r"slots\W+8128 of 8192 are free", of_switch)
    assert re.search(r"\b2\W+0\W+0\W+0\b", of_switch)  # port 2 has refused nothing
    assert re.search(r"mnist\W+tor\W+2\W+0\W+64\W+64\W+none\b", innet("job", "list"))
    shown = innet("job", "show", "mnist")
    for name in ("waiting", "completed", "answered", "pending", "stale"):
        assert re.search(rf"{name}\W+0\b", shown)
    assert re.search(r"workers\W+2; joined: none", shown)
    assert re.search(r"quorum\W+2\b", shown)
    assert re.search(r"path\W+none\b", shown)
    assert token not in shown
    assert innet("job", "delete", "mnist") == "job mnist deleted\n"
    assert "mnist" not in innet("job", "list")
    assert "8192 of 8192" in innet("switch", "list")


def test_a_token_is_written_to_a_file_for_its_owner_only(controller: str, tmp_path: Path):
    path = tmp_path / "a token"
    create = ["job", "create", "secret", "--switch", "tor", "--workers", "1", "--quorum", "1"]
    done = run("innet", *create, "--token-file", str(path), "--controller", controller)
    assert done.returncode == 0, done.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text().strip()
    assert len(token) >= 32
    assert token not in done.stdout
    assert f"INNET_TOKEN=\"$(cat '{path}')\"" in done.stdout
    assert run("innet", "job", "delete", "secret", "--controller", controller).returncode == 0


def test_no_job_is_created_whose_token_cannot_be_written(controller: str, tmp_path: Path):
    create = ["job", "create", "secret", "--switch", "tor", "--workers", "1"]
    path = tmp_path / "nowhere" / "token"
    why = f"cannot write to {path}: No such file or directory"
    refuse(why, "innet", *create, "--token-file", str(path), "--controller", controller)
    refuse("no job 'secret'", "innet", "job", "show", "secret", "--controller", controller)


def test_a_job_whose_token_does_not_fit_the_disk_is_deleted_again(controller: str, tmp_path: Path):
    path = tmp_path / "token"
    create = ["job", "create", "secret", "--switch", "tor", "--workers", "1"]
    options = ["--token-file", str(path), "--controller", controller]
    done = run_on_full_disk("innet", *create, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"cannot write to {path}: File too large" in done.stderr
    assert not os.path.lexists(path)
    refuse("no job 'secret'", "innet", "job", "show", "secret", "--controller", controller)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_job_whose_token_cannot_be_shown_is_deleted_again(controller: str, options: list[str]):
    create = ["job", "create", "secret", "--switch", "tor", "--workers", "1", *options]
    done = run_into_full_file("innet", *create, "--controller", controller)
    why = "error: cannot show the token, and so the job was not created: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, why)
    refuse("no job 'secret'", "innet", "job", "show", "secret", "--controller", controller)


def test_nothing_is_left_of_a_token_file_when_no_job_is_created(controller: str, tmp_path: Path):
    path = tmp_path / "token"
    create = ["job", "create", "secret", "--switch", "nowhere", "--workers", "1"]
    options = ["--token-file", str(path), "--controller", controller]
    refuse("no switch 'nowhere'", "innet", *create, *options)
    assert not os.path.lexists(path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_token_file_after_a_signal(tmp_path: Path, number: signal.Signals):
    path, asked, done = tmp_path / "token", threading.Event(), threading.Event()

    def never(*_: object) -> None:
        asked.set()
        done.wait()

    class Silent(grpc.GenericRpcHandler):
        def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            created = call.method.endswith("/CreateJob")
            return grpc.unary_unary_rpc_method_handler(never) if created else None

    server = grpc.server(ThreadPoolExecutor(1), [Silent()])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    create = ["job", "create", "secret", "--switch", "tor", "--workers", "1"]
    options = ["--token-file", str(path), "--controller", address]
    try:
        with Process("innet", *create, *options) as process:
            assert asked.wait(WITHIN)
            assert path.exists()
            process.send_signal(number)
            assert process.wait(WITHIN) == 128 + number
    finally:
        done.set()
        server.stop(0).wait()
    assert not os.path.lexists(path)


def test_no_signal_interrupts_the_start_of_the_call_that_connects(
    controller: str, monkeypatch: pytest.MonkeyPatch
):
    """Its channel could not be closed: gRPC would have started the call, but no thread for its end."""

    def interrupted(_: object) -> None:
        assert threading.current_thread() is not threading.main_thread(), "a signal may come here"

    monkeypatch.setattr("grpc._channel._run_channel_spin_thread", interrupted)
    channel, _ = connect(controller)
    channel.close()


def test_a_server_that_answers_any_call_counts_as_connected():
    class Willing(grpc.GenericRpcHandler):
        def service(self, _: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(lambda *_: b"")

    server = grpc.server(ThreadPoolExecutor(1), [Willing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        channel, _ = connect(f"127.0.0.1:{port}")
        channel.close()
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize("link", [False, True])
def test_no_token_is_written_to_what_is_there_already(tmp_path: Path, link: bool):
    """Anybody may have made it: a file would stay theirs, and a link leads where they want."""
    other, path = tmp_path / "other", tmp_path / "token"
    other.write_text("of somebody else")
    (path.symlink_to if link else path.hardlink_to)(other)
    with pytest.raises(UsageError, match="is there already"), private_file(path):
        pass
    assert other.read_text() == "of somebody else"
    assert path.exists()


@pytest.mark.parametrize(
    "name", ["$(touch pwn)", "a b", "[/x]", "-rf", "..", "x;y", "größe", "", "a" * 65]
)
def test_a_name_that_means_something_to_a_shell_is_refused(name: str):
    for request, check in (
        (pb.CreateJobRequest(name=name, switch="tor", workers=1), validation.check_job),
        (pb.AddSwitchRequest(name=name, grpc_address="a:1", ports=[1]), validation.check_switch),
        (pb.JoinRequest(job=name), validation.check_join),
    ):
        with pytest.raises(
            UsageError, match=r"is not a name for a (job|switch): use 1 to 64 letters"
        ):
            check(request)


@pytest.mark.parametrize("name", ["a", "job-1", "resnet50_v1.5", "_", "7", "a" * 64])
def test_usual_names_are_taken(name: str):
    validation.check_job(pb.CreateJobRequest(name=name, switch="tor", workers=1))


def test_a_switch_is_removed_and_can_be_added_again(switch: Switch):
    with serving("--most-jobs", "1", "--most-slots-per-job", "16") as (_, address):

        def innet(command: str, code: int = 0) -> str:
            done = run("innet", *command.split(), INNET_CONTROLLER=address)
            assert done.returncode == code, done.stderr
            return done.stdout + done.stderr

        with running_switch(1) as own:
            add = f"switch add tor {own.address} --ports 1"
            create = "job create j --switch tor --workers 1"
            innet(add)
            assert "32 slots are more than the 16 that a job may have" in innet(
                f"{create} --slots 32", code=2
            )
            assert "slots 0 to 15 of tor" in innet(create)
            more = "job create more --switch tor --workers 1"
            assert "the controller has 1 job, and no more are allowed" in innet(more, code=2)
            assert "the switch 'tor' is in use: delete 'j' first" in innet("switch remove tor", 2)
            innet("job delete j")
            assert innet("switch remove tor") == "switch tor removed\n"
            assert "tor" not in innet("switch list")
            innet(add)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            "job create j --switch tor --workers 2 --quorum 3",
            "a quorum of 3 is more than the job's 2 workers",
        ),
        ("switch show nowhere", "no switch 'nowhere'; the controller has: tor"),
        ("switch remove nowhere", "no switch 'nowhere'; the controller has: tor"),
        ("job create j --switch tor --workers 65", "65 workers: the switch 'tor' sums 64 contrib"),
        ("job create j --switch tor --workers 4097", "4097 workers: a job has 1 to 4096"),
        ("job create j --switch tor --workers 0", "0 workers"),
        ("job create j --switch spine --workers 2", "no switch 'spine'; the controller has: tor"),
        ("job create j --switch tor --workers 2 --slots 100", "100 slots: .* a power of two"),
        ("job show nowhere", "no job 'nowhere'; the controller has: "),
        ("job delete nowhere", "no job 'nowhere'"),
        ("switch add tor 127.0.0.1:1 --ports 1", "a switch named 'tor' exists already"),
        ("switch add new 127.0.0.1:1 --ports 1 --lanes 65", "no program for 65 lanes"),
        (
            "switch add new 127.0.0.1:1 --ports 1 --service-ip ten",
            "'ten' are not a MAC and an IPv4",
        ),
        ("switch add new nohost --ports 1", "'nohost' is not HOST:PORT"),
        ("switch add new nohost:70000 --ports 1", "'nohost:70000' is not HOST:PORT"),
        ("switch add new http://nohost:1 --ports 1", "'http://nohost:1' is not HOST:PORT"),
        ("switch add new 127.0.0.1:1 --ports one", "ports 'one': write them as in 1-4,7"),
    ],
)
def test_what_the_controller_cannot_do_ends_with_code_2(controller: str, arguments: str, why: str):
    refuse(why, "innet", *arguments.split(), "--controller", controller)


@pytest.mark.parametrize(
    "arguments",
    [
        f"switch add new 127.0.0.1:1 --ports 1 --device-id {1 << 64}",
        "switch add new 127.0.0.1:1 --ports 1 --lanes -1",
        "deploy 127.0.0.1:1 --ports 1 --lanes 0",
        f"deploy 127.0.0.1:1 --ports 1 --lanes {1 << 32}",
        f"switch add new 127.0.0.1:1 --ports 1 --uplink spine:{1 << 32}:1",
        f"switch add new 127.0.0.1:1 --ports 1 --station {1 << 32}@02:00:00:00:00:01",
        f"job create j --switch tor --workers {1 << 32}",
        f"job create j --switch tor --workers 2 --slots {1 << 32}",
        f"job create j --switch tor --workers 2 --quorum {1 << 32}",
        f"job create j --switch tor --workers 2 --min-workers {1 << 32}",
        f"job create j --switch tor --workers 2 --min-slots {1 << 32}",
        f"job create j --switch tor --workers 2 --lease {1 << 32}",
    ],
)
def test_numbers_that_nothing_has_room_for_end_with_code_2(arguments: str):
    done = run("innet", *arguments.split())
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_name_that_is_no_text_ends_with_code_2(controller: str):
    why = r"'\\udcff' is not UTF-8"
    refuse(why, "innet", "job", "show", os.fsdecode(b"\xff"), "--controller", controller)


@pytest.mark.parametrize(
    "command",
    [
        "deploy nohost --ports 1",
        "deploy nohost --ports 1 --dry-run",
        "job list --controller nohost",
    ],
)
def test_an_address_without_a_port_ends_with_code_2(command: str):
    refuse("'nohost' is not HOST:PORT", "innet", *command.split())


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("innet emulate topologies/one-rack.yaml -- true", "yaml", "emulate"),
        ("innet apply cluster.yaml", "yaml", "apply"),
        ("innet certificates make folder", "cryptography", "certificates"),
        ("innet capture lo", "scapy", "capture"),
        ("innet controller --metrics-addr 127.0.0.1:0", "prometheus_client", "metrics"),
        ("innet pbox serve --metrics-addr 127.0.0.1:0", "prometheus_client", "metrics"),
        ("innet-switch --no-p4 --metrics-addr 127.0.0.1:0", "prometheus_client", "metrics"),
        ("innet controller --web 127.0.0.1:0", "nicegui", "web"),
    ],
)
def test_a_command_without_its_packages_names_its_extra_before_it_says_anything_else(
    command: str, package: str, extra: str
):
    program = {"innet": "innet.cli", "innet-switch": "innet.switch.cli"}[
        command.split(maxsplit=1)[0]
    ]
    lacking = f"import sys; sys.modules[{package!r}] = None; from {program} import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", lacking, *command.split()[1:]],
        check=False, capture_output=True, text=True, timeout=WITHIN,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert f"pip install 'innet[{extra}]'" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "arguments",
    ["controller --address x --lease", "doctor --interval", "top --controller x --interval"],
)
def test_times_are_finite_numbers(arguments: str):
    done = run("innet", *arguments.split(), "inf", COLUMNS="200")
    assert done.returncode == 2
    assert "inf is not a finite number" in done.stderr


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            "innet switch list --controller 127.0.0.1:1",
            "no controller answers at 127.0.0.1:1: start",
        ),
        (
            "innet doctor job --controller 127.0.0.1:1",
            "no controller answers at 127.0.0.1:1: start",
        ),
        ("innet deploy 127.0.0.1:1 --ports 1", "no switch answers at 127.0.0.1:1"),
        ("innet switch add new 127.0.0.1:1 --ports 1 --controller CONTROLLER", "no switch answers"),
    ],
)
def test_whatever_cannot_be_reached_ends_with_code_3(controller: str, command: str, why: str):
    refuse(why, *command.replace("CONTROLLER", controller).split(), code=3)


@pytest.mark.parametrize(
    ("code", "problems"),
    [
        (2, [UsageError, errors.ControllerError, errors.NotAuthorized, errors.SwitchError]),
        (2, [errors.NotFound, errors.NoCapacity, errors.UnsupportedProgram]),
        (3, [errors.ControllerUnreachable, errors.SwitchOffline, errors.SwitchUnreachable]),
        (3, [errors.ServerLost]),
        (1, [errors.InnetError, errors.CompilerError, errors.JobEnded]),
    ],
)
def test_the_same_cause_gives_the_same_exit_code_wherever_the_error_comes_from(
    code: int, problems: list[type[errors.InnetError]]
):
    for kind in problems:
        # A client raises the error that the controller raised.
        for problem in (kind("why"), error_of(code_of(kind("why")), "why")):
            if type(problem) is kind:
                assert problem.exit_code == code
        with pytest.raises(SystemExit) as end:
            run_app(raising(kind("why")), [])
        assert end.value.code == code


def raising(problem: BaseException) -> typer.Typer:
    """Return an app whose command ends with this error."""
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise problem

    return app


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_128_and_its_number(number: signal.Signals):
    for problem in (Stopped(number), KeyboardInterrupt()):
        with pytest.raises(SystemExit) as end:
            run_app(raising(problem), [])
        assert end.value.code == (128 + number if isinstance(problem, SystemExit) else 130)


def test_a_signal_that_comes_twice_at_once_is_one_request(monkeypatch: pytest.MonkeyPatch):
    """As from `timeout`: the second one would kill a training that ends its own processes."""
    times = [(0.0, True), (0.1, False), (0.4, False), (0.6, True), (0.7, False)]
    clock = iter([now for now, _ in times])
    monkeypatch.setattr(signals, "monotonic", lambda: next(clock))
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    try:
        Interrupts().catch()
        for _, counts in times:
            with pytest.raises(Stopped) if counts else contextlib.nullcontext():
                signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["model capacity", "model capacity --json"])
def test_output_that_finds_the_disk_full_ends_with_code_1(command: str, unbuffered: str):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(BIN / "innet"), *command.split()], env=environment, stdout=full,
            stderr=subprocess.PIPE, check=False, text=True, timeout=WITHIN,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_that_cannot_be_written_keeps_its_code(unbuffered: str):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    read, nobody_reads = os.pipe()
    os.close(read)
    with Path("/dev/full").open("w") as full, os.fdopen(nobody_reads, "w") as broken:
        for stderr in (full, broken):
            done = subprocess.run(
                [str(BIN / "innet"), "model", "capacity", "--lanes", "7"], env=environment,
                stdout=subprocess.DEVNULL, stderr=stderr, check=False, timeout=WITHIN,
            )  # fmt: skip
            assert done.returncode == 2


def test_letters_that_the_terminal_lacks_are_escaped(tmp_path: Path):
    measured = tmp_path / "measured.json"
    measured.write_text('{"transfers": [{"bytes": 1000, "seconds": 1e-5}]}')
    done = subprocess.run(
        [str(BIN / "innet"), "model", "fit", str(measured)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False, capture_output=True, text=True, timeout=WITHIN,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(r"\u03b1  latency")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_commands_run_with_closed_files(closed: str):
    for command in ("model capacity", "model capacity --json", "model scaling --size x"):
        shell = ["bash", "-c", f'exec "$0" "$@" {closed}', str(BIN / "innet"), *command.split()]
        done = subprocess.run(shell, check=False, capture_output=True, text=True, timeout=WITHIN)
        assert done.returncode == (2 if "scaling" in command else 0)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("innet controller --address", "cannot serve at {}: is the port in use"),
        ("innet-switch --no-p4 --grpc-server-addr", "cannot serve P4Runtime at {}: is the port"),
    ],
)
def test_an_address_in_use_ends_with_code_2(command: str, why: str):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refuse(why.format(address), *command.split(), address)


def test_an_address_of_another_machine_ends_with_code_2():
    refuse(
        "is it an address of another machine?",
        "innet", "controller", "--insecure", "--address", "192.0.2.1:0",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "P4", "{}", "[1]", '{"pipelines": 3}', "\xff", "null"])
def test_a_program_that_is_not_bmv2s_ends_with_code_2(tmp_path: Path, text: str):
    program = tmp_path / "program.json"
    program.write_bytes(text.encode("latin-1"))
    refuse("not a BMv2 JSON", "innet-switch", str(program), "--grpc-server-addr", "127.0.0.1:0")


@pytest.mark.parametrize(
    "text",
    ["", "1-", "-1", "a", "1-x", "1,,2", "1-2-3", "4-1", "²", "1;2", "65536", "1-99999999999999"],
)
def test_ports_are_numbers_and_ranges(text: str):
    with pytest.raises(UsageError, match="write them as in 1-4,7"):
        parse_ports(text)


def test_ranges_of_ports_include_both_ends():
    assert parse_ports("1-4,7,9-9") == [1, 2, 3, 4, 7, 9]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_controller_stops_when_told_even_with_workers(number: signal.Signals):
    with running_switch(1) as switch, serving() as (process, address):
        create = ["job", "create", "job", "--switch", "tor", "--workers", "1"]
        add = ["switch", "add", "tor", switch.address, "--ports", "1"]
        assert run("innet", *add, "--controller", address).returncode == 0
        token = run("innet", *create, "--controller", address).stdout.strip().partition("TOKEN=")[2]
        [link] = free_cables(switch)
        with join(address, "job", 0, link, token=token, timeouts=TIMEOUTS) as agent:
            assert agent.all_reduce(np.ones(100, np.float32)).tolist() == [1.0] * 100
            process.send_signal(number)
            assert process.wait(WITHIN) == 128 + number
            assert "Traceback" not in process.stderr.read()
            with pytest.raises(ProcessLookupError):
                os.killpg(process.pid, 0)
            assert agent.all_reduce(np.ones(100, np.float32)).tolist() == [1.0] * 100
