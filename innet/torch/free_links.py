"""The links of this process that no process group uses yet."""

import _thread
import atexit
import contextlib
import threading
import time
from collections.abc import Sequence

from innet.errors import NoCapacity

_LEAVE_WITHIN = 10.0  # seconds


class FreeLinks:
    """The links of this process: a cable belongs to one group at a time."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._changed = threading.Condition()
        self._leaving: set[contextlib.ExitStack] = set()

    def take(self, links: Sequence[str]) -> str:
        """Reserve a free link. Raises NoCapacity if other groups use all of them.

        If groups are about to leave, their links are waited for.
        """
        over = time.monotonic() + _LEAVE_WITHIN
        with self._changed:
            while not (free := [link for link in links if link not in self._taken]):
                left = over - time.monotonic()
                if not self._leaving or left <= 0:
                    raise NoCapacity(
                        f"other groups use all of this worker's cables ({len(links)}): give it more, "
                        "joined with + in INNET_LINK"
                    )
                self._changed.wait(left)
            if free[0] != "host":
                self._taken.add(free[0])
            return free[0]

    def give_back(self, link: str) -> None:
        """Let other groups have a link."""
        with self._changed:
            self._taken.discard(link)
            self._changed.notify_all()

    def leave_soon(self, leave: contextlib.ExitStack) -> None:
        """Close the stack of a group that nobody has closed, in a thread of its own.

        A destructor may call this: it takes no lock, which the interrupted code could hold.
        """
        self._leaving.add(leave)
        _thread.start_new_thread(self._leave, (leave,))

    def wait(self) -> None:
        """Wait for groups that are about to leave, for 10 seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._leaving, _LEAVE_WITHIN)

    def _leave(self, leave: contextlib.ExitStack) -> None:
        try:
            leave.close()
        finally:
            with self._changed:
                self._leaving.discard(leave)
                self._changed.notify_all()


LINKS = FreeLinks()
"""The links of this process, which all its groups share."""

atexit.register(LINKS.wait)  # C++ that runs without an interpreter ends the process with an error
