"""Renewal: what a server has made from files is made again when the files have changed."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from innet.errors import UsageError

_Made = TypeVar("_Made")
_log = structlog.get_logger("innet.renewal")


class Renewal(Generic[_Made]):
    """The `newest` thing that `make` has made from the files at `paths`. Any thread may use it.

    The paths are looked up again each time. So it makes no difference whether somebody writes over a
    file, replaces it, or changes a symbolic link to its folder. While a file is missing, or the files do
    not fit together because only some of them have been copied, what was made before stays. It also
    stays while `make` raises a UsageError, for example because others can read a key.

    Raises the errors of `make`, and OSError if a file cannot be read.
    """

    def __init__(self, paths: Sequence[Path], make: Callable[[], _Made]) -> None:
        self._paths, self._make, self._lock = paths, make, threading.Lock()
        self._contents, self._problem = self._read(), ""
        self.newest = make()

    def look(self) -> bool:
        """Make it again if a file has changed. Return whether this look has done so."""
        with self._lock:
            try:
                # They are read before: what changes meanwhile is found at the next look.
                contents = self._read()
                if contents == self._contents:
                    return False
                self.newest = self._make()
            except (OSError, UsageError) as problem:  # OSError is also an error of TLS
                if str(problem) != self._problem:
                    self._problem = str(problem)
                    where = str(self._paths[0].parent)
                    _log.warning(
                        "changed files cannot be used", folder=where, problem=self._problem
                    )
                return False
            self._contents, self._problem = contents, ""
            _log.info("changed files are used", folder=str(self._paths[0].parent))
            return True

    def _read(self) -> list[bytes]:
        return [path.read_bytes() for path in self._paths]
