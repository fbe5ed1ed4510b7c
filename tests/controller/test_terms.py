"""Terms from end to end: a controller, a real switch, and workers that follow the test's script.

The workers' packets go through the switch. A correct sum shows that a term works.
"""

import threading
from collections.abc import Iterator

import grpc
import pytest
from mortal import MortalSwitch, mortal_switch, rack_of
from racks import Rack
from scripted_worker import WITHIN, scripted
from working_job import FALLBACK, LONG, SHORT, SWITCH, assert_sums, at_work, eventually, renew

from innet.controller.state.registry import Policy
from innet.errors import AlreadyExists, NotAuthorized, NotFound, UsageError
from innet.rpc import innet_pb2 as pb


@pytest.fixture(scope="module")
def switch() -> Iterator[MortalSwitch]:
    with mortal_switch(4) as running:
        yield running


@pytest.fixture(scope="module")
def tor(switch: MortalSwitch) -> Iterator[Rack]:
    with rack_of(switch, policy=Policy(lease_s=LONG)) as rack:
        yield rack


@pytest.fixture
def brief(switch: MortalSwitch) -> Iterator[Rack]:
    """Yield a separate rack whose workers have short leases."""
    with mortal_switch(4) as own, rack_of(own, policy=Policy(lease_s=SHORT)) as rack:
        yield rack


def test_workers_join_and_sum(tor: Rack):
    with at_work(tor, 3) as workers:
        assert {each.resume.term for each in workers} == {workers[0].resume.term}
        for sequence in (1, 2, 3):
            assert_sums(workers, sequence)


def test_a_worker_may_begin_before_the_others_are_there(tor: Rack):
    with tor.job(2) as job, scripted(tor, job, 1) as early:
        early.settle()
        early.contribute(0, 1, 5)
        with scripted(tor, job, 0) as late:
            assert late.settle() == early.resume
            late.contribute(0, 1, 6)
            assert early.result()["lanes"][0] == late.result()["lanes"][0] == 11


def test_trouble_begins_a_term_in_which_all_cells_are_clear(tor: Rack):
    with at_work(tor) as workers:
        first, second = workers
        assert_sums(workers, 1)
        first.contribute(0, 2, 1000)
        first.trouble("silence")
        assert workers[0].hear("recover").reason == "worker 0: silence"
        first.ready(1)
        renew([second], 1)
        for each in workers:
            resume = each.hear("resume")
            assert (resume.path, resume.exchange, resume.shared) == (SWITCH, 1, False)
        assert_sums(workers, 1)  # the contribution of 1000 is not in the sum


def test_what_only_some_have_finished_is_shared(tor: Rack):
    with at_work(tor) as workers:
        workers[1].trouble()
        renew(workers, 7, 6)
        for each in workers:
            resume = each.hear("resume")
            assert (resume.exchange, resume.shared) == (6, True)


def test_packets_of_an_older_term_are_refused(tor: Rack):
    with at_work(tor) as workers:
        old = workers[0].resume
        workers[0].trouble()
        renew(workers, 0, 0)
        for each in workers:
            each.hear("resume")
        new, workers[0].resume = workers[0].resume, old
        before = refused(tor, port=1)
        workers[0].contribute(0, 9, 99)
        eventually(lambda: refused(tor, port=1) == before + 1)
        workers[0].resume = new
        assert_sums(workers, 1)


def refused(tor: Rack, port: int) -> int:
    """Return the number of packets that the switch refused at a port."""
    shown = tor.stub.GetSwitch(pb.GetSwitchRequest(name="tor"))
    return next(each.refused for each in shown.port_counters if each.port == port)


def test_who_leaves_is_named_and_its_packets_are_refused(tor: Rack):
    with at_work(tor, 3) as workers:
        first, second, third = workers
        second.leave()
        second.hear_last()
        for each in (first, third):
            departure = each.hear("departure")
            assert (departure.rank, departure.reason) == (1, "it has left the job")
        before = refused(tor, port=2)

        def is_refused() -> bool:
            second.contribute(0, 1, 1)
            return refused(tor, port=2) > before

        # The other workers know at once, the switch a moment later.
        eventually(is_refused)


def test_the_seats_of_a_generation_are_free_when_all_have_left(tor: Rack):
    with at_work(tor) as (first, second):
        first.vanish()
        second.hear("departure")
        with scripted(tor, first.job, 0, port=3) as third:
            term = second.resume.term
            assert tor.show(first.job).term == term
            second.vanish()
            assert third.settle().term != term


def test_a_job_that_is_deleted_ends_for_its_workers(tor: Rack):
    with at_work(tor) as workers:
        tor.delete(workers[0].job)
        for each in workers:
            departure = each.hear("departure")
            assert departure.rank == each.rank
            assert "was deleted" in departure.reason
            each.hear_last()


