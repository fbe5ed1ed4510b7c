"""The slots of `innet model capacity` are the least that fill the link, by the other models."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from innet.errors import UsageError
from innet.model import all_reduce
from innet.model.all_reduce import SlotParameters
from innet.model.capacity import SWITCH_SLOTS, aligned, capacity
from innet.model.cli import app
from innet.model.links import LinkModel
from innet.p4.artifacts import artifact

MANY = 1 << 20
links = st.builds(LinkModel, st.floats(1e-7, 1e-4), st.floats(8e-12, 8e-9))


@given(link=links, lanes=st.sampled_from([64, 256, 1024]), hops=st.sampled_from([1, 2]))
def test_the_needed_slots_are_the_least_that_fill_the_link(link, lanes, hops):
    found = capacity(link, lanes, hops=hops, switch_slots=MANY)

    def seconds(slots: int) -> float:
        return all_reduce.switch(4 * lanes * MANY, link, SlotParameters(slots, lanes), hops)

    assert seconds(found.needed) == pytest.approx(seconds(MANY))
    assert found.needed == 1 or seconds(found.needed - 1) > seconds(MANY) * (1 + 1e-9)
    assert found.needed <= found.slots < 2 * found.needed


@given(link=links, slots=st.integers(0, 10).map(lambda power: 1 << power))
def test_the_bandwidth_is_that_of_a_long_all_reduce(link, slots):
    found = capacity(link, 256, slots=slots, switch_slots=MANY)
    size = 4 * 256 * MANY
    seconds = all_reduce.switch(size, link, SlotParameters(slots, 256))
    assert found.gradients == pytest.approx(8 * size / seconds, rel=1e-2)


@pytest.mark.parametrize("lanes", SWITCH_SLOTS)
def test_the_slots_of_a_switch_are_those_of_the_compiled_program(lanes):
    assert SWITCH_SLOTS[lanes] == artifact(lanes).slots


def test_a_measured_round_trip_and_given_slots_replace_the_computed_ones():
    link = LinkModel(1e-6, 8e-11)
    found = capacity(link, 256, round_trip=87.52e-6, slots=100)
    assert (found.needed, found.slots, found.jobs) == (1000, aligned(100), 8)
    assert found.gradients == pytest.approx(100e9 * 0.128 * 1024 / 1094)


def test_a_job_that_no_switch_can_take_is_refused():
    with pytest.raises(UsageError, match="a job with 2048 slots does not fit"):
        capacity(LinkModel(1e-6, 8e-11), 256, slots=2048)
    with pytest.raises(UsageError, match="no compiled program has 32 lanes"):
        capacity(LinkModel(1e-6, 8e-11), 32)


def test_the_command_prints_the_capacity():
    options = ["capacity", "--link", "100G", "--latency", "1us"]
    done = CliRunner().invoke(app, options)
    assert "slots of a job   32; 25 fill the link" in done.stdout
    assert "jobs per switch  32, of its 1,024 slots" in done.stdout
    found = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)
    assert (found["needed"], found["slots"], found["jobs"]) == (25, 32, 32)
