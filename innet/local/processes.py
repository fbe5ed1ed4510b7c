"""Child processes that end with the block that starts them, or with this process."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from innet.errors import InnetError
from innet.terminal.signals import INTERRUPTS

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def command(module: str) -> list[str]:
    """Return a command that runs a module's ``main`` with this interpreter.

    Files in the current folder are not imported, whatever they are called.
    """
    return [sys.executable, "-P", "-c", f"from {module} import main; main()"]


@contextlib.contextmanager
def serving(name: str, arguments: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server, and yield its process and its address.

    A server prints ``NAME ADDRESS`` when it is ready. Raises InnetError, with the server's error output,
    if it ends before that.
    """
    # A file takes any amount of the log. A pipe that nobody reads would stop the server.
    with tempfile.TemporaryFile("w+") as log, spawned(arguments, stderr=log) as server:
        try:
            address = announced(server, name)
        except InnetError as problem:
            stop(server)
            log.seek(0)
            raise InnetError(f"{problem}\n{log.read().strip()}") from None
        yield server, address


def announced(server: subprocess.Popen[str], name: str) -> str:
    """Wait until a server prints ``NAME ADDRESS``, and return the address. Raises InnetError."""
    line = server.stdout.readline() if server.stdout else ""
    first, _, address = line.strip().partition(" ")
    if first != name or not address:
        raise InnetError(f"the server did not start: it printed {line!r}, not {name} HOST:PORT")
    return address


@contextlib.contextmanager
def spawned(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    stop_within: float = 10.0,
    **options: Any,
) -> Iterator[subprocess.Popen[str]]:
    """Start a process; it ends with the block, or with this process.

    `environment` is added to this process's. At the end of the block the process gets `stop_within`
    seconds to react to SIGTERM. `options` are those of :class:`subprocess.Popen`. By default the
    output is piped, and Ctrl-C on the terminal reaches this process only.
    """
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    with INTERRUPTS.held():
        process = subprocess.Popen(
            arguments,
            env={**os.environ, **(environment or {})},
            text=True,
            preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - system calls only
            **{**piped, **options},
        )
    with process:
        try:
            INTERRUPTS.check()
            yield process
        finally:
            stop(process, stop_within)


def stop(process: subprocess.Popen[str], within: float = 10.0) -> None:
    """End a process with SIGTERM, and with SIGKILL if it still runs after `within` seconds."""
    process.terminate()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(within)
    finally:  # also when a second signal interrupts the wait
        process.kill()


def ended(process: subprocess.Popen[str]) -> int:
    """Return the exit code of a process when it has ended.

    If a signal comes just before this process begins to wait in the kernel, Python handles it only when
    the wait is over. So no wait takes longer than a second.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)


def end_with_parent(parent: int) -> None:
    """Ask the kernel to send this freshly forked process SIGTERM when its parent dies.

    `parent` is the parent's process id.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the request
        os.kill(os.getpid(), signal.SIGTERM)
