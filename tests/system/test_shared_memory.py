"""Cables in shared memory: exact sums, and ends that die, come late, or write rubbish."""

import contextlib
import fcntl
import itertools
import mmap
import os
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from epolls import epolls, watched
from faulty_job import faulty_job
from mortal import MortalSwitch, rack_of
from racks import Rack
from tiny_programs import program
from waiting import WITHIN

from innet.controller.state.registry import Policy
from innet.errors import UsageError
from innet.host.agent import Agent
from innet.host.link import open_link, shared_address
from innet.local.faults import Faults
from innet.switch.engine import Engine
from innet.switch.engine.counts import Count, PortCounts
from innet.switch.ports import open_port
from innet.wire.frames import Address

WORKERS = 3
SIZES = 1, 1000, 100_000
SERVICE = Address("02:00:00:00:00:fe", "10.0.255.254", 19790)
LANES = 64
RING_BYTES = 1 << 20
LARGE = (8 << 20) // 4 + 1000  # numbers; float_reducer.LARGE and more bytes
ELEMENTS = int(os.environ.get("INNET_SOAK_ELEMENTS", "50000"))
PIECE = 500_000


@pytest.fixture(scope="module")
def switch(tmp_path_factory) -> Iterator[MortalSwitch]:
    running = MortalSwitch(WORKERS + 1, folder=tmp_path_factory.mktemp("cables"))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def rack(switch) -> Iterator[Rack]:
    with rack_of(switch, policy=Policy(lease_s=WITHIN)) as running:
        yield running


@pytest.fixture(scope="module")
def wide_rack(tmp_path_factory) -> Iterator[Rack]:
    """Yield a rack whose packets have 1024 lanes."""
    switch = MortalSwitch(WORKERS, folder=tmp_path_factory.mktemp("wide"))
    try:
        with rack_of(switch, lanes=1024, policy=Policy(lease_s=WITHIN)) as running:
            yield running
    finally:
        switch.stop()


@contextlib.contextmanager
def workers(rack: Rack) -> Iterator[list[Agent]]:
    with rack.job(WORKERS) as job, contextlib.ExitStack() as stack:
        yield [stack.enter_context(rack.join(job, rank)) for rank in range(WORKERS)]


def check_sum(agents: list[Agent], size: int) -> None:
    """Sum vectors of integers, and compare with numpy's sum."""
    given = np.random.default_rng(size).integers(-1000, 1000, (WORKERS, size), np.int32)
    with ThreadPoolExecutor(WORKERS) as pool:
        sums = list(
            pool.map(lambda rank: agents[rank].all_reduce(given[rank], "sum"), range(WORKERS))
        )
    for each in sums:
        np.testing.assert_array_equal(each, given.sum(0))


def path_of(link: str) -> Path:
    return Path(link.removeprefix("shm:"))


