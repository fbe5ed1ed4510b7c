"""``innet rack``: any command in a rack on this machine."""

from collections.abc import Sequence

from innet.errors import UsageError
from innet.local.processes import ended, spawned
from innet.local.rack import local_rack

_STOP_WITHIN = 30.0
"""Seconds that a command has to end by itself; torchrun gives its workers the same time."""
_PORTS = 509
"""The ports from 1 on that are neither innet-switch's CPU port nor its drop port."""


def run(
    command: Sequence[str], workers: int, lanes: int, slots: int, cables: int, *, udp: bool
) -> int:
    """Run a command with the environment of a rack for `workers`. Return its exit code.

    If a signal ended the command, the code is 128 plus the signal's number, as in a shell. Raises
    InnetError.
    """
    if workers * cables > _PORTS:
        raise UsageError(
            f"{workers} workers with {cables} cables each need {workers * cables} ports, and a switch "
            f"has {_PORTS}: ask for fewer"
        )
    with local_rack(workers, lanes, slots, cables, udp=udp) as rack:
        # The command uses this terminal. Ctrl-C reaches both processes; other signals are passed on.
        running = spawned(
            command, rack.environment, stop_within=_STOP_WITHIN,
            stdout=None, stderr=None, start_new_session=False,
        )  # fmt: skip
        try:
            with running as process:
                code = ended(process)
        except OSError as problem:
            raise UsageError(f"cannot run {command[0]}: {problem.strerror}") from None
    return code if code >= 0 else 128 - code
