"""Jobs that sum a slice for a larger group: all that people read has the workers' ranks in the group."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from racks import Rack, rack
from structlog.testing import capture_logs
from told import Told, where

from innet.controller.jobs.events import EndStream, Progress
from innet.controller.state.waits import Waits
from innet.errors import AlreadyExists, NotFound, UsageError
from innet.observe.capture import select
from innet.rpc import innet_pb2 as pb
from innet.rpc.group_ranks import in_group, ranks

GROUP = (5, 9, 7)


def slice_job() -> Told:
    """Return a running job whose workers are the ranks 5, 9 and 7 of a group."""
    told = Told(3, min_workers=2, group_ranks=GROUP)
    told.switch_changed(None)
    told.seat(0, 1, 2)
    return told


def trouble(told: Told) -> str:
    told.do("trouble", 101, told.job.term, "no answer")
    return told.job.terms.why


def unready(told: Told) -> str:
    told.do("trouble", 100, told.job.term, "no answer")
    told.do("ready", 100, told.job.term, 0)
    told.do("ready", 102, told.job.term, 0)
    told.now = 1000.0  # the switch is no longer avoided
    return told.job.terms.reason(told.now)


def moved(told: Told) -> str:
    told.do("hello", 101, where(1, port=40))
    return told.job.terms.why


def left(told: Told) -> str:
    told.do("leave", 101, "it has left the job")
    return told.job.terms.why


def same_address(told: Told) -> str:
    for nonce in (102, 100, 101):
        told.do("leave", nonce, "it has left the job")
    told.join(1)
    told.do("hello", 101, where(1))
    told.join(2)
    told.do("hello", 102, where(1))
    [end] = [each for each in told.last if isinstance(each, EndStream)]
    return str(end.problem)


def taken(told: Told) -> str:
    with pytest.raises(AlreadyExists) as refused:
        told.join(1)
    return str(refused.value)


@pytest.mark.parametrize("happens", [trouble, unready, moved, left, same_address, taken])
def test_what_a_job_says_names_the_rank_in_the_group(happens: Callable[[Told], str]):
    said = happens(slice_job())
    assert re.findall(r"worker (\d+)", said) == ["9"], said


def test_those_without_a_fallback_are_named_by_their_ranks_in_the_group():
    told = Told(3, group_ranks=GROUP)
    told.switch_changed(None)
    told.seat(0, 2, fallback=True)
    told.seat(1)
    assert told.job.roster.no_fallback == "some workers have no fallback: 9"


def test_the_log_names_those_waited_for_by_their_ranks_in_the_group():
    told, waits = slice_job(), Waits()
    for rank, exchange in enumerate((7, 6, 7)):
        told.do("heartbeat", 100 + rank, Progress(exchange=exchange, busy=True, stuck_s=6.0))
    waits.follow(told.job, told.now)
    told.now = 5.0
    for rank, exchange in enumerate((7, 6, 7)):
        told.do("heartbeat", 100 + rank, Progress(exchange=exchange, busy=True, stuck_s=11.0))
    with capture_logs() as log:
        waits.follow(told.job, told.now)
    assert [each["waited_for"] for each in log] == [[9]]


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(2) as running:
        yield running


@pytest.mark.parametrize(
    "numbers", [[3], [3, 4, 5], [3, 3], [0, 1 << 31], [0, (1 << 32) - 1]], ids=str
)
def test_ranks_that_are_not_a_different_one_for_each_worker_are_refused(
    tor: Rack, numbers: list[int]
):
    with (
        pytest.raises(UsageError, match="of a group, 2 workers: send one for each worker"),
        tor.job(2, group_ranks=numbers),
    ):
        pass


def test_a_client_that_sends_no_ranks_of_a_group_has_those_of_the_job(tor: Rack):
    with capture_logs() as log, tor.workers(2) as agents:
        [job] = tor.tokens
        assert in_group(tor.show(job)).joined == [0, 1]
        agents[1].close()
    assert [each["rank"] for each in log if each["event"] == "worker joined"] == [0, 1]


def test_a_workers_packets_are_captured_by_its_rank_in_the_group(tor: Rack):
    with tor.workers(2, group_ranks=[3, 8]) as agents:
        [*_, job] = tor.tokens
        shown = in_group(tor.show(job))
        assert [each.rank for each in shown.members] == [*shown.joined] == [3, 8]
        address = shown.members[1].address
        assert address.ip == agents[1]._link.ip
        assert select(shown, 8).worker == (address.ip, address.udp_port)
        with pytest.raises(NotFound, match="no admitted worker of rank 1"):
            select(shown, 1)


def test_whatever_a_worker_reports_as_missing_is_shown_if_the_job_has_it():
    members = [pb.WorkerStatus(rank=0, progress=pb.Progress(missing=[1, 2, 9, 1 << 31]))]
    job = pb.Job(workers=2, group_ranks=[1, 9], members=members, waiting_for=[1])
    shown: Any = in_group(job)
    assert [*shown.members[0].progress.missing] == [9]
    assert ([*shown.waiting_for], ranks(shown)) == ([9], (1, 9))
    assert job.members[0].rank == 0
