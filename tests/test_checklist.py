"""What `innet doctor` says about a machine."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import BIN, run, serving

from innet.observe.checklist import CHECKS, check
from innet.observe.findings import Finding, Severity
from innet.observe.roles import Role

WELL = {"INNET_JOB": "train", "INNET_TOKEN": "secret", "RANK": "3", "INNET_LINK": "host"}


def found(name: str, role: Role = Role.WORKER, **environment: str) -> Finding:
    [finding] = [each for each in check(role, environment) if each.subject == name]
    return finding


def test_every_check_says_something_and_what_to_do_where_it_fails():
    for role in Role:
        findings = check(role, {})
        assert len(findings) == len(CHECKS[role])
        assert all(each.what and (each.healthy or each.remedy) for each in findings)


def test_a_controller_that_answers_is_found_and_one_that_does_not_is_a_problem():
    with serving() as (_, address):
        finding = found("controller", INNET_CONTROLLER=address)
    assert finding.severity == Severity.GOOD
    assert finding.what == f"answers at {address}, without TLS"
    finding = found("controller", INNET_CONTROLLER="127.0.0.1:1")
    assert finding.severity == Severity.PROBLEM
    assert "no controller answers at 127.0.0.1:1" in finding.what


def test_a_folder_without_certificates_is_a_problem(tmp_path: Path):
    finding = found("certificates", INNET_TLS=str(tmp_path))
    assert finding.severity == Severity.PROBLEM
    assert f"there is no {tmp_path}/ca.pem" in finding.what


@pytest.mark.parametrize(
    ("name", "changes", "severity", "words"),
    [
        ("job", {}, Severity.GOOD, "train, as worker 3"),
        ("job", {"INNET_TOKEN": ""}, Severity.NOTE, "not set: INNET_TOKEN;"),
        ("job", {"RANK": "one"}, Severity.PROBLEM, "RANK is 'one'"),
        ("quantizer", {}, Severity.GOOD, "int32 by numpy, on the CPU"),
        ("quantizer", {"INNET_QUANTIZER": "int8"}, Severity.GOOD, "int8 by numpy, on the CPU"),
        ("quantizer", {"INNET_QUANTIZER": "int7"}, Severity.PROBLEM, "quantizer 'int7': it has to"),
        ("link", {}, Severity.GOOD, "host"),
        ("link", {"INNET_LINK": "eth0"}, Severity.PROBLEM, "link 'eth0' is neither 'host' nor"),
        ("link", {"INNET_LINK": "host host"}, Severity.GOOD, "host"),
        (
            "link", {"INNET_LINK": "host host", "LOCAL_RANK": "2"}, Severity.PROBLEM,
            "INNET_LINK names 2 links, and LOCAL_RANK is 2",
        ),
    ],
)  # fmt: skip
def test_variables_are_checked(name: str, changes: dict, severity: Severity, words: str):
    finding = found(name, **{**WELL, **changes})
    assert (finding.severity, finding.what[: len(words)]) == (severity, words)


def test_the_command_prints_a_line_for_every_check_and_its_exit_code_says_whether_all_is_well():
    with serving() as (_, address):
        done = run("innet", "doctor", "--controller", address, **WELL)
    assert done.stderr == ""
    for name in ("controller", "job", "link", "segmentation", "socket buffers", "PyTorch"):
        assert re.search(rf"^(good|note|warning) +{name} ", done.stdout, re.MULTILINE), name
    wrong = "warning " in done.stdout or "problem " in done.stdout
    assert done.returncode == wrong


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
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"^warning +interfaces +no raw sockets", done.stdout, re.MULTILINE)
    allowed = int(Path("/proc/sys/net/core/rmem_max").read_text())
    expected = "good" if allowed >= 8 << 20 else "warning"
    assert re.search(rf"^{expected} +socket buffers", done.stdout, re.MULTILINE), done.stdout
