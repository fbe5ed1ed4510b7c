"""What innet's commands have in common: errors become a message and an exit code."""

import signal
import sys
import threading
from collections.abc import Sequence

import typer
from rich.console import Console

from innet.errors import InnetError


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit: 2 for wrong input, 1 for what failed, 130 after Ctrl-C."""
    try:
        app(args=arguments, standalone_mode=True)
    except InnetError as problem:
        Console(stderr=True, soft_wrap=True).print(f"error: {problem}", markup=False)
        sys.exit(problem.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def wait_for_stop() -> None:
    """Return when the process is told to stop, by Ctrl-C or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    # Signals are handled between bytecodes: a wait without end would not see them everywhere.
    while not stop.wait(3600):
        pass
