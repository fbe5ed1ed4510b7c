"""The limit on open worker streams, under which no client can take them all.

A stream takes two file descriptors: that of its connection, and one to watch the connection. The
process's limit on them bounds the number of streams. When all are in use, a new stream
replaces one whose client has sent nothing yet. The streams of one job are bounded as well, so that
workers of other jobs can join.
"""

import threading
from collections import Counter

from innet.controller.state.streams import Stream
from innet.errors import NoCapacity
from innet.machine.descriptors import unreserved_descriptors
from innet.wire.layout import MOST_WORKERS

MOST_PER_JOB = 3 * MOST_WORKERS
"""Open streams of one job: for its workers, for those that wait, and for as many that end."""

_PER_STREAM = 2
"""File descriptors of one stream."""


def most_open_streams() -> int:
    """Return the number of streams that this process's limit on file descriptors allows."""
    return max(1, unreserved_descriptors() // _PER_STREAM)


class OpenStreams:
    """The open streams, at most `most`. Methods may be called from any thread."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._silent: dict[Stream, str] = {}  # host of those that have sent nothing
        self._heard: dict[Stream, str] = {}  # the job, for the others; empty until they have joined
        self._of_job: Counter[str] = Counter()

    def open(self, stream: Stream, host: str) -> None:
        """Count a new stream of a client at this host.

        If all streams are in use, one that has sent nothing ends: the oldest of the host that has
        most of these. Raises NoCapacity if there is none.
        """
        with self._lock:
            if len(self._silent) + len(self._heard) >= self._most:
                self._make_room()
            self._silent[stream] = host

    def heard(self, stream: Stream) -> None:
        """Note that the client has sent something."""
        with self._lock:
            if self._silent.pop(stream, None) is not None:
                self._heard[stream] = ""

    def joined(self, stream: Stream) -> None:
        """Count a stream for the job that it has joined. Raises NoCapacity if the job has too many."""
        with self._lock:
            if self._heard.get(stream) != "":
                return
            self._heard[stream] = stream.job
            self._of_job[stream.job] += 1
            if self._of_job[stream.job] > MOST_PER_JOB:
                raise NoCapacity(
                    f"the job {stream.job!r} has {MOST_PER_JOB} open streams, as many as the controller "
                    "serves: end workers that are not needed"
                )

    def of(self, certificates: frozenset[str]) -> list[Stream]:
        """Return the open streams of clients with one of these certificates."""
        with self._lock:
            return [
                each
                for each in (*self._silent, *self._heard)
                if not certificates.isdisjoint(each.certificate)
            ]

    def close(self, stream: Stream) -> None:
        """Stop counting a stream. May be called again."""
        with self._lock:
            self._silent.pop(stream, None)
            if job := self._heard.pop(stream, ""):
                self._of_job[job] -= 1
                if not self._of_job[job]:
                    del self._of_job[job]

    def _make_room(self) -> None:
        if not self._silent:
            raise NoCapacity(
                f"{self._most} workers have joined, as many as the controller serves: end some first"
            )
        [(host, _)] = Counter(self._silent.values()).most_common(1)
        oldest = next(stream for stream, at in self._silent.items() if at == host)
        del self._silent[oldest]
        oldest.end(NoCapacity("no JoinRequest has come, and others want to join: send it first"))
