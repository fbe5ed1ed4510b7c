"""Super-frames through ports on network interfaces, as the kernel cuts and joins them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent.parent / "support"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"
)


def run(script: str) -> str:
    """Run a script of tests/support in a network namespace of its own. Returns its output."""
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(SUPPORT / script)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_super_frames_are_cut_and_joined_as_by_the_kernel():
    assert run("superframes_check.py") == "done\n"
