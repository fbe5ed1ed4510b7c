"""A parameter server and the jobs of others go on, whatever arrives at its ports."""

import os

import pbox_fuzz
import pytest
from sanitizers import run_sanitized

ROUNDS = int(os.environ.get("INNET_FUZZ_PBOX", "60"))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_goes_on_beside_whatever_arrives(seed):
    assert pbox_fuzz.run(seed, ROUNDS) > ROUNDS // 4


def test_nothing_that_arrives_makes_the_server_do_what_c_leaves_undefined():
    done = run_sanitized("pbox_fuzz.py", 3, ROUNDS)
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.startswith("clean: ")
