"""Processes killed at random moments: training goes on, and ends with the same parameters.

``INNET_KILLS=20`` kills each process at twenty moments. ``INNET_KILL_WITHIN=1`` demands the next
step within a second, as is possible on an idle machine.
"""

import os
import random
import threading
import time

import pytest
from cluster import Cluster, Worker, cluster
from mortal import Mortal

KILLS = int(os.environ.get("INNET_KILLS", "2"))
SECONDS = float(os.environ.get("INNET_KILL_WITHIN", "10"))
"""The longest time that the next step may take after a kill."""

LONG = 3600
AFTER = 60
"""Steps that have to follow the last kill."""


@pytest.fixture(scope="module")
def rack(tmp_path_factory):
    with cluster(3, tmp_path_factory.mktemp("rack")) as running:
        yield running


def undisturbed(rack: Cluster, steps: int) -> dict[int, str]:
    with rack.training(steps, group=False) as workers:
        [digest] = {worker.wait_for_end() for worker in workers}
        assert digest
        return workers[0].digests


def wait(seconds: float) -> None:
    """Wait for a random time."""
    threading.Event().wait(seconds)


def disturb(workers: list[Worker], server: Mortal, chance: random.Random) -> list[float]:
    """Kill a server again and again, and restart it. Return the times of the kills."""
    moments = []
    for _ in range(KILLS):
        before = max(worker.done for worker in workers)
        for worker in workers:
            worker.wait_for_step(before + chance.randrange(20))
        wait(chance.uniform(0, 0.1))
        moments.append(time.monotonic())
        server.kill()
        if chance.random() < 0.5:
            wait(chance.uniform(0, 1.5))
        server.start()
    return moments


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("part", ["switch", "controller"])
def test_a_killed_switch_or_controller_costs_no_step_and_no_bit(rack, part):
    chance = random.Random(part)
    with rack.training(10**6, group=True) as workers:
        for worker in workers:
            worker.wait_for_step(5)
        moments = disturb(workers, getattr(rack, part), chance)
        for worker in workers:
            worker.wait_for_path("SWITCH")
        last = max(worker.done for worker in workers) + AFTER
        for worker in workers:
            worker.wait_for_step(last)
    paths = {step["path"] for worker in workers for step in worker.steps}
    assert paths == ({"SWITCH", "FALLBACK"} if part == "switch" else {"SWITCH"})
    times = [worker.longest_step(moment, moment + 5) for worker in workers for moment in moments]
    assert max(times) < SECONDS, sorted(times)
    common = undisturbed(rack, last + 1)
    for worker in workers:
        assert {step: digest for step, digest in worker.digests.items() if step <= last} == common


@pytest.mark.timeout(LONG)
def test_when_a_worker_is_killed_the_others_go_on_in_step(rack):
    chance = random.Random(7)
    for _ in range(KILLS):
        with rack.training(10**6, group=False, min_workers=2) as workers:
            for worker in workers:
                worker.wait_for_step(chance.randrange(3, 20))
            wait(chance.uniform(0, 0.1))
            victim = chance.choice(workers)
            others = [worker for worker in workers if worker is not victim]
            moment = time.monotonic()
            victim.kill()
            last = max(worker.done for worker in workers) + AFTER
            for worker in others:
                worker.wait_for_step(last)
            assert max(worker.longest_step(moment, moment + 5) for worker in others) < SECONDS
            one, other = ({k: v for k, v in each.digests.items() if k <= last} for each in others)
            assert one == other
