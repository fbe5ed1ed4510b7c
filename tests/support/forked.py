"""Python scripts in processes that are forked from one with PyTorch: they need not import it again."""

import contextlib
import multiprocessing
import os
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

# The server imports once what all processes need, and forks them.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch.distributed", "innet.torch"])


class Script:
    """A running script, with its output and its error output."""

    def __init__(
        self, script: Path, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        (self.stdout, out), (self.stderr, err) = _pipe(), _pipe()
        given = (script, list(arguments), {**os.environ, **environment}, out, err)
        self._process = CONTEXT.Process(target=_run, args=given)
        self._process.start()
        out.close()
        err.close()

    def wait(self) -> int:
        """Wait for its end, and return the exit code as `subprocess` does."""
        self._process.join()
        return self._process.exitcode

    def kill(self) -> None:
        """Kill it as ``kill -9`` does."""
        self._process.kill()


@contextlib.contextmanager
def scripts(
    script: Path, arguments: Sequence[str], environments: Sequence[Mapping[str, str]]
) -> Iterator[list[Script]]:
    """Run a script once in each environment, and yield the processes. They end with the block."""
    with contextlib.ExitStack() as stack:
        running = []
        for environment in environments:
            running.append(Script(script, arguments, environment))
            stack.callback(running[-1].wait)
            stack.callback(running[-1].kill)
        yield running


def _pipe() -> tuple[IO[str], Connection]:
    """Return the end to read from, and the one that a process gets."""
    near, far = CONTEXT.Pipe(duplex=False)
    with near:
        return os.fdopen(os.dup(near.fileno())), far


def _run(
    script: Path,
    arguments: list[str],
    environment: dict[str, str],
    out: Connection,
    err: Connection,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for end, descriptor in ((out, 1), (err, 2)):
        with end:
            os.dup2(end.fileno(), descriptor)
    sys.argv = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")
