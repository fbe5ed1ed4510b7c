"""Idle timeouts: which entries are told of, and how few of them are looked at for it."""

import random
from types import SimpleNamespace

import pytest

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.p4runtime import aging
from innet.switch.p4runtime.aging import Aging, StoredEntry

SECOND = 1_000_000_000


class World:
    """A clock, and an engine that knows when packets have matched its entries."""

    def __init__(self) -> None:
        self.now = self.looks = 0
        self.hits: dict[int, int] = {}
        self.entries = self

    def monotonic_ns(self) -> int:
        return self.now

    def idle_ns(self, table: str, entry: int) -> int:
        assert table == "table"
        self.looks += 1
        return self.now - self.hits[entry]


@pytest.fixture
def world(monkeypatch) -> World:
    made = World()
    monkeypatch.setattr(aging, "time", SimpleNamespace(monotonic_ns=made.monotonic_ns))
    return made


def stored(world: World, number: int, timeout: int) -> StoredEntry:
    world.hits[number] = world.now
    return StoredEntry(number, p4rt.TableEntry(priority=number, idle_timeout_ns=timeout))


def test_an_entry_is_looked_at_only_when_its_timeout_may_be_over(world):
    """A search for idle entries holds the device's lock, and every digest begins one."""
    watched, entries = Aging(world), [stored(world, i, 60 * SECOND) for i in range(1000)]
    for each in entries:
        watched.watch("table", each)
    for second in range(60):
        world.now = second * SECOND
        world.hits[7] = world.now
        assert watched.over() == ([], 60 - second)
    assert world.looks == 0
    world.now = 60 * SECOND
    over, wait = watched.over()
    assert ([each.priority for each in over], wait) == ([*range(7), *range(8, 1000)], 59)
    assert world.looks == 1000


def test_entries_that_come_and_go_leave_nothing_behind(world):
    watched = Aging(world)
    for number in range(10_000):
        gone = stored(world, number, 3600 * SECOND)
        watched.watch("table", gone)
        watched.forget(gone)
    assert len(watched._looks) < 1000
    assert watched.over()[0] == []


@pytest.mark.parametrize("seed", range(20))
def test_all_entries_and_no_others_are_told_of(world, seed):
    choices = random.Random(seed)
    watched, entries, begun = Aging(world), {}, {}
    for _ in range(1000):
        world.now += choices.randrange(5)
        number = choices.randrange(20)
        timeout = choices.choice([0, 1, 10, 40])
        match choices.choice(["write", "remove", "hit", "hit", "look"]):
            case "write":
                if number in entries:
                    entries[number].message.idle_timeout_ns = timeout
                else:
                    entries[number] = stored(world, number, timeout)
                watched.watch("table", entries[number])
                begun[number] = world.now
            case "remove" if number in entries:
                watched.forget(entries.pop(number))
            case "hit" if number in entries:
                world.hits[number] = world.now
            case "look":
                since = {each: max(world.hits[each], begun[each]) for each in entries}
                idle = {
                    each
                    for each, entry in entries.items()
                    if 0 < entry.message.idle_timeout_ns <= world.now - since[each]
                }
                assert {each.priority for each in watched.over()[0]} == idle
                begun |= dict.fromkeys(idle, world.now)
