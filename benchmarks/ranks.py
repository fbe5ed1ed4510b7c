"""Ranks of a process group on this machine, and what rank 0 has found."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from innet.local.rack import Rack
from innet.local.workers import spawned_workers
from innet.machine.environment import JOB, TOKEN


def found_by_ranks(
    command: Sequence[str], ranks: int, environment: Mapping[str, str] | None = None
) -> Any:
    """Run a command as all ranks. Return what rank 0 prints, which is JSON. Exit if rank 0 fails."""
    with spawned_workers(command, ranks, environment) as processes:
        said, problem = processes[0].communicate()
    if processes[0].returncode:
        raise SystemExit(f"rank 0 has failed:\n{problem}")
    return json.loads(said)


def for_own_job(rack: Rack) -> dict[str, str]:
    """Return the environment of ranks whose group creates a job of its own in a rack."""
    return {name: text for name, text in rack.environment.items() if name not in (JOB, TOKEN)}
