"""The checks of a machine by `innet doctor`."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from commands import BIN, run, serving
from racks import rack
from waiting import WITHIN

from innet.machine import interfaces
from innet.observe.checklist import CHECKS, check
from innet.observe.findings import Finding, Severity
from innet.observe.roles import Role
from innet.rpc import innet_pb2 as pb
from innet.rpc.certificates import make
from innet.rpc.client import connect

WELL = {"INNET_JOB": "train", "INNET_TOKEN": "secret", "RANK": "3", "INNET_LINK": "host"}


def found(name: str, role: Role = Role.WORKER, **environment: str) -> Finding:
    [finding] = [each for each in check(role, environment) if each.subject == name]
    return finding


def test_every_check_says_something_and_what_to_do_where_it_fails():
    for role in Role:
        findings = check(role, {})
        assert len(findings) == len(CHECKS[role])
        assert all(each.statement and (each.healthy or each.remedy) for each in findings)


def test_a_controller_that_answers_is_found_and_one_that_does_not_is_a_problem():
    with serving() as (_, address):
        finding = found("controller", INNET_CONTROLLER=address)
    assert finding.severity == Severity.GOOD
    assert finding.statement == f"answers at {address}, without TLS"
    finding = found("controller", INNET_CONTROLLER="127.0.0.1:1")
    assert finding.severity == Severity.PROBLEM
    assert "no controller answers at 127.0.0.1:1" in finding.statement


def test_a_folder_without_certificates_is_a_problem(tmp_path: Path):
    finding = found("certificates", INNET_TLS=str(tmp_path))
    assert finding.severity == Severity.PROBLEM
    assert f"there is no {tmp_path}/ca.pem" in finding.statement


def test_without_certificates_only_they_are_blamed(tmp_path: Path):
    environment = {**WELL, "INNET_TLS": str(tmp_path), "INNET_CONTROLLER": "127.0.0.1:1"}
    finding = found("job", **environment)
    assert finding.severity == Severity.NOTE
    assert "the controller does not say whether it may join" in finding.statement


@pytest.mark.parametrize(
    ("name", "changes", "severity", "words"),
    [
        ("job", {}, Severity.NOTE, "train, as worker 3; without the controller nobody can say"),
        ("job", {"INNET_TOKEN": ""}, Severity.NOTE, "not set: INNET_TOKEN;"),
        ("job", {"RANK": "one"}, Severity.PROBLEM, "RANK is 'one'"),
        ("job", {"RANK": str(1 << 32)}, Severity.PROBLEM, "RANK is '4294967296'"),
        ("quantizer", {}, Severity.GOOD, "int32 on the CPU"),
        ("quantizer", {"INNET_QUANTIZER": "int8"}, Severity.GOOD, "int8 on the CPU"),
        ("quantizer", {"INNET_QUANTIZER": "int7"}, Severity.PROBLEM, "quantizer 'int7': it has to"),
        ("link", {}, Severity.GOOD, "host"),
        ("link", {"INNET_LINK": "eth0"}, Severity.PROBLEM, "link 'eth0' is neither 'host' nor"),
        ("link", {"INNET_LINK": "host host"}, Severity.GOOD, "host"),
        (
            "link", {"INNET_LINK": "host host", "LOCAL_RANK": "2"}, Severity.PROBLEM,
            "INNET_LINK names 2 links, and LOCAL_RANK is 2",
        ),
        (
            "link", {"INNET_LINK": "host host", "LOCAL_RANK": "9" * 5000}, Severity.PROBLEM,
            "INNET_LINK names 2 links, and LOCAL_RANK is 999",
        ),
    ],
)  # fmt: skip
def test_variables_are_checked(name: str, changes: dict, severity: Severity, words: str):
    finding = found(name, **{**WELL, **changes})
    assert (finding.severity, finding.statement[: len(words)]) == (severity, words)


@pytest.fixture(scope="module")
def job() -> Iterator[dict[str, str]]:
    """Yield the environment of a job's worker."""
    with rack(2) as tor, tor.job(2) as name:
        yield {
            "INNET_CONTROLLER": tor.controller, "INNET_JOB": name, "INNET_TOKEN": tor.tokens[name],
            "RANK": "1", "INNET_LINK": "host",
        }  # fmt: skip


