"""PyTorch's own tests of a backend, which come with PyTorch (see :mod:`pytorch_suites`)."""

import multiprocessing
import os
from typing import Any

import torch
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

distributed_test.default_pg_timeout = int(os.environ.get("INNET_TEST_TIMEOUT", "60"))


class BackendTest(TestDistBackend, DistributedTest._DistTestBase):
    """PyTorch's tests. Their processes are forked from this one, which has no other threads."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank: int, name: str, file: str, pipe: Any, **more: Any) -> None:
        torch.set_num_threads(1)
        super()._run(rank, name, file, pipe, **more)


del TestDistBackend
