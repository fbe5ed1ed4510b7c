"""Namespaces for an emulation, whose first process a signal reaches at any moment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import WITHIN, until

from innet.emulation import requirements

SLOW_IP = """#!/bin/sh
touch "$0.called"
read -r line < "$0.go"
"""
RUN = """
import sys
from pathlib import Path
from innet.emulation.namespaces import run_in_namespaces
run = lambda: Path(sys.argv[1]).touch() or 0
sys.exit(run_in_namespaces(run))
"""
KILLED = """
import os, signal, sys
from pathlib import Path
from innet.emulation.namespaces import run_in_namespaces
fork, (ended, alive) = os.fork, os.pipe()

def fork_and_die():
    child = fork()
    if child:
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(alive)
    os.read(ended, 1)  # until the parent has ended
    return child

os.fork = fork_and_die
run_in_namespaces(lambda: Path(sys.argv[1]).touch() or 0)
"""


@pytest.fixture(autouse=True)
def able() -> None:
    if why := requirements.missing():
        pytest.skip(why)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_counts_from_the_first_moment(number: signal.Signals, tmp_path: Path):
    slow, reached = tmp_path / "ip", tmp_path / "reached"
    slow.write_text(SLOW_IP)
    slow.chmod(0o755)
    os.mkfifo(tmp_path / "ip.go")
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(reached)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        until((tmp_path / "ip.called").exists)
        [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), number)
        go = os.open(tmp_path / "ip.go", os.O_RDWR)  # waits for no reader
        os.write(go, b"\n")
        _, errors = process.communicate(timeout=WITHIN)
        os.close(go)
    assert (process.returncode, errors) == (128 + number, "")
    assert not reached.exists()


def test_nothing_runs_after_a_parent_that_is_killed_at_the_first_moment(tmp_path: Path):
    reached = tmp_path / "reached"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(reached)],
        check=False, capture_output=True, text=True, timeout=WITHIN,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert not reached.exists()  # the child's output has ended, and so has the child
