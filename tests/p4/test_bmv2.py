"""The same program, controller and agents give the same bits on BMv2 and on the embedded switch.

On each of three networks every worker must get the exact sum, so all three agree: the embedded switch
on cables made of UDP, the embedded switch on network interfaces, and BMv2 on network interfaces.
"""

import contextlib
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from bmv2 import BMV2, exact_mean, gathered_chunks, running, running_switch
from emulations import programs
from paths import SUPPORT
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from innet.controller.server import ControllerServer
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc.client import connect
from topologies import namespaces

WORKERS = 3
ALL_REDUCE = SUPPORT / "all_reduce.py"


@dataclass(frozen=True)
class Network:
    """A running switch without a program, and the places of its workers.

    `address` is where the switch serves P4Runtime, and `links` are the workers' links for ``join``.
    A command that starts with ``at[rank]`` runs at the worker's place.
    """

    address: str
    links: list[str]
    at: list[list[str]]


Start = Callable[[Path], contextlib.AbstractContextManager[Network]]


@contextlib.contextmanager
def cables(folder: Path) -> Iterator[Network]:
    """Run the embedded switch on cables made of UDP, which need no privileges."""
    own = f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}"  # its ports are all free
    near = [f"{own}.1:{9000 + number}" for number in range(1, WORKERS + 1)]
    far = [f"{own}.2:{8000 + number}" for number in range(1, WORKERS + 1)]
    ports = [f"udp:{a}/{b}" for a, b in zip(near, far, strict=True)]
    links = [f"udp:{b}/{a}" for a, b in zip(near, far, strict=True)]
    with running_switch([], [str(programs() / "innet-switch")], ports, folder) as address:
        yield Network(address, links, [[]] * WORKERS)


@contextlib.contextmanager
def innet_switch(folder: Path) -> Iterator[Network]:
    """Run the embedded switch on network interfaces."""
    with on_interfaces([str(programs() / "innet-switch")], folder) as network:
        yield network


@contextlib.contextmanager
def bmv2(folder: Path) -> Iterator[Network]:
    """Run BMv2's simple_switch on network interfaces."""
    if not shutil.which(BMV2):
        pytest.skip(f"there is no {BMV2} (BMv2) on the PATH")
    with on_interfaces([BMV2], folder) as network:
        yield network


@contextlib.contextmanager
def on_interfaces(command: list[str], folder: Path) -> Iterator[Network]:
    if reason := namespaces.unavailable():
        pytest.skip(reason)
    interfaces = [f"eth{number}" for number in range(1, WORKERS + 1)]
    with (
        namespaces.rack(WORKERS) as rack,
        running_switch(namespaces.inside(rack.switch), command, interfaces, folder) as address,
    ):
        yield Network(address, ["host"] * WORKERS, [namespaces.inside(w) for w in rack.workers])


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, rpc.ControllerStub]]:
    """Run a controller in this process. Yields its address, visible in all namespaces, and a client."""
    address = f"unix:{folder}/controller"
    server = ControllerServer(address)
    channel, stub = connect(address)
    try:
        yield address, stub
    finally:
        channel.close()
        server.close()


def gradients(rank: int) -> list[np.ndarray]:
    """Return vectors of one worker that a switch or a network could get wrong."""
    rng = np.random.default_rng([20, rank])
    whole, tiny, small, large, spoilt = rng.standard_normal((5, 5_000), np.float32)
    spoilt[[17, 2_000 + rank, 4_999]] = [np.nan, np.inf, -np.inf]
    exponents = rng.integers(-149, 127, 5_000).astype(np.int32)
    return [
        rng.standard_normal(20_000, np.float32),
        whole[:0],
        whole[:1],
        whole[:65],
        np.ldexp(tiny, -140),  # denormals
        small * np.float32(1000.0 ** (rank - 1)),
        np.ldexp(large.clip(-1, 1), exponents),  # blocks and workers differ in size
        np.full(257, np.finfo(np.float32).max * (-1) ** rank, np.float32),
        spoilt,
    ]


