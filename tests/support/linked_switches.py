"""A switch on interfaces in a network namespace of its own, with its log and its metrics. Needs root."""

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator

from switches import ANSWERS_WITHIN, COMMAND, STOPS_WITHIN
from tiny_programs import FOLDER

FRAME = bytes.fromhex("ffffffffffff 020000000001 88b5") + bytes(46)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def linked_namespace() -> Iterator[str]:
    """Make a network namespace with two pairs of interfaces: ``s1`` and ``h1``, ``s2`` and ``h2``."""
    name = f"innet-links-{uuid.uuid4().hex[:8]}"
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


def refused(namespace: str, port: str) -> str:
    """Start a switch with a port that it refuses. Returns the error."""
    done = subprocess.run(
        command(namespace, "-i", port), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 2
    return done.stderr


class Watched:
    """A switch with its log and its Prometheus metrics."""

    def __init__(self, namespace: str, process: "subprocess.Popen[str]") -> None:
        self._namespace, self.process = namespace, process
        process.stdout.readline()
        self._metrics = process.stdout.readline().split()[1]

    def says(self, *words: str) -> None:
        """Wait for a line of the log that has these words."""
        for line in self.process.stderr:
            if all(word in line for word in words):
                return
        raise AssertionError(f"the switch has ended without a word of {words}")

    def up(self) -> set[str]:
        """Return the interfaces that are up, by the metric."""
        lines = self.metric("innet_switch_port_up")
        assert len(lines) == 3
        up = [line for line in lines if line.endswith(" 1.0")]
        return {name for name in ("s1", "s2") if any(f'{name}"' in line for line in up)}

    def metric(self, name: str) -> list[str]:
        """Return the lines of a metric."""
        page = f"urlopen('http://{self._metrics}/metrics')"
        script = f"from urllib.request import urlopen; print({page}.read().decode())"
        lines = inside(self._namespace, script).splitlines()
        return [line for line in lines if line.startswith(f"{name}{{")]

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
def watched(namespace: str, *options: str, way: str = "") -> Iterator[Watched]:
    """Run a switch that passes frames between s1 and s2. `way` chooses the kind of its ports."""
    ip("-n", namespace, "link", "set", "lo", "up")
    with subprocess.Popen(
        command(namespace, "-i", f"1@{way}s1", "-i", f"2@{way}s2", *options),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield Watched(namespace, process)
            process.terminate()
            process.wait(STOPS_WITHIN)
        finally:
            process.kill()
