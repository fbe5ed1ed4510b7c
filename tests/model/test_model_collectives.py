"""The models of collectives: as many packets as workers send, and the times of the formulas."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from racks import rack
from typer.testing import CliRunner

from innet.errors import UsageError
from innet.host.agent import Agent
from innet.host.agreement import WORDS
from innet.model import all_reduce, collectives
from innet.model.all_reduce import SlotParameters
from innet.model.cli import app
from innet.model.collectives import (
    COLLECTIVES,
    exchanges,
    link_bytes,
    over_gloo,
    through_switches,
)
from innet.model.links import LinkModel

LANES = 64
LINK = LinkModel(alpha=1e-5, beta=1e-9, gamma=2e-10, sync=3e-5)


@pytest.fixture(scope="module")
def agents() -> Iterator[list[Agent]]:
    with rack(3, LANES) as running, running.workers(3) as found:
        yield found


def call(agent: Agent, rank: int, collective: str, elements: int) -> None:
    """Call a collective with a vector of so many float32 in all."""
    vector = np.ones(elements, np.float32)
    if collective == "all-reduce":
        agent.all_reduce(vector, "sum")
    elif collective == "reduce-scatter":
        agent.reduce_scatter(vector, "sum")
    elif collective == "reduce":
        agent.reduce(vector, 0, "sum")
    elif collective == "all-gather":
        agent.all_gather(vector[: elements // 3])
    elif collective == "broadcast":
        agent.broadcast(vector, 1)
    else:
        agent.barrier()


def sent(agents: Sequence[Agent]) -> list[int]:
    """Return the packets that each worker has sent for the first time."""
    return [each.traffic.packets_sent - each.traffic.retransmissions for each in agents]


@pytest.mark.parametrize("elements", [3, 78, 84, 600, 30_000])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_workers_send_as_many_packets_as_the_model_says(agents, collective, elements):
    before = sent(agents)
    with ThreadPoolExecutor(len(agents)) as pool:
        calls = [
            pool.submit(call, agent, rank, collective, elements)
            for rank, agent in enumerate(agents)
        ]
        for each in calls:
            each.result()
    expected = sum(exchanges(collective, 3, 4.0 * elements, SlotParameters(lanes=LANES)))
    assert [after - own for after, own in zip(sent(agents), before, strict=True)] == [expected] * 3


def test_the_model_has_the_words_of_the_agreement():
    assert collectives.WORDS == WORDS


@given(st.integers(2, 5000), st.floats(1, 1e9))
def test_a_ring_is_a_reduce_scatter_and_an_all_gather(p, n):
    halves = over_gloo("reduce-scatter", p, n, LINK) + over_gloo("all-gather", p, n, LINK)
    assert halves - LINK.sync == pytest.approx(over_gloo("all-reduce", p, n, LINK))
    assert over_gloo("all-reduce", p, n, LINK) == all_reduce.ring(p, n, LINK)


def test_collectives_over_gloo_by_hand():
    # p = 4, n = 1e6: the shares are 0.75 n
    assert over_gloo("reduce-scatter", 4, 1e6, LINK) == pytest.approx(3e-5 + 7.5e-4 + 1.5e-4 + 3e-5)
    assert over_gloo("all-gather", 4, 1e6, LINK) == pytest.approx(3e-5 + 7.5e-4 + 3e-5)
    assert over_gloo("reduce", 4, 1e6, LINK) == pytest.approx(4e-5 + 1.5e-3 + 1.5e-4 + 3e-5)
    assert over_gloo("broadcast", 4, 1e6, LINK) == pytest.approx(2 * (1e-5 + 1e-3) + 3e-5)
    assert over_gloo("barrier", 5, 1e6, LINK) == pytest.approx(3e-5 + 3e-5)


@given(st.integers(2, 32), st.floats(1e5, 1e8), st.integers(1, 3))
def test_all_sums_through_switches_cost_the_same_but_for_the_last_chunk(p, n, levels):
    slots = SlotParameters()
    whole, *parts = (
        through_switches(each, p, n, LINK, slots, levels)
        for each in ("all-reduce", "reduce-scatter", "reduce")
    )
    round_trip = 2 * levels * (LINK.alpha + slots.frame * LINK.beta) + LINK.sync
    assert parts[0] == parts[1]
    assert whole <= parts[0] <= whole + round_trip
    assert whole > all_reduce.switch(n, LINK, slots, levels)
    assert through_switches("barrier", p, n, LINK, slots, levels) == pytest.approx(
        2 * levels * (LINK.alpha + slots.frame * LINK.beta) + LINK.sync
    )


def test_large_collectives_take_as_long_as_the_links_need():
    link = LinkModel(1e-6, 8e-10)
    overhead = SlotParameters().frame / 1024
    for collective in ("reduce-scatter", "all-gather", "broadcast"):
        seconds = through_switches(collective, 32, 1e9, link, SlotParameters())
        assert seconds == pytest.approx(1e9 * 8e-10 * overhead, rel=0.01)
    # A ring's halves send 31/32 of the vector, and a broadcast sends it five times.
    assert over_gloo("all-gather", 32, 1e9, link) == pytest.approx(0.8 * 31 / 32, rel=1e-3)
    assert over_gloo("broadcast", 32, 1e9, link) == pytest.approx(0.8 * 5, rel=1e-3)


@pytest.mark.parametrize("elements", [3, 600, 30_000])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_links_carry_as_many_bytes_as_the_model_says(agents, collective, elements):
    before = [(each.traffic.bytes_sent, each.traffic.bytes_received) for each in agents]
    again = sum(each.traffic.retransmissions for each in agents)
    with ThreadPoolExecutor(len(agents)) as pool:
        calls = [
            pool.submit(call, agent, rank, collective, elements)
            for rank, agent in enumerate(agents)
        ]
        for each in calls:
            each.result()
    again = sum(each.traffic.retransmissions for each in agents) - again
    slots = SlotParameters(lanes=LANES)
    expected = link_bytes(collective, 3, 4.0 * elements, slots)
    for way, wanted in enumerate(expected):
        now = ("bytes_sent", "bytes_received")[way]
        found = sum(
            getattr(agent.traffic, now) - own[way]
            for agent, own in zip(agents, before, strict=True)
        )
        # A chunk that two workers share has lanes for both. On a busy machine chunks go again.
        assert abs(found - 3 * wanted) <= (3 + again) * slots.frame


def test_both_ways_at_once_carry_little_more_than_one():
    p, n, slots = 8, float(1 << 24), SlotParameters()
    ways = [link_bytes(each, p, n, slots) for each in ("reduce-scatter", "all-gather")]
    up, down = (sum(each) / n for each in zip(*ways, strict=True))
    frames = slots.frame / (4 * slots.lanes)
    bare = slots.header / (4 * slots.lanes)
    assert up == pytest.approx(down, rel=0.01)
    assert up == pytest.approx(frames * (1 + 1 / p) + bare * (1 - 1 / p), rel=0.01)


def test_an_unknown_collective_is_refused():
    for call_ in (
        lambda: exchanges("scan", 2, 1, SlotParameters()),
        lambda: over_gloo("scan", 2, 1, LINK),
    ):
        with pytest.raises(UsageError, match="scan"):
            call_()


def test_without_room_for_the_values_of_all_workers_even_nothing_takes_a_packet():
    assert exchanges("all-gather", 300, 0, SlotParameters(lanes=256)) == (1, 1)


def test_a_vector_without_elements_is_refused():
    done = CliRunner().invoke(app, ["collectives", "--model-size", "0"])
    assert isinstance(done.exception, UsageError)
