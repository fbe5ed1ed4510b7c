"""The servers under systemd: their units are valid, and they tell when they serve and when they stop."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import BIN
from pages import ROOT
from switches import STOPS_WITHIN
from waiting import WITHIN

from innet.local.ports import free_cables
from innet.machine import systemd
from innet.rpc.certificates import make

UNITS = sorted((ROOT / "examples/systemd").glob("*.service"))
EXPOSURE = 30
"""The largest exposure that `systemd-analyze security` may find, from 0 to 100."""

SUPPORT = ROOT / "tests/support"


def can_boot() -> bool:
    """Return whether this machine lets a test mount file systems, and has what boots a container."""
    if os.geteuid() or not all(map(shutil.which, ("systemd-nspawn", "ip", "unshare"))):
        return False
    mounted = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return not subprocess.run(mounted, capture_output=True, check=False).returncode


needs_container = pytest.mark.skipif(
    not can_boot(),
    reason="a container with systemd needs root, systemd-nspawn and ip",
)
needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not on the PATH"
)
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Yield a socket that receives what a server tells systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(WITHIN)
        yield receiver


def installed(unit: Path) -> str:
    """Return a unit for this environment's commands."""
    return unit.read_text().replace("/opt/innet/bin", str(BIN))


def command(unit: Path, folder: Path) -> list[str]:
    """Return the unit's command for this machine: with free ports, and certificates in a folder."""
    [_, rest] = installed(unit).replace("\\\n", "").split("ExecStart=")
    text = (
        rest.partition("\n")[0]
        .replace("/etc/innet/certs", str(folder))
        .replace("%S/innet", str(folder))
    )
    for port, cable in zip(("1@eth1", "2@eth2"), free_cables(2), strict=True):
        text = text.replace(port, f"{port[0]}@{cable.interface}")
    return [
        "127.0.0.1:0" if before.endswith(("--address", "--grpc-server-addr")) else word
        for before, word in zip(["", *shlex.split(text)], shlex.split(text), strict=False)
    ]


def test_there_is_a_unit_for_each_server():
    assert [unit.stem for unit in UNITS] == ["innet-controller", "innet-pbox", "innet-switch"]


@needs_systemd
@each_unit
def test_a_unit_is_valid_and_allows_little(unit: Path, tmp_path: Path):
    path = tmp_path / unit.name
    path.write_text(installed(unit))
    for check in (["verify", "--man=no"], ["security", "--offline=yes", f"--threshold={EXPOSURE}"]):
        done = subprocess.run(
            ["systemd-analyze", *check, path],
            capture_output=True, text=True, timeout=WITHIN, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


@each_unit
def test_a_server_tells_systemd_when_it_serves_and_when_it_stops(
    unit: Path, tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch
):
    make(tmp_path, ["127.0.0.1"])
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with subprocess.Popen(
        command(unit, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert manager.recv(100) == b"READY=1"
            host, _, port = server.stdout.readline().split()[1].rpartition(":")
            socket.create_connection((host, int(port)), WITHIN).close()
            server.terminate()
            assert manager.recv(100) == b"STOPPING=1"
            assert server.wait(STOPS_WITHIN) == 128 + signal.SIGTERM
        finally:
            server.kill()
    assert "SuccessExitStatus=143" in unit.read_text()


@needs_container
def test_a_real_systemd_starts_restarts_and_stops_the_services(tmp_path: Path):
    """The units word for word, in a container: booted_check.sh has the steps.

    It also revokes and renews certificates while the services run.
    """
    shutil.copy(SUPPORT / "booted_check.sh", tmp_path / "check")
    shutil.copy(SUPPORT / "program_switch.py", tmp_path)
    packages, commands = sysconfig.get_path("purelib"), sysconfig.get_path("scripts")
    folders = [tmp_path, ROOT, packages, commands, sys.base_prefix]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", SUPPORT / "booted.sh", *folders],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=3 * WITHIN, check=False,
    )  # fmt: skip
    assert (tmp_path / "rc").exists(), done.stdout
    assert (tmp_path / "rc").read_text() == "0\n", (tmp_path / "log").read_text()
    found = (tmp_path / "services").read_text().splitlines()
    assert found == [
        f"{unit} success inactive" for unit in ("innet-switch", "innet-controller", "innet-pbox")
    ]
    entries = [
        json.loads(line) for line in (tmp_path / "journal").read_text().splitlines() if "{" in line
    ]
    events = [each["event"] for each in entries]
    assert events.count("the controller serves") == 2
    assert "state restored" in events
    refused = [each["who"] for each in entries if each["event"] == "refused"]
    assert {*refused} == {"mallory (admin)"}
    assert events.count("changed files are used") == 1
    *_, last_start = (at for at, event in enumerate(events) if event == "the controller serves")
    assert "the controller stops" in events[last_start:]  # its switch may stop before or after it


def test_a_path_may_have_an_at_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "user@1000"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(WITHIN)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        systemd.notify(systemd.READY)
        assert manager.recv(100) == b"READY=1"


def test_an_abstract_address_and_a_manager_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{tmp_path}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{tmp_path}")
        systemd.notify(systemd.READY)
        assert manager.recv(100) == b"READY=1"
    systemd.notify(systemd.READY)
    monkeypatch.delenv("NOTIFY_SOCKET")
    systemd.notify(systemd.READY)
