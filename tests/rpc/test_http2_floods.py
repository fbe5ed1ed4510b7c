"""Clients that misuse HTTP/2 take no memory for good, and do not keep others out."""

import contextlib
import itertools
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import grpc
import http2
import pytest
from commands import BIN
from switch_commands import memory
from waiting import WITHIN, until

from innet.local.processes import announced, spawned
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime import p4runtime_pb2_grpc
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc

COMMANDS = {
    "controller": ("innet controller --address 127.0.0.1:0", "controller"),
    "switch": ("innet-switch --no-p4 --grpc-server-addr 127.0.0.1:0", "P4Runtime"),
}
GROWTH = 100 << 20
CONNECTIONS, CALLS_OF_ONE = 6, 300
FIELDS, FIELD_BYTES = 8000, 3900


class Server(NamedTuple):
    """A process that serves gRPC without TLS."""

    process: subprocess.Popen[str]
    address: str
    path: str

    def answers(self) -> bool:
        """Return whether an honest call is answered."""
        with grpc.insecure_channel(self.address) as channel:
            if "P4Runtime" in self.path:
                stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
                return bool(stub.Capabilities(p4rt.CapabilitiesRequest(), timeout=WITHIN))
            rpc.ControllerStub(channel).ListJobs(pb.ListJobsRequest(), timeout=WITHIN)
            return True


@pytest.fixture(params=COMMANDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    command, name = COMMANDS[request.param]
    path = (
        "/p4.v1.P4Runtime/Capabilities" if name == "P4Runtime" else "/innet.v1.Controller/ListJobs"
    )
    with spawned(f"{BIN}/{command}".split()) as process:
        yield Server(process, announced(process, name), path)


def test_headers_that_become_huge_take_no_memory_for_good(server):
    assert server.answers()
    before = memory(server)
    for _ in range(CONNECTIONS):
        with http2.connected(server.address, WITHIN) as sock, contextlib.suppress(OSError):
            first = http2.headers(server.path, http2.remembered("x", "y" * FIELD_BYTES))
            sock.sendall(http2.frame(http2.HEADERS, http2.END_HEADERS, 1, first))
            for stream in range(3, 2 * CALLS_OF_ONE, 2):
                huge = http2.headers(server.path, http2.repeated(FIELDS))
                flags = http2.END_HEADERS | http2.END_STREAM
                sock.sendall(http2.frame(http2.HEADERS, flags, stream, huge))
                http2.drain(sock)
    assert server.answers()
    until(lambda: memory(server) < before + GROWTH)


def test_calls_that_are_given_up_at_once_do_not_keep_others_out(server):
    streams = itertools.count(1, 2)
    with http2.connected(server.address, WITHIN) as sock:
        for _ in range(5):
            for _ in range(20):
                sock.sendall(http2.given_up_calls(server.path, itertools.islice(streams, 50)))
                http2.drain(sock)
            assert server.answers()
