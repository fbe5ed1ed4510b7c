"""Functions that all commands share: errors become a message and an exit code."""

import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from innet.console import console
from innet.errors import InnetError, UsageError

# innet reports each error once. A user who sets this variable sees gRPC's own messages too.
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
"""The extra of innet that installs a package."""


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> None:
    """Run a command line, and exit with a code from the table in docs/observing.md.

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


class Stopped(SystemExit):
    """The end of a process that a signal has stopped; its exit code is 128 plus the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


class StopRequest:
    """A request to stop, by Ctrl-C or SIGTERM; signals count from the construction on."""

    def __init__(self) -> None:
        self._heard, self._told = socket.socketpair()
        self._told.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        # The byte stays in the socket, so a signal just before `wait` is not missed.
        signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)

    def wait(self) -> NoReturn:
        """Wait for a signal, then raise Stopped. Later signals are ignored."""
        [number] = self._heard.recv(1)
        # The handlers stay: replacing one for which a signal has just come makes Python complain.
        signal.set_wakeup_fd(-1)
        raise Stopped(number)


def served_address(address: str, port: int) -> str:
    """Return the address of a running server: `address` with the port that it really has."""
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
