"""Threads, of which a machine, a user or a container can have too many."""

import threading

from innet.errors import NoCapacity


def start(thread: threading.Thread) -> None:
    """Start a thread. Raises NoCapacity if there can be no more."""
    try:
        thread.start()
    except RuntimeError:
        raise NoCapacity(
            "no more threads can be started here: raise the limit (`ulimit -u`, or that of the container)"
        ) from None
