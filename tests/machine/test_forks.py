"""Forked children: each ends promptly, and touches nothing that its parent owns."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from epolls import epolls, watched
from forking import exit_code
from paths import SUPPORT
from processes import process_group
from racks import WITHIN, Rack, rack
from waiting import until

from innet.errors import AgentClosed, ClientClosed, UsageError, WorkerLost
from innet.host.link import open_link
from innet.local.rack import local_rack
from innet.machine.forks import cut_in_children, opened_sockets_cut_in_children
from innet.rpc import innet_pb2 as pb
from innet.servers import pbox
from innet.wire.frames import Address

SIZE = 2

# While the worker is a member of the job, a child is forked. It leaves the block as its parent
# does.
WORKER = """
import os, sys
import numpy as np
import innet
from forking import exit_code
from innet.errors import AgentClosed
child = None
with innet.join(*sys.argv[1:3], 0, sys.argv[3], token=sys.argv[4]) as agent:
    assert agent.all_reduce(np.ones(3, np.float32)).tolist() == [1, 1, 1]
    child = os.fork()
    if child:
        print(exit_code(child), flush=True)
        agent.all_reduce(np.ones(3, np.float32))
    else:
        try:
            agent.all_reduce(np.ones(3, np.float32))
        except AgentClosed as problem:
            print(problem, flush=True)
if not child:
    sys.exit(7)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE + 1) as running:
        yield running


def test_a_child_that_leaves_the_block_of_its_parents_agent_leaves_the_parent_in_its_job(tor: Rack):
    with tor.job(1) as job, tor.cables(1) as [link]:
        command = [sys.executable, "-c", WORKER, tor.controller, job, link, tor.tokens[job]]
        with subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(SUPPORT), "INNET_METRICS": "127.0.0.1:0"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as worker:  # fmt: skip
            try:
                said = worker.stdout.readline()
                assert f"belongs to process {worker.pid}, which has forked this one" in said
                assert worker.stdout.readline() == "7\n"
                assert tor.show(job).joined == [0]
                worker.communicate(timeout=WITHIN)
                assert worker.returncode == 0
            finally:
                worker.kill()


def nothing() -> None:
    pass


def forked(rank: int) -> int | str:
    """Return the outcome of a member's forked child, which has tried an all-reduce."""
    child = os.fork()
    if child:
        return exit_code(child)
    try:
        dist.all_reduce(torch.ones(3))
    except AgentClosed:
        sys.exit(7)


def summed(rank: int) -> list[float]:
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return tensor.tolist()


def test_a_child_of_a_process_group_ends_through_sys_exit_and_the_group_goes_on(tor: Rack):
    links = ",".join(tor.links[:SIZE])
    common = {
        "INNET_CONTROLLER": tor.controller, "INNET_LINK": links, "INNET_LOCAL_SUM": "0",
    }  # fmt: skip
    environments = [{**common, "LOCAL_RANK": str(rank)} for rank in range(SIZE)]
    with process_group(SIZE, nothing, "innet", environments) as group:
        assert group.run(summed) == [[2.0] * 3] * SIZE
        assert group.run(forked) == [7] * SIZE
        [job] = tor.stub.ListJobs(pb.ListJobsRequest()).jobs
        assert sorted(job.joined) == [0, 1]
        assert group.run(summed) == [[2.0] * 3] * SIZE


def only_client(server: pbox.Server) -> pbox.Client:
    given = {"job": "test", "rank": 0, "workers": 1, "keys": [8], "timeout": WITHIN}
    return pbox.connect(server.address, **given)


def in_child(call: Callable[[], int]) -> int | str:
    """Call this in a forked child, which ends with the result. Return what it has ended with."""
    child = os.fork()
    if not child:  # the child must not run the remaining tests
        os._exit(call())
    return exit_code(child)


def test_a_child_that_leaves_the_block_of_its_parents_client_says_no_goodbye():
    with pbox.Server(cores=1, memory_bytes=1 << 20) as server, only_client(server) as client:
        assert in_child(partial(child_of, client)) == 7
        gradients = [np.ones(8, np.float32)]
        client.push_pull(gradients)
        assert gradients[0].tolist() == [1.0] * 8


@pytest.fixture
def child() -> Iterator[Callable[[], None]]:
    """Fork children that live, with copies of all files, until the test has ended."""
    children: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            while True:
                signal.pause()
        children.append(child)

    yield fork
    for each in children:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)


