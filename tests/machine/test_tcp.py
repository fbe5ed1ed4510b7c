"""The kernel's information about a real connection."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
from waiting import WITHIN
from working_job import eventually

from innet.machine.tcp import PROBE_EVERY, TcpConnection, break_when_silent

PEER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:
    sock.recv(1)
    if sys.argv[2:]:
        print("busy", flush=True)
        sum(range(1 << 60))  # holds the interpreter lock for ever
"""


@contextlib.contextmanager
def connected(*arguments: str) -> Iterator[tuple[subprocess.Popen, socket.socket, TcpConnection]]:
    """Yield a process, and this end of its connection, found by the name of its peer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", PEER, str(server.getsockname()[1]), *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                here, (host, port) = server.accept()
                connection = TcpConnection.of_peer(f"ipv4:{host}:{port}")
                with here, contextlib.closing(connection):
                    yield process, here, connection
            finally:
                process.kill()


def longest_silence(connection: TcpConnection, seconds: float) -> float:
    """Return the longest silence of a connection in some seconds."""
    found: list[float] = []
    with contextlib.suppress(AssertionError):
        eventually(lambda: found.append(connection.silence()), seconds)
    return max(found)


def test_the_kernel_of_a_stopped_process_answers():
    with connected() as (process, _, connection):
        process.send_signal(signal.SIGSTOP)
        assert longest_silence(connection, 4 * PROBE_EVERY) < 2.5 * PROBE_EVERY
        assert not connection.broken


def test_the_kernel_of_a_process_whose_interpreter_is_held_answers():
    with connected("hold") as (process, here, connection):
        here.send(b"x")
        assert process.stdout.readline() == b"busy\n"
        assert longest_silence(connection, 4 * PROBE_EVERY) < 2.5 * PROBE_EVERY
        assert not connection.broken


def test_a_process_that_is_killed_has_broken_its_connection():
    with connected() as (process, _, connection):
        assert not connection.broken
        process.kill()
        eventually(lambda: connection.broken)


def test_the_connection_goes_on_when_nobody_watches_it_any_more():
    with connected() as (process, here, connection):
        connection.close()
        assert (connection.silence(), connection.broken) == (0.0, False)
        here.send(b"x")
        assert process.wait(WITHIN) == 0


@pytest.mark.parametrize(
    "peer", ["unix:/run/x", "unix:", "ipv4:127.0.0.1:1", "ipv6:%5B::1%5D:1", ""]
)
def test_of_what_is_no_connection_of_this_process_nothing_is_known(peer: str):
    connection = TcpConnection.of_peer(peer)
    assert (connection.silence(), connection.broken, connection.remote) == (0.0, False, False)


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_connections_of_grpc_are_found_by_the_peers_name(address: str):
    """This also holds for a server on all addresses, where IPv4 addresses are mapped to IPv6."""
    family = socket.AF_INET6 if "[" in address else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((address.strip("[]"), 0))
        except OSError:
            pytest.skip("there is no IPv6 here")
    found = []

    def handle(_: bytes, context: grpc.ServicerContext) -> bytes:
        connection = TcpConnection.of_peer(context.peer())
        with contextlib.closing(connection):
            found.append(connection._sock is not None)
        return b""

    server = grpc.server(grpc_pool())
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(
                "x", {"y": grpc.unary_unary_rpc_method_handler(handle)}
            )
        ]
    )
    port = server.add_insecure_port("[::]:0" if ":" in address else "0.0.0.0:0")
    server.start()
    try:
        with grpc.insecure_channel(f"{address}:{port}") as channel:
            channel.unary_unary("/x/y")(b"", timeout=WITHIN)
    finally:
        server.stop(None)
    assert found == [True]


def grpc_pool():
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1)


def test_a_client_can_bound_the_silence_of_its_server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as client:
            break_when_silent(f"127.0.0.1:{address[1]}", 4.0)
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 4000
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    break_when_silent("unix:/run/x", 4.0)
    break_when_silent("nowhere.invalid:1", 4.0)
