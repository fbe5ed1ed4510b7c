"""Workers come and go: their seats, the others' events, and their leftovers."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from racks import WITHIN, Rack, means, problem, rack, random_vectors
from switches import running_switch
from waiting import until

from innet.errors import (
    AlreadyExists,
    ControllerError,
    ControllerUnreachable,
    JobEnded,
    NotFound,
    UsageError,
    WorkersMissing,
)
from innet.host import membership
from innet.host.join import join
from innet.host.membership import Membership
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc

PORTS = 4
MANY = 300_000


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(PORTS) as running:
        yield running


def hurry(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Shorten the timeout from this step of joining on. The steps before it may take their time."""
    take = getattr(Membership, step)

    def hurried(self: Membership, *arguments: str) -> object:
        self._timeout = 0.3
        return take(self, *arguments)

    monkeypatch.setattr(Membership, step, hurried)


def test_a_seat_has_to_exist_and_to_be_free(tor: Rack):
    with tor.job(2) as job, tor.join(job, 1):
        assert list(tor.show(job).joined) == [1]
        for rank, kind, why in (
            (2, UsageError, "no rank 2: the job has 2 workers, with ranks from 0 on"),
            (-1, UsageError, "rank -1 is negative: ranks count from 0"),
            (2**40, UsageError, f"rank {2**40}: a job has at most 4096 workers"),
            (1, AlreadyExists, f"the job '{job}' has a worker 1 already: give every"),
        ):
            with pytest.raises(kind, match=why):
                tor.join(job, rank, tor.links[2])
    with pytest.raises(NotFound, match="no job 'nowhere': create it"):
        tor.join("nowhere", 0)


def test_a_link_that_leads_elsewhere_is_an_error_in_bounded_time(tor: Rack, monkeypatch):
    hurry(monkeypatch, "_await_admission")
    with tor.job(1) as job, running_switch(1) as other:
        [host], free_port = other.hosts, tor.links[3].partition("/")[0].rpartition(":")[2]
        astray = f"udp:127.0.0.1:{free_port}/127.0.0.1:{host.getsockname()[1]}"
        with pytest.raises(
            ControllerError, match="does this worker's link lead to the job's switch"
        ):
            tor.join(job, 0, astray)


def test_a_worker_that_joins_is_told_that_its_job_was_deleted(tor: Rack):
    with tor.job(1) as job, running_switch(1) as other, ThreadPoolExecutor(1) as pool:
        [host], free_port = other.hosts, tor.links[3].partition("/")[0].rpartition(":")[2]
        astray = f"udp:127.0.0.1:{free_port}/127.0.0.1:{host.getsockname()[1]}"
        joining = pool.submit(tor.join, job, 0, astray)
        until(lambda: tor.show(job).members)
        tor.delete(job)
        with pytest.raises(
            ControllerError, match=f"cannot join the job: the job '{job}' was deleted"
        ):
            joining.result(WITHIN)


