"""The rendezvous of a group's processes on a store that still holds entries of dead ones."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import DistStoreError, PrefixStore, Store, TCPStore
from waiting import WITHIN

from innet.torch.rendezvous import rendezvous

SIZE = 3
TIMEOUT = timedelta(seconds=WITHIN)


@pytest.fixture
def stores() -> list[Store]:
    """Return a store for each rank, as in separate processes."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    others = [TCPStore("127.0.0.1", server.port, is_master=False) for _ in range(1, SIZE)]
    return [server, *others]


def met(stores: list[Store], order: list[int]) -> list[Store]:
    """Let all ranks meet; each begins when the previous rank in the order has begun."""
    started = [threading.Event() for _ in order]

    def begin(rank: int) -> Store:
        if place := order.index(rank):
            started[place - 1].wait(WITHIN)
        started[order.index(rank)].set()
        return rendezvous(stores[rank], rank, SIZE, TIMEOUT)

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(begin, range(SIZE)))


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]], ids=str)
def test_what_the_dead_have_written_is_not_read(stores: list[Store], order: list[int]):
    generations = []
    for generation in range(3):
        mine = met(stores, order)
        assert not mine[2].check(["address"])
        mine[0].set("address", str(generation))
        assert [store.get("address") for store in mine] == [str(generation).encode()] * SIZE
        generations.append(mine[1])
    assert [store.get("address") for store in generations] == [b"0", b"1", b"2"]


def test_a_name_that_only_the_dead_know_is_not_taken(stores: list[Store], capfd):
    group = PrefixStore("group", stores[1])
    group.set("name", "of-the-dead")
    with pytest.raises(DistStoreError, match="rank 0 of the group has not answered"):
        rendezvous(group, 1, SIZE, timedelta(seconds=1))
    assert not capfd.readouterr().err, "PyTorch warns of each wait that is over"
