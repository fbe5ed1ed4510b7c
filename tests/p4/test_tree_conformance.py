"""The P4 program follows its model below a parent and above other switches.

``INNET_WALKS=200`` is the long mode.
"""

import os
import random
import re
from dataclasses import replace
from functools import partial
from itertools import count, permutations

import numpy as np
import pytest
from aggregation_rack import (
    FIRST_OF_SWITCHES,
    FIRST_SLOT,
    LANES,
    NAMES,
    SERVICE,
    SLOT_PREFIX,
    TERM,
    Job,
    aggregation_rack,
    has_lanes,
    number,
    packet_in,
    station,
    told,
)
from chip_rack import chip_rack
from p4runtime_client import group
from slot_model import Collective
from tree_model import Reply, Shape, Tree, first_state

from innet.wire.check import seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import Ecn, Flag, Kind, Operation
from innet.wire.records import blank, get_field, packet_bytes, set_field

SHAPE = Shape(((0, 1), (2, 3, 4)), 2, 7)
"""The tree. The tested switch is that of the first rack."""

BELOW, TOP, MIDDLE = 21, 22, 23
"""A job below a parent, one above child switches, and one with both a parent and children."""

UPLINK, TOTAL, ELSEWHERE = 3, 5, 0b11100
_SWITCHES = tuple((port, FIRST_OF_SWITCHES + port) for port in (1, 2))
"""The ports of switches below, with their instance numbers."""

OTHER_UPLINK = 4
"""Another link to the parent, which no job uses."""

FURTHER = 0b10000
"""The workers elsewhere, for the third job."""

HERE = Address("02:00:00:01:00:07", "10.255.252.7")
"""The address under which the parent knows this switch."""

BOTH = Flag.CARRIED | Flag.WANTED
MIXTURES = (*[(each,) for each in Collective], *permutations(Collective, 3))
"""The collectives of the walks, in turn."""

WALKS, LONGEST = int(os.environ.get("INNET_WALKS", "8")), 250


SWITCHES = {
    "innet-switch": aggregation_rack,
    **{chip: partial(chip_rack, chip=chip) for chip in ("tofino", "tofino2")},
}
VARIANTS = {
    "innet-switch": {},
    "tofino": {"begins": False, "asks_for_lanes": True},
    "tofino2": {"asks_for_lanes": True},
}
"""How the model's switches of racks differ."""

DAMAGED = {"innet-switch": -1, "tofino": 22, "tofino2": 22}
"""The position of a damaged byte: in the last lane, or in the time to live on chips without checks."""


@pytest.fixture(scope="module", params=SWITCHES)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def rack(kind):
    with SWITCHES[kind](OTHER_UPLINK) as running:
        slots = {"term": TERM, "slot": (FIRST_SLOT, SLOT_PREFIX)}
        link = {"parent": number(SERVICE.ip_bytes), "address": number(HERE.ip_bytes)}
        up = {"mac": number(HERE.mac_bytes), "address": number(HERE.ip_bytes), "port": UPLINK}
        place = {"group": BELOW, "job_index": BELOW}
        running.controller.insert(
            group(BELOW, (1, 1), (2, 2)),
            *(group(job, *_SWITCHES) for job in (TOP, MIDDLE)),
            *(
                NAMES.entry("uplinks", {"port": port, **link}, "descend")
                for port in (UPLINK, OTHER_UPLINK)
            ),
            NAMES.entry("trees", {"job": BELOW, **slots}, "below",
                        elsewhere=ELSEWHERE, **up, **place),
            NAMES.entry("trees", {"job": MIDDLE, **slots}, "below",
                        elsewhere=FURTHER, group=MIDDLE, job_index=MIDDLE, **up),
        )  # fmt: skip
        for rank in (0, 1):
            running.admit(BELOW, rank, 3)
            running.admit(TOP, rank, 2, bits=(0b00011, ELSEWHERE)[rank])
            running.admit(MIDDLE, rank, 3, bits=(0b00011, 0b01100)[rank])
        yield running


