"""How many collectives went which way, in this process: for whoever asks, and for Prometheus."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

SWITCH, GLOO = "switch", "gloo"


class Way(NamedTuple):
    """A kind of collective, who carried it, ``switch`` or ``gloo``, and why not the switch."""

    collective: str
    by: str
    reason: str


_counts: Counter[Way] = Counter()
_lock = threading.Lock()


def count(collective: str, by: str, reason: str = "") -> None:
    """Note that a collective begins."""
    with _lock:
        _counts[Way(collective, by, reason)] += 1


def carried() -> Mapping[Way, int]:
    """How many collectives of all groups this process has begun, by the way they took."""
    with _lock:
        return dict(_counts)
