"""A rendezvous that gives only the living processes of a group a part of the store.

torchrun may start workers again on a store that still holds entries of the dead, such as their
addresses, under the same names. A process that reads them before the living have overwritten them
waits for a dead one. So rank 0 of a group picks a fresh name, and shakes hands on it with every
other rank. In the handshake each side answers a random value that the other has just made.
"""

import uuid
from datetime import timedelta

from torch.distributed import (  # type: ignore[attr-defined]
    DistStoreError,
    PrefixStore,
    Store,
)

_ANSWER_TIMEOUT = timedelta(seconds=1)
"""The longest wait for an answer. Then the name is read again, as it may be that of a dead rank 0."""


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
    mine = uuid.uuid4().hex
    tries = max(1, timeout // _ANSWER_TIMEOUT)
    for _ in range(tries):
        name = store.get("name").decode()
        here = f"{name}/{rank}"
        store.set(here, mine)
        try:
            store.wait([f"{here}/{mine}"], _ANSWER_TIMEOUT)
        except DistStoreError:
            continue
        store.delete_key(here)
        store.delete_key(f"{here}/{mine}")
        return str(name)
    raise DistStoreError(f"rank 0 of the group has not answered for {timeout}")