def connected(link: str) -> tuple[socket.socket, list[int]]:
    """Connect to a port as a worker does. Return the connection, and the files that it brings."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(WITHIN)
    connection.connect(str(path_of(link)))
    _, files, *_ = socket.recv_fds(connection, 64, 3)
    return connection, files


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("in_place", [False, True])
def test_large_vectors_of_floats_are_exact(rack, op, in_place):
    given = np.random.default_rng(5).integers(-999, 999, (WORKERS, LARGE)).astype(np.float32)
    wanted = given.sum(0) if op == "sum" else given.sum(0) / np.float32(WORKERS)
    with workers(rack) as agents:
        calls = [
            agent.submit(own.copy(), op, in_place=in_place)
            for agent, own in zip(agents, given, strict=True)
        ]
        for each in calls:
            np.testing.assert_array_equal(each.result(), wanted)


def test_large_vectors_of_integers_are_exact(rack):
    with workers(rack) as agents:
        check_sum(agents, LARGE)


def test_sums_are_exact(rack):
    with workers(rack) as agents:
        for size in SIZES:
            check_sum(agents, size)


def faults_change_no_sum(rack: Rack, seed: int, faults: Faults) -> None:
    with faulty_job(rack, WORKERS, 64, seed=seed, faults=faults) as job:
        for done in range(0, ELEMENTS, PIECE):
            job.sum(min(PIECE, ELEMENTS - done))
        counts = job.wiring.total()
    assert min(counts.dropped, counts.duplicated, counts.delayed, counts.corrupted) > 0


@pytest.mark.timeout(4 * 3600)
def test_faults_in_a_cable_change_no_sum(rack):
    faults_change_no_sum(rack, seed=5, faults=Faults.all(0.01))


@pytest.mark.timeout(4 * 3600)
def test_faults_change_no_sum_in_packets_of_1024_lanes(wide_rack):
    faults_change_no_sum(wide_rack, seed=6, faults=Faults.all(0.05))


def test_large_vectors_in_packets_of_1024_lanes_are_exact(wide_rack):
    with workers(wide_rack) as agents:
        check_sum(agents, LARGE)
        given = np.random.default_rng(7).integers(-999, 999, (WORKERS, LARGE)).astype(np.float32)
        calls = [
            agent.submit(own.copy(), "sum", in_place=True)
            for agent, own in zip(agents, given, strict=True)
        ]
        for each in calls:
            np.testing.assert_array_equal(each.result(), given.sum(0))


def test_a_switch_that_was_killed_and_started_again_is_found(rack):
    with workers(rack) as agents:
        check_sum(agents, 1000)
        rack.switch.kill()
        rack.switch.start()
        check_sum(agents, 1000)


def test_a_port_takes_the_next_worker_when_one_has_ended(rack):
    for _ in range(3):
        with workers(rack) as agents:
            check_sum(agents, 100)


def test_an_agent_may_be_closed_again(rack):
    with workers(rack) as agents:
        check_sum(agents, 1)
        for _ in range(2):
            agents[0].close()


def test_a_port_has_one_worker(rack):
    with workers(rack), pytest.raises(UsageError, match="another worker is connected"):
        open_link(rack.links[0], SERVICE, LANES)


def test_rubbish_from_a_worker_costs_the_others_nothing(rack):
    chance = np.random.default_rng(1)
    connection, files = connected(rack.links[WORKERS])
    with (
        connection,
        workers(rack) as agents,
        mmap.mmap(files[0], os.fstat(files[0]).st_size) as memory,
    ):
        over = threading.Event()

        def write() -> None:
            for _ in itertools.takewhile(lambda _: not over.is_set(), range(10_000)):
                start, size = (
                    chance.integers(0, len(memory) - (1 << 14)),
                    chance.integers(1, 1 << 14),
                )
                memory[start : start + size] = chance.bytes(size)
                memory[:128] = chance.bytes(128)  # the positions in the ring
                os.eventfd_write(files[1], 1)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for size in SIZES:
                check_sum(agents, size)
        finally:
            over.set()
            writer.join()
    for each in files:
        os.close(each)
    assert rack.switch.process.poll() is None


def test_an_empty_frame_does_not_end_the_frames_behind_it(tmp_path):
    port = open_port(f"2@shm:{tmp_path / '2'}")
    engine = Engine(program("path_truncate").json)
    with contextlib.closing(port), contextlib.closing(engine):
        engine.start([port])
        connection, files = connected(port.spec)
        whole = struct.pack("!BHHH", 0, 0, 0, 0) + bytes(range(20))
        empty = struct.pack("!BHHH", 1, 0, 0, 0)  # the program cuts it to no bytes
        with connection, mmap.mmap(files[0], os.fstat(files[0]).st_size) as memory:
            for frame in (empty, whole):
                engine.exercise(1, frame, 1)
            down = memory[len(memory) // 2 :]
        length = int.from_bytes(down[128:132], "little")
        assert down[136 : 136 + length] == whole
        assert engine.port_counts(2) == PortCounts(Count(0, 0), Count(1, len(whole)), 1)
    for each in files:
        os.close(each)


def test_a_worker_that_keeps_its_files_does_not_keep_the_switch_busy(tmp_path):
    """A child of the worker may have them, too. Without a reader, an eventfd would wake for ever."""
    others = epolls()  # gRPC's
    port = open_port(f"1@shm:{tmp_path / '1'}")
    engine = Engine(program("path_truncate").json)
    with contextlib.closing(port), contextlib.closing(engine):
        engine.start([port])
        kept: list[int] = []
        before = watched(others)
        for _ in range(3):
            files: list[int] = []
            while not files:  # the switch may not have forgotten the last worker yet
                connection, files = connected(port.spec)
                engine.port_counts(1)  # waits for the packet loop, which has just taken the worker
                there = watched(others)
                connection.close()
            kept += files
            assert there == before + 1
    for each in kept:
        os.close(each)


def test_the_memory_cannot_be_shrunk(rack):
    connection, files = connected(rack.links[WORKERS])
    with connection, pytest.raises(PermissionError):
        os.ftruncate(files[0], 0)
    for each in files:
        os.close(each)


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Yield the socket of a switch that is yet to answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(WITHIN)
        yield server


def offered(
    server: socket.socket, memory: int, size: int, version: int = 2, cores: int = 1
) -> socket.socket:
    """Take one worker, and pass this memory on. Return the connection."""
    peer, _ = server.accept()
    bells = [os.eventfd(1, os.EFD_NONBLOCK) for _ in range(cores)]
    socket.send_fds(peer, [np.array([version, size], np.uint32).tobytes()], [memory, *bells])
    for each in bells:
        os.close(each)
    return peer


def sealed_memory(size: int) -> int:
    memory = os.memfd_create("cable", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, size)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return memory


CABLE_BYTES = 2 * (128 + RING_BYTES)


@pytest.mark.parametrize("case", ["version", "size", "not sealed"])
def test_another_switch_is_refused(tmp_path, case):
    size = CABLE_BYTES - (4096 if case == "size" else 0)
    memory = sealed_memory(size)
    if case == "not sealed":
        memory = os.memfd_create("cable", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, size)
    with listening(tmp_path / "1") as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(offered, server, memory, CABLE_BYTES, 1 if case == "version" else 2)
        with pytest.raises(UsageError, match="another version"):
            open_link(f"shm:{tmp_path / '1'}", SERVICE, LANES)
        answer.result().close()
    os.close(memory)


def test_rubbish_from_a_switch_does_a_worker_no_harm(tmp_path):
    chance = np.random.default_rng(2)
    memory = sealed_memory(CABLE_BYTES)
    with listening(tmp_path / "1") as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(offered, server, memory, CABLE_BYTES)
        with contextlib.closing(open_link(f"shm:{tmp_path / '1'}", SERVICE, LANES)) as link:
            peer = answer.result()
            with peer, mmap.mmap(memory, CABLE_BYTES) as shared:
                for _ in range(100):
                    shared[:] = chance.bytes(CABLE_BYTES)
                    assert len(link.receive()) == 0
                    link.send(np.zeros(3, link.dtype))
                    link.wait(0)
    os.close(memory)


def test_a_worker_takes_the_packets_of_all_cores_at_once(tmp_path):
    """It may pause before each look, so that a look for each core would take several pauses."""
    cores, ring, data = 3, 128 + RING_BYTES, 128
    memory = sealed_memory(cores * CABLE_BYTES)
    with listening(tmp_path / "1") as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(offered, server, memory, cores * CABLE_BYTES, cores=cores)
        with (
            contextlib.closing(open_link(f"shm:{tmp_path / '1'}", SERVICE, LANES)) as link,
            answer.result(),
            mmap.mmap(memory, cores * CABLE_BYTES) as shared,
        ):
            for sent in (1, 2, 3):  # in all
                link.send(np.zeros(1, link.dtype))
                (head,) = struct.unpack_from("Q", shared, 0)
                frames = shared[data : data + head]
                for core in range(cores):  # each returns what core 0 has been given, as it is
                    down = (2 * core + 1) * ring
                    shared[down + data : down + data + head] = frames
                    struct.pack_into("Q", shared, down, head)
                assert len(link.receive()) == 0  # they do not come from the switch's address
                assert link.corrupted == cores * sent
    os.close(memory)


@pytest.mark.parametrize(
    ("left", "said"), [(False, "no switch has made this socket"), (True, "has ended")]
)
def test_without_a_switch_a_link_says_so(tmp_path, left, said):
    path = tmp_path / "1"
    if left:
        with listening(path):
            pass
    with pytest.raises(UsageError, match=said):
        open_link(f"shm:{path}", SERVICE, LANES)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: root")
def test_a_user_who_may_not_use_the_switchs_socket_learns_what_to_do(tmp_path):
    with listening(tmp_path / "1"):
        with pytest.raises(
            UsageError, match="no switch has made"
        ):  # this loads the library as root
            open_link(f"shm:{tmp_path / '2'}", SERVICE, LANES)
        os.seteuid(12345)
        try:
            with pytest.raises(UsageError, match="this user may not write to the switch's socket"):
                open_link(f"shm:{tmp_path / '1'}", SERVICE, LANES)
        finally:
            os.seteuid(0)


def test_a_socket_that_a_dead_switch_has_left_is_replaced(tmp_path):
    with listening(tmp_path / "1"):
        pass
    with contextlib.closing(open_port(f"1@shm:{tmp_path / '1'}")):
        assert (tmp_path / "1").is_socket()
    assert not (tmp_path / "1").exists()


def test_a_path_in_use_is_refused(tmp_path):
    path = tmp_path / "1"
    with contextlib.closing(open_port(f"1@shm:{path}")), pytest.raises(UsageError, match="in use"):
        open_port(f"1@shm:{path}")
    path.write_text("mine")
    with pytest.raises(UsageError, match="in use"):
        open_port(f"1@shm:{path}")
    assert path.read_text() == "mine"


def test_a_path_that_is_too_long_is_refused(tmp_path):
    long = f"shm:{tmp_path / ('x' * 120)}"
    with pytest.raises(UsageError, match="too long"):
        open_port(f"1@{long}")
    with pytest.raises(UsageError, match="too long"):
        open_link(long, SERVICE, LANES)


def test_every_path_has_an_address_of_its_own():
    addresses = [shared_address(Path(f"/run/innet/{number}")) for number in range(1000)]
    assert len({each.mac for each in addresses}) == 1000
    assert all(128 <= int(each.ip.split(".")[1]) < 192 for each in addresses)


def test_a_path_has_another_address_on_another_machine(monkeypatch):
    # Switches of one tree may be on several machines with the same paths.
    path = Path("/run/innet/1")
    here = shared_address(path)
    assert shared_address(path) == here
    monkeypatch.setattr("innet.host.link.boot_id", lambda: "another")
    assert shared_address(path).mac != here.mac
