"""Weak scaling, stragglers, and the published figures beside them."""

import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from innet.errors import UsageError
from innet.model import all_reduce
from innet.model.all_reduce import SlotParameters
from innet.model.cli import app
from innet.model.links import LinkModel
from innet.model.predict import Workload
from innet.model.published import SHARP, TABLE_4
from innet.model.scaling import EDR, ThreeTierNetwork, offloaded, weak_scaling
from innet.model.scenario import SimulatedLink
from innet.model.stragglers import Stragglers, fitted, slowest

LINE = SimulatedLink(rate=10e9, delay=5e-6)
LINK = LinkModel(LINE.delay, 8 / LINE.rate)
FABRIC = ThreeTierNetwork(LINE, SlotParameters(64))
WORKLOAD = Workload(size=2e6, compute=0.01, update=0.001)


def test_table_4_has_the_ratios_of_its_times():
    times = {
        "GoogleNet": (1533, 1590, 1608, 1641, 1630, 1662, 1674),
        "VGG-19": (1318, 1440, 1482, 1524, 1634, 1679, 1642),
    }
    iterations = {"GoogleNet": 300, "VGG-19": 80}
    for network in TABLE_4:
        alone, *_ = seconds = times[network.name]
        assert network.step == pytest.approx(alone / iterations[network.name])
        assert list(network.efficiency) == [1 << power for power in range(7)]
        for efficiency, each in zip(network.efficiency.values(), seconds, strict=True):
            assert efficiency == pytest.approx(alone / each, abs=0.001)


def test_sharp_is_as_much_faster_as_its_abstracts_say():
    assert [round(point.speedup, 2) for point in SHARP] == [2.12, 3.24, 5.1]
    assert all("doi:" in point.source for point in SHARP)


@given(st.floats(0, 0.5), st.floats(0, 1), st.floats(1, 4))
def test_compute_times_have_the_mean_and_the_variation_that_they_should_have(
    variation, slow, slowdown
):
    stragglers = Stragglers(variation, slow, slowdown)
    drawn = stragglers.times(2.0, 50_000, np.random.default_rng(1))
    assert drawn.shape == (50_000,)
    assert drawn.min() > 0
    assert drawn.mean() == pytest.approx(2.0 * stragglers.mean, rel=0.03)
    even = Stragglers(variation).times(2.0, 50_000, np.random.default_rng(1))
    assert even.std() / even.mean() == pytest.approx(variation, rel=0.05, abs=1e-9)


@given(st.floats(0, 0.5))
def test_the_slower_of_two_takes_as_long_as_the_formula_says(variation):
    """E max(X, Y) of two equal lognormals is 2 m Φ(s / √2), with s of the logarithm."""
    sigma = math.sqrt(math.log1p(variation**2))
    expected = 2 * NormalDist().cdf(sigma / math.sqrt(2))
    assert float(slowest(2, variation)) == pytest.approx(expected, rel=1e-3)
    assert float(slowest(1, variation)) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("workers", [8, 64, 4352])
def test_the_slowest_takes_as_long_as_the_slowest_of_many_draws(workers):
    random = np.random.default_rng(2)
    draws = [Stragglers(0.1).times(1.0, workers, random).max() for _ in range(2000)]
    assert float(slowest(workers, 0.1)) == pytest.approx(np.mean(draws), rel=0.005)


@pytest.mark.parametrize("variation", [0.0, 0.04, 0.2])
def test_a_fit_finds_the_variation(variation):
    efficiency = {each: float(1 / slowest(each, variation)) for each in (2, 8, 64)}
    assert fitted(efficiency) == pytest.approx(variation, abs=0.0005)


@pytest.mark.parametrize(
    ("workers", "switches"),
    [
        (1, [1]), (64, [1]), (65, [2, 1]), (1024, [16, 1]), (1025, [17, 2, 1]),
        (4352, [68, 5, 1]), (32_768, [512, 32, 1]),
    ],
)  # fmt: skip
def test_a_tree_has_no_more_switches_than_it_needs(workers, switches):
    assert [level.switches for level in FABRIC.tree(workers)] == switches


@pytest.mark.parametrize("workers", [2, 64, 1024, 4352])
def test_equal_workers_scale_as_the_formulas_say(workers):
    (point,) = weak_scaling([workers], WORKLOAD, FABRIC, draws=1)
    assert point.levels == len(FABRIC.tree(workers))
    through = all_reduce.switch(WORKLOAD.size, LINK, FABRIC.slots, hops=point.levels)
    assert point.communicate == pytest.approx(through)
    assert point.switches == pytest.approx(0.011 + through)
    assert point.ring == pytest.approx(0.011 + all_reduce.ring(workers, WORKLOAD.size, LINK))
    assert point.overlapped == pytest.approx(0.011)
    assert point.efficiency("overlapped") == pytest.approx(1)


