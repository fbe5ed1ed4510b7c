"""A parameter server and the jobs of others go on, whatever arrives at its ports."""

import os
import subprocess
import sys
from pathlib import Path

import pbox_fuzz
import pytest
from sanitizers import sanitizer

ROUNDS = int(os.environ.get("INNET_FUZZ_PBOX", "60"))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_goes_on_beside_whatever_arrives(seed):
    assert pbox_fuzz.run(seed, ROUNDS) > ROUNDS // 4


def test_nothing_that_arrives_makes_the_server_do_what_c_leaves_undefined():
    command = [sys.executable, str(Path(pbox_fuzz.__file__)), "3", str(ROUNDS)]
    environment = {
        **os.environ,
        "LD_PRELOAD": sanitizer(pbox_fuzz.FLAGS),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python leaks much itself
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.startswith("clean: ")
