"""Interfaces of a switch that go down, disappear and come back. Only one switch can have an interface.

Everything happens in a network namespace of the test's own.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from switches import ANSWERS_WITHIN, COMMAND, STOPS_WITHIN
from tiny_programs import FOLDER

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"
)

FRAME = bytes.fromhex("ffffffffffff 020000000001 88b5") + bytes(46)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def namespace() -> Iterator[str]:
    """Make a network namespace with two pairs of interfaces: ``s1`` and ``h1``, ``s2`` and ``h2``."""
    name = f"innet-links-{os.getpid()}"
    ip("netns", "add", name)
    try:
        for number in "12":
            connect(name, number)
        yield name
    finally:
        ip("netns", "delete", name)


def connect(namespace: str, number: str) -> None:
    ends = f"s{number}", f"h{number}"
    ip("-n", namespace, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for end in ends:
        ip("-n", namespace, "link", "set", end, "up")


def command(namespace: str, *ports: str) -> list[str]:
    served = ("--grpc-server-addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0")
    program = str(FOLDER / "wire.json")
    return ["ip", "netns", "exec", namespace, COMMAND, program, *served, *ports]


class Watched:
    """A switch with its log and its Prometheus metrics."""

    def __init__(self, namespace: str, process: "subprocess.Popen[str]") -> None:
        self._namespace, self._process = namespace, process
        process.stdout.readline()
        self._metrics = process.stdout.readline().split()[1]

    def says(self, *words: str) -> None:
        """Wait for a line of the log that has these words."""
        for line in self._process.stderr:
            if all(word in line for word in words):
                return
        raise AssertionError(f"the switch has ended without a word of {words}")

    def up(self) -> set[str]:
        """Return the interfaces that are up, by the metric."""
        page = f"urlopen('http://{self._metrics}/metrics')"
        script = f"from urllib.request import urlopen; print({page}.read().decode())"
        done = inside(self._namespace, script)
        lines = [line for line in done.splitlines() if line.startswith("innet_switch_port_up{")]
        assert len(lines) == 3
        up = [line for line in lines if line.endswith(" 1.0")]
        return {name for name in ("s1", "s2") if any(f'"{name}"' in line for line in up)}

    def forwards(self) -> None:
        """Send a frame in at one end, and receive it at the other."""
        inside(
            self._namespace,
            "import socket\n"
            "a, b = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in 'ab')\n"
            "a.bind(('h1', 0x88b5)); b.bind(('h2', 0x88b5))\n"
            f"b.settimeout({ANSWERS_WITHIN})\n"
            f"a.send(bytes.fromhex('{FRAME.hex()}'))\n"
            f"assert b.recv(2000).hex() == '{FRAME.hex()}'",
        )


def inside(namespace: str, script: str) -> str:
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, sys.executable, "-c", script],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def watched(namespace: str) -> Iterator[Watched]:
    ip("-n", namespace, "link", "set", "lo", "up")
    with subprocess.Popen(
        command(namespace, "-i", "1@s1", "-i", "2@s2"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield Watched(namespace, process)
            process.terminate()
            process.wait(STOPS_WITHIN)
        finally:
            process.kill()


def test_an_interface_that_goes_down_or_disappears_is_noticed_and_taken_again(namespace):
    with watched(namespace) as switch:
        assert switch.up() == {"s1", "s2"}
        ip("-n", namespace, "link", "set", "h1", "down")
        switch.says("port down", "interface=s1", "port=1", "it is down")
        assert switch.up() == {"s2"}
        ip("-n", namespace, "link", "set", "h1", "up")
        switch.says("port up", "interface=s1", "port=1")
        assert switch.up() == {"s1", "s2"}
        switch.forwards()
        ip("-n", namespace, "link", "delete", "s2")
        switch.says("port down", "interface=s2", "port=2", "it has disappeared")
        assert switch.up() == {"s1"}
        connect(namespace, "2")
        switch.says("port up", "interface=s2", "port=2")
        assert switch.up() == {"s1", "s2"}
        switch.forwards()


def test_an_interface_is_a_port_of_one_switch_only(namespace):
    with watched(namespace):
        done = subprocess.run(
            command(namespace, "-i", "7@s2"),
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert "port '7@s2': s2 is a port of an innet-switch already" in done.stderr
        other = f"{namespace}-b"
        ip("netns", "add", other)
        try:  # another namespace may have an interface with the same number
            connect(other, "2")
            inside(other, "from innet.switch.ports import open_port; open_port('7@s2')")
        finally:
            ip("netns", "delete", other)
    inside(namespace, "from innet.switch.ports import open_port; open_port('7@s2')")
