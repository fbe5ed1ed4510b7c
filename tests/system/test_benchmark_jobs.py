"""The benchmark of jobs that share a switch ends, and compares all situations."""

import json
import subprocess
import sys
from pathlib import Path

from waiting import WITHIN

from benchmarks.jobs import SITUATIONS


def test_a_job_is_measured_beside_a_stuck_one_and_beside_a_flood(tmp_path: Path):
    file = tmp_path / "jobs.json"
    small = ["--elements", "1000", "--all-reduces", "1", "--rounds", "1", "--json", str(file)]
    command = [sys.executable, "-m", "benchmarks.jobs", *small]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WITHIN)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())["rounds"]
    assert {name: len(rates) for name, rates in found.items()} == dict.fromkeys(SITUATIONS, 1)
