"""The tests that PyTorch and torchft have of their own pass over innet as they do over Gloo.

PyTorch's package has one of its suites only. The sources of the others have to be in the folder
``INNET_PYTORCH_SOURCE``, from PyTorch's version or one near it; otherwise these suites are skipped. A
few tests of each suite run always. ``INNET_PYTORCH_TESTS=all`` runs all, first over Gloo: what passes
there has to pass over innet, except for the tests in ``test_pytorch_tests.json``, which has the reasons.
"""

import fnmatch
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from libraries import COMMANDS, SITE, needs, quiet
from paths import SUPPORT
from preforked import forked_programs

WHOLE = os.environ.get("INNET_PYTORCH_TESTS") == "all"
WITHIN = 3600 if WHOLE else 800  # seconds, for each suite
SOURCE = Path(os.environ.get("INNET_PYTORCH_SOURCE", "/nonexistent")) / "test/distributed"
TORCHFT = SITE[0] / "torchft" if SITE else Path("/nonexistent")
UNLIKE: Mapping[str, Mapping[str, str]] = json.loads(
    Path(__file__).with_suffix(".json").read_text()
)
"""By suite, patterns for the tests that pass over Gloo only, each with the reason."""


@dataclass(frozen=True)
class Suite:
    """The tests of `files` in a folder, of which `some` are for every run.

    Over innet, each of `workers` processes has so many `cables`.
    """

    folder: Path
    files: str
    some: str = ""
    workers: int = 4
    cables: int = 6

    def outcomes(self, over: str, into: Path) -> dict[str, tuple[str, str]]:
        """Run the tests over ``innet`` or ``gloo``. Return what became of each, and why."""
        python = str(forked_programs(COMMANDS) / "python")
        command = [python, str(SUPPORT / "pytorch_suites.py"), "--timeout=300", *self._selection()]
        if over == "innet":
            innet = str(forked_programs() / "innet")
            rack = ["--workers", str(self.workers), "--cables", str(self.cables)]
            command = [innet, "rack", *rack, "--", *command]
        outcomes = into / f"{over}.jsonl"
        own = {"SUITE_OVER": over, "SUITE_OUTCOMES": str(outcomes)}
        done = subprocess.run(
            command, cwd=into, env={**quiet(), **own}, capture_output=True, text=True,
            timeout=WITHIN, check=False,
        )  # fmt: skip
        assert outcomes.exists(), done.stdout + done.stderr
        lines = [json.loads(line) for line in outcomes.read_text().splitlines()]
        return {line["name"]: (line["what"], line["why"]) for line in lines}

    def _selection(self) -> Sequence[str]:
        if WHOLE:
            return [str(self.folder / name) for name in self.files.split()]
        return [str(self.folder / test) for test in self.some.split()]