def ends(close: Callable[[], None]) -> bool:
    """Return whether this returns soon: long before a client gives up waiting for its server."""
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(10)
    return not closing.is_alive()


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_clients_and_servers_end_while_a_child_of_their_process_lives(
    child: Callable[[], None], folder: Path, secured: bool
):
    tls = folder if secured else None
    given = {"job": "test", "workers": 2, "keys": [8], "timeout": WITHIN, "tls": tls}
    with contextlib.ExitStack() as stack:
        others = epolls()  # such as gRPC's, which change at any time
        server = pbox.Server(cores=1, memory_bytes=1 << 20, tls=tls)
        before = watched(others)
        clients = [
            stack.enter_context(pbox.connect(server.address, rank=rank, **given))
            for rank in range(2)
        ]
        child()
        pushing = clients[0].submit([np.ones(8, np.float32)])
        assert ends(clients[1].close)
        with pytest.raises(WorkerLost, match="worker 1 has left"):
            pushing.result(WITHIN)
        assert ends(clients[0].close)
        until(lambda: not server.stats().cores["connections"].any())
        assert watched(others) == before
        assert ends(server.close)


@pytest.mark.parametrize("udp", [False, True], ids=["shm", "udp"])
def test_a_workers_link_is_free_again_while_a_child_of_its_process_lives(
    child: Callable[[], None], udp: bool
):
    service = Address("02:00:00:00:00:fe", "10.0.255.254", 19790)

    def free() -> bool:
        with contextlib.suppress(UsageError):
            open_link(link, service, 64).close()
            return True
        return False

    with local_rack(1, udp=udp) as running:
        [link] = running.links
        first = open_link(link, service, 64)
        child()
        first.close()
        until(free)


@contextlib.contextmanager
def listening(kind: str, folder: Path) -> Iterator[tuple[socket.socket, object, str]]:
    """Yield a server, the address for `connect`, and the address as gRPC takes it."""
    if kind == "unix":
        path = str(folder / "server")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            yield server, path, f"unix:{path}"
    elif kind == "IPv4":
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield server, server.getsockname(), f"localhost:{server.getsockname()[1]}"
    else:
        both = {"family": socket.AF_INET6, "dualstack_ipv6": True}
        with socket.create_server(("::", 0), **both) as server:
            port = server.getsockname()[1]
            host, named = {"mapped": ("::ffff:127.0.0.1", "127.0.0.1"), "IPv6": ("::1", "[::1]")}[
                kind
            ]
            yield server, (host, port), f"{named}:{port}"


@contextlib.contextmanager
def connection(kind: str, folder: Path) -> Iterator[tuple[socket.socket, socket.socket, str]]:
    """Yield both ends of a connection, the client's first, and the server's address."""
    with (
        listening(kind, folder) as (server, end, address),
        socket.socket(server.family) as client,
    ):
        client.connect(end)
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(WITHIN)
            yield client, accepted, address


@pytest.mark.parametrize("kind", ["IPv4", "mapped", "IPv6", "unix"])
def test_a_server_sees_the_end_of_a_process_whose_child_lives(
    child: Callable[[], None], tmp_path: Path, kind: str
):
    with connection(kind, tmp_path) as (client, accepted, address):
        cut_in_children(address)
        child()
        client.close()
        assert accepted.recv(1) == b""


@pytest.mark.parametrize("kind", ["IPv4", "mapped", "IPv6", "unix"])
def test_a_child_keeps_a_connection_that_is_the_users_own(tmp_path: Path, kind: str):
    cut_in_children("127.0.0.1:1")
    cut_in_children("unix:/nowhere")
    cut_in_children("dns:///only-grpc.invalid")
    with connection(kind, tmp_path) as (client, accepted, _):
        assert in_child(lambda: client.send(b"own") + 4) == 7
        assert accepted.recv(3) == b"own"


def test_a_connection_that_a_library_opens_ends_with_its_process_while_a_child_lives(
    child: Callable[[], None], tmp_path: Path
):
    with contextlib.ExitStack() as stack:
        own, own_far, _ = stack.enter_context(connection("IPv4", tmp_path))
        with opened_sockets_cut_in_children():
            client, accepted, _ = stack.enter_context(connection("IPv4", tmp_path))
        assert in_child(lambda: own.send(b"own") + 4) == 7
        assert own_far.recv(3) == b"own"
        child()
        client.close()
        assert accepted.recv(1) == b""


def test_a_child_keeps_a_socket_whose_descriptor_a_library_had_before(tmp_path: Path):
    near, far = socket.socketpair()
    with near, far:
        with opened_sockets_cut_in_children():
            descriptor = socket.socket().detach()
        os.dup2(near.fileno(), descriptor)  # which closes the library's
        try:
            assert in_child(lambda: os.write(descriptor, b"new") + 4) == 7
            assert far.recv(3) == b"new"
        finally:
            os.close(descriptor)


def test_a_child_that_closes_its_parents_server_leaves_the_server_running():
    with pbox.Server(cores=1, memory_bytes=1 << 20) as server:
        with only_client(server) as client:
            assert in_child(lambda: server.close() or 7) == 7
            client.push_pull([np.ones(8, np.float32)])
        until(lambda: not server.stats().reserved_bytes)


def child_of(client: pbox.Client) -> int:
    """Run the forked child of a client's process."""
    try:
        with client:
            client.push_pull([np.ones(8, np.float32)])
    except ClientClosed:
        return 7
    return 1
