"""The setup of logging, which each command calls once."""

import contextlib
import logging
import sys
from collections.abc import Sequence
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor

from innet.terminal.console import printable
from innet.terminal.options import LogFormat


def configure(
    *,
    verbose: bool = False,
    log_format: LogFormat = LogFormat.TEXT,
    also: Sequence[Processor] = (),
) -> None:
    """Log to standard error from level INFO on, with `verbose` from DEBUG on. Times are in UTC.

    The processors `also` see every entry before it becomes text. Lines that cannot be written are lost:
    a process goes on when the disk of its log is full, or when nobody reads its log any more.
    """
    level = logging.DEBUG if verbose else logging.INFO
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *also,
            *_renderers(log_format),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(_LossyLog(sys.stderr)),  # type: ignore[arg-type]
    )


class _LossyLog:
    """A file that loses what cannot be written to it."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write a text, or lose it."""
        with contextlib.suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        """Write what has been held back, or try again with the next text."""
        with contextlib.suppress(OSError):
            self._file.flush()


def _renderers(log_format: LogFormat) -> tuple[Processor, ...]:
    """Return the processors that make text of an event."""
    if log_format == LogFormat.JSON:
        # JSON escapes control characters by itself.
        return (
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        )
    return (_as_it_is, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))


def _as_it_is(_: object, __: str, event: EventDict) -> EventDict:
    """Make control characters in text from other machines visible."""
    return {key: printable(each) if isinstance(each, str) else each for key, each in event.items()}
