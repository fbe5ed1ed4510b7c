"""Files that are replaced atomically: a reader gets either the old content or the new one.

This also holds after a power failure.
"""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file with these permissions, in place of an older one. Raises OSError."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
