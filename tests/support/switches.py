"""Real switches for tests: ``innet-switch`` as a separate process, with cables made of UDP as ports."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from preforked import Process

from innet.local.ports import free_udp_ports, port_options, udp_cable
from innet.local.processes import announced

COMMAND = str(Path(sys.executable).with_name("innet-switch"))
STOPS_WITHIN = 60.0
STOPPED = {128 + signal.SIGINT, 128 + signal.SIGTERM}
ANSWERS_WITHIN = 120.0


@dataclass(frozen=True)
class Switch:
    """A running switch. `hosts[n]` is the far end of port n + 1, connected to the switch."""

    address: str
    hosts: list[socket.socket]
    process: Process


@contextlib.contextmanager
def running_switch(ports: int, *arguments: str, program: Path | None = None) -> Iterator[Switch]:
    """Start a switch, and require a clean and quick stop in the end.

    P4Runtime is served at a free address. Without a compiled program the switch waits for P4Runtime
    to bring one.
    """
    with contextlib.ExitStack() as stack:
        # Agents may take over these ports later: nobody else may get them in between.
        hosts = [stack.enter_context(udp_socket(port)) for port in free_udp_ports(ports)]
        given = [str(program or "--no-p4"), "--grpc-server-addr", "127.0.0.1:0"]
        cables = []
        for host, port in zip(hosts, free_udp_ports(ports), strict=True):
            host.connect(("127.0.0.1", port))
            cables.append(udp_cable(f"127.0.0.1:{port}", f"127.0.0.1:{host.getsockname()[1]}"))
        interfaces = port_options(each.interface for each in cables)
        process = stack.enter_context(_process([*given, *interfaces, *arguments]))
        yield Switch(announced(process, "P4Runtime"), hosts, process)


def udp_socket(port: int = 0) -> socket.socket:
    """Return a socket at a port of 127.0.0.1, or a free one, with a limit on the wait for a datagram."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", port))
    sock.settimeout(ANSWERS_WITHIN)
    return sock


def receive(sock: socket.socket) -> bytes:
    """Return the next frame. Raises TimeoutError if none comes."""
    return sock.recv(1 << 16)


def ask(switch: Switch, *frames: bytes) -> list[bytes]:
    """Send frames to port 1, one by one. Returns the next frame out of the port after each."""
    answers = []
    for frame in frames:
        switch.hosts[0].send(frame)
        answers.append(receive(switch.hosts[0]))
    return answers


@contextlib.contextmanager
def _process(arguments: list[str]) -> Iterator[Process]:
    # The process group of its own lets a test see that nothing of the switch remains.
    with Process("innet-switch", *arguments, stdout=subprocess.PIPE) as process:
        try:
            yield process
            process.terminate()
            assert process.wait(STOPS_WITHIN) in STOPPED
        finally:
            process.kill()
