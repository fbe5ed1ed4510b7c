"""What innet's commands have in common: errors become a message and an exit code."""

import os
import signal
import socket
import sys
from collections.abc import Sequence

import typer
from rich.console import Console

from innet.errors import InnetError, UsageError

# What goes wrong is said once, by us; a user who sets the variable hears gRPC as well.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_EXTRAS = {
    "cryptography": "certificates",
    "matplotlib": "emulate",
    "p4": "controller",
    "p4runtime_sh": "controller",
    "prometheus_client": "metrics",
    "pydantic": "emulate",
    "scapy": "capture",
    "sklearn": "demo",
    "torch": "demo",
    "yaml": "emulate",
}
"""Which of innet's extras brings a package."""


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit: 2 for wrong input, 1 for what failed, 130 after Ctrl-C."""
    try:
        app(args=arguments, standalone_mode=True)
    except InnetError as problem:
        Console(stderr=True, soft_wrap=True).print(f"error: {problem}", markup=False)
        sys.exit(problem.exit_code)
    except ModuleNotFoundError as problem:
        extra = _EXTRAS.get((problem.name or "").partition(".")[0])
        if not extra:
            raise
        why = f"this needs {problem.name}, which comes with: pip install 'innet[{extra}]'"
        Console(stderr=True, soft_wrap=True).print(f"error: {why}", markup=False)
        sys.exit(UsageError.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


class StopRequest:
    """What Ctrl-C and SIGTERM ask for, from the moment on that this is made."""

    def __init__(self) -> None:
        self._heard, self._told = socket.socketpair()
        self._told.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        # A byte that stays: a signal that comes just before the waiting is not slept through.
        signal.set_wakeup_fd(self._told.fileno())

    def wait(self) -> None:
        """Return when the process is told to stop."""
        self._heard.recv(1)


def served_address(address: str, port: int) -> str:
    """Where a server that was asked for `address` can be reached, now that its port is known."""
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
