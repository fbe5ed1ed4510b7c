"""The setup of logging, which each command calls once.

Lines contain text from other machines. An entry is one line whatever this text is, and lines of a
traceback are indented: so nobody can write an entry of its own.
"""

import contextlib
import logging
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from innet.terminal.console import one_line, printable
from innet.terminal.options import LogFormat


def configure(
    *,
    verbose: bool = False,
    log_format: LogFormat = LogFormat.TEXT,
    also: Sequence[Processor] = (),
) -> None:
    """Log to standard error from level INFO on, with `verbose` from DEBUG on. Times are in UTC.

    The processors `also` see every entry before it becomes text. Lines that cannot be written are lost:
    a process goes on when the disk of its log is full, or when nobody reads its log any more. What
    libraries log with Python's ``logging``, from WARNING on, and exceptions that end a thread become
    entries, too.
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
    logging.basicConfig(handlers=[_Entries()], level=logging.WARNING, force=True)
    threading.excepthook = _log_end_of_thread


class _Entries(logging.Handler):
    """The way of Python's ``logging`` into this log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record as an entry."""
        facts = {"exc_info": record.exc_info} if record.exc_info else {}
        log = structlog.get_logger()
        tell = log.error if record.levelno >= logging.ERROR else log.warning
        tell(record.getMessage(), logger=record.name, **facts)


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value and not isinstance(ended.exc_value, SystemExit):
        name = ended.thread.name if ended.thread else ""
        structlog.get_logger().error("a thread has ended", thread=name, exc_info=ended.exc_value)


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
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=_indented_traceback
    )
    return (_in_one_line, renderer)


def _in_one_line(_: object, __: str, event: EventDict) -> EventDict:
    """Make control characters in text from other machines visible."""
    return {key: _plain(each) if key != "exc_info" else each for key, each in event.items()}


def _plain(value: object) -> object:
    """Return a value whose text has no control characters."""
    if isinstance(value, str):
        return one_line(value)
    text = repr(value)
    return value if text.isprintable() else one_line(text)


def _indented_traceback(out: TextIO, exc_info: Any) -> None:
    """Write a traceback with control characters as escapes. No line of it looks like an entry."""
    said = "".join(traceback.format_exception(*exc_info)).rstrip()
    out.write("\n" + "\n".join(f"    {line}" for line in printable(said).splitlines()))
