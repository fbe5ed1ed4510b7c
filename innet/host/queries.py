"""Queries for results that may have been lost while contributions are missing.

A switch of a tree that lacks a contribution says PENDING. Above it, there may be a result without the
switch's sum, which was lost on its way down. So a worker that hears PENDING queries the switches above.
A query changes nothing in a switch, and is answered with the result, or with STALE.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from innet.host.job import Term, WorkerInfo
from innet.host.link import Link
from innet.host.missing import MissingWorkers
from innet.host.window import Indices, Window
from innet.wire.layout import Flag, Kind, Operation
from innet.wire.records import blank, set_field


class Queries:
    """A worker's queries in one term. There are none unless a tree can sum without some workers."""

    def __init__(
        self,
        link: Link,
        info: WorkerInfo,
        term: Term,
        window: Window,
        missing: MissingWorkers,
    ) -> None:
        self._link, self._first_slot = link, term.first_slot
        self._window, self._contributors = window, missing.contributors
        self._useful = self._contributors.in_tree and info.has_quorum
        self._queried_at = np.full(term.slots, -np.inf)
        self._packets = blank(term.slots, 0, Kind.QUERY, link.bare_encapsulation)
        self._packets["job"], self._packets["term"] = info.job, term.number
        self._packets["flags"] = Flag.WANTED  # switches below accept a result only with lanes

    def set_operation(self, operation: Operation) -> None:
        """Let the queries from now on ask for this operation."""
        set_field(self._packets, "operation", operation)

    def send(self, slots: Indices, arrived: npt.NDArray[Any], now: float) -> int:
        """Send a query for each slot of which a switch has said PENDING, with its bitmap `arrived`.

        A PENDING of the highest switch needs no query, because no other switch has a result. A PENDING
        reaches all workers below its switch. So each worker asks only once for each packet that it has
        sent. Returns the number of queries. Raises OSError.
        """
        if not self._useful:
            return 0
        fresh = self._queried_at[slots] < self._window.sent_at(slots)
        asked = slots[fresh & self._contributors.from_below(np.asarray(arrived, np.uint64))]
        if not asked.size:
            return 0
        self._queried_at[asked] = now
        some = self._packets[: len(asked)]
        some["slot"] = self._first_slot + asked
        some["sequence"] = self._window.sequence[asked]
        self._link.send(some)
        return len(asked)
