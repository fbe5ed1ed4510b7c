"""examples/digits.py runs as its docstring says, also without a switch."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from forked import Script, ranks
from forked_rack import forked_rack
from paths import ROOT
from racks import WITHIN

from innet.local.rack import Rack, local_rack

DIGITS = ROOT / "examples" / "digits.py"
WORKERS = 2
SAID = re.compile(r"rank (\d): accuracy ([\d.]+), parameters ([0-9a-f]{64})")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def by_torchrun(rack: Rack) -> str:
    """Run the script as its docstring says, and return its output."""
    done = subprocess.run(
        [*TORCHRUN, str(WORKERS), str(DIGITS)],
        env={**os.environ, **rack.environment, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_by_torchrun(rack: Rack) -> str:
    """Run the script in processes that start sooner, and return their output."""
    with ranks(DIGITS, [], WORKERS, rack.environment) as workers:
        return "".join(worker.finish()[0] for worker in workers)


def train(run: Callable[[Rack], str]) -> tuple[float, str]:
    """Run the script in a rack. Return the accuracy and the parameters' digest of all workers."""
    with forked_rack(WORKERS, slots=32) as rack:
        said = SAID.findall(run(rack))
        counters = rack.describe_job().counters
    assert counters.completed > 1000
    assert sorted(rank for rank, _, _ in said) == ["0", "1"]
    [(accuracy, parameters)] = {(accuracy, parameters) for _, accuracy, parameters in said}
    return float(accuracy), parameters


@pytest.fixture(scope="module")
def trained() -> tuple[float, str]:
    return train(by_torchrun)


def test_it_learns_and_all_workers_of_all_runs_end_with_the_same_bits(trained):
    accuracy, _ = trained
    assert accuracy >= 0.9
    assert train(as_by_torchrun) == trained


def test_three_lines_of_it_are_innets():
    source = DIGITS.read_text()
    docstring = ast.parse(source).body[0]
    code = source.splitlines()[docstring.end_lineno :]
    ours = [line for line in code if "innet" in line]
    assert [line.partition("  # ")[2] for line in ours] == [
        "innet's first line",
        "innet's second line",
        "innet's third line",
    ]


def test_when_the_switch_dies_it_goes_on_and_ends_with_the_same_bits(trained):
    with (
        local_rack(WORKERS, slots=32) as rack,
        ranks(DIGITS, [], WORKERS, rack.environment) as workers,
    ):
        assert workers[0].stdout.readline().startswith("epoch 1:")
        rack.switch.kill()
        found = [output_of(worker) for worker in workers]
    assert {said for said, _ in found} == {trained}
    for _, errors in found:
        assert errors.count("summing over the fallback instead of the switch") == 1


def output_of(worker: Script) -> tuple[tuple[float, str], str]:
    """Return a finished process's output and error output."""
    said, errors = worker.finish()
    [(_, accuracy, parameters)] = SAID.findall(said)
    return (float(accuracy), parameters), errors
