"""The worker processes of one training on this machine, as torchrun would start them."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from innet.local.ports import free_tcp_port
from innet.local.processes import spawned


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
