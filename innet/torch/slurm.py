"""A rendezvous for the tasks of a Slurm step, which have no torchrun: ``slurm://``.

The first task serves the store, on the first node of the step. ``MASTER_ADDR`` and ``MASTER_PORT``
override its address.
"""

import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from innet.errors import UsageError
from innet.machine.slurm import with_ranks

SCHEME = "slurm"
_PORTS = range(15_000, 25_000)  # below the ports that Linux gives to sockets without a port


def rendezvous(_: str, timeout: timedelta, **__: Any) -> Iterator[tuple[Any, int, int]]:
    """Yield the store, the rank and the number of processes, as PyTorch's own handlers do.

    Raises UsageError outside of a Slurm step.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    task = with_ranks(os.environ)
    if not (task.get("RANK") and task.get("WORLD_SIZE")):
        raise UsageError(
            "slurm:// finds no SLURM_PROCID and SLURM_NTASKS: start the script with srun"
        )
    rank, size = int(task["RANK"]), int(task["WORLD_SIZE"])
    host, port = store_address(task)
    yield TCPStore(host, port, size, is_master=rank == 0, timeout=timeout), rank, size
    raise UsageError("slurm:// cannot form a group again: start a new step with srun")


def store_address(environment: Mapping[str, str]) -> tuple[str, int]:
    """Return the store's host and port. Steps that share a node rarely have the same port."""
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    host = environment.get("MASTER_ADDR") or _first(nodes)
    job, step = (int(environment.get(f"SLURM_{part}_ID", "0")) for part in ("JOB", "STEP"))
    port = environment.get("MASTER_PORT") or _PORTS[(16 * job + step) % len(_PORTS)]
    return host, int(port)


def _first(nodes: str) -> str:
    """Return the first of Slurm's ``node[03-05,7],other``. Raises UsageError."""
    found = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    if not found:
        raise UsageError("slurm:// finds no SLURM_JOB_NODELIST: start the script with srun")
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", found[0])