def answer(for_job: Job, kind: Kind, sequence: int, workers: int, value, **changes) -> bytes:
    """Return an answer of the parent to this switch. If `value` is None, it has no lanes."""
    lanes = LANES * (value is not None and kind not in {Kind.PENDING, Kind.STALE})
    carried = changes.pop("carried", value is not None)
    source, target = changes.pop("source", SERVICE), changes.pop("target", HERE)
    front = encapsulation(source, target, packet_bytes(lanes), changes.pop("ecn", Ecn.CAPABLE))
    packet = blank(1, lanes, kind, front)
    flags = changes.pop("flags", 0) | told(carried=carried, wanted=changes.pop("wanted", True))
    fields = {"job": for_job.job, "term": TERM, "slot": for_job.slot, "sequence": sequence}
    fields |= {"operation": Operation.SUM, "count": TOTAL, "workers": workers, "flags": flags}
    for name, content in {**fields, **changes}.items():
        set_field(packet, name, content)
    if lanes:
        packet["lanes"] = value
    seal(packet, source.ip_number, source.udp_port)
    return packet.tobytes()


def raised(job: Job, kind: Kind = Kind.CONTRIBUTION) -> np.void:
    """Receive the next sum, or another kind of packet, at the uplink."""
    frame = job.rack.receive(UPLINK)
    assert frame[26:34] == HERE.ip_bytes + SERVICE.ip_bytes
    packet = packet_in(frame, HERE)
    assert get_field(packet, "kind") == kind
    assert (packet["job"], packet["term"]) == (job.job, TERM)
    return packet


# -- side by side with the model -----------------------------------------------------------------


def test_the_switch_of_a_rack_and_the_model_agree(kind, rack):
    said = set()
    for walk in range(WALKS):
        tree = Tree(SHAPE, **VARIANTS[kind])
        said |= walk_together(rack, tree, random.Random(walk), FIRST_SLOT + 2 * walk)
    assert said == {"UP", Kind.RESULT, Kind.PENDING, Kind.STALE}


def test_the_switch_of_a_rack_and_the_model_agree_with_a_quorum_of_racks(kind, rack):
    said = set()
    for walk in range(WALKS):
        tree = Tree(replace(SHAPE, quorum=1), **VARIANTS[kind])
        said |= walk_together(rack, tree, random.Random(walk), FIRST_SLOT + 1000 + 2 * walk)
    assert said == {"UP", "QUERY", Kind.RESULT, Kind.PENDING, Kind.STALE}


