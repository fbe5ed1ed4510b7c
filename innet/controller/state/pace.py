"""The pace of heartbeats: the more workers there are, the less often each of them reports.

Whether a worker lives is known from its connection. Heartbeats only report progress, and each takes the
controller some tenths of a millisecond. So all workers together send a limited number in a second.
"""

USUAL_S = 1.0
"""Seconds between a worker's heartbeats, unless there are many workers."""

MOST_PER_S = 256
"""The most heartbeats that all workers together send in a second."""


class Pace:
    """The time between two heartbeats of a worker, `heartbeat_s` in seconds: a power of two."""

    def __init__(self) -> None:
        self.heartbeat_s = USUAL_S

    def follow(self, workers: int) -> bool:
        """Adapt to the number of workers. Return whether the pace has changed.

        The time is halved only when there are far fewer workers. So it does not change with every worker
        that comes or goes.
        """
        before = self.heartbeat_s
        while workers > MOST_PER_S * self.heartbeat_s:
            self.heartbeat_s *= 2
        while self.heartbeat_s > USUAL_S and workers < MOST_PER_S * self.heartbeat_s / 4:
            self.heartbeat_s /= 2
        return self.heartbeat_s != before
