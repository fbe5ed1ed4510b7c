"""Clones of what comes in and of what goes out, and the sessions that describe them."""

import struct
from collections.abc import Iterator

import grpc
import pytest
from clone_sessions import ELECTIONS, ROOM, session
from compared_switches import Target
from p4runtime_client import Controller, group, update_errors
from packet_paths import EGRESS_CLONE, INGRESS_CLONE, NORMAL, REPLICA, REST, Seen, insert, on, seen
from switches import Switch, receive, running_switch
from tiny_programs import program

from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

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


# -- clone sessions over P4Runtime ---------------------------------------------------------------


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(3) as running:
        yield running


@pytest.fixture
def controller(switch: Switch) -> Iterator[Controller]:
    # The stream of the previous test may still be open.
    with Controller(switch.address, next(ELECTIONS)) as primary:
        primary.configure(program("path_clone_ingress"))
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


@pytest.mark.parametrize(
    ("kind", "entity", "code"),
    [
        (p4rt.Update.INSERT, session(1), code_pb2.ALREADY_EXISTS),
        (p4rt.Update.MODIFY, session(2), code_pb2.NOT_FOUND),
        (p4rt.Update.DELETE, session(2), code_pb2.NOT_FOUND),
        (p4rt.Update.INSERT, session(0), code_pb2.INVALID_ARGUMENT),
        (p4rt.Update.INSERT, session(0x8000), code_pb2.INVALID_ARGUMENT),
        (p4rt.Update.INSERT, session(2, (1, 1), (1, 1)), code_pb2.INVALID_ARGUMENT),
        (p4rt.Update.INSERT, session(2, (1, 1 << 16)), code_pb2.INVALID_ARGUMENT),
        (p4rt.Update.INSERT, session(2, packet_length_bytes=-1), code_pb2.INVALID_ARGUMENT),
        (p4rt.Update.INSERT, session(2, class_of_service=1), code_pb2.INVALID_ARGUMENT),
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
