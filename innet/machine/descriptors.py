"""File descriptors, of which a process can have a limited number."""

import contextlib
import resource


def raise_descriptor_limit() -> None:
    """Raise this process's limit on file descriptors as far as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
