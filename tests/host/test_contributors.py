"""A worker reads the ranks that are missing out of bitmaps, as the controller has described them."""

from dataclasses import replace

import numpy as np
import pytest
from stored_records import SPEC

from innet.controller.jobs.events import Invitation
from innet.controller.jobs.job_switches import JobSwitches
from innet.controller.jobs.records import Attachment, SlotRange, Uplink
from innet.controller.jobs.roster import Roster, Worker
from innet.controller.jobs.trees import Fabric
from innet.controller.state.messages import event_message
from innet.errors import WorkersMissing
from innet.host.contributors import Contributors
from innet.host.job import Path, Term, WorkerInfo
from innet.host.missing import MissingWorkers
from innet.wire.frames import Address

UPLINKS = {
    "a": (Uplink("top", 40, 1), Uplink("side", 41, 1)),
    "b": (Uplink("top", 40, 2), Uplink("side", 41, 2)),
    "a1": (Uplink("a", 40, 3),),
    "a2": (Uplink("a", 40, 4),),
}
HOMES = ["a1", "a1", "a2", "b", "b", "a2", "a1", "a"]
SLOTS = SlotRange(0, 64, 32)


@pytest.fixture(scope="module")
def switches() -> JobSwitches:
    """Return a job of eight workers on three levels, whose two tops share the slots."""
    fabric = Fabric.below("top", UPLINKS | {"top": (), "side": ()})
    spec = replace(
        SPEC, switch="top", others=(*fabric.uplinks,)[1:], workers=len(HOMES), quorum=len(HOMES),
        min_workers=len(HOMES),
    )  # fmt: skip
    roster = Roster(spec, Invitation(Address("", ""), 64, 8.0), 0.0)
    for rank, home in enumerate(HOMES):
        where = Attachment(rank + 1, Address("02:00:00:00:00:01", "10.0.0.1", 4000 + rank), home)
        worker = Worker(rank, 100 + rank, False, 0.0)
        roster.add(worker, 0.0)
        roster.attach(worker, where)
    return JobSwitches(spec, roster, fabric, SLOTS)


def term(switches: JobSwitches, rank: int) -> Term:
    bitmaps = event_message(switches.bitmaps(rank)).bitmaps
    return Term(7, Path.SWITCH, SLOTS.first_slot, SLOTS.slots, bitmaps=bitmaps)


@pytest.mark.parametrize("rank", range(len(HOMES)))
def test_every_bitmap_on_the_way_up_names_the_workers_behind_its_bits(switches, rank):
    found = Contributors(term(switches, rank), len(HOMES))
    levels = set()
    for share in switches.plan[HOMES[rank]]:
        slot = np.array([share.first_slot - SLOTS.first_slot])
        here = share
        while True:
            levels.add(here.level_bit)
            for lacking in here.contributors:
                others = [each.bits for each in here.contributors if each is not lacking]
                answer = np.array([sum(others) | here.level_bit], np.uint64)
                assert [*found.missing(slot, answer)] == [lacking.ranks]
            everybody = sum(each.bits for each in here.contributors) | here.level_bit
            assert [*found.missing(slot, np.array([everybody], np.uint64))] == [frozenset()]
            if not here.uplink:
                break
            above = switches.plan[here.uplink.parent]
            [here] = [each for each in above if each.first_slot == share.first_slot]
    assert len(levels) == {"a": 2, "b": 2, "a1": 3, "a2": 3}[HOMES[rank]]


def test_without_a_description_every_bit_is_a_rank():
    found = Contributors(Term(7, Path.SWITCH, 64, 32), 4)
    answers = np.array([0b0101, 0b0101, 0b1110], np.uint64)
    assert {*found.missing(np.array([0, 9, 31]), answers)} == {frozenset({1, 3}), frozenset({0})}


def test_answers_in_a_long_term_take_no_more_and_more_memory():
    found = Contributors(Term(7, Path.SWITCH, 64, 32), 64)
    for first in range(0, 5000, 100):
        bitmaps = np.arange(first, first + 100, dtype=np.uint64)
        assert len([*found.missing(np.zeros(100, np.int64), bitmaps)]) == 100
    assert found._missing.cache_info().currsize < 2000


def test_who_is_missing_can_be_asked_while_a_term_with_fewer_slots_begins(monkeypatch):
    missing = MissingWorkers(WorkerInfo(1, 3, 4, 4, 64))
    missing.begin_term(Term(7, Path.SWITCH, 64, 32))
    missing.answers[30] = 0b1110
    flatnonzero = np.flatnonzero

    def interrupted(answers: np.ndarray) -> np.ndarray:
        found = flatnonzero(answers)
        missing.begin_term(Term(8, Path.SWITCH, 64, 8))
        return found

    monkeypatch.setattr(np, "flatnonzero", interrupted)
    assert missing.known == frozenset({0})


def test_whoever_asks_a_tree_after_a_departure_gives_up(switches):
    info = WorkerInfo(1, 3, len(HOMES), len(HOMES), 64)
    missing = MissingWorkers(info)
    missing.begin_term(term(switches, 3))
    missing.begin_exchange()
    departed = {6: "it was killed"}
    every_bit = np.array([0xFFFFFFFF], np.uint64)
    missing.take(np.array([5]), every_bit, departed, 10.0)
    missing.check_departures()
    missing.take(np.array([5]), every_bit, departed, 11.5)
    with pytest.raises(WorkersMissing, match="worker 6: it was killed"):
        missing.check_departures()
    assert missing.known == frozenset()
