"""The run of a command line: errors become a message and an exit code."""

import contextlib
import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from innet.errors import InnetError, UsageError
from innet.terminal.console import console, drop_output
from innet.terminal.signals import Stopped

_EXTRAS = {
    "cryptography": "certificates",
    "matplotlib": "emulate",
    "nicegui": "web",
    "prometheus_client": "metrics",
    "pydantic": "apply",
    "scapy": "capture",
    "sklearn": "demo",
    "torch": "demo",
    "yaml": "apply",
}
"""The extra of innet that installs a package."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a disk, or of a user's share of it, that has no room."""


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> None:
    """Run a command line, and exit with a code from the table in docs/commands.md.

    An error has its ``exit_code``. A signal gives 128 plus its number, as in a shell.
    """
    try:
        with _usable_outputs():
            app(args=arguments, standalone_mode=True)
    except InnetError as problem:
        print_error(problem)
        sys.exit(problem.exit_code)
    except ModuleNotFoundError as problem:
        extra = _EXTRAS.get((problem.name or "").partition(".")[0])
        if not extra:
            raise
        why = f"this needs {problem.name}, which comes with: pip install 'innet[{extra}]'"
        print_error(why)
        sys.exit(UsageError.exit_code)
    except UnicodeEncodeError as problem:  # of a request, which has room for text only
        print_error(f"{problem.object!a} is not UTF-8: check the terminal's encoding")
        sys.exit(UsageError.exit_code)
    except OSError as problem:
        if problem.errno not in _FULL:
            raise
        print_error(problem)
        drop_output(sys.stdout)
        sys.exit(InnetError.exit_code)
    except KeyboardInterrupt:
        raise Stopped(signal.SIGINT) from None
    finally:
        # Otherwise the interpreter searches all modules for garbage at its end, which takes as long
        # as importing them.
        gc.freeze()


@contextlib.contextmanager
def _usable_outputs() -> Iterator[None]:
    """Let a block write to standard output and error, whatever they are. Raises OSError at its end.

    What is written to a closed output is lost.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):  # it may lack letters that others have written
        with contextlib.suppress(OSError):  # it was a file before a fork, and is a pipe now
            sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()  # here an error can be told, and not at the interpreter's end


def print_error(problem: object) -> None:
    """Print an error to standard error. If that does not take it, the exit code tells of it alone."""
    try:
        console(stderr=True, soft_wrap=True).print(f"error: {problem}")
    except (OSError, SystemExit):  # rich would end the process with code 1 if nobody reads its pipe
        drop_output(sys.stderr)
