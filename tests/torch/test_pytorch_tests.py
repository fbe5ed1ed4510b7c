"""PyTorch's own tests of a backend pass with innet."""

import json
import os
import subprocess

from libraries import COMMANDS, needs, quiet
from paths import SUPPORT
from preforked import forked_programs

SOME = """
    test_DistributedDataParallelCPU test_accumulate_gradients_no_sync
    test_all_gather_object_subgroup test_all_reduce_coalesced_sum test_all_reduce_full_group_max
    test_all_reduce_sum_async test_barrier test_barrier_timeout_full_group
    test_batch_isend_irecv_gloo test_get_future test_monitored_barrier_gloo
    test_sparse_all_reduce_sum
""".split()
# `make soak` runs all of them. This one wants a backend with the name of Gloo.
GLOOS_NAME = {"test_get_backend"}


def outcomes(*names: str, within: float) -> dict[str, tuple[str, str]]:
    """Run PyTorch's tests. Return what became of each test, and why."""
    python = str(forked_programs(COMMANDS) / "python")
    innet = str(forked_programs() / "innet")
    done = subprocess.run(
        [innet, "rack", "--workers", "3", "--", python, str(SUPPORT / "pytorch_tests.py"), *names],
        env={**quiet(), "BACKEND": "gloo"},
        capture_output=True, text=True, timeout=within, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    return {line["name"]: (line["what"], line["why"]) for line in lines}


def test_pytorchs_own_tests_pass():
    needs("expecttest")  # by PyTorch's tests
    whole = os.environ.get("INNET_PYTORCH_TESTS") == "all"
    found = outcomes(*([] if whole else SOME), within=7200 if whole else 800)
    assert len(found) >= len(SOME)
    bad = {name: why for name, (what, why) in found.items() if what == "failed"}
    assert set(bad) <= GLOOS_NAME, bad
