"""Threads, of which a machine, a user or a container can have too many, and a lock between them."""

import threading

from innet.errors import NoCapacity, UsageError


class OwnedLock:
    """A lock that knows whether the calling thread holds it, as in a signal handler.

    Taking it again raises UsageError, since the thread would wait for itself.
    """

    def __init__(self) -> None:
        # A signal may come between any two steps here, and must not wait for this thread.
        self._lock = threading.RLock()
        self._held = False

    @property
    def held_here(self) -> bool:
        """Return whether the calling thread holds the lock."""
        if not self._lock.acquire(blocking=False):
            return False
        held = self._held
        self._lock.release()
        return held

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._held:
            self._lock.release()
            raise UsageError(
                "this thread is in the midst of another call: make this one afterwards"
            )
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False
        self._lock.release()


def start(thread: threading.Thread) -> None:
    """Start a thread. Raises NoCapacity if there can be no more."""
    try:
        thread.start()
    except RuntimeError:
        raise NoCapacity(
            "no more threads can be started here: raise the limit (`ulimit -u`, or that of the container)"
        ) from None
