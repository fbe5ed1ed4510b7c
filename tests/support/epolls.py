"""The epolls of this process, and the files that they watch."""

import contextlib
from pathlib import Path


def epolls() -> set[str]:
    """Return the descriptors of this process's epolls."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the folder's own descriptor
            if str(each.readlink()) == "anon_inode:[eventpoll]":
                found.add(each.name)
    return found


def watched(others: set[str]) -> int:
    """Return the number of files that the epolls of this process watch, except the `others`."""
    found = 0
    for each in epolls() - others:
        with contextlib.suppress(OSError):  # it has just been closed
            found += Path("/proc/self/fdinfo", each).read_text().count("tfd:")
    return found
