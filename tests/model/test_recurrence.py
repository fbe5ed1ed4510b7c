"""The recurrence gives the times of the event simulation, and of the formulas where there are any."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.errors import UsageError
from innet.model import all_reduce, events, recurrence
from innet.model.all_reduce import SlotParameters
from innet.model.links import LinkModel
from innet.model.nodes import nodes
from innet.model.scenario import Level, Scenario, SimulatedLink, switch_tree
from innet.model.simulate import simulate

LINE = SimulatedLink(rate=10e9, delay=2e-6)
SLOTS = SlotParameters(slots=16, lanes=256)
FRAME_S = 8 * SLOTS.frame / LINE.rate


def chunks(count: int) -> float:
    """Return the bytes of `count` chunks."""
    return 4.0 * SLOTS.lanes * count


links = st.builds(
    SimulatedLink,
    rate=st.sampled_from([1e9, 3e9, 10e9]),
    delay=st.floats(0, 2e-5),
    burst=st.sampled_from([0.0, 1500.0, 15_000.0]),
    background=st.sampled_from([0.0, 0.0, 0.1, 0.6]),
    background_burst=st.sampled_from([500.0, 9000.0]),
)


@st.composite
def scenarios(draw) -> Scenario:
    """Draw a small tree of one to three levels whose workers and links differ."""
    workers = draw(st.integers(1, 12))
    counts = sorted(draw(st.lists(st.integers(1, workers), max_size=2)), reverse=True)
    tree = tuple(
        Level(draw(links), count, draw(st.sampled_from([0.0, 0.3])), draw(st.floats(1, 5)))
        for count in (*counts, 1)
    )
    starts = draw(st.lists(st.floats(0, 1e-3), min_size=workers, max_size=workers))
    return Scenario(
        workers,
        chunks(draw(st.integers(1, 120))),
        tree,
        SlotParameters(draw(st.integers(1, 40))),
        tuple(starts),
        seed=draw(st.integers(0, 9)),
    )


@given(scenarios())
def test_it_gives_the_times_of_the_events(scenario):
    packets, times = events.run(scenario), recurrence.run(scenario)
    assert times.seconds == pytest.approx(packets.seconds, rel=1e-9)
    assert times.packets_sent == packets.packets_sent
    assert simulate(scenario) == times


@pytest.mark.parametrize("slots", [3, 16, 200])
@pytest.mark.parametrize("starts", [(), tuple(np.random.default_rng(2).uniform(0, 1e-4, 24))])
def test_the_rest_of_a_periodic_exchange_is_the_same_as_if_simulated(slots, starts):
    tree = (Level(LINE, 6), Level(LINE, 2), Level(dataclasses.replace(LINE, rate=4e9)))
    scenario = Scenario(24, chunks(1503), tree, SlotParameters(slots), starts)
    packets, times = events.run(scenario), recurrence.run(scenario)
    assert times.seconds == pytest.approx(packets.seconds, rel=1e-9)
    assert times.events < packets.events / 2  # it was left out


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
@pytest.mark.parametrize("slots", [8, 512])
def test_equal_workers_take_as_long_as_the_formula_says(levels, slots):
    window, link = SlotParameters(slots), LinkModel(LINE.delay, 8 / LINE.rate)
    tree = tuple(Level(LINE, 32 ** (levels - 1 - level)) for level in range(levels))
    outcome = recurrence.run(Scenario(32_768, chunks(3000), tree, window))
    expected = all_reduce.switch(chunks(3000), link, window, hops=levels)
    assert outcome.seconds == pytest.approx(expected)
    assert outcome.packets_sent == 32_768 * 3000


def test_32_768_workers_that_all_start_at_other_times():
    starts = np.random.default_rng(3).exponential(1e-3, 32_768)
    tree = switch_tree(LINE, [512, 32])
    outcome = recurrence.run(Scenario(32_768, chunks(9000), tree, starts=tuple(starts.tolist())))
    alone = recurrence.run(Scenario(1, chunks(9000), switch_tree(LINE, [])))
    # The others wait for the last worker, with whole windows. The last one is alone then, but
    # its packets have longer ways.
    assert starts.max() + alone.seconds < outcome.seconds < starts.max() + alone.seconds + 5e-5


@given(scenarios(), st.floats(0, 1))
def test_it_takes_no_longer_if_all_start_later(scenario, later):
    tree = tuple(
        dataclasses.replace(level, link=dataclasses.replace(level.link, background=0.0))
        for level in scenario.tree
    )
    first = dataclasses.replace(scenario, tree=tree)
    starts = tuple(start + later for start in first.starts)
    second = dataclasses.replace(first, starts=starts)
    assert simulate(second).seconds == pytest.approx(simulate(first).seconds + later)


@given(scenarios(), st.integers(0, 2), st.floats(1, 4), st.sampled_from(["rate", "delay", "start"]))
def test_nothing_gets_faster_by_slower_links_or_later_starts(scenario, number, factor, what):
    number %= len(scenario.tree)
    quiet = [
        dataclasses.replace(level, link=dataclasses.replace(level.link, background=0.0))
        for level in scenario.tree
    ]
    scenario = dataclasses.replace(scenario, tree=tuple(quiet))
    link = quiet[number].link
    slower = {
        "rate": dataclasses.replace(link, rate=link.rate / factor, burst=link.burst / factor),
        "delay": dataclasses.replace(link, delay=link.delay * factor),
        "start": link,
    }[what]
    quiet[number] = dataclasses.replace(quiet[number], link=slower)
    starts = list(scenario.starts)
    starts[0] *= factor if what == "start" else 1
    other = dataclasses.replace(scenario, tree=tuple(quiet), starts=tuple(starts))
    assert simulate(other).seconds >= simulate(scenario).seconds * (1 - 1e-12)


@given(scenarios())
def test_other_traffic_makes_nothing_faster(scenario):
    quiet = tuple(
        dataclasses.replace(level, link=dataclasses.replace(level.link, background=0.0))
        for level in scenario.tree
    )
    alone = dataclasses.replace(scenario, tree=quiet)
    assert simulate(scenario).seconds >= simulate(alone).seconds * (1 - 1e-12)


@given(scenarios(), st.integers(1, 40))
def test_more_slots_make_nothing_slower(scenario, more):
    wider = dataclasses.replace(scenario, slots=SlotParameters(scenario.slots.slots + more))
    assert simulate(wider).seconds <= simulate(scenario).seconds * (1 + 1e-12)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_full_link_has_what_other_traffic_leaves(share):
    link = dataclasses.replace(LINE, background=share, background_burst=1500)
    outcome = simulate(Scenario(8, chunks(6000), switch_tree(link, [2]), SlotParameters(64)))
    assert outcome.seconds == pytest.approx(6000 * FRAME_S / (1 - share), rel=0.02)


@pytest.mark.parametrize("oversubscription", [1, 8, 16, 64])
def test_uplinks_limit_only_beyond_as_much_oversubscription_as_a_rack_has_workers(oversubscription):
    tree = switch_tree(LINE, [4], oversubscription, 64)
    outcome = simulate(Scenario(64, chunks(20_000), tree))
    assert tree[1].link.rate == pytest.approx(16 / oversubscription * LINE.rate)
    slowest = max(1, oversubscription / 16)
    assert outcome.seconds == pytest.approx(20_000 * FRAME_S * slowest, rel=0.01)


def test_the_oversubscription_of_spines_counts_from_their_own_links():
    racks, spines, core = switch_tree(LINE, [8, 2], 4, 64)
    assert (racks.switches, spines.switches, core.switches) == (8, 2, 1)
    assert spines.link.rate == pytest.approx(LINE.rate * 8 / 4)
    assert core.link.rate == pytest.approx(spines.link.rate * 4 / 4)


def test_one_slow_link_slows_all():
    tree = (Level(LINE, slow=1.0, slowdown=4.0),)
    slow = Scenario(8, chunks(4000), (Level(dataclasses.replace(LINE, rate=LINE.rate / 4)),))
    assert simulate(Scenario(8, chunks(4000), tree)).seconds == pytest.approx(
        simulate(slow).seconds
    )
    some = Scenario(1000, chunks(4000), (Level(LINE, slow=0.01, slowdown=4.0),))
    assert simulate(some).seconds == pytest.approx(simulate(slow).seconds, rel=1e-3)


def test_as_many_links_are_slow_as_the_share_says():
    level = Level(LINE, slow=0.1, slowdown=2.0)
    found = nodes(Scenario(20_000, chunks(1), (level,)))
    counts = {round(node.up.packet / FRAME_S): node.count for node in found}
    assert sum(counts.values()) == 20_000
    assert counts[2] == pytest.approx(2000, abs=5 * math.sqrt(1800))


def test_nodes_are_spread_evenly():
    top = nodes(Scenario(4353, chunks(1), switch_tree(LINE, [69, 5])))
    sizes = [rack.count * spine.count for spine in top for rack in spine.below]
    assert sum(sizes) == 69
    workers = [w.count * r.count * s.count for s in top for r in s.below for w in r.below]
    assert sum(workers) == 4353
    assert {w.count for s in top for r in s.below for w in r.below} <= {63, 64}


def test_the_same_seed_gives_the_same_times():
    link = dataclasses.replace(LINE, background=0.4)
    scenario = Scenario(24, chunks(200), switch_tree(link, [4]))
    assert simulate(scenario) == simulate(scenario)
    assert simulate(dataclasses.replace(scenario, seed=1)) != simulate(scenario)


def test_losses_are_for_the_events():
    lossy = Scenario(4, chunks(50), (Level(dataclasses.replace(LINE, loss=0.1)),))
    with pytest.raises(UsageError, match="lost"):
        recurrence.run(lossy)
    assert simulate(lossy) == events.run(lossy)


@pytest.mark.parametrize("wrong", [(-1.0, 8), (2.0, 0)])
def test_an_oversubscription_that_cannot_be_is_refused(wrong):
    with pytest.raises(UsageError):
        switch_tree(LINE, [2], *wrong)
