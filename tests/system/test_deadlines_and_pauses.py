"""Sums with deadlines beside a host that stands still, or whose link is down: nothing is lost."""

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster import Cluster, Worker, cluster
from forked import ranks
from racks import WITHIN, rack
from scripted_lateness import SCRIPT, ScriptedLateness, at_once, harmed, scripted
from waiting import until

from benchmarks.emulated.stragglers import DEADLINE, Case, checked
from innet.local.faults import faulty
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

WORKER = Path(__file__).parents[1] / "support/deadline_worker.py"
WORKERS, LATE, IN_TIME = 4, 1, 2
"""How many there are, and two of them; who is late follows from the script."""


@pytest.fixture(scope="module")
def racks(tmp_path_factory) -> Iterator[Cluster]:
    with cluster(WORKERS, tmp_path_factory.mktemp("racks")) as running:
        yield running


@contextlib.contextmanager
def summing(racks: Cluster, name: str, stopped: int) -> Iterator[list[Worker]]:
    """Yield the workers of a job, in processes. One of them stops itself."""
    channel, stub = connect(racks.address)
    with contextlib.closing(channel):
        request = pb.CreateJobRequest(name=name, switch="tor", workers=WORKERS, slots=32)
        token = stub.CreateJob(request).token
        environment = {
            "INNET_CONTROLLER": racks.address, "INNET_JOB": name, "INNET_TOKEN": token,
            "INNET_LINK": " ".join(racks.links), "INNET_TLS": "",
        }  # fmt: skip
        with ranks(WORKER, [str(stopped)], WORKERS, environment) as running:
            workers = [Worker(rank, script) for rank, script in enumerate(running)]
            try:
                yield workers
            finally:
                for each in workers:
                    each.kill()
                stub.DeleteJob(pb.DeleteJobRequest(name=name))


def waited_for(racks: Cluster, job: str) -> list[int]:
    """Return the ranks that all others wait for."""
    channel, stub = connect(racks.address)
    with contextlib.closing(channel):
        return [*stub.GetJob(pb.GetJobRequest(name=job)).waiting_for]


@pytest.mark.parametrize("stopped", [IN_TIME, LATE], ids=["in-time", "late"])
def test_the_others_wait_for_a_stopped_host_and_nothing_is_lost(racks: Cluster, stopped: int):
    name = f"job-{stopped}"
    with summing(racks, name, stopped) as workers:
        until(lambda: waited_for(racks, name) == [stopped])
        assert not any(each.end for each in workers)
        workers[stopped].signal(signal.SIGCONT)
        for each in workers:
            assert each.wait_for_end() == "all sums were exact"


@pytest.mark.parametrize("down", [IN_TIME, LATE], ids=["in-time", "late"])
def test_a_link_that_is_down_for_a_while_loses_nothing(down: int):
    case = Case("oracle", DEADLINE, len(SCRIPT), 3000)
    with (
        rack(WORKERS) as tor,
        faulty(tor.links, 0) as wiring,
        tor.job(WORKERS) as job,
        contextlib.ExitStack() as stack,
    ):
        agents = [
            stack.enter_context(tor.join(job, rank, link)) for rank, link in enumerate(wiring.links)
        ]
        sums = scripted(agents)
        script = harmed(SCRIPT, 8, lambda: wiring.cut(down))
        sums[0].late = ScriptedLateness(WORKERS, script)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                at_once, agents, lambda rank: checked(case, agents[rank], sums[rank])
            )
            until(lambda: tor.show(job).recoveries or running.done())
            wiring.mend(down)
            assert all(each["late"] for each in running.result(WITHIN))
        assert tor.show(job).recoveries
