"""The papers' experiments: their tables and pictures of given runs, and two real runs."""

import json
import math
import sys
from dataclasses import replace

import pytest
from preforked import forked_programs

from benchmarks.papers import (
    common,
    easgd_figure_8,
    fixed_batch,
    phub_figure_3,
    pipe_sgd_figure_4,
    simulator,
    weak_scaling,
)
from benchmarks.papers.common import Net, Run, Spec, read, run, write
from benchmarks.papers.report import Table, show
from benchmarks.papers.worker import network
from innet.emulation import requirements
from innet.emulation.topology import Topology
from innet.errors import UsageError


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hosts of emulated networks start soon."""
    if why := requirements.missing():
        pytest.skip(why)
    monkeypatch.setattr(common, "INNET", forked_programs() / "innet")
    monkeypatch.setattr(sys, "executable", str(forked_programs() / "python"))


def made(spec: Spec, seconds: float, curve: tuple[float, ...] = (0.1, 0.9)) -> Run:
    """Return a run of this duration, with accuracies at equal distances."""
    points = [(seconds * (at + 1) / len(curve), right) for at, right in enumerate(curve)]
    given = {"label": spec.label, "steps": spec.steps, "batch": spec.batch}
    parts = dict.fromkeys(("forward", "backward", "updating", "busy", "compressing"), seconds / 10)
    return Run(
        accuracy=curve[-1], seconds=seconds, median_step=seconds / spec.steps, waiting=seconds / 2,
        curve=points, spec=given, label=spec.label, **parts,
    )  # fmt: skip


def test_a_goal_is_reached_when_the_next_look_agrees():
    run = made(Spec("d-sync", ""), 5.0, (0.9, 0.1, 0.9, 0.9, 0.1))
    assert run.reached(0.8) == 3.0
    assert run.reached(0.95) is None
    assert made(Spec("d-sync", ""), 2.0, (0.1, 0.9)).reached(0.8) == 2.0


def test_tables_are_pasted_into_documents(capsys):
    show([Table(["", "ms"], [["ring", "1.5"], ["switch", "1.0"]])], markdown=True)
    assert capsys.readouterr().out.split("\n")[:4] == [
        "|  | ms |", "|---|---|", "| ring | 1.5 |", "| switch | 1.0 |",
    ]  # fmt: skip


def test_speedups_are_of_medians_over_the_seeds(tmp_path):
    took = {"PS-Sync": (40.0, 44.0, 60.0), "D-Sync": (11.0, 10.0, 12.0), "Pipe-SGD+T": (5.5,) * 3}
    runs = [made(Spec("d-sync", label), one) for label, all_ in took.items() for one in all_]
    write(tmp_path, runs, Net())
    rows = {row[0]: row for row in pipe_sgd_figure_4.table(read(tmp_path)).rows}
    assert rows["Pipe-SGD+T"][2:5] == ["5.5", "2.00", "8.00"]
    assert rows["D-Sync"][3:5] == ["1.00", "4.00"]


def test_who_does_not_reach_the_goal_has_no_speedup():
    specs = {spec.label: spec for spec in easgd_figure_8.SPECS}
    runs = [
        made(specs["Original EASGD*"], 20.0, (0.1, 0.9)),
        made(specs["Async SGD"], 10.0, (0.1, 0.2)),
        made(specs["Sync EASGD3, switch"], 4.0, (0.1, 0.9)),
    ]
    rows = {row[0]: row for row in easgd_figure_8.table(runs, 0.85).rows}
    assert rows["Sync EASGD3, switch"][4] == "5.0"
    assert rows["Async SGD"][2:6] == [""] * 4
    assert easgd_figure_8.shares(runs).rows[0] == ["Original EASGD*", "50%", "20%", "10%"]


def test_samples_a_second_are_of_the_baseline():
    runs = [
        made(Spec("ps-sync", f"{kind}, 103 KB, 1 ms", steps=10), seconds)
        for kind, seconds in ((phub_figure_3.BASELINE, 2.0), ("PBox", 1.6), ("switch", 1.0))
    ]
    [row] = phub_figure_3.table(phub_figure_3.rates(runs)).rows
    assert row == ["103 KB, 1 ms", "160", "200", "320", "1.25", "2.00"]


def test_the_batch_is_the_same_however_many_share_it():
    runs = [made(Spec("d-sync", "1 worker"), 16.0)]
    runs += [made(Spec("d-sync", f"4 {over}"), 8.0) for over in fixed_batch.SCALING]
    [row] = fixed_batch.scaling(runs).rows
    assert row[:3] == ["4", "32", "40 (2.00)"]
    assert int(row[0]) * int(row[1]) == fixed_batch.BATCH


def test_quick_has_the_settings_of_four_workers_with_two():
    def labels(trainings):
        return [spec.label for net, specs in trainings for spec in specs if net.workers <= 4]

    given = [each.replace("4 ", "2 ") for each in labels(fixed_batch.trainings("all"))]
    assert set(labels(fixed_batch.quick_trainings("all"))) == set(given)


def test_networks_have_the_layers_that_their_names_say():
    sizes = [sum(each.numel() for each in network(kind).parameters()) for kind in ("cnn", "mlp-20")]
    assert sizes == [25_730, 64 * 20 + 20 + 20 * 20 + 20 + 20 * 10 + 10]
    assert len(list(network("mlp-20-7").parameters())) == 2 * 8
    with pytest.raises(UsageError, match="mlp-WIDTH-HIDDEN"):
        network("mlp-wide")


def test_quick_measures_draws_and_says_what_that_is_worth(emulated, tmp_path, capsys):
    weak_scaling.main(tmp_path, quick=True)
    steps = json.loads((tmp_path / "result.json").read_text())["steps"]
    assert {over: list(hosts) for over, hosts in steps.items()} == {"switch": ["2"], "ring": ["2"]}
    assert (tmp_path / "figure.png").stat().st_size
    assert "figures mean nothing" in capsys.readouterr().out


def test_the_simulated_networks_are_those_that_are_emulated():
    for setting in simulator.SETTINGS:
        network = Topology.model_validate(setting.topology())
        scenario = setting.scenario(1e-3, 10_000.0, 32, ())
        assert sum(len(rack.hosts) for rack in network.racks) == scenario.workers
        assert len(network.switches) == sum(level.switches for level in scenario.tree)
        assert network.link.rate == setting.rate * 1e6
        slowest = min(rack.link.over(network.link).rate or 0 for rack in network.racks)
        assert scenario.tree[0].link.rate == slowest
        for switch in network.switches:
            for uplink in switch.uplinks:
                assert scenario.tree[1].link.rate == uplink.link.rate


def test_the_simulator_is_compared_with_hosts(emulated, tmp_path, capsys):
    simulator.main(tmp_path, quick=True)
    [row] = json.loads((tmp_path / "result.json").read_text())["rows"]
    # Of 64 packets of 1,094 bytes and the agreement, a bucket of 15,000 may leave at once.
    assert min(row["simulated"] + row["measured"]) > 8 * (65 * 1094 - 15_000) / 2e6 * 0.9
    assert "figures mean nothing" in capsys.readouterr().out


def test_both_kinds_of_servers_train_the_same_and_codes_cost_little(emulated):
    """Two workers and a server, each on a host of its own."""
    shared = Spec("ps-sync", "", over="server", steps=8, looks=4, batch=64)
    plain, quantized, pbox = run(
        [
            replace(shared, label="plain"),
            replace(shared, label="Q", codec="Q"),
            replace(shared, label="pbox", over="pbox"),
        ],
        Net(workers=2, rate="100mbit"),
    )
    assert [each.label for each in (plain, quantized, pbox)] == ["plain", "Q", "pbox"]
    for other, within in ((pbox, 0.003), (quantized, 0.05)):
        for (_, mine), (_, its) in zip(plain.curve, other.curve, strict=True):
            assert math.isclose(mine, its, abs_tol=within)