def walk_together(rack, tree: Tree, choice: random.Random, first_slot: int) -> set:
    """Walk through the model at random, and have the switch follow. Returns the kinds of its answers."""
    mixture = MIXTURES[choice.randrange(len(MIXTURES))]
    shape = replace(tree.shape, collectives=mixture)
    tree, state, said = replace(tree, shape=shape), first_state(shape), set()
    jobs = [Job(rack, BELOW, TOTAL, first_slot + slot) for slot in range(SHAPE.slots)]
    for _ in range(LONGEST):
        what = choice.random()
        answers = sorted((each for each in state.answers if each.rack == 0), key=repr)
        if what < 0.35:
            worker, slot = choice.choice(SHAPE.racks[0]), choice.randrange(SHAPE.slots)
            use = choice.randrange(state.progress[worker][slot] + 1)
            if use < SHAPE.size.uses(slot):
                state, reply = tree.contribute(state, worker, slot, use)
                chunk = SHAPE.size.chunk(slot, use)
                lanes = value(worker, chunk) if shape.size.carries(worker, chunk) else None
                wants = shape.size.wants(worker, chunk)
                jobs[slot].send(worker, use + 1, lanes, ecn=ecn(worker, chunk), wants=wants)
                said |= check(jobs[slot], tree, use + 1, worker, reply)
        elif what < 0.45 and answers:
            packet = choice.choice(answers)
            job = jobs[packet.slot]
            state, reply = tree.answer(state, packet)
            lanes = None if packet.total is None else total(packet.total)
            chunk = shape.size.chunk(packet.slot, packet.sequence - 1)
            wanted = wanted_above(tree, packet.members, chunk)
            flags = {"flags": marks(packet.members, chunk), "ecn": link_down(packet.sequence)}
            flags |= {"carried": packet.announced, "wanted": wanted}
            contents = bitmap(packet.members), lanes
            flags |= {"count": len(packet.members)}
            rack.send(UPLINK, answer(job, Kind.RESULT, packet.sequence, *contents, **flags))
            said |= check(job, tree, packet.sequence, None, reply)
        elif what < 0.5:  # the parent waits for others, or sends a STALE that it never should
            slot, sequence = choice.randrange(SHAPE.slots), choice.randint(1, 4)
            kind = choice.choice((Kind.PENDING, Kind.PENDING, Kind.STALE))
            cell = state.below[0][slot][sequence % 2]
            _, reply = tree.child(0).hear(cell, kind, sequence, frozenset({0, 1, 3}))
            rack.send(UPLINK, answer(jobs[slot], kind, sequence, 0b1011, None))
            said |= check(jobs[slot], tree, sequence, None, reply)
        elif what < 0.6 and shape.quorum:
            worker, slot = choice.choice(SHAPE.racks[0]), choice.randrange(SHAPE.slots)
            use = choice.randrange(state.progress[worker][slot] + 1)
            if use < SHAPE.size.uses(slot):
                state, reply = tree.ask(state, worker, slot, use)
                jobs[slot].send(worker, use + 1, None, kind=Kind.QUERY)
                said |= (
                    check(jobs[slot], tree, use + 1, worker, reply)
                    if reply
                    else check_query(jobs[slot], use + 1, worker)
                )
        else:
            others = [
                after
                for what, after in tree.steps(state)
                if after != state
                and not re.search("worker [01]'s|worker . (asks|hears)|rack=0.* below", what)
            ]
            state = choice.choice(others) if others else state
    assert max(map(max, state.progress)) > 1, "the walk did not get anywhere"
    return said


def check(job: Job, tree: Tree, sequence: int, worker: int | None, reply: Reply | None) -> set:
    """Assert that the switch sends exactly the model's reply. Returns its kind."""
    shape = tree.shape
    chunk = shape.size.chunk(job.slot % SHAPE.slots, sequence - 1)
    if reply and reply.kind is None:
        packet = raised(job)
        assert (packet["slot"], packet["sequence"]) == (job.slot, sequence)
        flags = told(carried=reply.announced, wanted=reply.wants)
        assert packet["flags"] == flags | marks(reply.members, chunk)
        assert packet["count"] == len(reply.members)
        assert has_lanes(packet) == (reply.total is not None)
        if has_lanes(packet):
            np.testing.assert_array_equal(packet["lanes"], total(reply.total))
    for each in sorted(reply.to) if reply else []:
        members = bitmap(reply.members)
        match reply.kind:
            case Kind.RESULT:
                flags = marks(reply.members, chunk)
                if link_down(sequence) == Ecn.CONGESTED:
                    flags |= Flag.MARKED
                lanes = total(reply.total) if each in reply.full else None
                wanted = wanted_above(tree, reply.members, chunk)
                told_of = {"carried": reply.announced, "wanted": wanted}
                told_of["count"] = len(reply.members)
                job.assert_result(each, sequence, lanes, members, flags, **told_of)
            case Kind.PENDING:
                below = worker is not None
                job.assert_pending(each, sequence, members | (ELSEWHERE if below else 0))
            case Kind.STALE:
                job.assert_stale(each, sequence)
    job.rack.assert_quiet(*((UPLINK, 1, 2) if worker is None else (worker + 1, UPLINK)))
    return {reply.kind or "UP"} if reply else set()


