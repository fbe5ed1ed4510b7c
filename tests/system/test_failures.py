"""Parts that die in the middle of a run: each worker soon gets a clear error, or goes on undisturbed."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from mortal import (
    controlled,
    mortal_switch,
    open_job,
    rack_of,
)
from racks import TIMEOUTS, WITHIN, Rack, means, rack
from waiting import until

from innet.errors import ControllerUnreachable, SwitchUnreachable, WorkersMissing
from innet.host.agent import Agent
from innet.host.job import Timeouts
from innet.host.join import join
from innet.local.rack import local_rack
from innet.rpc import innet_pb2 as pb

if TYPE_CHECKING:
    from concurrent.futures import Future


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(3) as running:
        yield running


MILLION = np.ones(1_000_000, np.float32)
WORKER = """
import sys
import innet, numpy
with innet.join(*sys.argv[1:3], int(sys.argv[3]), sys.argv[4], token=sys.argv[5]) as agent:
    while True:
        agent.all_reduce(numpy.ones(100_000, numpy.float32))
"""


def in_the_middle(
    agents: list[Agent], vector: np.ndarray, runs: int = 300
) -> "list[list[Future[np.ndarray]]]":
    """Start many all-reduces on every worker; return when the first is done and the last is not."""
    running = [[agent.submit(vector) for _ in range(runs)] for agent in agents]
    for futures in running:
        futures[0].result(WITHIN)
        assert not futures[-1].done()
    return running


def end(futures: "list[Future[np.ndarray]]") -> BaseException:
    """Check that the results are right up to some point, and return the one error of all later ones."""
    errors = [future.exception(WITHIN) for future in futures]
    good = errors.index(next(filter(None, errors)))
    assert all((future.result() == 1).all() for future in futures[:good])
    assert set(errors[good:]) == {errors[-1]}
    return errors[-1]


@contextlib.contextmanager
def worker(tor: Rack, job: str, rank: int, link: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a worker as a process that does not stop by itself."""
    arguments = [tor.controller, job, str(rank), link, tor.tokens[job]]
    with subprocess.Popen([sys.executable, "-c", WORKER, *arguments]) as running:
        try:
            yield running
        finally:
            running.kill()


def test_when_the_switch_dies_and_there_is_no_other_way_every_worker_is_told():
    timeouts = Timeouts(switch=WITHIN, workers=WITHIN)
    with local_rack(2) as tor, contextlib.ExitStack() as stack:
        agents = [
            stack.enter_context(
                join(tor.controller, tor.job, rank, link, token=tor.token, timeouts=timeouts)
            )
            for rank, link in enumerate(tor.links)
        ]
        running = in_the_middle(agents, MILLION)
        tor.switch.kill()
        until(lambda: all(agent._membership.recover for agent in agents))
        timeouts.switch = 1.0
        for futures in running:
            error = end(futures)
            assert type(error) is SwitchUnreachable
            assert "the job has not gone on for" in str(error)
            assert "is the switch running" in str(error)


def test_a_switch_that_comes_back_in_time_costs_an_exchange_and_no_all_reduce():
    with mortal_switch(2) as switch, rack_of(switch) as tor, tor.workers(2) as agents:
        running = in_the_middle(agents, MILLION, runs=20)
        term = agents[0].term
        switch.kill()
        switch.start()
        for futures in running:
            assert all((future.result(WITHIN) == 1).all() for future in futures)
        assert agents[0].term == agents[1].term != term


def test_a_switch_that_only_pauses_costs_no_all_reduce_either():
    with mortal_switch(2) as switch, rack_of(switch) as tor, tor.workers(2) as agents:
        running = in_the_middle(agents, MILLION, runs=20)
        [job] = tor.stub.ListJobs(pb.ListJobsRequest()).jobs
        term = job.term
        switch.process.send_signal(signal.SIGSTOP)
        while job.term == term:  # until a worker has reported the switch's silence
            [job] = tor.stub.ListJobs(pb.ListJobsRequest()).jobs
        switch.process.send_signal(signal.SIGCONT)
        for futures in running:
            assert all((future.result(WITHIN) == 1).all() for future in futures)


@pytest.mark.parametrize(
    ("number", "timeouts", "why"),
    [
        (signal.SIGKILL, TIMEOUTS, "cannot finish: worker 1: its process has ended"),
        (signal.SIGSTOP, Timeouts(workers=6.0), r"no contribution from workers \[1\] for \d+ s"),
    ],
)
def test_when_a_worker_dies_or_hangs_the_others_hear_who(tor: Rack, number, timeouts, why: str):
    with (
        tor.job(3) as job,
        tor.cables(3) as links,
        worker(tor, job, 1, links[1]) as victim,
        tor.join(job, 0, links[0], timeouts=timeouts) as first,
        tor.join(job, 2, links[2], timeouts=timeouts) as last,
    ):
        until(lambda: len(tor.show(job).joined) == 3)
        running = in_the_middle([first, last], MILLION[:100_000])
        victim.send_signal(number)
        errors = [end(futures) for futures in running]
        assert {type(error) for error in errors} == {WorkersMissing}
        victim.kill()
        for error in errors:
            with pytest.raises(WorkersMissing, match=why):
                raise error


def test_a_job_can_run_again_after_a_worker_has_died(tor: Rack):
    with tor.job(2) as job, tor.cables(2) as links:
        with worker(tor, job, 1, links[1]) as victim, tor.join(job, 0, links[0]) as first:
            first.all_reduce(MILLION[:100_000])
            victim.kill()
        with tor.join(job, 0, links[0]) as first, tor.join(job, 1, links[1]) as second:
            for mean in means([first, second], MILLION, 3 * MILLION):
                assert (mean == 2).all()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_controller_dies_runs_go_on_and_nobody_can_join(number: signal.Signals):
    with mortal_switch(3) as switch, controlled(switch) as (rack, controller):
        job = open_job(rack)
        with rack.join(job, 0) as first, rack.join(job, 1) as second:
            running = in_the_middle([first, second], MILLION[:400_000], runs=50)
            controller.process.send_signal(number)
            assert controller.process.wait(WITHIN) == (143 if number == signal.SIGTERM else -number)
            controller.kill()
            for futures in running:
                assert all((future.result(WITHIN) == 1).all() for future in futures)
            for mean in means([first, second], MILLION, 3 * MILLION):
                assert (mean == 2).all()
            with pytest.raises(ControllerUnreachable, match=f"answers at {controller.address}"):
                rack.join(job, 0, rack.links[2], timeout=0.5)


def test_a_controller_that_comes_back_knows_its_workers_and_can_renew_their_term(tmp_path):
    state = str(tmp_path / "state")
    with mortal_switch(2) as switch, controlled(switch, "--state", state) as (rack, controller):
        job = open_job(rack)
        with rack.join(job, 0) as first, rack.join(job, 1) as second:
            for mean in means([first, second], MILLION, 3 * MILLION):
                assert (mean == 2).all()
            controller.kill()
            for mean in means([first, second], MILLION, 5 * MILLION):
                assert (mean == 3).all()
            controller.start()
            term = first.term
            switch.kill()
            running = [agent.submit(MILLION) for agent in (first, second)]
            switch.start()
            for future in running:
                assert (future.result(WITHIN) == 1).all()
            assert first.term == second.term != term


def test_when_a_new_controller_takes_over_old_runs_end_and_new_ones_are_right():
    # Without their controller they tolerate the switch's silence as long as that of other workers.
    timeouts = Timeouts(switch=2.0, workers=6.0)
    with mortal_switch(4) as switch, controlled(switch) as (rack, controller):
        job = open_job(rack)
        with (
            rack.join(job, 0, timeouts=timeouts) as first,
            rack.join(job, 1, timeouts=timeouts) as second,
        ):
            running = in_the_middle([first, second], MILLION)
            controller.kill()
            with controlled(switch) as (new, _), new.job(2) as other:
                with (
                    new.join(other, 0, new.links[2]) as third,
                    new.join(other, 1, new.links[3]) as fourth,
                ):
                    for mean in means([third, fourth], MILLION, 5 * MILLION):
                        assert (mean == 3).all()
                for futures in running:
                    assert type(end(futures)) is SwitchUnreachable