def chunks(elements: int, lanes: int) -> int:
    """Return the chunks of an all-reduce: those of four words and the exponents, then the blocks."""
    if small := gathered_chunks(elements, WORKERS, lanes):
        return small
    vector = -(-elements // lanes)
    return -(-(vector + 4) // lanes) + vector


def all_reduce(
    network: Network, controller: str, token: str, folder: Path, given: list[list[np.ndarray]]
) -> list[list[np.ndarray]]:
    """Run a process at each worker's place that reduces its vectors. Returns each worker's means."""
    with contextlib.ExitStack() as stack:
        workers = []
        for rank, vectors in enumerate(given):
            np.savez(folder / f"{rank}.npz", *vectors)
            files = [str(folder / f"{rank}.npz"), str(folder / f"means-{rank}.npz")]
            seat = [controller, "job", str(rank), network.links[rank], *files]
            command = [*network.at[rank], str(programs() / "python"), str(ALL_REDUCE), *seat]
            workers.append(stack.enter_context(running(command, INNET_TOKEN=token)))
        assert ended(workers) == [0] * len(given)
    means = []
    for rank in range(len(given)):
        with np.load(folder / f"means-{rank}.npz") as file:
            means.append([file[name] for name in file.files])
    return means


def ended(workers: list[subprocess.Popen[str]]) -> list[int]:
    """Return the exit codes of all workers. One that fails ends the others, which would wait for it."""
    with ThreadPoolExecutor(len(workers)) as pool:
        for code in as_completed([pool.submit(worker.wait) for worker in workers]):
            if code.result():
                for worker in workers:
                    worker.terminate()
    return [worker.wait() for worker in workers]


def open_job(stub: rpc.ControllerStub, network: Network, lanes: int) -> str:
    """Open a job. Returns the token that its workers need."""
    ports = range(1, WORKERS + 1)
    stub.AddSwitch(
        pb.AddSwitchRequest(name="tor", grpc_address=network.address, ports=ports, lanes=lanes)
    )
    request = pb.CreateJobRequest(name="job", switch="tor", workers=WORKERS, slots=32)
    return stub.CreateJob(request).token


def assert_exact(means: list[list[np.ndarray]], given: list[list[np.ndarray]], lanes: int) -> None:
    wanted = [exact_mean(vectors, lanes).tobytes() for vectors in zip(*given, strict=True)]
    for got in means:
        assert [mean.tobytes() for mean in got] == wanted


# Packets with 1024 lanes do not fit the MTU of Ethernet.
NETWORKS = [(start, lanes) for start in (cables, innet_switch, bmv2) for lanes in (64, 256)]


@pytest.mark.parametrize(("start", "lanes"), [*NETWORKS, (cables, 1024)])
def test_every_worker_gets_the_exact_sum_and_the_switch_made_it(
    start: Start, lanes: int, tmp_path: Path
):
    given = [gradients(rank) for rank in range(WORKERS)]
    with start(tmp_path) as network, serving(tmp_path) as (controller, stub):
        token = open_job(stub, network, lanes)
        means = all_reduce(network, controller, token, tmp_path, given)
        counters = stub.GetJob(pb.GetJobRequest(name="job")).counters
    assert_exact(means, given, lanes)
    needed = sum(chunks(vector.size, lanes) for vector in given[0])
    # BMv2 on a busy machine may be silent so long that the workers repeat an exchange.
    again = counters.completed - needed
    assert again == 0 or (start is bmv2 and again > 0)
    assert counters.waiting >= counters.completed * (WORKERS - 1)


def test_a_new_controller_takes_over_a_bmv2_that_runs_another_program(tmp_path: Path):
    given = [gradients(rank)[2:4] for rank in range(WORKERS)]
    with bmv2(tmp_path) as network:
        for lanes in (64, 256):
            with serving(tmp_path) as (controller, stub):
                token = open_job(stub, network, lanes)
                means = all_reduce(network, controller, token, tmp_path, given)
                assert_exact(means, given, lanes)


SERVE = """
import socket
with socket.create_server(("", 5000)) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    with connection:
        connection.sendall(bytes(range(256)) * 400)
"""
FETCH = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000), 20) as connection:
    while data := connection.recv(1 << 16):
        sys.stdout.buffer.write(data)
"""
CATCH = """
import sys
from scapy.layers import l2
from scapy.sendrecv import sniff
listening = lambda: print("listening", flush=True)
wanted = lambda frame: frame.dst == sys.argv[1]
[frame] = sniff(iface="eth0", count=1, timeout=250, started_callback=listening, lfilter=wanted)
print(bytes(frame).hex())
"""
THROW = """
import sys
from scapy.sendrecv import sendp
sendp(bytes.fromhex(sys.argv[1]), iface="eth0", verbose=False)
"""


def python(script: str, *arguments: str) -> list[str]:
    return [str(programs() / "python"), "-c", script, *arguments]


@contextlib.contextmanager
def listening(command: list[str]) -> Iterator[IO[str]]:
    """Start a command and wait until it listens. Yields the rest of its output."""
    with running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == "listening\n"
        yield process.stdout


def fetch(network: Network, rank: int, other: int) -> bytes:
    """Return the bytes that a worker fetches from another one over TCP."""
    with listening([*network.at[other], *python(SERVE)]):
        command = [*network.at[rank], *python(FETCH, f"10.0.0.{other + 1}")]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("start", [innet_switch, bmv2])
def test_ordinary_traffic_is_forwarded_before_and_after_hosts_are_known(
    start: Start, tmp_path: Path
):
    with start(tmp_path) as network, serving(tmp_path) as (controller, stub):
        token = open_job(stub, network, 64)
        assert fetch(network, 0, 1) == bytes(range(256)) * 400
        all_reduce(network, controller, token, tmp_path, [[np.ones(1, np.float32)]] * WORKERS)
        assert fetch(network, 2, 0) == bytes(range(256)) * 400


@pytest.mark.parametrize("start", [innet_switch, bmv2])
def test_frames_of_other_protocols_and_vlans_cross_the_switch_unchanged(
    start: Start, tmp_path: Path
):
    ethernet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:09")
    with start(tmp_path) as network, serving(tmp_path) as (_, stub):
        open_job(stub, network, 64)
        for frame in (ethernet / Raw(bytes(100)), ethernet / Dot1Q(vlan=7, prio=3) / IPv6()):
            with listening([*network.at[1], *python(CATCH, frame.dst)]) as caught:
                throw = python(THROW, bytes(frame).hex())
                subprocess.run([*network.at[0], *throw], check=True)
                assert caught.readline().strip() == bytes(frame).hex()
