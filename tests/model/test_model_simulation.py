"""The simulated slot protocol takes as long as the formulas say, where there are formulas."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.errors import UsageError
from innet.model import all_reduce
from innet.model.all_reduce import SlotParameters
from innet.model.events import run as simulate
from innet.model.links import LinkModel
from innet.model.scenario import Level, Scenario, SimulatedLink, SimulationResult

LINE = SimulatedLink(rate=10e9, delay=2e-6)
RACK = (Level(LINE),)
SLOTS = SlotParameters(slots=16, lanes=256)
FRAME_S = 8 * SLOTS.frame / LINE.rate
ROUND_TRIP = 2 * (FRAME_S + LINE.delay)


def racks(
    count: int, link: SimulatedLink, uplink: SimulatedLink | None = None
) -> tuple[Level, ...]:
    """Return a tree of racks, below one switch if there are several."""
    return (Level(link, count), Level(uplink or link)) if count > 1 else (Level(link),)


def chunks(count: int) -> float:
    """Return the bytes of `count` chunks."""
    return 4.0 * SLOTS.lanes * count


def test_one_slot_is_one_round_trip_after_the_other():
    slots = SlotParameters(slots=1)
    outcome = simulate(Scenario(4, chunks(50), RACK, slots))
    assert outcome.seconds == pytest.approx(50 * ROUND_TRIP)
    assert (outcome.packets_sent, outcome.retransmissions, outcome.lost) == (200, 0, 0)


def test_with_slots_enough_the_link_is_full():
    outcome = simulate(Scenario(4, chunks(1000), RACK, SlotParameters(slots=512)))
    assert outcome.seconds == pytest.approx(999 * FRAME_S + ROUND_TRIP)


@given(
    count=st.integers(1, 200),
    slots=st.integers(1, 40),
    delay=st.floats(0, 1e-4),
    switches=st.integers(1, 3),
)
def test_without_loss_it_is_the_formula_exactly(count, slots, delay, switches):
    window = SlotParameters(slots=slots)
    line = SimulatedLink(LINE.rate, delay)
    link = LinkModel(alpha=delay, beta=8 / LINE.rate)
    expected = all_reduce.switch(chunks(count), link, window, hops=1 if switches == 1 else 2)
    outcome = simulate(Scenario(2 * switches, chunks(count), racks(switches, line), window))
    assert outcome.seconds == pytest.approx(expected)


@pytest.mark.parametrize("count", [1, 5, 200])
def test_a_burst_leaves_at_once_and_the_rest_at_the_rate(count: int):
    line = SimulatedLink(LINE.rate, LINE.delay, burst=10 * SLOTS.frame)
    outcome = simulate(Scenario(4, chunks(count), racks(1, line), SlotParameters(slots=512)))
    assert outcome.seconds == pytest.approx(2 * LINE.delay + max(0, count - 10) * FRAME_S)


def test_all_wait_for_the_last_to_begin():
    together = simulate(Scenario(4, chunks(100), RACK, SLOTS))
    late = simulate(Scenario(4, chunks(100), RACK, SLOTS, starts=(0, 0, 3e-4, 1e-4)))
    assert late.seconds == pytest.approx(together.seconds + 3e-4)


def test_a_slow_uplink_is_the_bottleneck():
    slow = SimulatedLink(rate=LINE.rate / 4, delay=LINE.delay)
    outcome = simulate(Scenario(8, chunks(1000), racks(2, LINE, slow), SlotParameters(slots=512)))
    takes = 8 * SLOTS.frame / slow.rate
    there_and_back = ROUND_TRIP + 2 * (takes + slow.delay)
    assert outcome.seconds == pytest.approx(999 * takes + there_and_back)


@pytest.mark.parametrize("switches", [1, 4])
def test_workers_that_are_alike_count_as_many(switches: int):
    """A loss too rare to happen keeps equal workers apart, and gives the same time."""
    scenario = Scenario(8, chunks(60), racks(switches, LINE), SLOTS, timeout=1.0)
    rarely = dataclasses.replace(LINE, loss=1e-12)
    apart = dataclasses.replace(scenario, tree=racks(switches, rarely))
    one, many = simulate(scenario), simulate(apart)
    assert many.lost == 0
    assert one.seconds == pytest.approx(many.seconds)
    assert one.packets_sent == many.packets_sent == 8 * 60
    assert many.events > 4 * one.events


def test_a_lone_chunk_takes_a_timeout_for_every_loss_on_its_way():
    loss, timeout, count = 0.1, 1e-3, 20_000
    line = dataclasses.replace(LINE, loss=loss)
    outcome = simulate(
        Scenario(1, chunks(count), racks(1, line), SlotParameters(slots=1), timeout=timeout, seed=1)
    )
    arrives = (1 - loss) ** 2
    expected = count * (ROUND_TRIP + timeout * (1 - arrives) / arrives)
    assert outcome.seconds == pytest.approx(expected, rel=0.02)
    assert outcome.retransmissions == outcome.packets_sent - count


@pytest.mark.parametrize("switches", [1, 2])
@pytest.mark.parametrize("loss", [0.001, 0.05, 0.3])
def test_losses_are_repaired_wherever_they_are(loss: float, switches: int):
    line = dataclasses.replace(LINE, loss=loss)
    scenario = Scenario(6, chunks(300), racks(switches, line), SLOTS, timeout=1e-4, seed=3)
    outcome = simulate(scenario)
    assert outcome.lost > 0
    lossless = Scenario(6, chunks(300), racks(switches, LINE), SLOTS)
    assert outcome.seconds > simulate(lossless).seconds
    assert outcome.packets_sent == 6 * 300 + outcome.retransmissions
    assert simulate(scenario) == outcome  # the same seed, the same losses
    assert simulate(dataclasses.replace(scenario, seed=4)) != outcome


def test_losses_on_the_uplinks_only_are_repaired_as_well():
    uplink = dataclasses.replace(LINE, loss=0.1)
    scenario = Scenario(6, chunks(300), racks(3, LINE, uplink), SLOTS, timeout=1e-4)
    outcome: SimulationResult = simulate(scenario)
    assert outcome.lost > 0
    assert outcome.retransmissions > 0


def test_thousands_of_workers_take_no_longer_than_one_to_simulate():
    outcome = simulate(Scenario(4096, chunks(5000), racks(128, LINE), SlotParameters(slots=64)))
    assert outcome.events == 1 + 4 * 5000
    assert outcome.packets_sent == 4096 * 5000


def test_losses_of_many_workers_are_as_many_as_they_should_be():
    line = dataclasses.replace(LINE, loss=0.001)
    uplink = dataclasses.replace(LINE, loss=0.0)
    outcome = simulate(Scenario(256, chunks(40), racks(8, line, uplink), SLOTS, timeout=1e-3))
    results = 256 * 40 + outcome.retransmissions  # at least: every repetition is answered once more
    assert outcome.lost == pytest.approx(0.001 * (outcome.packets_sent + results), rel=0.4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tree": ()},
        {"tree": (Level(LINE, 2),)},
        {"tree": (Level(LINE, 5), Level(LINE))},
        {"tree": (Level(LINE, 2), Level(LINE, 3), Level(LINE))},
        {"starts": (0.0,)},
        {"starts": (0.0, 0.0, -1.0, 0.0)},
        {"timeout": 0.0},
    ],
)
def test_scenarios_that_cannot_be_are_refused(wrong):
    with pytest.raises(UsageError):
        dataclasses.replace(Scenario(4, 1.0, RACK), **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SimulatedLink(0, 0),
        lambda: SimulatedLink(1, 0, 1.0),
        lambda: SimulatedLink(1, -1.0),
        lambda: SimulatedLink(1, 0, background=1.0),
        lambda: SimulatedLink(1, 0, background=0.5, background_burst=0),
        lambda: Level(LINE, 0),
        lambda: Level(LINE, slow=1.5),
        lambda: Level(LINE, slow=0.5, slowdown=0.5),
    ],
)
def test_links_that_cannot_be_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()
