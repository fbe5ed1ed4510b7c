"""``innet rack``: any command in a rack on this machine."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial

from innet.errors import UsageError
from innet.local.rack import INTERRUPTS, end_with_parent, local_rack
from innet.terminal.outcome import Stopped

_STOP_WITHIN = 30.0
"""Seconds that a command has to end by itself; torchrun gives its workers the same time."""


def run(command: Sequence[str], workers: int, lanes: int, slots: int, cables: int) -> int:
    """Run a command with the environment of a rack for `workers`. Return its exit code.

    If a signal ended the command, the code is 128 plus the signal's number, as in a shell. Raises
    InnetError.
    """
    INTERRUPTS.catch()
    with local_rack(workers, lanes, slots, cables) as rack:
        try:
            with _running(command, rack.environment) as process:
                code = process.wait()
        except OSError as problem:
            raise UsageError(f"cannot run {command[0]}: {problem.strerror}") from None
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _running(
    command: Sequence[str], environment: dict[str, str]
) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a process on this one's terminal; it ends with the block, or with this process."""
    with INTERRUPTS.held():
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - system calls only
        )
    with process:
        try:
            INTERRUPTS.check()
            yield process
        except (KeyboardInterrupt, Stopped):
            # The terminal sends Ctrl-C to both processes. Other signals have to be passed on.
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_WITHIN)
            raise
        finally:
            if process.poll() is None:
                process.kill()
