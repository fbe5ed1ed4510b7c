"""The worker processes of one training on this machine, as torchrun would start them."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from innet.local.ports import free_tcp_port
from innet.local.processes import end_with_parent, spawned


def rank_environment(rank: int, workers: int, master_port: int) -> dict[str, str]:
    """Return the variables that torchrun sets for one of `workers` processes on this machine."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(master_port),
        "WORLD_SIZE": str(workers),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "OMP_NUM_THREADS": "1",
    }


@contextlib.contextmanager
def spawned_workers(
    arguments: Sequence[str], workers: int, environment: Mapping[str, str] | None = None
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a command once for every rank, and yield the processes. They end with the block."""
    port = free_tcp_port()
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                spawned(arguments, {**(environment or {}), **rank_environment(rank, workers, port)})
            )
            for rank in range(workers)
        ]


def fork_workers(work: Callable[[], None], workers: int) -> int:
    """Run a function once for every rank, each in a forked process. Return an exit code.

    The workers need not import again what this process has imported: PyTorch and its compiler take
    seconds. This process must have no other threads. If a worker fails, the others are killed, and its
    exit code is returned. The workers end with this process.
    """
    port, parent = free_tcp_port(), os.getpid()
    gc.freeze()  # a search for garbage in a worker would copy all shared memory
    running = set()
    for rank in range(workers):
        worker = os.fork()
        if not worker:
            end_with_parent(parent)
            os.environ.update(rank_environment(rank, workers, port))
            work()
            sys.exit()
        running.add(worker)
    while running:
        worker, status = os.wait()
        running.remove(worker)
        if status:
            for each in running:
                os.kill(each, signal.SIGKILL)
            return os.waitstatus_to_exitcode(status)
    return 0
