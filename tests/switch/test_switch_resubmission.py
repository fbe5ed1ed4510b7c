"""Packets that pass again from the start: resubmitted, recirculated, or without end."""

import contextlib
import struct

import pytest
from clone_sessions import ROOM, session
from compared_switches import Target
from p4runtime_client import Controller, group
from packet_paths import (
    EGRESS_CLONE,
    INGRESS_CLONE,
    NORMAL,
    RECIRCULATED,
    REST,
    RESUBMITTED,
    Seen,
    on,
    seen,
)
from switches import Switch, receive, running_switch
from tiny_programs import program

from innet.switch.engine import Engine

# -- again from the start ------------------------------------------------------------------------


def resubmitted(
    target: Target, command: int, rounds: int
) -> list[tuple[tuple[int, ...], Seen, bytes]]:
    """Return the metadata that the last ingress and the egress saw, and the rest of the packet."""
    header = struct.pack("!BBH5x", command, rounds << 5, 5)
    outputs = seen(target.send(2, header + ROOM + REST), len(header))
    return [(struct.unpack("!BHH", front[4:]), what, rest) for what, front, rest in outputs]


AGAIN = 9 + len(ROOM) + len(REST)


@on("path_resubmit")
def test_a_resubmitted_packet_is_as_it_came_but_for_the_field_list(target):
    [((kind, port, length), what, rest)] = resubmitted(target, 0, 3)
    assert (kind, port, length) == (RESUBMITTED, 0, AGAIN)
    assert what == Seen(NORMAL, 0, AGAIN, 0, 2, 3, 0x100)
    assert rest == REST


@on("path_resubmit")
def test_a_packet_that_is_not_resubmitted_is_ordinary(target):
    [(ingress, what, _)] = resubmitted(target, 0, 0)
    assert (ingress, what.kept) == ((NORMAL, 2, AGAIN), 0)


@on("path_resubmit")
@pytest.mark.parametrize("command", [0b0001, 0b0010, 0b1000, 0b1011])
def test_resubmission_goes_before_drops_groups_and_ports(target, command):
    # Every round gives the command. That of the last round applies.
    outputs = resubmitted(target, command, 2)
    dropped, copied = command & 1, command & 2
    assert len(outputs) == (2 if copied else not dropped)
    assert all(what.kept == 2 for _, what, _ in outputs)


@on("path_resubmit")
def test_every_round_of_a_resubmitted_packet_is_cloned(target):
    outputs = resubmitted(target, 0b100, 2)
    kinds = sorted((what.kind, what.kept) for _, what, _ in outputs)
    assert kinds == [(NORMAL, 2), (INGRESS_CLONE, 1), (INGRESS_CLONE, 2), (INGRESS_CLONE, 2)]


def recirculated(
    target: Target, command: int, rounds: int
) -> list[tuple[int, tuple[int, ...], Seen, bytes]]:
    """Return the outputs: port, the last ingress's and the egress's metadata, and the rest."""
    header = struct.pack("!BBH5x", command, rounds << 6, 5)
    outputs = target.send(2, header + ROOM + REST)
    return [
        (port, struct.unpack("!BHH", front[4:]), what, rest)
        for (port, _), (what, front, rest) in zip(outputs, seen(outputs, 9), strict=True)
    ]


@on("path_recirculate")
def test_a_recirculated_packet_is_as_it_would_have_been_sent(target):
    [(port, (kind, came, length), what, rest)] = recirculated(target, 0, 3)
    assert rest == b"tatata" + REST
    assert (port, kind, came, length) == (2, RECIRCULATED, 0, AGAIN + 6)
    assert what == Seen(NORMAL, 0, AGAIN + 6, 0, 2, 4, 1)


@on("path_recirculate")
def test_what_no_field_list_has_is_lost_on_every_round(target):
    [(_, _, what, _)] = recirculated(target, 0b10, 3)
    assert (what.kept, what.lost) == (1, 1)


@on("path_recirculate")
def test_every_copy_of_a_group_recirculates_by_itself(target):
    outputs = recirculated(target, 1, 2)
    assert [(port, what.kept) for port, _, what, _ in outputs] == [(2, 3)] * 2


@on("path_recirculate")
def test_a_drop_goes_before_recirculation_and_a_clone_before_both(target):
    assert recirculated(target, 0b1000, 1) == []
    [(port, _, what, _)] = recirculated(target, 0b1100, 1)
    assert (port, what.kind) == (3, EGRESS_CLONE)


@on("path_recirculate")
def test_a_recirculated_packet_is_whole_whatever_the_round_before_would_have_cut(target):
    [(_, _, _, rest)] = recirculated(target, 0b10000, 1)
    assert rest == b"ta" + REST


# -- without end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [1, 2, 3])
def test_packets_that_never_leave_keep_the_switch_from_nothing(how):
    with running_switch(2) as switch, Controller(switch.address, 1) as controller:
        controller.configure(program("path_forever"))
        controller.insert(session(1, (1, 1)))
        for _ in range(2000):  # more than may wait
            switch.hosts[1].send(bytes([how]))
        for number in range(100):
            question, before = bytes([0, number]), bytes([0, max(0, number - 1)])
            others = {bytes([how]), before} - {question}
            assert answer_other_than(switch, question, others) == question
            controller.insert(group(number + 1, (2, 1)))
        assert len(controller.read(group(0))) == 100
        controller.configure(program("path_time"))  # the waiting packets are gone
        assert len(answer_other_than(switch, bytes(24), {bytes([how]), question})) == 24


def answer_other_than(switch: Switch, question: bytes, others: set[bytes]) -> bytes:
    """Send a frame, and return the first one that comes and is none of the `others`.

    If other frames fill a socket, the kernel drops some. So a question may be repeated, and the `others`
    need the answer to the question before: it may come twice.
    """
    switch.hosts[1].settimeout(5.0)
    for _ in range(24):
        switch.hosts[0].send(question)
        with contextlib.suppress(TimeoutError):
            arriving = (receive(switch.hosts[1]) for _ in range(5000))
            if (answer := next((got for got in arriving if got not in others), None)) is not None:
                return answer
    raise AssertionError(f"no answer to {question!r}")


@pytest.mark.parametrize("how", [1, 2])
def test_more_packets_than_may_wait_are_dropped_and_counted(how):
    engine = Engine(program("path_forever").json)
    try:
        engine.exercise(1, bytes([how]), 1100)
        drops = engine.drops()
    finally:
        engine.close()
    assert drops["queue_full"] == 1100 - 1024
