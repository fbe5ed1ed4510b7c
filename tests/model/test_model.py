"""The timing models are the papers' equations, and a fit recovers its input."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from innet.errors import UsageError
from innet.model import all_reduce, iteration
from innet.model.all_reduce import SlotParameters
from innet.model.cli import app
from innet.model.fit import fit, read
from innet.model.links import (
    SC17_TABLE_2,
    LinkModel,
    parse_amount,
    parse_link,
    parse_range,
    parse_time,
)
from innet.model.predict import Workload, max_workers_hidden, predictions

LINK = LinkModel(alpha=1e-5, beta=1e-9, gamma=2e-10, sync=3e-5)
seconds = st.floats(1e-6, 10)


def test_equations_2_to_4():
    assert iteration.synchronous(10, 1, 2, 4) == 70
    assert iteration.pipelined_ideal(10, 2, 1, 2, 4) == 35
    assert iteration.pipelined(10, 1, 2, 4) == 40  # bound by communication
    assert iteration.pipelined(10, 1, 2, 2) == 30  # and by computation
    assert iteration.elastic_overlapped(10, 1, 2, 4) == 50


def test_equation_5_by_hand():
    # p = 4, n = 1e6: 6 α + 1.5 n β + 0.75 n γ + S
    assert all_reduce.ring(4, 1e6, LINK) == pytest.approx(6e-5 + 1.5e-3 + 1.5e-4 + 3e-5)


def test_equation_6_by_hand():
    # L = 3: 18 α + 1.5 n β + 0.75 n γ + 3 S
    expected = 1.8e-4 + 1.5e-3 + 1.5e-4 + 9e-5
    assert all_reduce.ring(4, 1e6, LINK, segments=3) == pytest.approx(expected)
    assert iteration.pipelined_segments(2, 1, 2, 3, 4) == 12
    assert iteration.pipelined_segments(2, 1, 2, 3, 40) == 80


@given(update=seconds, compute=seconds, communicate=seconds)
def test_equation_7_is_alone_over_pipelined(update, compute, communicate):
    efficiency = iteration.scaling_efficiency(update, compute, communicate)
    assert efficiency == pytest.approx(
        (update + compute) / iteration.pipelined(1, update, compute, communicate)
    )
    assert (efficiency == 1) == (communicate <= update + compute)


@given(update=seconds, compute=seconds, communicate=seconds)
def test_two_iterations_at_a_time_are_never_slower_and_at_most_twice_as_fast(
    update, compute, communicate
):
    one = iteration.synchronous(1, update, compute, communicate)
    assert one / 2 <= iteration.pipelined(1, update, compute, communicate) <= one
    assert iteration.pipelined_ideal(1, 2, update, compute, communicate) == one / 2


@pytest.mark.parametrize("p", [2, 3, 8, 100])
def test_servers_are_linear_and_trees_logarithmic(p: int):
    message = LINK.alpha + 1e6 * LINK.beta
    assert all_reduce.server(p, 1e6, LINK) == pytest.approx(2 * p * message + p * 2e-4 + 3e-5)
    depth = math.ceil(math.log2(p))
    assert all_reduce.tree(p, 1e6, LINK) == pytest.approx(depth * (2 * message + 2e-4) + 3e-5)


def test_a_sum_in_the_switch_crosses_the_link_once_each_way_at_the_same_time():
    big = 1e8
    link = LinkModel(alpha=1e-6, beta=8e-10)
    slots = SlotParameters(slots=512, lanes=256)
    overhead = slots.frame / 1024
    assert all_reduce.switch(big, link, slots) == pytest.approx(big * 8e-10 * overhead, rel=1e-3)
    assert all_reduce.ring(64, big, link) / all_reduce.switch(big, link, slots) == pytest.approx(
        2 * (63 / 64) / overhead, rel=0.01
    )


def test_table_2_and_what_people_write():
    assert SC17_TABLE_2["fdr"] == LinkModel(0.7e-6, 0.2e-9)
    assert SC17_TABLE_2["qdr"] == LinkModel(1.2e-6, 0.3e-9)
    assert SC17_TABLE_2["ne020"] == LinkModel(7.2e-6, 0.9e-9)
    assert parse_link("10G", 1e-6) == LinkModel(1e-6, 8e-10)
    assert parse_link("FDR", 1.0) == SC17_TABLE_2["fdr"]
    assert parse_amount("100M", "--x") == parse_amount("100MB", "--x") == 1e8
    assert parse_time("10us", "--x") == pytest.approx(1e-5)
    assert parse_time("0.1", "--x") == 0.1
    assert parse_range("4..4096") == [4 << shift for shift in range(11)]
    assert parse_range("3..10") == [3, 6, 10]
    assert parse_range("8") == [8]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: parse_amount("much", "--x"),
        lambda: parse_amount("1.2.3", "--x"),
        lambda: parse_time("10 us", "--x"),
        lambda: parse_range("8..4"),
        lambda: parse_range("0"),
        lambda: parse_link("0", 0.0),
        lambda: parse_link("1e400", 0.0),
        lambda: parse_amount("1e400", "--x"),
        lambda: parse_time("1e400", "--x"),
        lambda: LinkModel(-1, 0),
        lambda: LinkModel(0, float("nan")),
        lambda: all_reduce.switch(1, LINK, SlotParameters(), hops=0),
        lambda: iteration.pipelined_ideal(1, 0, 1, 1, 1),
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(UsageError):
        wrong()


def measurements(link: LinkModel, noise: float = 0.0) -> dict:
    """Return exact or noisy measurements over this link."""
    random = np.random.default_rng(1)

    def noisy(exact: float) -> float:
        return exact * (1 + noise * random.standard_normal())

    sizes = [10**k for k in range(2, 9)]
    return {
        "transfers": [{"bytes": n, "seconds": noisy(link.alpha + n * link.beta)} for n in sizes],
        "reductions": [{"bytes": n, "seconds": noisy(n * link.gamma)} for n in sizes],
        "all_reduces": [
            {
                "transport": name,
                "workers": p,
                "bytes": n,
                "seconds": noisy(getattr(all_reduce, name)(p, n, link)),
            }
            for name in ("ring", "tree", "server")
            for p in (2, 4, 8)
            for n in sizes
        ],
    }


def test_a_fit_finds_the_link_that_was_measured():
    found = fit(measurements(LINK))
    for name in ("alpha", "beta", "gamma", "sync"):
        assert getattr(found.link, name) == pytest.approx(getattr(LINK, name), rel=1e-6)
    assert found.error < 1e-9


def test_a_fit_to_noisy_measurements_is_near():
    found = fit(measurements(LINK, noise=0.05))
    for name in ("alpha", "beta", "gamma", "sync"):
        assert getattr(found.link, name) == pytest.approx(getattr(LINK, name), rel=0.2)
    assert 0.01 < found.error < 0.1


def test_a_fit_has_no_times_below_zero():
    found = fit({"transfers": [{"bytes": 1, "seconds": 1}, {"bytes": 100, "seconds": 0.5}]})
    assert found.link.beta == 0
    assert found.link.alpha > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"transfers": [{"bytes": 1}]},
        {"transfers": [{"bytes": 1, "seconds": 0}]},
        {"transfers": [{"bytes": 1, "seconds": float("nan")}]},
        {"transfers": [{"bytes": float("nan"), "seconds": 1}]},
        {"all_reduces": [{"transport": "mesh", "workers": 2, "bytes": 1, "seconds": 1}]},
        {"all_reduces": [{"transport": "ring", "workers": 0, "bytes": 1, "seconds": 1}]},
    ],
)
def test_measurements_that_say_nothing_are_refused(wrong):
    with pytest.raises(UsageError):
        fit(wrong)


def test_files_that_are_no_measurements_are_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        read(tmp_path / "missing.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(UsageError, match="JSON object"):
        read(tmp_path / "list.json")


def test_the_switch_wins_and_hides_longest():
    workload = Workload(size=1e8, compute=0.2)
    link = LinkModel(1e-5, 8e-10)
    for workers in (8, 64, 512):
        best, *others = predictions(workers, workload, link, SlotParameters())
        assert best.algorithm in {"pipe-sgd", "sync-easgd-3"}
        assert best.transport == ("switch" if workers <= 32 else "hierarchy")
        assert best.hidden
        assert best.efficiency == 1
        assert all(best.seconds <= other.seconds for other in others)
    counts = [4, 8, 16, 32, 64]
    # 2 (p-1)/p n β + 2 (p-1) α: 0.12 s between 4, 0.158 s between 64
    assert max_workers_hidden("ring", counts, workload, link, SlotParameters(), 32) == 64
    # 2 p n β = 0.16 s p
    assert max_workers_hidden("server", counts, workload, link, SlotParameters(), 32) is None


def run(*arguments: str):
    """Run the command and return its result."""
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_predict_prints_what_wins_and_where_it_hides(tmp_path):
    picture = tmp_path / "scaling.png"
    said = run(
        "predict", "--workers", "4..64", "--link", "10G", "--model-size", "100M", "--compute",
        "0.1", "--plot", str(picture),
    )  # fmt: skip
    assert "pipe-sgd" in said
    assert "hierarchy" in said
    assert "hides" in said
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = json.loads(
        run("predict", "--workers", "4..8", "--model-size", "100M", "--compute", "0.1", "--json")
    )
    assert len(rows) == 2 * 12
    assert {row["transport"] for row in rows} == {"server", "tree", "ring", "switch"}


def test_fit_and_predict_go_together(tmp_path):
    given_ = tmp_path / "measured.json"
    link = tmp_path / "link.json"
    given_.write_text(json.dumps(measurements(LINK)))
    said = run("fit", str(given_), "--output", str(link))
    assert "10" in said
    assert json.loads(link.read_text())["alpha"] == pytest.approx(1e-5)
    rows = json.loads(
        run("predict", "--workers", "4", "--model-size", "1M", "--compute", "0.1",
            "--fitted", str(link), "--json")
    )  # fmt: skip
    [ring] = [row for row in rows if row["transport"] == "ring" and row["algorithm"] == "d-sync"]
    assert ring["communicate"] == pytest.approx(all_reduce.ring(4, 1e6, LINK))


def test_simulate_prints_how_long_it_takes():
    said = json.loads(
        run("simulate", "--workers", "64", "--racks", "4", "--model-size", "1M", "--json")
    )
    link = LinkModel(5e-6, 8e-10)
    assert said["seconds"] == pytest.approx(all_reduce.hierarchy(1e6, link, SlotParameters()))
    assert "goodput" in run("simulate", "--workers", "4", "--model-size", "1M", "--loss", "0.001")


def test_a_link_that_cannot_be_written_is_an_error(tmp_path):
    path = tmp_path / "measurements"
    path.write_text(json.dumps({"transfers": [{"bytes": 1000, "seconds": 1e-5}]}))
    with pytest.raises(UsageError, match="No such file"):
        run("fit", str(path), "--output", str(tmp_path / "nowhere" / "link"))


@pytest.mark.parametrize("command", [("simulate", "--model-size", "1M"), ("scaling",)])
def test_a_seed_below_zero_is_refused(command: tuple[str, ...]):
    done = CliRunner().invoke(app, [*command, "--seed", "-1"])
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)


@pytest.mark.parametrize(
    "options",
    [
        ("simulate", "--workers", str((1 << 20) + 1)),
        ("simulate", "--slots", "65537"),
        ("predict", "--compute", "1", "--workers", str((1 << 20) + 1)),
        ("predict", "--compute", "1", "--workers", f"1..{'9' * 5000}"),
        ("predict", "--compute", "1", "--slots", "65537"),
        ("collectives", "--workers", str((1 << 20) + 1)),
    ],
)
def test_what_a_model_takes_no_end_of_time_for_is_refused(options: tuple[str, ...]):
    done = CliRunner().invoke(app, [*options, "--model-size", "1M"])
    assert done.exit_code == 2 or isinstance(done.exception, UsageError)


def test_a_plot_is_not_drawn_beside_a_folder(tmp_path):
    folder = tmp_path / "plots"
    folder.mkdir()
    with pytest.raises(UsageError, match="it is a folder"):
        run("predict", "--model-size", "1M", "--compute", "1", "--plot", str(folder))
    assert [*tmp_path.iterdir()] == [folder]
