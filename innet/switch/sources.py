"""The source files of this package, and whether they are still those of the running code.

A process may run for long, and its checkout or its installation may change meanwhile. The package
imports this module before all others, so a file that has not changed since is the source of the code.
"""

from pathlib import Path

Stamp = tuple[str, int, int]
"""A file's path, size in bytes, and time of its last change in nanoseconds."""

_FOLDER = Path(__file__).parent


def unchanged() -> tuple[bytes, ...] | None:
    """Return the contents of this package's modules, or None if a file has changed since the import."""
    try:
        contents = tuple(file.read_bytes() for file in _modules())
        return contents if _stamps() == _IMPORTED else None
    except OSError:
        return None


def _modules() -> list[Path]:
    return sorted(_FOLDER.rglob("*.py"))


def _stamps() -> tuple[Stamp, ...]:
    stats = ((file, file.stat()) for file in _modules())
    return tuple((str(file), about.st_size, about.st_mtime_ns) for file, about in stats)


_IMPORTED = _stamps()
