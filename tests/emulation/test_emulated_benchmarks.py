"""The measurements of the benchmarks in emulated networks: bytes on links, and checked sums."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from emulations import alone
from preforked import forked_programs
from rich.console import Console
from waiting import marked, until

from benchmarks import rates, sharded
from benchmarks.emulated import network, per_host
from benchmarks.emulated.network import Case, Network, Outcome, measure
from benchmarks.per_host import compared
from innet.emulation import requirements

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def able() -> Iterator[None]:
    """Run the benchmarks with programs that start soon."""
    if why := requirements.missing():
        pytest.skip(why)
    programs = forked_programs()
    with alone(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "INNET", programs / "innet")
        patch.setattr(sys, "executable", str(programs / "python"))
        yield


@pytest.fixture(scope="module")
def two_racks() -> Sequence[Outcome]:
    cases = [Case(over, MIB // 2, 2) for over in ("innet int32", "central PS", "sharded PS")]
    return measure(Console(quiet=True), Network(2, 2, 100_000_000, server=True), cases)


def test_a_rack_sends_up_what_one_worker_would(two_racks: Sequence[Outcome]) -> None:
    ours, central, _ = two_racks
    # Frames are a fifteenth larger than the vector; some are sent again on a busy machine.
    assert 0.9 < ours.uplink_up_bytes / ours.up_bytes < 1.2
    assert 1.06 < ours.uplink_up_bytes / ours.case.nbytes < 1.3
    assert 1.9 < central.uplink_up_bytes / central.up_bytes < 2.1


def test_of_a_server_on_every_host_a_part_stays_at_home(two_racks: Sequence[Outcome]) -> None:
    _, _, sharded = two_racks
    # One of the four servers is the worker's own: three quarters of the vector go to the others, and
    # three times the sum of the own quarter. Frames are a fifteenth larger, and TCP repeats some on a
    # busy machine. If no part stayed at home, it would be twice the vector.
    assert 1.5 < sharded.up_bytes / sharded.case.nbytes < 1.95


def test_no_link_carries_more_than_its_rate(two_racks: Sequence[Outcome]) -> None:
    for each in two_racks:
        burst = 15_000 * 8 / (each.step_s * each.network.rate)
        assert each.frame_share <= 1 + burst
        assert each.uplink_share <= 1 + burst


def test_what_is_ended_leaves_no_process(tmp_path: Path) -> None:
    mark = f"INNET_MARK={tmp_path}"
    run = [sys.executable, "-m", "benchmarks.hierarchy", "--quick", "--only", "workers"]
    with subprocess.Popen(
        run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "INNET_MARK": str(tmp_path)},
    ) as process:  # fmt: skip
        assert process.stdout
        assert "hosts" in process.stdout.readline()
        until(lambda: len(marked(mark)) >= 5)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode
    until(lambda: not marked(mark))  # a process that was killed needs a processor to end


def test_links_carry_the_lanes_that_a_collective_needs() -> None:
    what = ("all-reduce", "reduce-scatter", "reduce", "all-gather", "broadcast", sharded.BOTH)
    cases = [sharded.Case(each, "innet int32", MIB, 4) for each in what]
    for each in sharded.measured(Console(quiet=True), cases, "lanes"):
        # The barriers between the steps add some, and so do chunks that are sent again.
        measured = each.least_up_bytes, each.least_down_bytes
        for found, expected in zip(measured, each.expected, strict=True):
            assert 0.9 < found / expected < 1.1, (each.case.what, measured, each.expected)


def test_a_host_of_two_ranks_sends_half_of_what_they_would_send_alone() -> None:
    rack = Network(1, 2, 100_000_000, slots=64)
    cases = [per_host.Case(over, MIB, 2, ranks=2) for over in (per_host.ALONE, per_host.TOGETHER)]
    apart, together = compared(Console(quiet=True), rack, cases)
    # Some frames are sent again on a busy machine.
    assert 0.4 < together.up_bytes / apart.up_bytes < 0.6
    assert 1.06 < together.up_bytes / together.case.nbytes < 1.4


def test_rates_count_what_a_link_carries_and_what_the_switch_takes(tmp_path: Path) -> None:
    over = ("Gloo", "Gloo bf16", "innet int8")
    found = rates.compare(Console(quiet=True), rates.network("1gbit", 2, 1500), over, MIB, steps=1)
    ring, narrow, ours = found
    assert [len(each.steps_s) for each in found] == [rates.TURNS] * 3
    # A super-frame counts as its frames, each with a header.
    assert 1.03 < ring.up_bytes / MIB < 1.2
    assert 0.45 < narrow.up_bytes / ring.up_bytes < 0.6
    assert 0.26 < ours.up_bytes / MIB < 0.4
    assert all(each.switch_s > 0 and 0 < each.busy <= 1 for each in found)
    figures = [each.figures() for each in found]
    again = [{**figures[0], "step_s": 7.0}]
    merged = rates.merged(figures, again)
    assert [each["case"]["over"] for each in merged] == [*over]
    assert merged[0]["step_s"] == 7.0
    plot = tmp_path / "rates.png"
    rates.draw(merged, plot)
    assert plot.read_bytes().startswith(b"\x89PNG")
