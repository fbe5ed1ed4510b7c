"""A stand-by controller: it waits for the state file of another controller, and then takes its place.

SQLite holds a lock on the file for as long as its controller lives. The kernel releases it when the
process ends, however it ends. So never do two controllers have the state.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

from innet.controller.state.store import StateInUse, Store

_LOOK_EVERY_S = 0.1
_log = structlog.get_logger("innet.controller")


def await_state(path: Path, waiting: Callable[[], None], pause: Callable[[float], None]) -> Store:
    """Return the store of a state file as soon as no other controller has it.

    Calls `waiting` once if it has to wait, and `pause` with the seconds between two looks. Raises the
    other errors of :class:`Store`, and those of `pause`.
    """
    try:
        return Store(path)
    except StateInUse:
        _log.info("standing by: another controller has the state", state=str(path))
        waiting()
    while True:
        pause(_LOOK_EVERY_S)
        if not path.exists():  # a shared file system may be gone: do not begin with an empty state
            continue
        try:
            store = Store(path)
        except StateInUse:
            continue
        _log.warning("taking over: the other controller has gone", state=str(path))
        return store
