"""innet's commands, run as a user runs them."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from innet.local.processes import announced

BIN = Path(sys.executable).parent


def run(command: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one of innet's commands to its end, within a bounded time."""
    return subprocess.run(
        [str(BIN / command), *arguments],
        env={**os.environ, **environment},
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip


def refuse(why: str, command: str, *arguments: str, code: int = 2) -> None:
    """Check that the command ends with an error of one line."""
    done = run(command, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert re.search(why, line), line


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``innet controller`` at a free port, in its own process group. Yield its address, too."""
    command = [str(BIN / "innet"), "controller", "--address", "127.0.0.1:0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process, announced(process, "controller")
        finally:
            process.kill()
