"""The log of a process, sent to another process through a pipe."""

import json
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from structlog.typing import EventDict

from innet.terminal.console import one_line

_KEPT = 100
_MOST_OF_EVENT, _MOST_OF_FACTS = 300, 600
"""The most characters of an entry's event and of its facts.

An entry then fits into PIPE_BUF, and so it is written whole or not at all.
"""
_LEFT_OUT = frozenset({"timestamp", "level", "event", "exc_info"})


@dataclass(frozen=True)
class LogEntry:
    """A line of a log: its time in UTC, its level, the event, and all other known facts as text."""

    timestamp: str
    level: str
    event: str
    facts: str


class LogFeed:
    """The last entries of a log. From :meth:`attach` on, they also go into a pipe.

    It is a processor for structlog. It never waits: if the pipe is full, entries are left out.
    """

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_KEPT)
        self._pipe: int | None = None
        self._lock = threading.Lock()

    def __call__(self, _: object, __: str, event: EventDict) -> EventDict:
        """Take an entry, and return it unchanged."""
        line = json.dumps(asdict(_entry(event)), ensure_ascii=False).encode() + b"\n"
        with self._lock:
            self._lines.append(line)
            self._write(line)
        return event

    def attach(self, pipe: int) -> None:
        """Write the entries so far, and all later ones, to the pipe with this file descriptor."""
        os.set_blocking(pipe, False)
        with self._lock:
            self._pipe = pipe
            for line in self._lines:
                self._write(line)

    def detach(self) -> None:
        """Write no more entries."""
        with self._lock:
            self._pipe = None

    def _write(self, line: bytes) -> None:
        if self._pipe is None:
            return
        try:
            os.write(self._pipe, line)
        except BlockingIOError:
            pass  # the reader is slow, and logging must not wait for it
        except BrokenPipeError:
            self._pipe = None


def entries(lines: Iterable[str | bytes]) -> Iterator[LogEntry]:
    """Read the entries that a :class:`LogFeed` writes, until the pipe is closed."""
    for line in lines:
        yield LogEntry(**json.loads(line))


def _entry(event: EventDict) -> LogEntry:
    about = {
        key: each for key, each in event.items() if key not in _LEFT_OUT and each not in ("", None)
    }
    facts = " ".join(f"{key}={each}" for key, each in about.items())
    return LogEntry(
        timestamp=str(event.get("timestamp", "")),
        level=str(event.get("level", "")),
        event=one_line(str(event["event"]))[:_MOST_OF_EVENT],
        facts=one_line(facts)[:_MOST_OF_FACTS],
    )
