"""The errors that readers of the page cause. The log does not say what a reader has sent."""

import logging
from types import TracebackType

import structlog

from innet.telemetry.sparse import SparseWarnings

_LIBRARIES = ("engineio", "socketio")
"""The libraries that read what browsers send in websockets."""

_SERVER = "uvicorn.error"
"""The logger of the HTTP server. It warns of requests that are not HTTP."""

_log = structlog.get_logger("innet.web")


class ReaderErrors(logging.Filter):
    """A filter that replaces these errors by one sentence, at most once in ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._warnings = SparseWarnings(_log)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record of Python's ``logging`` is about something else."""
        traceback = record.exc_info[2] if record.exc_info else None
        warned = record.name == _SERVER and record.levelno == logging.WARNING
        if not (warned or _is_of_library(record.name) or _has_passed(traceback)):
            return True
        self._warnings.warn("what a reader of the page has sent is not understood")
        return False


def keep_out_of_log() -> None:
    """Keep these errors out of the log, which has been set up."""
    found = ReaderErrors()
    for handler in logging.getLogger().handlers:
        handler.addFilter(found)
    for name in ("engineio.server", "socketio.server"):  # they have set up logs of their own
        logging.getLogger(name).handlers.clear()


def _has_passed(traceback: TracebackType | None) -> bool:
    """Return whether an error has passed through one of the libraries."""
    while traceback:
        if _is_of_library(str(traceback.tb_frame.f_globals.get("__name__"))):
            return True
        traceback = traceback.tb_next
    return False


def _is_of_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES
