"""Something dies in the middle of a run: everybody gets a clear error soon, or goes on undisturbed."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from racks import PATIENCE, WITHIN, Rack, free_cables, means, rack
from switches import Switch, running_switch

from innet.controller import innet_pb2 as pb
from innet.controller.client import connect, translated
from innet.demo.rack import command, local_rack, process
from innet.errors import ControllerUnreachable, SwitchError, SwitchUnreachable, WorkersMissing
from innet.host.agent import Agent, join
from innet.host.transport import Patience

if TYPE_CHECKING:
    from concurrent.futures import Future

MILLION = np.ones(1_000_000, np.float32)
CONTROLLER = [*command("innet.cli"), "controller", "--address", "127.0.0.1:0"]
WORKER = """
import sys
import innet, numpy
with innet.join(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]) as agent:
    while True:
        agent.all_reduce(numpy.ones(100_000, numpy.float32))
"""


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(3) as running:
        yield running


def in_the_middle(
    agents: list[Agent], vector: np.ndarray, runs: int = 300
) -> "list[list[Future[np.ndarray]]]":
    """For every worker many all-reduces, of which the first is done and the last is not."""
    running = [[agent.submit(vector) for _ in range(runs)] for agent in agents]
    for futures in running:
        futures[0].result(WITHIN)
        assert not futures[-1].done()
    return running


def end(futures: "list[Future[np.ndarray]]") -> BaseException:
    """Right results up to some point, and from there on one error, which is returned."""
    errors = [future.exception(WITHIN) for future in futures]
    good = errors.index(next(filter(None, errors)))
    assert all((future.result() == 1).all() for future in futures[:good])
    assert set(errors[good:]) == {errors[-1]}
    return errors[-1]


@contextlib.contextmanager
def worker(tor: Rack, job: str, rank: int, link: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker as a process, which does not stop by itself."""
    arguments = [tor.controller, job, str(rank), link]
    with subprocess.Popen([sys.executable, "-c", WORKER, *arguments]) as running:
        try:
            yield running
        finally:
            running.kill()


@pytest.mark.parametrize("patience", [None, Patience(switch=1.0)], ids=["by default", "1 s"])
def test_when_the_switch_dies_every_worker_is_told(patience: Patience | None):
    with local_rack(2) as tor, contextlib.ExitStack() as stack:
        agents = [
            stack.enter_context(join(tor.controller, tor.job, rank, link, patience=patience))
            for rank, link in enumerate(tor.links)
        ]
        running = in_the_middle(agents, MILLION)
        tor.switch.kill()
        for futures in running:
            error = end(futures)
            assert type(error) is SwitchUnreachable
            assert "the switch has not answered for" in str(error)
            assert "is it running" in str(error)


def test_a_job_of_a_dead_switch_can_be_deleted_though_not_counted():
    with local_rack(1) as tor, join(tor.controller, tor.job, 0, tor.links[0]):
        tor.switch.kill()
        tor.switch.wait()
        with pytest.raises(SwitchError, match=r"cannot show the job: the switch at .* refused"):
            tor.describe_job()
        channel, stub = connect(tor.controller)
        with contextlib.closing(channel), translated("delete the job"):
            stub.DeleteJob(pb.DeleteJobRequest(name=tor.job))
            assert not stub.ListJobs(pb.ListJobsRequest()).jobs


@pytest.mark.parametrize(
    ("number", "patience", "why"),
    [
        (signal.SIGKILL, PATIENCE, "cannot finish: worker 1: it has left the job"),
        (signal.SIGSTOP, Patience(workers=2.0), r"no contribution from workers \[1\] for \d+ s"),
    ],
)
def test_when_a_worker_dies_or_hangs_the_others_hear_who(tor: Rack, number, patience, why: str):
    with (
        tor.job(3) as job,
        tor.cables(3) as links,
        worker(tor, job, 1, links[1]) as victim,
        join(tor.controller, job, 0, links[0], patience=patience) as first,
        join(tor.controller, job, 2, links[2], patience=patience) as last,
    ):
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


@contextlib.contextmanager
def run_by_a_process(ports: int) -> Iterator[tuple[Switch, "subprocess.Popen[str]", str]]:
    """A switch, and a controller as a process: both, and the controller's address."""
    with running_switch(ports) as switch, process(CONTROLLER) as (controller, address):
        open_job(address, switch)
        yield switch, controller, address


def open_job(controller: str, switch: Switch) -> None:
    """Put a controller in charge of a switch, with a job for two workers."""
    channel, stub = connect(controller)
    ports = range(1, len(switch.hosts) + 1)
    with contextlib.closing(channel), translated("set up"):
        stub.AddSwitch(pb.AddSwitchRequest(name="s", grpc_address=switch.address, ports=ports))
        stub.CreateJob(pb.CreateJobRequest(name="job", switch="s", workers=2, slots=32))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_controller_dies_runs_go_on_and_nobody_can_join(number: signal.Signals):
    with run_by_a_process(3) as (switch, controller, address):
        *links, spare = free_cables(switch)
        with (
            join(address, "job", 0, links[0], patience=PATIENCE) as first,
            join(address, "job", 1, links[1], patience=PATIENCE) as second,
        ):
            running = in_the_middle([first, second], MILLION[:400_000], runs=50)
            controller.send_signal(number)
            assert controller.wait(WITHIN) == (0 if number == signal.SIGTERM else -number)
            assert "Traceback" not in controller.stderr.read()
            for futures in running:
                assert all((future.result(WITHIN) == 1).all() for future in futures)
            for mean in means([first, second], MILLION, 3 * MILLION):
                assert (mean == 2).all()
            with pytest.raises(ControllerUnreachable, match=f"no controller answers at {address}"):
                join(address, "job", 0, spare, timeout=0.5)


def test_when_a_new_controller_takes_over_old_runs_end_and_new_ones_are_right():
    patience = Patience(switch=2.0)
    with run_by_a_process(4) as (switch, controller, address), process(CONTROLLER) as (_, new):
        links = free_cables(switch)
        with (
            join(address, "job", 0, links[0], patience=patience) as first,
            join(address, "job", 1, links[1], patience=patience) as second,
        ):
            running = in_the_middle([first, second], MILLION)
            controller.kill()
            open_job(new, switch)
            with join(new, "job", 0, links[2]) as third, join(new, "job", 1, links[3]) as fourth:
                for mean in means([third, fourth], MILLION, 5 * MILLION):
                    assert (mean == 3).all()
            for futures in running:
                assert type(end(futures)) is SwitchUnreachable