_IN_THE_PACKAGE = """
    test_DistributedDataParallelCPU test_accumulate_gradients_no_sync
    test_all_gather_object_subgroup test_all_reduce_coalesced_sum test_all_reduce_full_group_max
    test_all_reduce_sum_async test_barrier test_barrier_timeout_full_group
    test_batch_isend_irecv_gloo test_get_future test_monitored_barrier_gloo
    test_sparse_all_reduce_sum
""".split()
_CASES = "pytorch_backend_cases.py"
_TENSORS = """
    _tensor/test_api.py _tensor/test_dtensor.py _tensor/test_init.py _tensor/test_redistribute.py
    _tensor/test_utils.py _tensor/test_common_rules.py _tensor/test_embedding_ops.py
    _tensor/test_matrix_ops.py _tensor/test_math_ops.py _tensor/test_optimizers.py
    _tensor/test_pointwise_ops.py _tensor/test_random_ops.py _tensor/test_tensor_ops.py
    _tensor/test_view_ops.py _tensor/test_convolution_ops.py _tensor/test_experimental_ops.py
    _tensor/debug/test_comm_mode.py _tensor/debug/test_comm_mode_features.py
    tensor/parallel/test_tp_examples.py tensor/parallel/test_parallelize_api.py
    tensor/parallel/test_tp_style.py
"""
_FSDP = """
    _composable/fsdp/test_fully_shard_init.py _composable/fsdp/test_fully_shard_training.py
    _composable/fsdp/test_fully_shard_comm.py _composable/fsdp/test_fully_shard_state_dict.py
    _composable/fsdp/test_fully_shard_state.py _composable/fsdp/test_fully_shard_clip_grad_norm_.py
    _composable/test_replicate.py _composable/test_checkpoint.py fsdp/test_shard_utils.py
    fsdp/test_utils.py
"""
_CHECKPOINTS = """
    checkpoint/test_checkpoint.py checkpoint/test_dtensor_checkpoint.py
    checkpoint/test_dtensor_resharding.py checkpoint/test_file_system_checkpoint.py
    checkpoint/test_file_system_checkpoint_cpu.py checkpoint/test_fsdp_model_state.py
    checkpoint/test_fsspec.py checkpoint/test_state_dict.py checkpoint/test_state_dict_utils.py
    checkpoint/test_tp_checkpoint.py checkpoint/test_utils.py checkpoint/test_save_load_api.py
    checkpoint/test_format_utils.py checkpoint/test_hsdp_checkpoint.py
"""
_TRAINING = """
    algorithms/test_join.py algorithms/ddp_comm_hooks/test_ddp_hooks.py
    optim/test_zero_redundancy_optimizer.py pipelining/test_schedule_multiproc.py
    pipelining/test_stage.py
"""
_COLLECTIVES = """
    test_c10d_common.py test_c10d_object_collectives.py test_c10d_logger.py test_c10d_pypg.py
    test_c10d_spawn_gloo.py test_collective_utils.py test_control_collectives.py test_backends.py
"""
SUITES: Mapping[str, Suite] = {
    "distributed_test": Suite(
        SUPPORT, _CASES, " ".join(f"{_CASES}::BackendTest::{test}" for test in _IN_THE_PACKAGE), 3
    ),
    "c10d_gloo": Suite(SOURCE, "test_c10d_gloo.py", "test_c10d_gloo.py::ProcessGroupGlooTest"),
    "collectives": Suite(SOURCE, _COLLECTIVES, "test_c10d_object_collectives.py"),
    "functional": Suite(
        SOURCE, "test_functional_api.py test_c10d_functional_native.py", "test_functional_api.py"
    ),
    "device_mesh": Suite(SOURCE, "test_device_mesh.py", "test_device_mesh.py", 8),
    "dtensor": Suite(SOURCE, _TENSORS, "_tensor/test_redistribute.py", 8),
    "fsdp": Suite(SOURCE, _FSDP, "_composable/test_replicate.py"),
    "checkpoints": Suite(SOURCE, _CHECKPOINTS, "checkpoint/test_dtensor_checkpoint.py", 8),
    "training": Suite(SOURCE, _TRAINING, "algorithms/test_join.py"),
    "torchft": Suite(
        TORCHFT,
        " ".join(str(path.relative_to(TORCHFT)) for path in sorted(TORCHFT.rglob("*_test.py"))),
        "local_sgd_integ_test.py::LocalSGDIntegTest::test_local_sgd_recovery_0 "
        "local_sgd_integ_test.py::LocalSGDIntegTest::test_streaming_diloco_upscale_00",
        1,
        16,
    ),
}


@pytest.mark.timeout(2 * WITHIN + 60)
@pytest.mark.parametrize("name", SUITES)
def test_what_passes_over_gloo_passes_over_innet(name: str, tmp_path: Path):
    needs("expecttest", *(["torchft", "parameterized"] if name.startswith("torchft") else []))
    suite = SUITES[name]
    if not suite.folder.exists():
        pytest.skip("INNET_PYTORCH_SOURCE names no folder with PyTorch's sources")
    found = suite.outcomes("innet", tmp_path)
    assert len(found) >= len(suite.some.split())
    bad = {test: why for test, (what, why) in found.items() if what == "failed"}
    bad = {test: why for test, why in bad.items() if not is_unlike(name, test)}
    if WHOLE and bad:
        gloo = suite.outcomes("gloo", tmp_path)
        bad = {test: why for test, why in bad.items() if gloo[test][0] == "passed"}
    assert not bad


def is_unlike(suite: str, test: str) -> bool:
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in UNLIKE.get(suite, {}))