def test_a_controller_that_stops_while_a_worker_joins_counts_as_out_of_reach():
    class Stopping(rpc.ControllerServicer):
        def Join(self, requests, context):  # noqa: ARG002, N802
            context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")  # as gRPC does

    with ThreadPoolExecutor(1) as calls:
        server = grpc.server(calls)
        rpc.add_ControllerServicer_to_server(Stopping(), server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with pytest.raises(ControllerUnreachable, match="the controller does not answer"):
            join(address, "job", 0, "udp:127.0.0.1:1/127.0.0.1:2", token="")
        server.stop(grace=0).wait(WITHIN)


def test_what_is_said_on_a_stream_that_has_ended_is_not_kept(tor: Rack):
    with tor.workers(1) as [agent]:
        stream = agent._membership._stream
        stream.close()
        for _ in range(100):
            stream.send(pb.WorkerMessage(heartbeat=pb.Heartbeat()))
        assert stream._outgoing.qsize() < 5


def test_one_message_tells_of_several_departures(tor: Rack):
    with tor.workers(3) as [agent, *_]:
        told = pb.Departure(rank=2, reason="a", more=[pb.Departure(rank=1, reason="b")])
        agent._membership._take(pb.JoinEvent(departure=told))
        assert agent._membership.departed() == {2: "a", 1: "b"}
        told.more.add(rank=0, reason="the job was deleted")
        agent._membership._take(pb.JoinEvent(departure=told))
        assert agent._membership.ended == "the job was deleted"
        assert agent._membership.departed() == {2: "a", 1: "b"}


def test_a_new_stream_does_not_end_with_an_older_activity(tor: Rack, monkeypatch):
    """Another thread reports an activity while the last one is repeated on the new stream."""
    said, reported = [], threading.Event()

    class Stream:
        def send(self, message: pb.WorkerMessage) -> None:
            if threading.current_thread() is not reporter and not reporter.ident:
                reporter.start()
                assert reported.wait(WITHIN)
            said.append(message.activity.busy)

    class Lock:
        lock = threading.Lock()

        def __enter__(self) -> None:
            if threading.current_thread() is reporter:
                reported.set()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    def report() -> None:
        membership.report_activity(busy=False)
        reported.set()

    reporter = threading.Thread(target=report, daemon=True)
    with tor.workers(1) as [agent]:
        membership = agent._membership
        membership.report_activity(busy=True)
        with monkeypatch.context() as patched:
            patched.setattr(membership, "_stream", membership._stream)
            patched.setattr(membership, "_open", lambda _: Stream())
            patched.setattr(membership, "_reporting", Lock(), raising=False)
            assert membership._reopen()
            reporter.join()
    assert said == [True, False]


def test_new_workers_wait_until_all_of_the_last_run_have_left(tor: Rack, monkeypatch):
    with tor.job(2) as job, ThreadPoolExecutor(1) as pool:
        first, second = tor.join(job, 0), tor.join(job, 1)
        first.close()
        told = pytest.raises(ControllerError, match="when all workers of its last run have left")
        with monkeypatch.context() as patched, told:
            hurry(patched, "be_admitted")
            tor.join(job, 0)

        waiting = pool.submit(tor.join, job, 0)
        term = tor.show(job).term
        second.close()
        with waiting.result(WITHIN):
            assert tor.show(job).term != term
            assert list(tor.show(job).joined) == [0]


@pytest.mark.parametrize("recreate", [False, True])
def test_nothing_of_a_run_that_was_broken_off_is_in_the_next(tor: Rack, recreate: bool):
    """Half of a sum is left in every cell, and the next run uses the same cells."""
    slots = 256
    with contextlib.ExitStack() as jobs:
        job = jobs.enter_context(tor.job(2, slots))
        first, second = tor.join(job, 0), tor.join(job, 1)
        means([first, second], *random_vectors(1, 2, 64 * 100))
        broken = first.submit(np.full(64 * slots, 1e6, np.float32))
        while tor.show(job).counters.pending == 0:
            assert not broken.done()
        second.close()
        assert isinstance(problem(broken), WorkersMissing)
        first.close()
        if recreate:
            tor.delete(job)
            job = jobs.enter_context(tor.job(2, slots))
        with tor.join(job, 0) as first, tor.join(job, 1) as second:
            ones = np.ones(64 * slots * 2, np.float32)
            for mean in means([first, second], ones, 3 * ones):
                assert mean.tobytes() == (2 * ones).tobytes()


def test_who_leaves_is_named_to_those_who_wait(tor: Rack, monkeypatch):
    monkeypatch.setattr(membership, "_FAREWELL_WITHIN", WITHIN)  # else it may seem to have died
    with tor.workers(3) as (first, second, third):
        waiting = [agent.submit(np.ones(1000, np.float32)) for agent in (first, third)]
        second.close()
        for future in waiting:
            error = problem(future)
            assert isinstance(error, WorkersMissing)
            assert str(error) == "the all-reduce cannot finish: worker 1: it has left the job"


def test_deleting_a_job_ends_the_all_reduces_that_are_running(tor: Rack):
    free = tor.free_slots
    with tor.workers(2) as agents:
        job = tor.stub.ListJobs(pb.ListJobsRequest()).jobs[0].name
        running = agents[0].submit(np.ones(1000, np.float32))
        while tor.show(job).counters.waiting == 0:
            assert not running.done()
        tor.delete(job)
        later = agents[1].submit(np.ones(1000, np.float32))
        for future in (running, later):
            error = problem(future)
            assert isinstance(error, JobEnded)
            assert str(error) == f"the job '{job}' was deleted"
    assert tor.free_slots == free


def test_two_jobs_at_once_do_not_disturb_each_other(tor: Rack):
    with tor.job(2) as left, tor.job(2) as right, contextlib.ExitStack() as seats:
        ports = {left: tor.links[:2], right: tor.links[2:]}
        agents = {
            job: [seats.enter_context(tor.join(job, rank, links[rank])) for rank in (0, 1)]
            for job, links in ports.items()
        }
        one, three = np.ones(MANY, np.float32), np.full(MANY, 3, np.float32)
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(means, agents[left], one, three)
            for _ in range(3):
                for mean in means(agents[right], three, 3 * three):
                    assert (mean == 6).all()
            for mean in other.result(WITHIN):
                assert (mean == 2).all()
        for job, reductions in ((left, 1), (right, 3)):
            counters = tor.show(job).counters
            chunks = agents[job][0].traffic.chunks
            blocks = -(-MANY // 64)
            assert chunks == reductions * (blocks + -(-(blocks + 4) // 64))
            assert (counters.completed, counters.waiting) == (chunks, chunks)


def test_deleting_a_job_leaves_the_other_one_running(tor: Rack):
    with (
        tor.job(1) as doomed,
        tor.job(1) as job,
        tor.join(doomed, 0) as victim,
        tor.join(job, 0, tor.links[1]) as agent,
    ):
        vectors = random_vectors(2, 8, MANY)
        running = [agent.submit(vector) for vector in vectors]
        tor.delete(doomed)
        with pytest.raises(JobEnded):
            victim.all_reduce(vectors[0])
        for vector, future in zip(vectors, running, strict=True):
            np.testing.assert_allclose(future.result(WITHIN), vector, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (
            {"INNET_CONTROLLER": ""},
            r"no controller is given: pass it to join\(\), or set INNET_CONTROLLER",
        ),
        ({"INNET_JOB": ""}, r"no job is given: pass it to join\(\), or set INNET_JOB"),
        ({"RANK": ""}, r"no rank is given: pass it to join\(\), or set RANK"),
        ({"RANK": "first"}, "RANK is 'first': it has to be a number"),
        ({"RANK": 5000 * "1"}, "RANK is '1*': it has to be a number"),
        ({"LOCAL_RANK": ""}, "no local rank for INNET_LINK"),
        ({"LOCAL_RANK": 5000 * "1"}, "no local rank for INNET_LINK"),
        ({"LOCAL_RANK": "2"}, "INNET_LINK names 2 links, local rank 2 has none: start at most 2"),
        ({"INNET_LINK": "cable", "LOCAL_RANK": ""}, "link 'cable' is neither 'host' nor 'udp:"),
    ],
)
def test_what_the_environment_lacks_is_named(tor: Rack, monkeypatch, wrong, why: str):
    with tor.job(2) as job:
        environment = {"INNET_CONTROLLER": tor.controller, "INNET_JOB": job, "RANK": "1"}
        environment |= {"INNET_TOKEN": tor.tokens[job]}
        environment |= {"INNET_LINK": " ".join(tor.links[:2]), "LOCAL_RANK": "1"}
        for name, value in {**environment, **wrong}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(UsageError, match=why):
            join()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with join() as agent:
            assert (agent.info.rank, list(tor.show(job).joined)) == (1, [1])
