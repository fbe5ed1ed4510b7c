"""innet's commands, run with the arguments and the environment that a user gives them."""

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from preforked import Process

from innet.local.processes import announced

BIN = Path(sys.executable).parent
_WITHIN = 250.0


def run(
    command: str, *arguments: str, within: float = _WITHIN, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run one of innet's commands to its end, within a number of seconds."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = Process(
            command, *arguments,
            stdout=out.fileno(), stderr=err.fileno(), environment=environment,
        )  # fmt: skip
        with process:
            try:
                process.wait(within)
            finally:
                process.kill()
        said = [_contents(each) for each in (out, err)]
    return subprocess.CompletedProcess(process.args, process.wait(), *said)


def run_on_full_disk(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of innet's commands, which can make files, but can write nothing to them."""
    limited = ["bash", "-c", 'ulimit -f 0; exec "$0" "$@"', str(BIN / command), *arguments]
    return subprocess.run(limited, check=False, capture_output=True, text=True, timeout=_WITHIN)


def run_into_full_file(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of innet's commands, which cannot write to its standard output."""
    with Path("/dev/full").open("w") as full:
        return subprocess.run(
            [str(BIN / command), *arguments],
            check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=_WITHIN,
        )  # fmt: skip


def _contents(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def refuse(why: str, command: str, *arguments: str, code: int = 2) -> None:
    """Check that the command ends with an error of one line."""
    done = run(command, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert re.search(why, line), line


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[Process, str]]:
    """Run ``innet controller`` at a free port, in its own process group. Yield its address, too."""
    arguments = ("controller", "--address", "127.0.0.1:0", *options)
    with Process("innet", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process, announced(process, "controller")
        finally:
            process.kill()
