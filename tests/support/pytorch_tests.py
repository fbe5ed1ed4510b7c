"""PyTorch's own tests of a backend, which come with PyTorch, run with innet.

``innet rack --workers 3 -- python pytorch_tests.py NAME...`` runs the tests of these names, or all of
them. It prints a line of JSON for each: its name, what became of it, and why. Where a test is for
Gloo only, ``BACKEND=gloo`` lets it run: groups of Gloo are groups of innet then.
"""

import gc
import json
import multiprocessing
import os
import sys
import tempfile
import unittest
from typing import Any

os.environ.setdefault("BACKEND", "innet")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("INNET_SLOTS", "16")
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "100")

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import DistTestCases

for _features in ("ddp", "plugin", "subgroup"):
    DistTestCases.backend_feature[_features].add("innet")

from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import (  # noqa: E402
    DistributedTest,
    TestDistBackend,
)


class BackendTest(TestDistBackend, DistributedTest._DistTestBase):
    """PyTorch's tests. Their processes are forked from this one, which has no other threads."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank: int, name: str, file: str, pipe: Any, **more: Any) -> None:
        torch.set_num_threads(1)
        form = dist.init_process_group

        def init_process_group(*arguments: Any, **options: Any) -> None:
            form(*arguments, **{**options, "backend": "innet"})

        dist.init_process_group = init_process_group
        super()._run(rank, name, file, pipe, **more)


class Outcomes(unittest.TestResult):
    """A printer of what becomes of each test."""

    def say(self, test: unittest.TestCase, what: str, why: str = "") -> None:
        name = test.id().split(".")[-1]
        sys.stdout.write(json.dumps({"name": name, "what": what, "why": why[-6000:]}) + "\n")
        sys.stdout.flush()

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.say(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self.say(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.say(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure  # noqa: N815


def main(*names: str) -> None:
    for variable in ("INNET_JOB", "INNET_TOKEN"):
        os.environ.pop(variable, None)  # every test's groups get jobs of their own
    gc.freeze()  # a search for garbage in a forked process would copy all that is shared
    loader = unittest.TestLoader()
    chosen = names or loader.getTestCaseNames(BackendTest)
    distributed_test.default_pg_timeout = int(os.environ.get("INNET_TEST_TIMEOUT", "60"))
    unittest.TestSuite(BackendTest(name) for name in chosen).run(Outcomes())


if __name__ == "__main__":
    main(*sys.argv[1:])
