"""The links of this process that no process group uses yet."""

import contextlib
import threading
from collections.abc import Iterator, Sequence

from innet.errors import NoCapacity


class FreeLinks:
    """The links of this process: a cable belongs to one group at a time."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def one_of(self, links: Sequence[str]) -> Iterator[str]:
        """Reserve a free link until the block is left. Raises NoCapacity."""
        with self._lock:
            free = [link for link in links if link not in self._taken]
            if not free:
                raise NoCapacity(
                    f"other groups use all of this worker's cables ({len(links)}): give it more, "
                    "joined with + in INNET_LINK"
                )
            if free[0] != "host":
                self._taken.add(free[0])
        try:
            yield free[0]
        finally:
            with self._lock:
                self._taken.discard(free[0])


LINKS = FreeLinks()
"""The links of this process, which all its groups share."""
