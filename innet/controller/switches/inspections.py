"""The times at which switches are inspected."""

import threading

_EVERY = 2.0
"""The least seconds between two inspections of a switch."""

_SHARE = 0.05
"""The largest share of a switch's time, and of the controller's processor, that inspecting takes."""


class Inspections:
    """The inspections of all switches of a controller. Each reads all entries of one switch.

    The inspections of many switches follow each other. So together they take no more of the processor
    than those of a few switches.
    """

    def __init__(self) -> None:
        self._lock, self._free = threading.Lock(), 0.0

    def after(self, now: float, took: float = 0.0, processor: float = 0.0) -> float:
        """Return the time of a switch's next inspection.

        The last one began at the time `now`. It `took` this number of seconds, and it used the processor
        for `processor` seconds.
        """
        with self._lock:
            at = max(now + max(_EVERY, took / _SHARE), self._free)
            self._free = at + processor / _SHARE
            return at
