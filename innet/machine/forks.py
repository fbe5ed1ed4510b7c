"""Objects that belong to one process, and not to the children that it forks.

A child has copies of its parent's objects, sockets and memory, but none of its threads. If it used a
connection, it would speak in its parent's name. A destructor that joins a thread, as those of gRPC and
Gloo do, would wait forever.
"""

import ctypes
import os
import weakref
from typing import Protocol

from innet.errors import InnetError


class Owner:
    """The process that made the object `owned`. Forked children never destroy their copy of it."""

    def __init__(self, owned: object) -> None:
        self._pid = os.getpid()
        _owned.add(owned)

    @property
    def here(self) -> bool:
        """Return whether this process is the owner, and not a forked child of it."""
        return os.getpid() == self._pid

    def check(self, what: str, error: type[InnetError]) -> None:
        """Raise an error of this class in a forked child. `what` names the object in the message."""
        if os.getpid() != self._pid:
            raise error(
                f"{what} belongs to process {self._pid}, which has forked this one: "
                "use it there, or join from here"
            )


class Closeable(Protocol):
    """An object with sockets."""

    def close(self) -> None:
        """Close the sockets."""


def close_in_children(owned: Closeable) -> None:
    """Close the copies of sockets in forked children, which would hide their end from their peers."""
    _closed_in_children.add(owned)


_owned: "weakref.WeakSet[object]" = weakref.WeakSet()
_closed_in_children: "weakref.WeakSet[Closeable]" = weakref.WeakSet()


def _keep() -> None:
    """Take a reference to each of the parent's objects and never release it."""
    for each in list(_owned):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _close() -> None:
    """Close the child's copies of the parent's sockets."""
    for each in list(_closed_in_children):
        each.close()


os.register_at_fork(after_in_child=_keep)
os.register_at_fork(after_in_child=_close)
