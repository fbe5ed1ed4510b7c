"""The variables of a task that Slurm's ``srun`` has started, under the names that torchrun uses."""

from collections.abc import Mapping

_NAMES = {
    "RANK": "SLURM_PROCID",
    "LOCAL_RANK": "SLURM_LOCALID",
    "WORLD_SIZE": "SLURM_NTASKS",
}


def with_ranks(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment, with the task's ranks unless it has a rank already."""
    if environment.get("RANK"):
        return environment
    found = {ours: environment[theirs] for ours, theirs in _NAMES.items() if theirs in environment}
    return {**environment, **found}
