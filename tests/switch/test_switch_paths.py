"""The paths of packets: copies, drops, cuts, ends, metadata, and the order of effects."""

import struct

import pytest
from clone_sessions import ROOM, session
from compared_switches import Target
from p4runtime_client import Controller, update_errors
from packet_paths import EGRESS_CLONE, INGRESS_CLONE, NORMAL, REPLICA, REST, Seen, on, seen
from switches import receive, running_switch
from tiny_programs import program

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
