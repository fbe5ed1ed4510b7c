"""A rendezvous that gives only the living processes of a group a part of the store.

torchrun may start workers again on a store that still holds entries of the dead, such as their
addresses, under the same names. A process that reads them before the living have overwritten them
waits for a dead one. So rank 0 of a group picks a fresh name, and shakes hands on it with every
other rank. In the handshake each side answers a random value that the other has just made.
"""

import time
import uuid
from datetime import timedelta

from torch.distributed import (  # type: ignore[attr-defined]
    DistStoreError,
    PrefixStore,
    Store,
)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.5
"""Seconds between two looks for an answer. At the end of a wait without one, PyTorch prints a warning."""


def rendezvous(store: Store, rank: int, size: int, timeout: timedelta) -> Store:
    """Return a store for the group's living processes. Raises DistStoreError."""
    if rank == 0:
        name = uuid.uuid4().hex
        store.set("name", name)
        for other in range(1, size):
            here = f"{name}/{other}"
            store.wait([here], timeout)
            store.set(f"{here}/{store.get(here).decode()}", "")
    else:
        name = _named(store, rank, timeout)
    return PrefixStore(name, store)


def _named(store: Store, rank: int, timeout: timedelta) -> str:
    """Return the name that a living rank 0 has picked."""
    store.wait(["name"], timeout)
    mine, pause = uuid.uuid4().hex, _FIRST_PAUSE_S
    over = time.monotonic() + timeout.total_seconds()
    while True:
        name = store.get("name").decode()  # each time, as it may be that of a dead rank 0
        here = f"{name}/{rank}"
        store.set(here, mine)
        if store.check([f"{here}/{mine}"]):
            store.delete_key(here)
            store.delete_key(f"{here}/{mine}")
            return str(name)
        if time.monotonic() >= over:
            raise DistStoreError(f"rank 0 of the group has not answered for {timeout}")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
