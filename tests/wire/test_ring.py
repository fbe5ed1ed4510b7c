"""Random walks of the ring in shared memory, under the sanitizers, also with damaged memory."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT
from sanitizers import FLAGS

from innet.native.compiler import find_compiler

STEPS = 100_000


@pytest.fixture(scope="module")
def walk(tmp_path_factory) -> Callable[..., str]:
    """Return a function that runs the program with these arguments, and returns its output."""
    program = tmp_path_factory.mktemp("ring") / "walk"
    compile_it = [find_compiler(), "-std=gnu11", "-Wall", "-Werror", *FLAGS, "-o", program]
    source = Path(__file__).parents[1] / "support" / "ring_walk.c"
    done = subprocess.run(
        [*compile_it, f"-I{ROOT / 'innet' / 'wire'}", source],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "cannot find" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0, done.stderr

    def run(*arguments: object) -> str:
        given = [program, *map(str, arguments)]
        done = subprocess.run(given, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run


@pytest.mark.parametrize("seed", range(3))
def test_frames_arrive_whole_and_in_order(walk, seed):
    frames = int(walk(seed, STEPS).split()[0])
    assert frames > STEPS / 4


@pytest.mark.parametrize("seed", range(3))
def test_damaged_memory_does_no_harm(walk, seed):
    walk(seed, STEPS, "damaged")
