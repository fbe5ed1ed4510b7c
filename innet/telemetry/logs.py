"""The setup of logging, which each command calls once."""

import logging
import sys

import structlog
from structlog.typing import EventDict

from innet.terminal.console import printable


def configure(*, verbose: bool = False) -> None:
    """Log to standard error from level INFO on, with `verbose` from DEBUG on."""
    level = logging.DEBUG if verbose else logging.INFO
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            _as_it_is,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _as_it_is(_: object, __: str, event: EventDict) -> EventDict:
    """Make control characters in text from other machines visible."""
    return {key: printable(each) if isinstance(each, str) else each for key, each in event.items()}