def test_a_worker_alone_communicates_nothing():
    (point,) = weak_scaling([1], WORKLOAD, FABRIC, Stragglers(0.1, 0.5, 3.0))
    assert point.communicate == 0
    assert point.alone == pytest.approx(0.01 * 2 + 0.001)
    assert point.efficiency("switches") == point.efficiency("ring") == 1


def test_efficiency_falls_with_the_slowest_of_ever_more_workers():
    counts = [2, 8, 64, 512, 4352]
    points = weak_scaling(counts, WORKLOAD, FABRIC, Stragglers(0.1), draws=2)
    found = [point.efficiency("overlapped") for point in points]
    assert found == sorted(found, reverse=True)
    expected = [0.011 / (0.01 * float(slowest(each, 0.1)) + 0.001) for each in counts]
    assert found == pytest.approx(expected, rel=0.01)
    for point in points:
        assert point.overlapped < point.switches < point.slowest + point.communicate + 0.0011


def test_other_traffic_costs_what_it_takes_from_the_links():
    quiet = weak_scaling([64], WORKLOAD, FABRIC, draws=1)[0]
    half = ThreeTierNetwork(
        SimulatedLink(10e9, 5e-6, background=0.5, background_burst=1500), FABRIC.slots
    )
    busy = weak_scaling([64], WORKLOAD, half, draws=1)[0]
    assert busy.communicate == pytest.approx(2 * quiet.communicate, rel=0.1)


def test_switches_win_more_the_more_workers_there_are_below_them():
    times = [offloaded(workers, 8, EDR) for workers in (2, 8, 64)]
    assert times == sorted(times)
    # One level, and no time for the packets: log2 p messages against one.
    fast = ThreeTierNetwork(SimulatedLink(1e18, 1e-6))
    assert offloaded(64, 8, fast) == pytest.approx(6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"variation": -0.1},
        {"slow": 1.1},
        {"slowdown": 0.5},
        {"variation": math.nan},
        {"slow": math.nan},
        {"slowdown": math.nan},
        {"slowdown": math.inf},
    ],
    ids=str,
)
def test_stragglers_that_cannot_be_are_refused(wrong):
    with pytest.raises(UsageError):
        Stragglers(**wrong)


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(app, ["scaling", *arguments], catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome.stdout


def test_the_command_draws_the_published_networks(tmp_path):
    pytest.importorskip("matplotlib")
    out = run("--workers", "32..64", "--draws", "1", "--plot", str(tmp_path / "scaling.png"))
    assert "91.6%" in out
    assert "80.2%" in out
    assert "doi:10.1109/COMHPC.2016.006" in out
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


@pytest.mark.parametrize("path", ["scaling.xyz", "nowhere/scaling.png"])
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_work(tmp_path, monkeypatch, path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("innet.model.cli.parse_range", lambda _: pytest.fail("the work has begun"))
    for command in (["scaling"], ["predict", "--model-size", "1M", "--compute", "1"]):
        with pytest.raises(UsageError, match=f"cannot draw into .*{path}: "):
            CliRunner().invoke(app, [*command, "--plot", tmp_path / path], catch_exceptions=False)


def test_the_command_takes_a_model_of_your_own():
    out = run("--model-size", "2M", "--compute", "10ms", "--workers", "4352", "--json")
    (row,) = json.loads(out)
    assert (row["model"], row["workers"], row["levels"]) == ("model", 4352, 3)
    assert row["slowest"] == pytest.approx(0.01)


@pytest.mark.parametrize("command", ["scaling", "simulate"])
@pytest.mark.parametrize("option", ["oversubscription", "slowdown"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_are_none_are_refused(command, option, value):
    size = ["--model-size", "1k", *(["--compute", "1"] if command == "scaling" else [])]
    given = [command, *size, "--workers", "4", "--slow", "0.5", f"--{option}", value]
    with pytest.raises(UsageError, match=value):
        CliRunner().invoke(app, given, catch_exceptions=False)


def test_half_of_a_model_is_refused():
    with pytest.raises(UsageError, match="--compute"):
        run("--model-size", "2M")


def test_no_draws_are_refused():
    with pytest.raises(UsageError, match="draws"):
        weak_scaling([2], WORKLOAD, FABRIC, draws=0)
