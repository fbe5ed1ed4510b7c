"""A part of the store that only the living processes of a group use.

torchrun may start workers again on a store that still holds what the dead have written, such as
their addresses, under the same names; who reads that before the living have overwritten it waits for
somebody who is gone. So a group's rank 0 picks a name that nobody has used, and shakes hands on it with
every other rank: what one says depends on what the other has just made up.
"""

import uuid
from datetime import timedelta

from torch.distributed import (  # type: ignore[attr-defined]
    DistStoreError,
    PrefixStore,
    Store,
)

_PATIENCE = timedelta(seconds=1)
"""For an answer, after which the name may be that of a dead rank 0, and is read again."""


def meet(store: Store, rank: int, size: int, timeout: timedelta) -> Store:
    """A store for the processes of a group that are alive now. Raises DistStoreError."""
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
    """The name that a living rank 0 has picked."""
    store.wait(["name"], timeout)
    mine = uuid.uuid4().hex
    tries = max(1, timeout // _PATIENCE)
    for _ in range(tries):
        name = store.get("name").decode()
        here = f"{name}/{rank}"
        store.set(here, mine)
        try:
            store.wait([f"{here}/{mine}"], _PATIENCE)
        except DistStoreError:
            continue
        store.delete_key(here)
        store.delete_key(f"{here}/{mine}")
        return str(name)
    raise DistStoreError(f"rank 0 of the group has not answered for {timeout}")