def test_a_worker_that_may_join_is_told_so_and_takes_no_seat(job: dict[str, str]):
    for _ in range(2):
        finding = found("job", **job)
        assert (finding.severity, finding.statement) == (
            Severity.GOOD, f"{job['INNET_JOB']}, as worker 1, which may join",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words", "remedy"),
    [
        ({"INNET_TOKEN": "wrong"}, "the token is not the job", "innet job create"),
        ({"RANK": "70"}, "rank 70: the job has 2 workers", "set RANK"),
        ({"INNET_JOB": "nowhere"}, "there is no job 'nowhere'", "innet job list"),
    ],
)
def test_a_worker_that_could_not_join_is_a_problem(
    job: dict[str, str], changes: dict[str, str], words: str, remedy: str
):
    finding = found("job", **{**job, **changes})
    assert finding.severity == Severity.PROBLEM
    assert words in finding.statement
    assert remedy in finding.remedy


def test_a_seat_that_is_taken_is_worth_knowing(job: dict[str, str]):
    channel, stub = connect(job["INNET_CONTROLLER"])
    request = pb.JoinRequest(job=job["INNET_JOB"], rank=1, token=job["INNET_TOKEN"])
    leave = threading.Event()

    def messages() -> Iterator[pb.WorkerMessage]:
        yield pb.WorkerMessage(join=request)
        leave.wait(WITHIN)

    with channel:
        stay = stub.Join(messages())
        assert next(stay).HasField("invitation")
        finding = found("job", **job)
        leave.set()
    assert finding.severity == Severity.NOTE
    assert "which is in the job already" in finding.statement


def test_a_cable_needs_no_way_through_the_network(job: dict[str, str]):
    cable = {**job, "INNET_LINK": "udp:127.0.0.1:1/127.0.0.1:2"}
    for name in ("service address", "offloads", "fallback"):
        assert found(name, **cable).severity == Severity.NOTE


def test_a_certificate_that_ends_soon_is_a_warning(tmp_path: Path):
    for days, severity in ((1, Severity.WARNING), (60, Severity.GOOD)):
        make(tmp_path / str(days), [], timedelta(days=days))
        assert found("certificates", INNET_TLS=str(tmp_path / str(days))).severity == severity


ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth1\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth2\t0000010A\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the kernel writes its own byte order")
@pytest.mark.parametrize(("ip", "gateway"), [("192.0.2.1", "10.0.0.1"), ("10.1.0.254", "")])
def test_a_way_over_a_gateway_is_told_from_one_in_the_subnet(
    tmp_path: Path, monkeypatch, ip: str, gateway: str
):
    table = tmp_path / "route"
    table.write_text(ROUTES)
    monkeypatch.setattr(interfaces, "_ROUTES", table)
    assert interfaces.gateway_to(ip) == gateway


def test_the_command_prints_a_line_for_every_check_and_its_exit_code_says_whether_all_is_well():
    with serving() as (_, address):
        done = run("innet", "doctor", "--controller", address, **WELL)
    assert done.stderr == ""
    for name in ("controller", "job", "link", "segmentation", "socket buffers", "PyTorch"):
        assert re.search(rf"^(good|note|warning|problem) +{name} ", done.stdout, re.MULTILINE), name
    wrong = "warning " in done.stdout or "problem " in done.stdout
    assert done.returncode == wrong


def test_a_compiler_that_is_no_program_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    broken = tmp_path / "cc"
    broken.write_text("no program")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    finding = found("C compiler", Role.SWITCH)
    assert (finding.severity, finding.statement) == (Severity.PROBLEM, f"{broken} does not run")


def test_a_machine_without_a_compiler_is_not_ready_for_a_switch():
    done = run("innet", "doctor", "--role", "switch", PATH="/nowhere", CC="")
    assert done.returncode == 1
    assert re.search(r"^problem +C compiler +no C compiler found", done.stdout, re.MULTILINE)


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="takes privileges away: root, setpriv"
)
def test_without_privileges_ports_are_cables_and_buffers_are_what_the_system_allows():
    caps = "-net_raw,-net_admin"
    command = ["setpriv", "--bounding-set", caps, "--inh-caps", caps, "--", str(BIN / "innet")]
    done = subprocess.run(
        [*command, "doctor", "--role", "switch"],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"^warning +interfaces +no raw sockets", done.stdout, re.MULTILINE)
    allowed = int(Path("/proc/sys/net/core/rmem_max").read_text())
    expected = "good" if allowed >= 8 << 20 else "warning"
    assert re.search(rf"^{expected} +socket buffers", done.stdout, re.MULTILINE), done.stdout
