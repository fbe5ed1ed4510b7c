"""The counts of this process's collectives by carrier, for callers and for Prometheus."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

SWITCH, NODE, GLOO = "switch", "node", "gloo"


class Way(NamedTuple):
    """A kind of collective, its carrier, and the reason if this is Gloo.

    The carrier is ``switch``, ``node`` (the shared memory of a node that has all ranks), or ``gloo``.
    """

    collective: str
    by: str
    reason: str


_counts: Counter[tuple[str, str, str]] = Counter()
_lock = threading.Lock()


def count(collective: str, by: str, reason: str = "") -> None:
    """Note that a collective begins."""
    with _lock:
        _counts[collective, by, reason] += 1


def carried() -> Mapping[Way, int]:
    """Return how many collectives of all groups this process has begun, by carrier."""
    with _lock:
        return {Way(*each): number for each, number in _counts.items()}
