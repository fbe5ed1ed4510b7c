"""New files for secrets, which only their owner can read."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from innet.errors import UsageError


@contextlib.contextmanager
def private_file(path: Path) -> Iterator[IO[str]]:
    """Create a file that nobody else can read, and remove it if the block raises an error.

    A file or link that exists already is left alone, for it may belong to another user. Raises UsageError
    in that case, and if the file cannot be created or written.
    """
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} is there already: remove it, or name another file") from None
    except OSError as problem:
        raise UsageError(f"cannot write to {path}: {problem.strerror}") from None
    try:
        with os.fdopen(number, "w") as file:
            yield file
    except BaseException as problem:
        path.unlink(missing_ok=True)
        if isinstance(problem, OSError):
            raise UsageError(f"cannot write to {path}: {problem.strerror}") from None
        raise