def check_query(job: Job, sequence: int, worker: int) -> set:
    """Assert that the switch passes a query on to the parent. Returns its kind."""
    packet = raised(job, Kind.QUERY)
    assert (packet["slot"], packet["sequence"]) == (job.slot, sequence)
    assert (packet["flags"], get_field(packet, "operation")) == (Flag.WANTED, Operation.SUM)
    assert not has_lanes(packet)
    job.rack.assert_quiet(worker + 1, UPLINK)
    return {"QUERY"}


def wanted_above(tree: Tree, members, chunk: int) -> bool:
    """Return whether one of the sums in a result has asked for its lanes."""
    wanted = any(tree.shape.size.wants(each, chunk) for each in members)
    return wanted or tree.asks_for_lanes


def value(worker: int, chunk: int) -> int:
    """Return a worker's contribution to a chunk: numbers whose sums are hardly ever equal."""
    return random.Random(worker * 100 + chunk).randrange(1 << 27)


def total(contributions) -> int:
    return sum(value(*each) for each in contributions)


def ecn(worker: int, chunk: int) -> Ecn:
    """Return whether a queue on the contribution's way is long."""
    return random.Random(-worker * 100 - chunk).choice([Ecn.CAPABLE, Ecn.CAPABLE, Ecn.CONGESTED])


def link_down(sequence: int) -> Ecn:
    """Return whether the queue from the parent is long when it sends this result."""
    return Ecn.CONGESTED if sequence % 3 == 0 else Ecn.CAPABLE


def marks(members, chunk: int) -> Flag:
    """Return whether one of the contributions to the sum is marked."""
    marked = any(ecn(each, chunk) == Ecn.CONGESTED for each in members)
    return Flag.MARKED if marked else Flag(0)


def bitmap(workers) -> int:
    return sum(1 << worker for worker in workers)


# -- accepted answers ----------------------------------------------------------------------------


@pytest.fixture
def job(rack):
    """Return a job whose sum of chunk 1 has gone up."""
    made = Job(rack, BELOW, TOTAL, next(_single))
    made.send(0, 1, 7)
    made.send(1, 1, 8, flags=1 << 14)
    packet = raised(made)
    assert (packet["flags"], packet["count"]) == (BOTH | 1 << 14, 2)
    np.testing.assert_array_equal(packet["lanes"], 15)
    return made


_single = count(FIRST_SLOT + 3000)


@pytest.mark.parametrize("port", [1, 2])
def test_a_result_is_heard_at_the_uplink_only(job, port):
    drops = job.rack.dropped(port)
    job.rack.send(port, answer(job, Kind.RESULT, 1, 0b11111, 99))
    job.rack.assert_quiet(port, 1, 2)
    job.rack.assert_dropped(port, drops, spoofed=1)


@pytest.mark.parametrize(
    ("change", "drop"),
    [
        ({"source": station(3)}, {}),  # not from the parent: bridged like any frame
        ({"target": SERVICE}, {"spoofed": 1}),
        ({"term": TERM + 1}, {"refused": 1}),
        ({"job": TOP}, {"refused": 1}),
        ({"slot": 5}, {"refused": 1}),
        ({"kind": Kind.CONTRIBUTION}, {"refused": 1}),
        ({"kind": Kind.HELLO}, {"refused": 1}),
    ],
    ids=str,
)
def test_other_answers_change_nothing(job, change, drop):
    drops = job.rack.dropped(UPLINK)
    before = job.counts()
    frame = answer(job, **{"kind": Kind.RESULT, **change}, sequence=1, workers=0b11111, value=99)
    job.rack.send(UPLINK, frame)
    if change.get("source"):
        assert len({job.rack.receive(port) for port in (1, 2, OTHER_UPLINK)}) == 1
    job.rack.assert_quiet(UPLINK, 1, 2)
    job.rack.assert_dropped(UPLINK, drops, **drop)
    job.assert_counted(before)


