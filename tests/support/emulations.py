"""Emulations as a user starts them, and what they leave on the machine."""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from paths import SUPPORT
from preforked import OF_COMMANDS, forked_programs

from innet.emulation.run import RUN_FOLDER

INNET = Path(sys.executable).with_name("innet")
WORKER = SUPPORT / "emulated_worker.py"
ENDLESS = SUPPORT / "emulated_sums.py"
WITHIN = 600


def one_rack(folder: Path, hosts: int = 2, kind: str = "embedded", link: str = "{}") -> Path:
    """Write a topology file. BMv2 can handle its 64 lanes and few slots."""
    file = folder / "rack.yaml"
    file.write_text(f"""
lanes: 64
slots: 16
link: {link}
switches: [{{name: tor, kind: {kind}}}]
racks: [{{switch: tor, hosts: {hosts}}}]
""")
    return file


def command(topology: Path, *options: str, run: list[str]) -> list[str]:
    return [str(INNET), "emulate", str(topology), *options, "--", *run]


def programs() -> Path:
    """Return the folder of innet's commands and of Python, which start soon."""
    return forked_programs(modules=OF_COMMANDS)


def emulate(topology: Path, *options: str, run: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run an emulation to its end. A host's ``python`` is that of :func:`programs`."""
    program = str(programs() / "python")
    run = [program if each == sys.executable else each for each in run]
    return subprocess.run(
        [str(programs() / "innet"), *command(topology, *options, run=run)[1:]],
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip


@contextlib.contextmanager
def running(topology: Path, *options: str, run: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run an emulation whose output can be read meanwhile."""
    with subprocess.Popen(
        command(topology, *options, run=run),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let no other test process emulate meanwhile, since an emulation removes what others have left."""
    with (Path(tempfile.gettempdir()) / "innet-emulations.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def left() -> set[str]:
    """Return the possible leftovers of emulations outside of their processes and namespaces."""
    names = re.compile(r"(h\d+|tor|ctl)-eth\d+")
    interfaces = {each.name for each in Path("/sys/class/net").iterdir()}
    folders = RUN_FOLDER.glob("innet-run-*")
    dead = {each.name for each in folders if not _locked(each)}
    return {each for each in interfaces if names.fullmatch(each)} | dead


def _locked(folder: Path) -> bool:
    """Return whether a process has locked a folder, as its owner does."""
    status = folder.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return f" {device}:{status.st_ino} " in Path("/proc/locks").read_text()


class Trace:
    """The processes and namespaces of this very emulation, found by a mark in their environment."""

    def __init__(self, folder: Path) -> None:
        self._mark = str(folder).encode()

    def processes(self) -> list[str]:
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if b"INNET_MARK=" + self._mark in (each / "environ").read_bytes():
                    found.append(each.name)
        return found

    def namespaces(self) -> set[str]:
        found = set()
        for each in self.processes():
            with contextlib.suppress(OSError):
                found |= _namespaces(each)
        return found - _namespaces("self")

    def set_link(self, interface: str, state: str) -> None:
        """Set an interface, in whatever namespace, "up" or "down"."""
        self._ip(interface, "link", "set", interface, state)

    def frames(self, interface: str) -> int:
        """Return how many frames an interface has received."""
        [link] = json.loads(self._ip(interface, "-j", "-s", "link", "show", interface))
        return int(link["stats64"]["rx"]["packets"])

    def kill_rank(self, rank: int) -> None:
        """Kill the process of a rank with SIGKILL."""
        for each in self.processes():
            with contextlib.suppress(OSError):
                if f"RANK={rank}".encode() in Path("/proc", each, "environ").read_bytes().split(
                    b"\0"
                ):
                    os.kill(int(each), signal.SIGKILL)

    def _ip(self, interface: str, *words: str) -> str:
        """Return the output of ip in the namespace of the process whose command names the interface."""
        for each in self.processes():
            with contextlib.suppress(OSError):
                if interface.encode() in Path("/proc", each, "cmdline").read_bytes():
                    command = ["nsenter", f"--target={each}", "--net", "ip", *words]
                    return subprocess.run(
                        command, capture_output=True, text=True, check=True
                    ).stdout
        raise AssertionError(f"no switch has {interface}")

    def await_end(self, of: list[int]) -> None:
        """Return when these processes, given by descriptors, have ended."""
        for each in of:
            assert select.select([each], [], [], WITHIN)[0]
            os.close(each)

    def descriptors(self) -> list[int]:
        return [os.pidfd_open(int(each)) for each in self.processes()]


def _namespaces(process: str) -> set[str]:
    return {str(Path("/proc", process, "ns", kind).readlink()) for kind in ("net", "pid")}
