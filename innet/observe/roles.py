"""What a machine can be for; on its own, so that the command knows it without the checks."""

from enum import StrEnum


class Role(StrEnum):
    """A worker's machine, or a switch's."""

    WORKER = "worker"
    SWITCH = "switch"