def test_a_result_begins_no_chunk_on_tofino_1(kind, rack):
    if kind != "tofino":
        pytest.skip("a result may begin a chunk")
    job = Job(rack, BELOW, TOTAL, next(_single))
    before = job.counts()
    for each in (Kind.RESULT, Kind.PENDING):
        rack.send(UPLINK, answer(job, each, 1, 0b11111, 99, flags=2))
    rack.assert_quiet(UPLINK, 1, 2)
    job.assert_counted(before, ignored=2)
    job.send(0, 1, 7)
    job.send(1, 1, 8)
    packet = raised(job)
    assert packet["flags"] == BOTH
    np.testing.assert_array_equal(packet["lanes"], 15)


def test_the_result_of_a_quorum_takes_the_place_of_an_incomplete_sum(kind, rack):
    job = Job(rack, BELOW, TOTAL, next(_single))
    job.send(0, 1, 7, flags=1)
    rack.assert_quiet(1)
    before, drops = job.counts(), rack.dropped(UPLINK)
    for lanes in (None, 99, 98):  # without lanes; and twice
        told_of = {"flags": 2, "count": 3, "carried": True}
        rack.send(UPLINK, answer(job, Kind.RESULT, 1, 0b11100, lanes, **told_of))
    for worker in (0, 1):
        job.assert_result(worker, 1, 99, 0b11100, flags=2, count=3)
    rack.assert_quiet(UPLINK, 1, 2)
    job.send(1, 1, 8)
    job.assert_result(1, 1, 99, 0b11100, flags=2, count=3)
    lacking = VARIANTS[kind].get(
        "asks_for_lanes", False
    )  # it never gets a result without its lanes
    job.assert_counted(before, completed=1, ignored=1 if lacking else 2, answered=1)
    rack.assert_dropped(UPLINK, drops, refused=int(lacking))


def test_the_result_of_a_quorum_begins_a_chunk_for_which_nothing_has_come_yet(kind, rack):
    if kind == "tofino":
        pytest.skip("a result begins no chunk on Tofino 1")
    job = Job(rack, BELOW, TOTAL, next(_single))
    job.send(0, 1, 7)
    rack.assert_quiet(1)
    rack.send(UPLINK, answer(job, Kind.RESULT, 3, 0b11100, 99, count=3))
    for worker in (0, 1):
        job.assert_result(worker, 3, 99, 0b11100, count=3)
    job.send(1, 1, 8)
    job.assert_stale(1, 1)
    job.send(0, 3, 7)
    job.assert_result(0, 3, 99, 0b11100, count=3)
    rack.send(UPLINK, answer(job, Kind.STALE, 5, 0, None))
    for worker in (0, 1):
        job.assert_stale(worker, 5)
    rack.assert_quiet(UPLINK, 1, 2)


def test_a_query_at_the_top_is_answered_once_there_is_a_result(rack):
    job = Job(rack, TOP, TOTAL, next(_single))
    before = job.counts()
    job.send(0, 1, None, kind=Kind.QUERY)
    job.send(0, 1, 10, count=2)
    job.send(1, 1, None, kind=Kind.QUERY)
    rack.assert_quiet(1, 2)
    job.send(1, 1, 5, count=3)
    for below in (0, 1):
        job.assert_result(below, 1, 15, 0b11111)
    job.send(1, 1, None, kind=Kind.QUERY)
    job.assert_result(1, 1, 15, 0b11111)
    job.send(1, 1, None, kind=Kind.QUERY, wants=False)
    job.assert_result(1, 1, None, 0b11111, carried=True)
    job.send(0, 3, 1)
    rack.assert_quiet(1)
    job.send(1, 1, None, kind=Kind.QUERY)
    job.assert_stale(1, 1)
    job.assert_counted(before, ignored=2, waiting=2, completed=1, answered=2, stale=1)


def test_a_result_is_heard_at_no_other_uplink(job):
    drops, before = job.rack.dropped(OTHER_UPLINK), job.counts()
    job.rack.send(OTHER_UPLINK, answer(job, Kind.RESULT, 1, 0b11111, 99))
    job.rack.assert_quiet(OTHER_UPLINK, 1, 2, UPLINK)
    job.rack.assert_dropped(OTHER_UPLINK, drops, refused=1)
    job.assert_counted(before)
    job.rack.send(UPLINK, answer(job, Kind.RESULT, 1, 0b11111, 98))
    for worker in (0, 1):
        job.assert_result(worker, 1, 98, 0b11111)