def test_only_the_jobs_own_token_lets_a_worker_in(tor: Rack):
    with at_work(tor) as workers, tor.job(2) as other:
        job = workers[0].job
        before = tor.show(job)
        for token in ("", "wrong", tor.tokens[other]):
            for nonce in (0, workers[0].nonce):
                with (
                    scripted(tor, job, 0, port=3, token=token, nonce=nonce) as stranger,
                    pytest.raises(NotAuthorized, match="INNET_TOKEN"),
                ):
                    stranger.hear("invitation")
        after = tor.show(job)
        for each in (*before.members, *after.members):
            each.silent_s = each.unreachable_s = 0  # they change all the time
        assert after == before
        assert all(each.quiet() for each in workers)
        assert_sums(workers, 1)


def test_a_stay_that_is_over_does_not_go_on(tor: Rack):
    with (
        tor.job(2) as job,
        scripted(tor, job, 0, nonce=12345) as worker,
        pytest.raises(NotFound, match=f"this worker has left the job {job!r} meanwhile"),
    ):
        worker.hear("invitation")


def test_a_worker_that_comes_back_takes_its_seat_from_its_old_stream(tor: Rack):
    with at_work(tor) as workers:
        first, second = workers
        old, nonce = first.come_back(), first.nonce
        assert first.invited().nonce == nonce
        first.hear("admission")
        assert first.hear("resume") == second.resume
        assert isinstance(old.get(timeout=WITHIN), AlreadyExists)
        assert second.quiet()
        assert_sums(workers, 1)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"heartbeat": pb.Heartbeat()}, "has to begin with a JoinRequest"),
        ({"ready": pb.Ready()}, "has to begin with a JoinRequest"),
        ({"trouble": pb.Trouble()}, "has to begin with a JoinRequest"),
        ({}, "has to begin with a JoinRequest"),
        ({"join": pb.JoinRequest(job="x" * 65)}, "is not a name for a job"),
        ({"join": pb.JoinRequest(job="x", token="x" * 257)}, "a token of 257 characters"),
    ],
)
def test_a_stream_begins_with_a_request_to_join(tor: Rack, message, why: str):
    with pytest.raises(grpc.RpcError) as caught:
        next(tor.stub.Join(iter([pb.WorkerMessage(**message)])))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert why in caught.value.details()


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"join": pb.JoinRequest()}, "this is the second"),
        ({}, "is empty"),
        ({"trouble": pb.Trouble(reason="x" * 501)}, "up to 500 printable characters"),
        ({"trouble": pb.Trouble(reason="\x1b[2J")}, "up to 500 printable characters"),
        ({"ready": pb.Ready(exchange=1 << 63)}, "exchange 9223372036854775808"),
        (
            {"heartbeat": pb.Heartbeat(progress=pb.Progress(stuck_s=float("nan")))},
            "stuck_s is nan",
        ),
    ],
)
def test_a_worker_that_says_nonsense_is_told_so_and_has_left(tor: Rack, message, why: str):
    with at_work(tor) as (first, second):
        first.say(**message)
        with pytest.raises(UsageError, match=why):
            first.hear("recover")
        assert second.hear("departure").rank == 0


def test_a_worker_whose_process_is_silent_is_waited_for_and_named(brief: Rack):
    with at_work(brief) as (first, second):
        first.trouble()
        first.hear("recover")
        second.hear("recover")
        first.ready(0)
        eventually(lambda: first.waiting_for == second.waiting_for == [1])
        assert brief.show(first.job).waiting_for == [1]
        threading.Event().wait(3 * SHORT)  # longer than a lease: neither of them sends heartbeats
        second.ready(0)
        for each in (first, second):
            assert each.hear("resume").exchange == 0
        eventually(lambda: not first.waiting_for)
        assert not brief.show(first.job).departures


def test_heartbeats_tell_how_far_a_worker_is(tor: Rack):
    with at_work(tor) as (first, _):
        first.beat(exchange=12, busy=True, chunks=5, remaining=3, retransmissions=2)
        job = first.job
        eventually(lambda: tor.show(job).members[0].progress.exchange == 12)
        member = tor.show(job).members[0]
        assert (member.rank, member.port, member.progress.remaining) == (0, 1, 3)
        assert member.address.udp_port == first.address.udp_port


def test_a_job_without_workers_ends_with_its_lease(brief: Rack):
    free = brief.free_slots
    request = pb.CreateJobRequest(name="left", switch="tor", workers=1, lease_s=1)
    brief.stub.CreateJob(request)
    assert brief.free_slots < free
    eventually(lambda: brief.free_slots == free)
    assert not brief.stub.ListJobs(pb.ListJobsRequest()).jobs


def test_a_job_goes_to_the_switch_when_it_gets_slots(tor: Rack):
    with (
        tor.job(1, 8192) as hog,
        tor.job(1, queue=True) as job,
        scripted(tor, job, 0, fallback=True) as worker,
    ):
        resume = worker.settle()
        assert (resume.path, resume.slots) == (FALLBACK, 0)
        assert resume.reason == "no slots are free for the job yet"
        tor.delete(hog)
        renew([worker], 3)
        resume = worker.hear("resume")
        assert (resume.path, resume.slots, resume.exchange) == (SWITCH, 32, 3)
        assert_sums([worker], 1)


def test_a_quorum_is_enough_for_a_sum(tor: Rack):
    with at_work(tor, 3, quorum=2) as workers:
        assert workers[0].admission.min_workers == 2
        assert_sums(workers, 1, quorum=2)
