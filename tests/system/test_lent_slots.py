"""Slots lent between jobs of real workers: every sum is exact, and killed holders give slots back."""

import contextlib
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bursting_jobs import sum_in_bursts
from cluster import Cluster, Worker, cluster
from forked import ranks
from racks import Rack, problem, rack
from trees import integers, sums
from waiting import until

from innet.errors import WorkersMissing
from innet.machine.environment import PRIVATE_KEY_FILE
from innet.p4.artifacts import SLOTS as SLOTS_OF
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

SCRIPT = Path(__file__).parents[1] / "support/bursting_worker.py"
SLOTS = SLOTS_OF[64]
ASKED, KEPT, WORKERS = 32, 8, 2
ENDLESS = 10**9

_jobs = itertools.count()


@pytest.fixture(scope="module")
def racks(tmp_path_factory) -> Iterator[Cluster]:
    with cluster(2 * WORKERS, tmp_path_factory.mktemp("racks")) as running:
        reserve(running, 2 * ASKED)
        create(running, "rest", ASKED // 2)
        yield running


def ask(racks: Cluster, call: str, request):
    """Make one request of the cluster's controller, which may have been restarted."""
    channel, stub = connect(racks.address)
    with contextlib.closing(channel):
        return getattr(stub, call)(request)


def create(racks: Cluster, name: str, slots: int, **more: int) -> str:
    """Create a job, and return its token."""
    request = pb.CreateJobRequest(name=name, switch="tor", workers=WORKERS, slots=slots, **more)
    return ask(racks, "CreateJob", request).token


def reserve(racks: Cluster, left: int) -> None:
    """Leave so many slots of the switch."""
    free = SLOTS
    while free > left:
        free //= 2
        create(racks, f"reserved-{free}", free)


def slots(racks: Cluster, job: str) -> int:
    return ask(racks, "GetJob", pb.GetJobRequest(name=job)).slots


@contextlib.contextmanager
def lender(
    racks: Cluster, place: int, sums: int = ENDLESS, **more: int
) -> Iterator[tuple[str, list[Worker]]]:
    """Run a job that lends, in processes. Only one job at a time can have all that it asks for."""
    name = f"lender-{next(_jobs)}"
    token = create(racks, name, ASKED, min_slots=KEPT, **more)
    links = racks.links[place * WORKERS : (place + 1) * WORKERS]
    environment = {
        "INNET_CONTROLLER": racks.address, "INNET_JOB": name, "INNET_TOKEN": token,
        "INNET_LINK": " ".join(links), "INNET_TLS": "",
    }  # fmt: skip
    with ranks(SCRIPT, [str(sums), "0.1"], WORKERS, environment) as running:
        workers = [Worker(rank, script) for rank, script in enumerate(running)]
        try:
            yield name, workers
        finally:
            for each in workers:
                each.kill()
            ask(racks, "DeleteJob", pb.DeleteJobRequest(name=name))


def sums_in(workers: list[Worker], wanted: int) -> None:
    """Wait until all workers sum in so many slots."""
    until(lambda: all(each.steps and each.steps[-1]["slots"] == wanted for each in workers))


def go_on(workers: list[Worker], sums: int = 20) -> None:
    """Wait for more sums, each of which the worker compares with the exact one."""
    for each in workers:
        each.wait_for_step(each.done + sums)


@pytest.mark.parametrize("killed", [[0], [0, 1]], ids=["worker", "job"])
def test_a_killed_holder_gives_its_slots_back(racks: Cluster, killed: list[int]):
    with lender(racks, 0) as (holder, workers):
        sums_in(workers, ASKED)
        for rank in killed:
            workers[rank].kill()
        until(lambda: slots(racks, holder) == KEPT)
        with lender(racks, 1) as (other, others):
            sums_in(others, ASKED)
            assert slots(racks, other) == ASKED
            go_on(others)


def test_a_stopped_holder_gives_its_slots_up_after_its_lease_and_goes_on_later(racks: Cluster):
    with lender(racks, 0) as (_, workers):
        sums_in(workers, ASKED)
        workers[0].signal(signal.SIGSTOP)
        with lender(racks, 1) as (_, others):
            sums_in(others, ASKED)
            go_on(others)
            workers[0].signal(signal.SIGCONT)
            go_on(workers)


def test_jobs_that_communicate_all_the_time_take_turns(racks: Cluster):
    with lender(racks, 0) as (_, workers), lender(racks, 1) as (_, others):
        for _ in range(2):
            sums_in(workers, ASKED)
            sums_in(others, ASKED)
        go_on(workers + others)


def test_loans_outlive_a_killed_controller(racks: Cluster):
    with lender(racks, 0) as (holder, workers), lender(racks, 1, sums=5) as (_, others):
        # Slots have just moved, so nothing moves while the controller is killed.
        sums_in(others, ASKED)
        sums_in(workers, ASKED)
        sums_in(others, KEPT)
        racks.controller.kill()
        go_on(workers + others)  # in the slots that they have
        racks.controller.start()
        sums_in(others, ASKED)
        sums_in(workers, ASKED)
        assert slots(racks, holder) in (KEPT, ASKED)
        go_on(workers + others)


# -- many ranges change ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(9) as running:
        size = SLOTS // 2
        while size >= 64:
            request = pb.CreateJobRequest(
                name=f"reserved-{size}", switch="tor", workers=1, slots=size
            )
            running.stub.CreateJob(request)
            size //= 2
        yield running


@pytest.fixture(params=[False, True], ids=["plain", "private"])
def privacy(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the workers that join have a key, or none."""
    if request.param:
        key = tmp_path / "key"
        key.touch(0o600)
        key.write_bytes(bytes(range(32)))
        monkeypatch.setenv(PRIVATE_KEY_FILE, str(key))
    return request.param


def test_every_sum_is_exact_while_jobs_lend_slots_to_each_other(tor: Rack, privacy: bool):
    with contextlib.ExitStack() as stack:
        jobs = [
            stack.enter_context(tor.workers(2, 32, min_slots=4, priority=number % 2))
            for number in range(4)
        ]
        assert all(each.private == privacy for job in jobs for each in job)
        sum_in_bursts(jobs)


def test_a_worker_of_a_holder_is_told_of_the_one_that_has_left(tor: Rack):
    with tor.workers(2, 32, min_slots=4) as agents:
        vectors = integers(8, 2, 3000)
        until(lambda: [*sums(agents, vectors)] and agents[0].term.slots == 32)
        [name] = [job.name for job in tor.stub.ListJobs(pb.ListJobsRequest()).jobs if job.joined]
        running = agents[1].submit(vectors[1].astype(np.float32))
        agents[0].close()
        until(lambda: tor.show(name).slots == 4)
        assert isinstance(problem(running), WorkersMissing)


def test_slots_that_a_new_job_reserves_are_given_up_at_once(tor: Rack):
    with tor.workers(2, 32, min_slots=4) as agents:
        vectors = integers(7, 2, 3000)
        until(lambda: [*sums(agents, vectors)] and agents[0].term.slots == 32)
        with tor.job(1, 32, queue=True) as late:
            until(lambda: tor.show(late).slots == 32)
            exact = vectors.sum(axis=0, dtype=np.int64)
            for result in sums(agents, vectors):
                np.testing.assert_array_equal(result, exact)
            assert agents[0].term.slots < 32
