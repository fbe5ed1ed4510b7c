"""Idle timeouts: the search for entries that no packet has matched for too long."""

import heapq
import itertools
import time
from dataclasses import dataclass, field

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.constants import NO_BUNDLE
from innet.switch.engine import Engine
from innet.switch.p4runtime.entry_messages import idle_message

_NS = 1_000_000_000
_MIN_INTERVAL = 0.01  # seconds between two searches for idle entries
_FEW = 64


@dataclass
class StoredEntry:
    """An entry as it can be read back, with its id in the engine and the bundle of its actions."""

    id: int
    message: p4rt.TableEntry
    bundle: int = NO_BUNDLE
    idle_from: int = field(default_factory=time.monotonic_ns)
    """The time in ns at which the idle timeout last began, if no packet has matched since."""
    due: int | None = None
    """The time in ns at which the idle timeout is looked at next, if ever."""


class Aging:
    """The entries with idle timeouts, in the order in which they have to be looked at.

    Looking at an entry takes a call of C, so it is looked at no earlier than its timeout may be over.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Times, numbers that break ties, tables, entries. A time other than the entry's counts no more.
        self._looks: list[tuple[int, int, str, StoredEntry]] = []
        self._numbers = itertools.count()
        self._most = _FEW  # looks, before those that count no more are removed

    def watch(self, table: str, stored: StoredEntry) -> None:
        """Look at an entry when its timeout may be over. The timeout begins now."""
        stored.idle_from = time.monotonic_ns()
        if timeout := stored.message.idle_timeout_ns:
            self._look(stored.idle_from + timeout, table, stored)

    def forget(self, stored: StoredEntry) -> None:
        """Look at an entry no more."""
        stored.due = None

    def over(self) -> tuple[list[p4rt.TableEntry], float | None]:
        """Return the entries whose idle timeout is over, and the seconds until another may be."""
        over, now = [], time.monotonic_ns()
        while self._looks and self._looks[0][0] <= now:
            due, _, table, stored = heapq.heappop(self._looks)
            if stored.due != due:
                continue
            self.forget(stored)
            timeout = stored.message.idle_timeout_ns
            if not timeout:  # any more
                continue
            idle = min(self._engine.entries.idle_ns(table, stored.id), now - stored.idle_from)
            if idle >= timeout:
                over.append(idle_message(stored.message))
                stored.idle_from, idle = now, 0
            self._look(now + timeout - idle, table, stored)
        wait = (self._looks[0][0] - now) / _NS if self._looks else None
        return over, None if wait is None else max(_MIN_INTERVAL, wait)

    def _look(self, at: int, table: str, stored: StoredEntry) -> None:
        if stored.due is not None and stored.due <= at:
            return  # it is looked at before, and then again
        stored.due = at
        heapq.heappush(self._looks, (at, next(self._numbers), table, stored))
        if len(self._looks) > self._most:
            self._looks = [look for look in self._looks if look[3].due == look[0]]
            heapq.heapify(self._looks)
            self._most = _FEW + 2 * len(self._looks)
