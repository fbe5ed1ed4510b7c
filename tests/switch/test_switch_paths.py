"""The paths and copies of packets: clones, resubmission, recirculation, cuts, drops, digests."""

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from clone_sessions import ELECTIONS, ROOM, session
from differential import Target, embedded
from p4.v1 import p4runtime_pb2 as p4rt
from p4runtime_client import Controller, encode, group, update_errors
from switches import Switch, receive, running_switch
from tiny_programs import program

from innet.switch.engine import Engine

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICA, RESUBMITTED = 0, 1, 2, 4, 5, 6

REST = b"the rest"


@dataclass(frozen=True)
class Seen:
    """The metadata that the egress found."""

    kind: int
    instance: int
    size: int
    came: int
    left: int
    kept: int
    lost: int


def insert(target: Target, *entities: p4rt.Entity) -> None:
    for entity in entities:
        assert target.write(p4rt.Update(type=p4rt.Update.INSERT, entity=entity))


@pytest.fixture
def target(request) -> Iterator[Target]:
    """Run the program that the test names. Session 5 copies to port 3 as instance 9."""
    with embedded(program(request.param)) as running:
        insert(running, session(5, (3, 9)), session(1, (1, 0)), group(5, (1, 1), (4, 4)))
        yield running


def on(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("target", [name], indirect=True)


def seen(outputs: list[tuple[int, bytes]], header: int) -> list[tuple[Seen, bytes, bytes]]:
    """Return the egress's metadata for every packet, with the header in front of it and the rest."""
    return [
        (
            Seen(*struct.unpack_from("!B6H", frame, header)),
            frame[:header],
            frame[header + len(ROOM) :],
        )
        for _, frame in outputs
    ]


# -- clones of what came in ----------------------------------------------------------------------


def cloned(command: int, target: Target, number: int = 5) -> list[tuple[Seen, bytes, bytes]]:
    header = struct.pack("!BHH", command, number, 0xABCD)
    return seen(target.send(2, header + ROOM + REST), len(header))


LENGTH = 5 + len(ROOM) + len(REST)
CHANGED = struct.pack("!BHH", 1, 5, 0xDEAD)


@on("path_clone_ingress")
def test_a_clone_is_the_packet_as_it_came_without_its_metadata(target):
    packet, clone = cloned(0b01, target)
    assert packet == (Seen(NORMAL, 7, LENGTH, 2, 2, 0xABCD, 0xABCD), CHANGED, REST)
    # Even the port of arrival is lost, because that was metadata too.
    wanted = Seen(INGRESS_CLONE, 9, LENGTH, 0, 3, 0, 0)
    assert clone == (wanted, struct.pack("!BHH", 1, 5, 0xABCD), REST)


@on("path_clone_ingress")
def test_a_clone_keeps_the_field_list_with_the_values_of_the_end_of_the_ingress(target):
    _, (clone, _, _) = cloned(0b10, target)
    assert (clone.kind, clone.kept, clone.lost) == (INGRESS_CLONE, 0xABCD, 0)
    _, (clone, _, _) = cloned(0b100010, target)
    assert (clone.kept, clone.lost) == (0xBEEF, 0)


@on("path_clone_ingress")
def test_dropping_or_leaving_the_ingress_does_not_hold_a_clone_back(target):
    [(clone, _, _)] = cloned(0b101, target)
    assert (clone.kind, clone.left) == (INGRESS_CLONE, 3)
    packet, (clone, _, _) = cloned(0b1000001, target)
    assert (packet[0].instance, clone.left) == (0, 3)


@on("path_clone_ingress")
def test_of_two_clones_that_are_asked_for_the_last_is_made(target):
    (clone, _, _), _ = cloned(0b1001, target)
    assert (clone.kind, clone.left) == (INGRESS_CLONE, 1)


@on("path_clone_ingress")
def test_a_group_s_copies_and_a_clone_do_not_know_of_each_other(target):
    first, clone, second = (each for each, _, _ in cloned(0b10001, target))
    assert [(each.kind, each.left, each.instance) for each in (first, clone, second)] == [
        (REPLICA, 1, 1), (INGRESS_CLONE, 3, 9), (REPLICA, 4, 4),
    ]  # fmt: skip
    assert (clone.kept, first.kept) == (0, 0xABCD)


@on("path_clone_ingress")
def test_a_session_that_does_not_exist_makes_no_clone(target):
    [(packet, _, _)] = cloned(0b1, target, number=77)
    assert packet.kind == NORMAL


@on("path_clone_ingress")
def test_a_session_may_have_several_copies_and_cut_them(target):
    insert(target, session(6, (1, 1), (1, 2), (4, 3), packet_length_bytes=16))
    outputs = target.send(2, struct.pack("!BHH", 0b101, 6, 1) + ROOM + REST)
    assert [(port, len(frame)) for port, frame in outputs] == [(1, 16), (1, 16), (4, 16)]
    assert [frame[6:8] for _, frame in outputs] == [b"\0\1", b"\0\2", b"\0\3"]


# -- clones of what goes out ---------------------------------------------------------------------


def cloned_behind(
    target: Target, command: int, rounds: int = 1
) -> list[tuple[int, Seen, int, bytes]]:
    """Return the outputs: port, the egress's metadata, the number of passes, and the rest."""
    outputs = target.send(2, struct.pack("!BHB", command, 5, rounds << 6) + ROOM + REST)
    return [
        (port, what, header[3] & 63, rest)
        for (port, _), (what, header, rest) in zip(outputs, seen(outputs, 4), strict=True)
    ]


@on("path_clone_egress")
def test_a_clone_at_egress_has_the_headers_as_they_were_and_passes_the_egress_again(target):
    size = 4 + len(ROOM) + len(REST)
    packet, clone = cloned_behind(target, 0)
    assert packet == (2, Seen(NORMAL, 0, size, 2, 2, 0x1111, 0x2223), 1, REST)
    assert clone == (3, Seen(EGRESS_CLONE, 9, size, 0, 3, 0, 1), 2, REST)


@on("path_clone_egress")
def test_a_clone_at_egress_keeps_its_field_list(target):
    _, clone = cloned_behind(target, 0b10)
    assert (clone[1].kept, clone[1].lost) == (0x1111, 1)


@on("path_clone_egress")
def test_a_clone_has_what_was_added_to_the_packet_and_the_size_of_it(target):
    packet, clone = cloned_behind(target, 0b100)
    assert packet[3] == clone[3] == b"ta" + REST
    assert clone[1].size == packet[1].size + 2


@on("path_clone_egress")
def test_clones_are_cloned_for_as_long_as_they_ask(target):
    outputs = cloned_behind(target, 0, rounds=3)
    passes = sorted((port, times) for port, _, times, _ in outputs)
    assert passes == [(2, 1), (3, 2), (3, 3), (3, 4)]


@on("path_clone_egress")
def test_dropping_or_leaving_the_egress_does_not_hold_a_clone_back(target):
    assert [port for port, _, _, _ in cloned_behind(target, 0b1000)] == [3]
    assert [port for port, _, _, _ in cloned_behind(target, 0b10000)] == [2, 3]


@on("path_clone_egress")
def test_every_copy_of_a_group_is_cloned(target):
    outputs = cloned_behind(target, 1)
    assert [(port, what.kind) for port, what, _, _ in outputs] == [
        (1, REPLICA), (3, EGRESS_CLONE), (3, EGRESS_CLONE), (4, REPLICA),
    ]  # fmt: skip


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


# -- copies, drops, cuts, ends -------------------------------------------------------------------


def copies(target: Target, command: int, number: int = 5, unwanted: int = 0) -> list[Seen]:
    header = struct.pack("!BHH", command, number, unwanted)
    return [what for what, _, _ in seen(target.send(2, header + ROOM), len(header))]


@on("path_multicast")
def test_every_copy_of_a_group_has_its_instance_and_metadata_of_its_own(target):
    size = 5 + len(ROOM)
    wanted = [
        Seen(REPLICA, instance, size, 2, port, 0x1111, 0) for port, instance in ((1, 1), (4, 4))
    ]
    assert copies(target, 0) == wanted
    assert copies(target, 0b100) == wanted  # whatever port the program chose


@on("path_multicast")
def test_marking_to_drop_takes_the_group_back_until_it_is_set_again(target):
    assert copies(target, 0b1) == []
    assert [what.left for what in copies(target, 0b11)] == [1, 4]


@on("path_multicast")
def test_one_copy_can_be_dropped_alone(target):
    assert [what.left for what in copies(target, 0, unwanted=1)] == [4]


@on("path_multicast")
def test_a_group_that_does_not_exist_has_no_copies_and_no_group_is_the_port(target):
    assert copies(target, 0, number=6) == []
    [what] = copies(target, 0, number=0)
    assert (what.kind, what.left, what.instance) == (NORMAL, 3, 9)


@on("path_drop")
@pytest.mark.parametrize(
    ("ingress", "egress", "port"),
    [
        (0, 0, 2), (1, 0, None), (2, 0, 3), (3, 0, None), (4, 0, None), (5, 0, 2), (6, 0, None),
        (7, 0, 4), (0, 1, None), (0, 2, 2), (0, 3, None), (0, 4, 2), (0, 5, 2), (0, 6, 2),
    ],
)  # fmt: skip
def test_egress_spec_says_the_port_in_the_ingress_and_in_the_egress_only_whether(
    target, ingress, egress, port
):
    outputs = target.send(1, bytes([ingress, egress, 0xFF, 0xFF]))
    # At the start of the egress, egress_spec is the drop port's number plus one, in 9 bits.
    assert outputs == ([] if port is None else [(port, bytes([ingress, egress, 0, 0]))])


@on("path_truncate")
@pytest.mark.parametrize(
    ("command", "before", "behind", "lengths"),
    [
        (0b00001, 12, 0, {2: 12}),
        (0b00001, 3, 0, {2: 3}),
        (0b00001, 0, 0, {2: 0}),
        (0b00001, 999, 0, {2: 27}),
        (0b01001, 12, 14, {2: 12}),
        (0b01001, 14, 12, {2: 12}),
        (0b01000, 0, 10, {2: 10}),
        (0b00011, 12, 0, {1: 27, 4: 27}),
        (0b01011, 12, 10, {1: 10, 4: 10}),
        (0b00101, 12, 0, {2: 12, 3: 27}),
        (0b11000, 0, 10, {2: 10, 3: 10}),
        (0b10001, 12, 0, {2: 12, 3: 27}),
    ],
)
def test_the_shortest_cut_holds_and_copies_have_cuts_of_their_own(
    target, command, before, behind, lengths
):
    frame = struct.pack("!BHHH", command, before, behind, 5) + bytes(range(20))
    outputs = target.send(1, frame)
    assert {port: len(cut) for port, cut in outputs} == lengths
    assert all(frame.startswith(cut) for _, cut in outputs)


@on("path_exit")
@pytest.mark.parametrize(
    ("command", "steps"),
    [
        (0, 0b0000_0001_1110), (1, 0b0001_0001_1000), (2, 0b0010_0001_1000),
        (3, 0b0100_0001_1111), (4, 0b0000_0001_1010), (5, 0b0000_0000_0110),
        (6, 0b1000_0000_1110),
    ],
)  # fmt: skip
def test_an_exit_ends_its_control_and_no_other(target, command, steps):
    assert target.send(1, struct.pack("!BH", command, 0)) == [
        (2, struct.pack("!BH", command, steps))
    ]


# -- metadata ------------------------------------------------------------------------------------


@on("path_metadata")
@pytest.mark.parametrize(
    ("command", "first", "rest", "error", "grown"),
    [
        (0, 0x1234, b"", 0, 0),
        (0, 0x1235, b"", 4, 0),
        (4, 0x1234, b"tag!", 0, 0),
        (4, 0x1234, b"t", 2, 0),
        (1, 0x1234, b"", 0, 2),
        (6, 0x1234, b"tag!", 0, -2),
        (7, 0x1234, b"tag!", 0, -2),
    ],
)
def test_metadata_tells_errors_sizes_and_times(target, command, first, rest, error, grown):
    frame = struct.pack("!BHIIBBIB", command, first, 9, 9, 9, 9, 9, 9) + rest
    [(_, out)] = target.send(1, frame)
    _, _, told, length, checksum, kind, behind, times = struct.unpack_from("!BHIIBBIB", out)
    assert (told, length, checksum, kind) == (error, len(frame), 0, NORMAL)
    assert behind == len(frame) + grown
    assert times == 0b111111


@on("path_metadata")
def test_a_packet_of_a_priority_that_has_no_queue_is_dropped(target):
    frame = struct.pack("!BHIIBBIB", 1 << 5, 0x1234, 0, 0, 0, 0, 0, 0)
    assert target.send(1, frame) == []


def test_priorities_have_queues_if_the_switch_was_told_so():
    with running_switch(2, "--priority-queues", "3") as switch, Controller(switch.address, 1) as c:
        c.configure(program("path_metadata"))
        for priority in (3, 2, 0):
            frame = struct.pack("!BHIIBBIB", priority << 5, 0x1234, 0, 0, 0, 0, 0, 0)
            switch.hosts[0].send(frame)
        assert [receive(switch.hosts[1])[0] for _ in range(2)] == [2 << 5, 0]
        c.insert(session(3, (1, 1), class_of_service=2))
        [(_, words)] = update_errors(c.insert, session(4, (1, 1), class_of_service=3))
        assert "3 priority queues" in words


@on("path_time")
def test_time_goes_on_from_ingress_to_egress_and_from_packet_to_packet(target):
    before = (0, 0)
    for _ in range(3):
        [(_, out)] = target.send(1, bytes(24))
        came, left = (int.from_bytes(out[i : i + 6], "big") for i in (0, 6))
        queued, waited, depths = struct.unpack_from("!III", out, 12)
        assert before <= (came, came) <= (came, queued) <= (came, left)
        assert (depths, waited <= left - came + 1) == (0, True)
        before = (came, left)


# -- many at once --------------------------------------------------------------------------------


@on("path_effects")
def test_effects_come_in_their_order(target):
    """Effects: clone, digest, resubmission, group, drop; then clone, drop, cut, recirculation."""

    def kinds(*bits: int) -> list[tuple[int, int]]:
        command = sum(1 << bit for bit in bits)
        outputs = target.send(2, struct.pack("!HHB", command, 5, 0) + ROOM + REST)
        return [(port, what.kind) for (port, _), (what, _, _) in zip(
            outputs, seen(outputs, 5), strict=True
        )]  # fmt: skip

    assert kinds(0, 6) == [(3, INGRESS_CLONE)]
    assert kinds(2, 6) == []
    assert kinds(0, 2) == [(2, NORMAL), (3, INGRESS_CLONE), (3, INGRESS_CLONE)]
    assert kinds(0, 5) == [(1, REPLICA), (3, INGRESS_CLONE), (4, REPLICA)]
    assert kinds(5, 6) == []
    assert kinds(5, 6, 15) == [(3, NORMAL)]
    assert kinds(7, 15) == [(2, NORMAL)]
    assert kinds(8, 12) == []  # the clone is dropped too
    assert kinds(8, 10) == [(2, NORMAL), (3, EGRESS_CLONE), (3, EGRESS_CLONE)]
    assert kinds(10, 12) == []


# -- without end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [1, 2, 3])
def test_packets_that_never_leave_keep_the_switch_from_nothing(how):
    with running_switch(2) as switch, Controller(switch.address, 1) as controller:
        controller.configure(program("path_forever"))
        controller.insert(session(1, (1, 1)))
        for _ in range(2000):  # more than may wait
            switch.hosts[1].send(bytes([how]))
        for number in range(100):
            switch.hosts[0].send(bytes([0, number]))
            assert receive_other_than(switch, bytes([how])) == bytes([0, number])
            controller.insert(group(number + 1, (2, 1)))
        assert len(controller.read(group(0))) == 100
        controller.configure(program("path_time"))  # the waiting packets are gone
        switch.hosts[0].send(bytes(24))
        assert len(receive_other_than(switch, bytes([how]))) == 24


def receive_other_than(switch: Switch, frame: bytes) -> bytes:
    return next(got for got in iter(lambda: receive(switch.hosts[1]), None) if got != frame)


@pytest.mark.parametrize("how", [1, 2])
def test_more_packets_than_may_wait_are_dropped_and_counted(how):
    engine = Engine(program("path_forever").json)
    try:
        engine.exercise(1, bytes([how]), 1100)
        drops = engine.drops()
    finally:
        engine.close()
    assert drops["queue_full"] == 1100 - 1024


# -- clone sessions over P4Runtime ---------------------------------------------------------------


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(3) as running:
        yield running


@pytest.fixture
def controller(switch: Switch, request) -> Iterator[Controller]:
    # The stream of the previous test may still be open.
    with Controller(switch.address, next(ELECTIONS)) as primary:
        primary.configure(program(getattr(request, "param", "path_clone_ingress")))
        yield primary


def test_sessions_are_read_back_one_by_one_and_all_together(controller):
    made = [session(1, (1, 2), (3, 4), packet_length_bytes=80), session(0x7FFF)]
    controller.insert(*made, group(3, (1, 1)))
    assert controller.read(session(1)) == made[:1]
    assert controller.read(session(0)) == made
    assert controller.read(session(9)) == []
    everything = p4rt.Entity()
    everything.packet_replication_engine_entry.SetInParent()
    assert len(controller.read(everything)) == 3


def test_a_session_is_changed_and_removed(switch, controller):
    frame = struct.pack("!BHH", 1, 5, 1) + ROOM
    controller.insert(session(5, (3, 9)))
    controller.modify(session(5, (1, 9)))
    switch.hosts[0].send(frame)
    assert (receive(switch.hosts[0])[5], receive(switch.hosts[1])[5]) == (INGRESS_CLONE, NORMAL)
    controller.delete(session(5))
    assert controller.read(session(0)) == []
    switch.hosts[0].send(frame)
    controller.insert(session(5, (1, 7)))
    receive(switch.hosts[1])  # the packet is through, without a clone
    switch.hosts[0].send(frame)
    assert receive(switch.hosts[0])[6:8] == b"\0\7"


NOT_FOUND, EXISTS, INVALID = (
    code.value[0]
    for code in (
        grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.INVALID_ARGUMENT,
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "entity", "code"),
    [
        (p4rt.Update.INSERT, session(1), EXISTS),
        (p4rt.Update.MODIFY, session(2), NOT_FOUND),
        (p4rt.Update.DELETE, session(2), NOT_FOUND),
        (p4rt.Update.INSERT, session(0), INVALID),
        (p4rt.Update.INSERT, session(0x8000), INVALID),
        (p4rt.Update.INSERT, session(2, (1, 1), (1, 1)), INVALID),
        (p4rt.Update.INSERT, session(2, (1, 1 << 16)), INVALID),
        (p4rt.Update.INSERT, session(2, packet_length_bytes=-1), INVALID),
        (p4rt.Update.INSERT, session(2, class_of_service=1), INVALID),
    ],
)
def test_what_is_wrong_with_a_session_is_said(controller, kind, entity, code):
    controller.insert(session(1, (1, 1)))
    errors = update_errors(controller.write, p4rt.Update(type=kind, entity=entity))
    assert [number for number, _ in errors] == [code]


def test_a_replica_s_port_may_be_bytes_but_there_has_to_be_one(switch, controller):
    entity = session(5)
    replicas = entity.packet_replication_engine_entry.clone_session_entry.replicas
    replicas.add(port=b"\0\3", instance=9)
    controller.insert(entity)
    switch.hosts[0].send(struct.pack("!BHH", 1, 5, 1) + ROOM)
    assert receive(switch.hosts[2])[5] == INGRESS_CLONE
    receive(switch.hosts[1])
    replicas.add(instance=10)
    with pytest.raises(grpc.RpcError):
        controller.modify(entity)


# -- digests -------------------------------------------------------------------------------------

DIGESTS = {each.preamble.name: each.preamble.id for each in program("path_digest").p4info.digests}
STATION = DIGESTS["station_t"]
[PLAIN] = set(DIGESTS.values()) - {STATION}
SECOND = 10**9


def gathering(number: int, timeout: int = 0, size: int = 0, ack: int = 0) -> p4rt.Entity:
    entity = p4rt.Entity()
    config = entity.digest_entry.config
    entity.digest_entry.digest_id = number
    config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns = timeout, size, ack
    return entity


def say(switch: Switch, address: int, mark: int = 7, command: int = 1) -> None:
    """Send a packet that makes a digest and leaves from port 2."""
    switch.hosts[0].send(struct.pack("!BHIH", command, address >> 32, address & 0xFFFFFFFF, mark))


def stations(message: Any) -> list[bytes]:
    assert message.digest.digest_id == STATION
    return [each.struct.members[0].bitstring for each in message.digest.data]


on_digests = pytest.mark.parametrize("controller", ["path_digest"], indirect=True)


@on_digests
def test_a_digest_has_the_values_of_the_end_of_the_ingress_in_canonical_bytes(switch, controller):
    controller.insert(gathering(STATION))
    say(switch, 0x0102030405, mark=0x1234)
    digest = controller.hear().digest
    assert (digest.digest_id, digest.list_id) == (STATION, 1)
    assert digest.timestamp > 0
    [data] = digest.data
    members = [each.bitstring for each in data.struct.members]
    # The digest's structure was filled before the mark became 0.
    assert members == [encode(0x0102030405), b"\1", b"\x12\x34"]


@on_digests
def test_a_digest_without_a_structure_is_a_tuple_or_a_value_and_the_last_one_counts(
    switch, controller
):
    controller.insert(gathering(STATION), gathering(PLAIN))
    say(switch, 1, mark=0x4321, command=0b11)
    digest = controller.hear().digest
    assert digest.digest_id == PLAIN
    [data] = digest.data
    assert [each.bitstring for each in data.tuple.members] in ([b"\x43\x21"], [b"\0"])


@on_digests
def test_a_dropped_packet_says_its_digest(switch, controller):
    controller.insert(gathering(STATION))
    say(switch, 5, command=0b101)
    assert stations(controller.hear()) == [b"\5"]


@on_digests
def test_digests_are_gathered_to_lists_of_different_messages(switch, controller):
    controller.insert(gathering(STATION, timeout=3600 * SECOND, size=3))
    for address in (1, 2, 1, 2, 3, 4, 4, 5, 6):
        say(switch, address)
    assert stations(controller.hear()) == [b"\1", b"\2", b"\3"]
    assert stations(controller.hear()) == [b"\4", b"\5", b"\6"]


@on_digests
def test_a_list_that_does_not_fill_is_sent_in_time(switch, controller):
    controller.insert(gathering(STATION, timeout=SECOND // 10, size=100))
    say(switch, 1)
    assert stations(controller.hear()) == [b"\1"]


@on_digests
def test_what_is_not_acknowledged_is_not_said_again_until_it_is(switch, controller):
    controller.insert(gathering(STATION, ack=3600 * SECOND))
    say(switch, 1)
    first = controller.hear()
    say(switch, 1)
    say(switch, 2)
    assert stations(controller.hear()) == [b"\2"]
    ack = p4rt.StreamMessageRequest()
    ack.digest_ack.digest_id, ack.digest_ack.list_id = STATION, first.digest.list_id
    controller.send(ack)
    said = next(what for what in said_again(switch, controller) if what == [b"\1"])
    assert said == [b"\1"]


def said_again(switch: Switch, controller: Controller) -> Iterator[list[bytes]]:
    """Yield the digests of further packets. Another station's digest shows that a packet is through."""
    for other in itertools.count(10):
        say(switch, 1)
        say(switch, other)
        while (said := stations(controller.hear())) != [encode(other)]:
            yield said


@on_digests
def test_without_an_acknowledgement_it_is_said_again_in_the_end(switch, controller):
    controller.insert(gathering(STATION, ack=SECOND // 100))
    say(switch, 1)
    assert stations(controller.hear()) == [b"\1"]
    assert next(said_again(switch, controller)) == [b"\1"]


@on_digests
def test_digests_that_nobody_asked_for_are_not_said(switch, controller):
    say(switch, 1)
    while receive(switch.hosts[1])[6] != 1:  # packets of an earlier test may still arrive
        pass
    controller.insert(gathering(STATION))
    say(switch, 2)
    first = controller.hear()
    controller.delete(gathering(STATION))
    say(switch, 3)
    while receive(switch.hosts[1])[6] != 3:
        pass
    controller.insert(gathering(STATION))
    say(switch, 4)
    second = controller.hear()
    assert (stations(first), stations(second)) == ([b"\2"], [b"\4"])
    assert second.digest.list_id == first.digest.list_id + 1


@on_digests
def test_a_digest_s_configuration_is_read_back(controller):
    made = [gathering(STATION, 5, 6, 7), gathering(PLAIN)]
    controller.insert(*made)
    assert controller.read(gathering(0)) == made
    changed = gathering(STATION, 1, 2, 3)
    controller.modify(changed)
    assert controller.read(gathering(STATION)) == [changed]
    controller.delete(changed)
    assert controller.read(gathering(0)) == made[1:]


@on_digests
@pytest.mark.parametrize(
    ("kind", "entity", "code"),
    [
        (p4rt.Update.INSERT, gathering(PLAIN), EXISTS),
        (p4rt.Update.MODIFY, gathering(STATION), NOT_FOUND),
        (p4rt.Update.DELETE, gathering(STATION), NOT_FOUND),
        (p4rt.Update.INSERT, gathering(99), NOT_FOUND),
        (p4rt.Update.INSERT, gathering(STATION, timeout=-1), INVALID),
    ],
)
def test_what_is_wrong_with_a_digest_s_configuration_is_said(controller, kind, entity, code):
    controller.insert(gathering(PLAIN))
    errors = update_errors(controller.write, p4rt.Update(type=kind, entity=entity))
    assert [number for number, _ in errors] == [code]


@on_digests
def test_an_acknowledgement_of_another_kind_is_answered_with_an_error(controller):
    ack = p4rt.StreamMessageRequest()
    ack.digest_ack.digest_id, ack.digest_ack.list_id = 99, 1
    controller.send(ack)
    error = controller.hear().error
    assert error.canonical_code == NOT_FOUND
    assert error.digest_list_ack.digest_list_ack == ack.digest_ack
