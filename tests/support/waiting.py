"""Waiting for a condition, and the search for processes that are left."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

WITHIN = 250.0
"""Seconds after which a test stops waiting: many, because the machine may be busy."""


def marked(variable: str) -> list[str]:
    """Return the command lines of the processes that have this in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has just ended
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
    return found


def until(condition: Callable[[], object]) -> None:
    """Return when the condition holds; fail if it takes too long."""
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
