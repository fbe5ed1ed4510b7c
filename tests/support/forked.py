"""Python scripts in processes that are forked from one with PyTorch: they need not import it again."""

import contextlib
import functools
import gc
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO, Any

from preforked import forked_programs

from innet.local.ports import free_tcp_port
from innet.local.workers import rank_environment

_ended: list[dict[str, Any]] = []
"""The script's objects, which live until the process ends (see :func:`fork_server._interpret`)."""


@functools.cache
def context() -> ForkServerContext:
    """Return the way to start processes: a server, which has PyTorch itself from a fork, forks them."""
    made = multiprocessing.get_context("forkserver")
    made.set_executable(str(forked_programs() / "python"))
    made.set_forkserver_preload(
        ["pytest", "hypothesis", "innet.torch.group", "innet.controller.server"]
    )
    return made


class Script:
    """A running script, with its output and its error output."""

    def __init__(
        self, script: Path, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        (self.stdout, out), (self.stderr, err) = _pipe(), _pipe()
        given = (script, list(arguments), {**os.environ, **environment}, out, err)
        self._process = context().Process(target=_run, args=given)
        self._process.start()
        out.close()
        err.close()

    def finish(self) -> tuple[str, str]:
        """Return its output and its error output, when it has ended without a failure."""
        said, errors = self.stdout.read(), self.stderr.read()
        self._process.join()
        assert self._process.exitcode == 0, errors
        return said, errors

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process.pid:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill it as ``kill -9`` does, and wait for its end."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """Kill it if it still runs, and close its pipes."""
        self.kill()
        self.stdout.close()
        self.stderr.close()


@contextlib.contextmanager
def ranks(
    script: Path, arguments: Sequence[str], count: int, environment: Mapping[str, str] | None = None
) -> Iterator[list[Script]]:
    """Run a script once for every rank, as torchrun would. The processes end with the block."""
    port = free_tcp_port()
    with contextlib.ExitStack() as stack:
        running = []
        for rank in range(count):
            own = {**(environment or {}), **rank_environment(rank, count, port)}
            running.append(Script(script, arguments, own))
            stack.callback(running[-1].close)
        yield running


def keep_imports() -> None:
    """Leave what was imported before the fork out of searches for garbage, which would copy all of it."""
    gc.freeze()


def _pipe() -> tuple[IO[str], Connection]:
    """Return the end to read from, and the one that a process gets."""
    near, far = context().Pipe(duplex=False)
    with near:
        return os.fdopen(os.dup(near.fileno())), far


def _run(
    script: Path,
    arguments: list[str],
    environment: dict[str, str],
    out: Connection,
    err: Connection,
) -> None:
    import torch

    keep_imports()
    os.environ.clear()
    os.environ.update(environment)
    for end, descriptor in ((out, 1), (err, 2)):
        with end:
            os.dup2(end.fileno(), descriptor)
    # PyTorch has read the variable already, when the server imported it.
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(script), *arguments]
    _ended.append(runpy.run_path(str(script), run_name="__main__"))
