"""Workers are late in trees, over the fallback, and while switches die: each contribution counts once."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from gloo_fallbacks import gloo_fallbacks
from racks import Rack, rack
from scripted_lateness import SCRIPT, ScriptedLateness, at_once, harmed, scripted
from trees import Forest, forest

from benchmarks.emulated.stragglers import DEADLINE, Case, checked
from innet.host.agent import Agent
from innet.host.deadline_sums import DeadlineSums
from innet.host.integers import Integers
from innet.host.late_workers import LateWorkers
from innet.local.faults import Line, faulty
from innet.rpc import innet_pb2 as pb

LANES, WORKERS, STEPS = 64, 4, 20
FLOATS = 40 * LANES + 7
LATE_AT = 8
"""A step of the script in which workers are late."""

SLOW = Line(rate=40_000, queue=1 << 20)
"""So little that the other hosts wait for this one, however busy the machine is."""

PLACES = ["left", "left", "right", "right"]


def restart(trees: Forest, switch: str) -> None:
    trees.switches[switch].kill()
    trees.switches[switch].start()


def check(agents: Sequence[Agent], harm: Callable[[], None]) -> list[dict[str, Any]]:
    """Sum integers by the script, with harm while workers are late. Return each worker's counts."""
    sums, case = scripted(agents), Case("oracle", DEADLINE, len(SCRIPT), FLOATS)
    sums[0].late = ScriptedLateness(len(agents), harmed(SCRIPT, LATE_AT, harm))
    return at_once(agents, lambda rank: checked(case, agents[rank], sums[rank]))


@contextlib.contextmanager
def two_racks(left: int = 2) -> Iterator[Forest]:
    places = {"tor": 0, "left": left, "right": WORKERS - left}
    with forest(places, {"left": ["tor"], "right": ["tor"]}) as trees:
        yield trees


@pytest.mark.parametrize("switch", ["tor", "left", "right"])
def test_a_switch_of_a_tree_dies_while_workers_are_late(switch: str):
    with two_racks() as trees, trees.workers("tor", PLACES) as agents:
        notes = check(agents, lambda: restart(trees, switch))
        assert trees.show().recoveries
    assert all(each["late"] for each in notes)


@pytest.mark.parametrize("comes_back", [False, True])
def test_over_the_fallback_after_the_switch_has_died(comes_back: bool):
    with (
        gloo_fallbacks(WORKERS) as fallbacks,
        two_racks() as trees,
        trees.job("tor", WORKERS) as (name, token),
        contextlib.ExitStack() as stack,
    ):
        agents = [
            stack.enter_context(trees.worker(name, token, rank, PLACES[rank], fallback=fallback))
            for rank, fallback in enumerate(fallbacks)
        ]
        dies = trees.switches["tor"].kill
        notes = check(agents, (lambda: restart(trees, "tor")) if comes_back else dies)
        if not comes_back:
            assert trees.show(name).path == pb.PATH_FALLBACK
            assert all(agent.fallbacks["switch"] for agent in agents)
    assert all(each["late"] for each in notes)


# -- with a slow link ------------------------------------------------------------------------------


class Watched(LateWorkers):
    """Late workers with a log of them. When somebody is late for the first time, there is harm."""

    def __init__(self, workers: int, harm: Callable[[], None]) -> None:
        super().__init__(workers)
        self.seen: list[frozenset[int]] = []
        self._harm = harm

    def learn(self, largest: Integers) -> None:
        super().learn(largest)
        if self.ranks and not any(self.seen):
            self._harm()
        self.seen.append(self.ranks)


def late_in(agents: Sequence[Agent], harm: Callable[[], None] = lambda: None) -> set[int]:
    """Sum integers, compare each sum with the oracle, and return the ranks that were late in any step."""
    sums, case = [DeadlineSums(agent) for agent in agents], Case("oracle", DEADLINE, STEPS, FLOATS)
    watched = [Watched(len(agents), harm if not rank else lambda: None) for rank in range(WORKERS)]
    for each, late in zip(sums, watched, strict=True):
        each.late = late
    at_once(agents, lambda rank: checked(case, agents[rank], sums[rank]))
    assert all(each.seen == watched[0].seen for each in watched), "all workers know the same"
    return {*itertools.chain(*watched[0].seen)}


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(WORKERS, LANES) as running:
        yield running


def test_a_slow_host_at_one_switch_is_late(tor: Rack):
    with (
        tor.cables(WORKERS) as cables,
        faulty(cables[1:2], 0, line=SLOW) as slow,
        tor.job(WORKERS) as job,
        contextlib.ExitStack() as stack,
    ):
        links = [cables[0], *slow.links, *cables[2:]]
        agents = [stack.enter_context(tor.join(job, rank, link)) for rank, link in enumerate(links)]
        assert 1 in late_in(agents)


@contextlib.contextmanager
def slow_host(trees: Forest, switch: str) -> Iterator[None]:
    """Let the first worker that joins at a switch have a slow link."""
    links = trees.plan.links[switch]
    with faulty([links.pop()], 0, line=SLOW) as slow:
        links += slow.links
        yield


@pytest.mark.parametrize("dies", [None, "tor", "left"])
def test_a_slow_host_in_a_rack_of_a_tree_is_late(dies: str | None):
    with (
        two_racks() as trees,
        slow_host(trees, "left"),
        trees.workers("tor", ["left", "right", "left", "right"]) as agents,
    ):
        late = late_in(agents, lambda: restart(trees, dies) if dies else None)
        assert 0 in late
        assert bool(trees.show().recoveries) == bool(dies)


def test_a_slow_host_that_is_alone_in_its_rack_is_late():
    with (
        two_racks(left=1) as trees,
        slow_host(trees, "left"),
        trees.workers("tor", ["left", "right", "right", "right"]) as agents,
    ):
        assert 0 in late_in(agents)
