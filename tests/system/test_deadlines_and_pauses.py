"""Sums with deadlines beside a host that stands still, or whose link is down: nothing is lost."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster import Cluster, cluster
from racks import WITHIN, rack
from scripted_lateness import SCRIPT, ScriptedLateness, at_once, harmed, scripted
from waiting import until

from benchmarks.emulated.stragglers import DEADLINE, Case, checked
from innet.local.faults import faulty

WORKER = Path(__file__).parents[1] / "support/deadline_worker.py"
WORKERS, LATE, IN_TIME = 4, 1, 2
"""How many there are, and two of them; who is late follows from the script."""


@pytest.fixture(scope="module")
def racks(tmp_path_factory) -> Iterator[Cluster]:
    with cluster(WORKERS, tmp_path_factory.mktemp("racks")) as running:
        yield running


@pytest.mark.parametrize("stopped", [IN_TIME, LATE], ids=["in-time", "late"])
def test_the_others_wait_for_a_stopped_host_and_nothing_is_lost(racks: Cluster, stopped: int):
    with racks.running(WORKER, [str(stopped)]) as workers:
        until(lambda: racks.waiting_for == [stopped])
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
        sums, is_cut = scripted(agents), threading.Event()

        def cut() -> None:
            wiring.cut(down)
            is_cut.set()

        sums[0].late = ScriptedLateness(WORKERS, harmed(SCRIPT, 8, cut))
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                at_once, agents, lambda rank: checked(case, agents[rank], sums[rank])
            )
            assert is_cut.wait(WITHIN)
            before = tor.show(job).recoveries
            until(lambda: tor.show(job).recoveries > before or running.done())
            wiring.mend(down)
            assert all(each["late"] for each in running.result(WITHIN))
        assert tor.show(job).recoveries > before
