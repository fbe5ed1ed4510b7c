"""How an exchange ends that cannot finish: the test plays the switch, over a real cable."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from switches import receive, udp_socket

from innet.errors import AllReduceError, JobEnded, SwitchUnreachable, WorkersMissing
from innet.host.link import Link, monotonic, open_link
from innet.host.transport import Patience, Seat, SwitchTransport
from innet.wire.frames import Address
from innet.wire.layout import Kind, Operation
from innet.wire.records import Records, packet_dtype

LANES, WITHIN = 64, 30.0
FRAME = packet_dtype(LANES, 42)
SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254")
SEAT = Seat(job=7, epoch=9, rank=0, workers=3, lanes=LANES, first_slot=16, slots=4)
CHUNKS = np.arange(2 * LANES, dtype=np.int32).reshape(2, LANES)


@dataclass
class Switch:
    """The test's end of the worker's cable."""

    sock: socket.socket
    link: Link

    def take(self) -> Records:
        """The next contribution."""
        return np.frombuffer(receive(self.sock), FRAME).copy()

    def answer(self, packet: Records, kind: Kind, workers: int = 0b111) -> None:
        packet["kind"], packet["workers"] = kind, workers
        self.sock.send(packet.tobytes())


@pytest.fixture
def switch() -> Iterator[Switch]:
    with udp_socket() as sock, udp_socket() as probe:
        (ip, port), (_, here) = probe.getsockname(), sock.getsockname()
        probe.close()
        sock.connect((ip, port))
        link = open_link(f"udp:{ip}:{port}/{ip}:{here}", SERVICE, LANES)
        yield Switch(sock, link)
        link.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def worker(switch: Switch, departed: Callable[[], Mapping[int, str]], silence: float = WITHIN):
    return SwitchTransport(
        switch.link, SEAT, monotonic, Patience(switch=silence, workers=WITHIN), departed
    )


def failure(future: "Future[np.ndarray]", kind: type[AllReduceError], why: str) -> None:
    error = future.exception(WITHIN)
    assert type(error) is kind
    assert str(error) == why


def test_who_leaves_after_contributing_is_not_missed(switch: Switch, pool: ThreadPoolExecutor):
    """The answer said who was missing; then they contributed and left; their result got lost."""
    times_asked = 0

    def departed() -> dict[int, str]:
        nonlocal times_asked
        times_asked += transport.traffic.packets_received > 0
        return {1: "it has left the job"} if times_asked > 1 else {}

    transport = worker(switch, departed)
    running = pool.submit(transport.all_reduce, CHUNKS[:1], Operation.SUM)
    switch.answer(switch.take(), Kind.PENDING, workers=0b001)
    switch.take()
    switch.answer(switch.take(), Kind.RESULT)
    assert running.result(WITHIN).tolist() == CHUNKS[:1].tolist()
    assert times_asked > 1


@pytest.mark.parametrize("arrived", [(0b101, 0b011), (0b011, 0b101)])
def test_who_left_without_contributing_to_one_of_the_chunks_is_named(switch, pool, arrived):
    transport = worker(switch, lambda: {1: "it has left the job"})
    running = pool.submit(transport.all_reduce, CHUNKS, Operation.SUM)
    first_slot = SEAT.first_slot
    # Only answers that come well after the departure count: go on as long as the worker asks.
    while not running.done():
        with contextlib.suppress(TimeoutError):
            packet = switch.take()
            switch.answer(packet, Kind.PENDING, arrived[int(packet["slot"][0]) - first_slot])
    failure(running, WorkersMissing, "the all-reduce cannot finish: worker 1: it has left the job")


def test_a_job_that_has_ended_says_so(switch: Switch, pool: ThreadPoolExecutor):
    transport = worker(switch, lambda: {0: "the job 'x' was deleted"})
    running = pool.submit(transport.all_reduce, CHUNKS, Operation.SUM)
    failure(running, JobEnded, "the job 'x' was deleted")


def test_answers_that_are_not_for_this_job_and_epoch_are_no_sign_of_life(switch, pool):
    transport = worker(switch, dict, silence=0.5)
    running = pool.submit(transport.all_reduce, CHUNKS[:1], Operation.SUM)
    packet = switch.take()
    for field in ("job", "epoch", "slot", "sequence"):
        foreign = packet.copy()
        foreign[field] += 1
        switch.answer(foreign, Kind.RESULT)
    assert isinstance(running.exception(WITHIN), SwitchUnreachable)


def test_after_a_failure_nothing_is_sent_any_more(switch: Switch, pool: ThreadPoolExecutor):
    def refuse(first: np.ndarray) -> None:
        assert first.tolist() == CHUNKS[0].tolist()
        raise AllReduceError("not this")

    transport = worker(switch, dict)
    running = pool.submit(transport.all_reduce, CHUNKS, Operation.MAX, refuse)
    switch.answer(switch.take(), Kind.RESULT)
    failure(running, AllReduceError, "not this")
    sent = transport.traffic.packets_sent
    failure(pool.submit(transport.all_reduce, CHUNKS, Operation.MAX), AllReduceError, "not this")
    assert transport.traffic.packets_sent == sent