def test_what_else_the_parent_sends_to_this_switch_is_dropped(kind, job):
    drops, frame = job.rack.dropped(UPLINK), bytearray(answer(job, Kind.RESULT, 1, 0b11111, 99))
    frame[36:38] = (9).to_bytes(2, "big")  # of another protocol
    job.rack.send(UPLINK, bytes(frame))
    job.rack.assert_quiet(UPLINK, 1, 2)
    counted = {"innet-switch": "spoofed"}.get(kind, "refused")
    job.rack.assert_dropped(UPLINK, drops, **{counted: 1})


def test_a_damaged_answer_is_dropped_and_the_right_one_counts(kind, job):
    frame = bytearray(answer(job, Kind.RESULT, 1, 0b11111, 99, flags=1))
    frame[DAMAGED[kind]] ^= 1
    drops = job.rack.dropped(UPLINK)
    job.rack.send(UPLINK, bytes(frame))
    job.rack.assert_quiet(UPLINK, 1, 2)
    job.rack.assert_dropped(UPLINK, drops, corrupted=1)
    job.rack.send(UPLINK, answer(job, Kind.RESULT, 1, 0b11111, 99, flags=1))
    for worker in (0, 1):
        job.assert_result(worker, 1, 99, 0b11111, flags=1)
    job.rack.send(UPLINK, answer(job, Kind.RESULT, 1, 0b11111, 98))  # late, and another
    job.rack.assert_quiet(UPLINK, 1, 2)
    job.send(0, 1, 7)
    job.assert_result(0, 1, 99, 0b11111, flags=1)


# -- above other switches ------------------------------------------------------------------------


def test_a_switch_below_stands_for_all_its_workers(rack):
    job = Job(rack, TOP, TOTAL, next(_single))
    job.send(0, 1, 10, count=2)
    job.send(0, 1, 10, count=2)
    job.assert_pending(0, 1, 0b00011)
    job.send(1, 1, 5, count=TOTAL - 2)
    for below in (0, 1):
        job.assert_result(below, 1, 15, 0b11111)


def test_a_switch_between_others_gives_the_lanes_of_an_early_result_to_all(rack):
    job = Job(rack, MIDDLE, TOTAL, next(_single))
    job.send(0, 1, 10, count=2, wants=False)
    rack.assert_quiet(1)
    rack.send(UPLINK, answer(job, Kind.RESULT, 1, 0b10000, 22, count=9))
    for below in (0, 1):
        job.assert_result(below, 1, 22, 0b10000, count=9)
    job.send(1, 3, None, kind=Kind.QUERY)
    assert raised(job, Kind.QUERY)["sequence"] == 3
    rack.assert_quiet(1, 2, UPLINK)


def test_a_switch_between_others_does_both(rack):
    job = Job(rack, MIDDLE, TOTAL, next(_single))
    job.send(0, 1, 10, count=2)
    job.send(0, 1, 10, count=2)
    job.assert_pending(0, 1, 0b00011 | FURTHER)
    job.send(1, 1, 5, flags=1, count=1000)
    for _ in range(2):  # the first is lost
        packet = raised(job)
        np.testing.assert_array_equal(packet["lanes"], 15)
        assert (packet["flags"], packet["count"]) == (BOTH | 1, 1002)
        job.send(0, 1, 10, flags=4, count=7)  # what the cell has counts, not the repetition
    packet = raised(job)
    assert (packet["sequence"], packet["count"]) == (1, 1002)
    rack.send(UPLINK, answer(job, Kind.RESULT, 1, 0b11111, 22, flags=3))
    for below in (0, 1):
        job.assert_result(below, 1, 22, 0b11111, flags=3)
    job.send(1, 1, 5)
    job.assert_result(1, 1, 22, 0b11111, flags=3)
