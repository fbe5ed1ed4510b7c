"""The run of a command line: errors become a message and an exit code."""

import gc
import signal
import sys
from collections.abc import Sequence

import typer

from innet.errors import InnetError, UsageError
from innet.terminal.console import console
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


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> None:
    """Run a command line, and exit with a code from the table in docs/commands.md.

    An error has its ``exit_code``. A signal gives 128 plus its number, as in a shell.
    """
    try:
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
    except KeyboardInterrupt:
        raise Stopped(signal.SIGINT) from None
    finally:
        # Otherwise the interpreter searches all modules for garbage at its end, which takes as long
        # as importing them.
        gc.freeze()


def print_error(problem: object) -> None:
    """Print an error to standard error."""
    console(stderr=True, soft_wrap=True).print(f"error: {problem}")
