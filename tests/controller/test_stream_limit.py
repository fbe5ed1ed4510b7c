"""Nobody can take all of the controller's streams, so that workers of other jobs can always join."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from mortal import mortal_switch, rack_of
from racks import Rack
from scripted_worker import WITHIN, scripted
from working_job import LONG, at_work, eventually

from innet.controller import server
from innet.controller import stream_limit as openings
from innet.controller.state.registry import Policy
from innet.controller.state.streams import Stream
from innet.controller.stream_limit import OpenStreams
from innet.errors import NoCapacity
from innet.machine.tcp import TcpConnection
from innet.rpc import innet_pb2 as pb

MOST = 6


@pytest.fixture
def tor(monkeypatch) -> Iterator[Rack]:
    """Yield a rack whose controller serves few workers at a time."""
    monkeypatch.setattr(server, "most_open_streams", lambda: MOST)
    with mortal_switch(3) as switch, rack_of(switch, policy=Policy(lease_s=LONG)) as rack:
        yield rack


@contextlib.contextmanager
def asking(rack: Rack, *joins: pb.JoinRequest) -> Iterator[Any]:
    """Yield a stream with only these messages. It sets `ended` when it ends."""
    said: queue.SimpleQueue[pb.WorkerMessage | None] = queue.SimpleQueue()
    for each in joins:
        said.put(pb.WorkerMessage(join=each))
    call = rack.stub.Join(iter(said.get, None))
    ended = threading.Event()
    call.ended = ended
    if not call.add_callback(ended.set):
        ended.set()
    try:
        yield call
    finally:
        said.put(None)
        call.cancel()


def test_streams_on_which_nothing_is_said_give_way_to_workers(tor: Rack):
    with contextlib.ExitStack() as stack:
        calls = [stack.enter_context(asking(tor)) for _ in range(3 * MOST)]
        eventually(lambda: sum(call.ended.is_set() for call in calls) == 2 * MOST)
        for call in calls:
            if call.ended.is_set():
                assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                assert (
                    call.details()
                    == "no JoinRequest has come, and others want to join: send it first"
                )
        with at_work(tor, 2):
            pass


def test_a_rank_that_has_left_is_waited_for_once_and_other_jobs_can_join(tor: Rack):
    with at_work(tor, 2) as (first, second), contextlib.ExitStack() as stack:
        second.vanish()
        assert first.hear("departure").rank == 1
        request = pb.JoinRequest(job=first.job, rank=1, token=tor.tokens[first.job])
        calls = []
        for number in range(2 * MOST):
            calls.append(stack.enter_context(asking(tor, request)))
            eventually(lambda n=number: sum(call.ended.is_set() for call in calls) == n)
        refused = [call.details() for call in calls if call.ended.is_set()]
        assert all("waits for the next run" in each for each in refused)
        with tor.job(1) as other, scripted(tor, other, 0, port=3) as worker:
            worker.settle()


def test_streams_of_a_job_that_are_not_closed_yet_are_bounded(tor: Rack, monkeypatch):
    monkeypatch.setattr(openings, "MOST_PER_JOB", 1)
    with tor.job(2) as job, scripted(tor, job, 0) as worker:
        worker.settle()
        with scripted(tor, job, 1) as other:
            other.invited()
            with pytest.raises(NoCapacity, match="has 1 open streams"):
                other.next_event()
        eventually(lambda: [*tor.show(job).joined] == [0])


def test_the_host_with_most_silent_streams_gives_way_first():
    asyncio.run(_fill_and_make_room())


async def _fill_and_make_room():
    streams, made = OpenStreams(3), [Stream(TcpConnection()) for _ in range(4)]
    for stream, host in zip(made, ("a", "b", "b", "c"), strict=True):
        streams.open(stream, host)
    with pytest.raises(NoCapacity, match="no JoinRequest has come"):
        await anext(made[1].events(WITHIN))
    for stream in (made[0], made[2], made[3]):
        streams.heard(stream)
    with pytest.raises(NoCapacity, match="3 workers have joined, as many as the controller serves"):
        streams.open(Stream(TcpConnection()), "a")
    streams.close(made[0])
    streams.open(Stream(TcpConnection()), "a")
