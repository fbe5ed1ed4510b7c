"""Programs that a benchmark runs, and wakes with a line of their input."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from subprocess import PIPE, Popen
from typing import Any

from innet.errors import InnetError
from innet.local.processes import spawned


class Program:
    """A running program, whose output is lines of JSON."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process

    def wake(self) -> None:
        """Send a line to the program. If the program has ended, do nothing."""
        if not self._process.stdin:
            raise AssertionError
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the program's next line, and return its content. Raises InnetError if it has ended."""
        if not self._process.stdout:
            raise AssertionError
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise InnetError(f"{self._process.args!r} has ended")

    def ask(self) -> Any:
        """Wake the program, and return its answer. Raises InnetError if it has ended."""
        self.wake()
        return self.answer()

    def wait(self) -> None:
        """Wait until the program has ended."""
        self._process.wait()


@contextlib.contextmanager
def running(arguments: Sequence[str]) -> Iterator[Program]:
    """Yield a program that ends with the block. Its error output is this process's."""
    with spawned(arguments, stdin=PIPE, stderr=None) as process:
        yield Program(process)
