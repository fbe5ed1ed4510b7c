"""``innet demo`` keeps its promises, and leaves no process behind however it ends."""

import contextlib
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import talkative_training
from commands import BIN, run
from preforked import forked_programs
from rich.progress import Progress
from waiting import WITHIN, marked, until

from innet.demo import comparison
from innet.demo.comparison import TrainingResult, check
from innet.errors import InnetError
from innet.rpc import innet_pb2 as pb

MARK = "INNET_TEST_MARK"
JOIN = """
import numpy, innet
with innet.join(rank=0) as agent:
    agent.all_reduce(numpy.ones(10, numpy.float32))
print("joined")
"""

RESULTS = ["innet: nothing compiled", "gloo: nothing compiled"]
COUNT_COMPILED = """
import contextlib
from innet.demo import comparison
from innet.errors import InnetError
from innet.native.compiler import cache_folder

train = comparison.train

def watched(network, *arguments):
    before = set(cache_folder().iterdir())
    result = train(network, *arguments)
    if before == set(cache_folder().iterdir()) and len(before) >= 4:
        print(f"{network}: nothing compiled")
    return result

comparison.train = watched
with contextlib.suppress(InnetError):  # one epoch does not reach the accuracy
    comparison.run(workers=2, epochs=1, lanes=64)
"""


@contextlib.contextmanager
def demo(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", Callable[[], list[str]]]]:
    """Yield a running demo, and a function that lists the command lines of all its processes."""
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [str(BIN / "innet"), "demo", *arguments],
        env={**os.environ, MARK: mark, "COLUMNS": "120"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process, lambda: marked(f"{MARK}={mark}")
        finally:
            process.kill()


def test_it_trains_compares_and_cleans_up():
    with demo("--epochs", "10", "--workers", "2") as (process, processes):
        said, errors = process.communicate(timeout=WITHIN)
        assert process.returncode == 0, errors
        assert processes() == []
    rows = dict(re.findall(r"│ (.+?) +│ (.+?) *│", said))
    packets, sums = (
        int(rows[name].replace(",", ""))
        for name in ("packets sent by workers", "sums made in the switch")
    )
    retransmissions = int(rows["retransmissions"])
    assert 0.95 <= float(rows["test accuracy"]) <= 1
    assert sums > 1000
    assert packets == 2 * sums + retransmissions
    assert "All 2 workers hold the same parameters" in said
    assert "the switch's counters account for every chunk of every step" in " ".join(said.split())


@pytest.mark.parametrize("stage", ["innet.switch", "innet.demo.training innet"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_it_leaves_no_process_behind_when_it_is_stopped(stage: str, number: int, code: int):
    with demo("--workers", "2") as (process, processes):
        until(lambda: any(stage in command for command in processes()))
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=WITHIN)
        assert process.returncode == code
        assert "Traceback" not in errors
        until(lambda: processes() == [])


def test_warnings_of_the_workers_do_not_stop_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comparison, "_TRAINING", "talkative_training")
    paths = [str(Path(talkative_training.__file__).parent), os.environ.get("PYTHONPATH", "")]
    with Progress(disable=True) as progress:
        found = comparison.train(
            "innet", 2, 1, progress, {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        )
    assert [each["parameters"] for each in found.workers] == ["same", "same"]


def test_nothing_is_compiled_while_the_clock_of_a_training_runs(tmp_path: Path):
    done = subprocess.run(
        [str(BIN / "python"), "-c", COUNT_COMPILED], check=False, capture_output=True, text=True,
        env={**os.environ, "INNET_CACHE_DIR": str(tmp_path / "cache")}, timeout=WITHIN,
    )  # fmt: skip
    assert [line for line in done.stdout.splitlines() if line in RESULTS] == RESULTS, done.stderr


@pytest.mark.parametrize("name", ["with spaces, and more", "c+d", "long" * 30])
def test_a_rack_runs_whatever_the_folder_of_temporary_files_is_called(tmp_path: Path, name: str):
    (folder := tmp_path / name).mkdir()
    command = [str(forked_programs() / "python"), "-c", JOIN]
    rack = [str(forked_programs() / "innet"), "rack", "--workers", "1", "--lanes", "64", "--"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(
        [*rack, *command], env=environment, check=False, capture_output=True, text=True,
        timeout=WITHIN,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("joined\n", 0), done.stderr


def test_more_slots_than_a_request_has_room_for_are_refused():
    done = run("innet", "rack", "--workers", "1", "--slots", str(1 << 32), "--", "true")
    assert done.returncode == 2
    assert "--slots" in done.stderr


def test_a_rack_imports_nothing_from_the_current_folder(tmp_path: Path):
    """It may be a folder like /tmp, where others can put a file called like a package."""
    (tmp_path / "structlog.py").write_text("raise SystemExit('of somebody else')")
    rack = [str(BIN / "innet"), "rack", "--workers", "1", "--lanes", "64", "--", "true"]
    done = subprocess.run(
        rack, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=WITHIN
    )
    assert (done.returncode, done.stderr) == (0, "")


def outcome(accuracy: float = 0.97, chunks: int = 5, parameters: str = "same") -> TrainingResult:
    """Return a training's outcome for two workers; arguments make the second one differ."""
    traffic = {"chunks": 5}
    first = {"accuracy": accuracy, "parameters": "same", "traffic": traffic}
    return TrainingResult(
        [first, {**first, "parameters": parameters, "traffic": {"chunks": chunks}}], 1.0
    )


def test_a_training_like_gloos_keeps_the_promises():
    check(outcome(0.95), outcome(0.9599), job_with(5))


@pytest.mark.parametrize(
    ("innet", "completed", "why"),
    [
        (outcome(), 4, r"the workers reduced \[5\] chunks, the switch 4"),
        (outcome(chunks=6), 5, r"the workers reduced \[5, 6\] chunks, the switch 5"),
        (outcome(parameters="others"), 5, "the workers' parameters differ"),
        (outcome(0.949), 5, "the accuracy is 0.9490, below 0.95"),
        (outcome(0.981), 5, "the accuracy is 0.9810, Gloo's 0.9700: more than 0.01 apart"),
    ],
)
def test_a_broken_promise_is_an_error_that_names_it(
    innet: TrainingResult, completed: int, why: str
):
    with pytest.raises(InnetError, match=why):
        check(innet, outcome(), job_with(completed))


def job_with(completed: int) -> pb.Job:
    """Return a job for which the switch has made so many sums."""
    return pb.Job(workers=2, counters=pb.Counters(completed=completed))
