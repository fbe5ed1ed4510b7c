"""A benchmark of parameter servers with workers that compute nothing.

PBox's authors call such a worker ZeroComputeEngine (Luo et al., "Parameter Box", 2018, section 2).
It stands for an infinitely fast accelerator, so the parameter server is the only thing measured.
"""

import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from innet.machine import threads
from innet.servers.pbox.client import connect
from innet.servers.pbox.optimizers import Optimizer
from innet.servers.pbox.placement import CHUNK_BYTES


@dataclass(frozen=True)
class Rate:
    """The result of a measurement: exchanges of parameters by workers, and their time.

    Each of `workers` workers made `steps` exchanges of `nbytes` bytes. All of them together took
    `seconds`.
    """

    workers: int
    steps: int
    nbytes: int
    seconds: float

    @property
    def bytes_per_second(self) -> float:
        """Return the bytes that all workers push in a second. They pull as many at the same time."""
        return self.workers * self.steps * self.nbytes / self.seconds


def measure(
    addresses: Sequence[str],
    *,
    workers: int,
    floats: int,
    steps: int,
    warm_up: int = 2,
    optimizer: Optimizer | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    timeout: float = 60.0,
    tls: Path | None = None,
) -> Rate:
    """Exchange one key with `workers` workers, which are threads of this process.

    Raises as :func:`innet.servers.pbox.connect` does.
    """
    start = threading.Barrier(workers)
    job = f"zero-compute-engine-{uuid.uuid4()}"  # another measurement may use the same servers

    def zero_compute_engine(rank: int, future: Future[tuple[float, float]]) -> None:
        try:
            with connect(
                addresses, job=job, rank=rank, workers=workers, keys=[floats],
                optimizer=optimizer, chunk_bytes=chunk_bytes, timeout=timeout, tls=tls,
            ) as client:  # fmt: skip
                gradients, out = [np.full(floats, 1e-3, np.float32)], [np.empty(floats, np.float32)]
                for _ in range(warm_up):
                    client.push_pull(gradients, out)
                start.wait(timeout)
                began = time.perf_counter()
                for _ in range(steps):
                    client.push_pull(gradients, out)
                ended = time.perf_counter()
            future.set_result((began, ended))
        except BaseException as problem:  # noqa: BLE001 - the caller raises it
            start.abort()
            future.set_exception(problem)

    futures: list[Future[tuple[float, float]]] = [Future() for _ in range(workers)]
    for each in enumerate(futures):
        # After Ctrl-C, nothing waits for these threads.
        threads.start(threading.Thread(target=zero_compute_engine, args=each, daemon=True))
    wait(futures)
    problems = [problem for each in futures if (problem := each.exception())]
    if problems:  # raise the first failure, not the barrier that it broke
        raise min(problems, key=lambda each: isinstance(each, threading.BrokenBarrierError))
    times = [each.result() for each in futures]
    seconds = max(ended for _, ended in times) - min(began for began, _ in times)
    return Rate(workers, steps, floats * 4, seconds)
