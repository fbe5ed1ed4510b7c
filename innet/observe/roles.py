"""The roles of a machine, in a module that the command line imports without the checks."""

from enum import StrEnum


class Role(StrEnum):
    """The role of a machine: a worker's, a switch's, or that of somebody who manages jobs."""

    WORKER = "worker"
    SWITCH = "switch"
    OPERATOR = "operator"
