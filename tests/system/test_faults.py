"""The cable with faults does to packets what the test asks for, and nothing else."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from switches import ANSWERS_WITHIN, free_udp_ports, receive, udp_socket

from innet.host.link import parse_endpoints
from innet.local.faults import (
    AGAIN_LATE,
    DOWN,
    HELD,
    LOST,
    OVERTAKEN,
    TWICE,
    UP,
    Copy,
    FateCounts,
    Faults,
    Flip,
    Line,
    Overwrite,
    Resize,
    Wiring,
    damaged,
    faulty,
)
from innet.local.faults.carrier import Queue
from innet.machine.sockets import UDP_SEGMENT, enlarge_buffers

LAST = b"the last one"


@dataclass(frozen=True)
class Cable:
    """Both ends of a cable with faults, by direction: packets go in at one end, and out at the other."""

    wiring: Wiring
    ends: tuple[socket.socket, socket.socket]

    def send(self, direction: int, packets: list[bytes], train: bool = False) -> None:
        if train:
            segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", len(packets[0])))
            self.ends[direction].sendmsg(packets, [segment])
        else:
            for packet in packets:
                self.ends[direction].send(packet)

    def receive(self, direction: int) -> list[bytes]:
        """Return the packets that have come out since the last call."""
        self.wiring.script(0, direction, {0: (Copy(),)})
        self.send(direction, [LAST])
        return list(iter(lambda: receive(self.ends[1 - direction]), LAST))


@contextlib.contextmanager
def cable(seed: int = 1, **arguments) -> Iterator[Cable]:
    with udp_socket() as switch:
        [near] = free_udp_ports(1)
        link = f"udp:127.0.0.1:{near}/127.0.0.1:{switch.getsockname()[1]}"
        switch.connect(("127.0.0.1", near))
        enlarge_buffers(switch)
        with faulty([link], seed, **arguments) as wiring:
            local, remote = parse_endpoints(wiring.links[0])
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
                agent.bind(local)
                agent.connect(remote)
                agent.settimeout(ANSWERS_WITHIN)
                enlarge_buffers(agent)
                yield Cable(wiring, (agent, switch))


@pytest.fixture(scope="module")
def plain() -> Iterator[Cable]:
    with cable() as made:
        yield made


def numbered(count: int, size: int = 322) -> list[bytes]:
    return [number.to_bytes(4, "big") * (size // 4) for number in range(count)]


@pytest.fixture(params=[UP, DOWN], ids=["up", "down"])
def direction(request) -> int:
    return request.param


@pytest.fixture(params=[False, True], ids=["single", "train"])
def train(request) -> bool:
    return request.param


# -- scripted faults -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 64, 322, 1090])
def test_without_faults_packets_come_out_whole_and_in_order(plain, direction, train, size: int):
    packets = numbered(50, size)
    plain.send(direction, packets, train)
    assert plain.receive(direction) == packets


@pytest.mark.parametrize(
    ("fate", "order"),
    [
        (LOST, "abcef"),
        (TWICE, "abcddef"),
        (OVERTAKEN, "abcedf"),
        ((Copy(after=2), Copy()), "abcdefd"),
        ((Copy(), Copy(), Copy()), "abcdddef"),
        (HELD, "abcef"),
        (AGAIN_LATE, "abcdef"),
    ],
)
def test_a_packet_of_the_script_meets_its_fate_and_no_other(plain, direction, train, fate, order):
    plain.wiring.script(0, direction, {3: fate})
    plain.send(direction, [letter.encode() * 100 for letter in "abcdef"], train)
    assert "".join(chr(packet[0]) for packet in plain.receive(direction)) == order
    plain.wiring.release()
    held = b"d" * 100 if fate in (HELD, AGAIN_LATE) else None
    assert plain.receive(direction) == ([held] if held else [])


def test_scripts_count_from_when_they_are_given(plain: Cable, direction: int):
    for _ in range(3):
        plain.wiring.script(0, direction, {0: LOST, 2: LOST})
        plain.send(direction, numbered(4))
        assert plain.receive(direction) == numbered(4)[1::2]


def test_the_other_direction_has_a_script_of_its_own(plain: Cable):
    plain.wiring.script(0, UP, {0: LOST})
    plain.wiring.script(0, DOWN, {1: LOST})
    for direction in (UP, DOWN):
        plain.send(direction, numbered(3))
    assert plain.receive(UP) == numbered(3)[1:]
    assert plain.receive(DOWN) == numbered(3)[::2]


def test_packets_can_be_put_in_on_the_way(plain: Cable, direction: int):
    plain.wiring.inject(0, direction, numbered(70, 8) + numbered(3, 12))
    assert plain.receive(direction) == numbered(70, 8) + numbered(3, 12)


def test_the_last_packets_are_remembered(plain: Cable, direction: int):
    plain.send(direction, numbered(200))
    plain.receive(direction)
    plain.send(direction, numbered(150))
    assert plain.wiring.recent(0, direction) == [*numbered(200)[-105:], LAST, *numbered(150)]
    assert plain.receive(direction) == numbered(150)


@pytest.mark.parametrize(
    ("damage", "wanted"),
    [
        (Flip((0, 9, 15)), b"\x80\x41\0\0"),
        (Overwrite(1, b"xy"), b"\0xy\0"),
        (Overwrite(3, b"xy"), b"\0\0\0x"),
        (Resize(3), b"\0\0\0"),
        (Resize(7, b"ab"), b"\0\0\0\0aba"),
    ],
)
def test_damage_is_to_one_packet_of_a_train(plain, direction, damage, wanted: bytes):
    plain.wiring.script(0, direction, {1: damaged(damage)})
    plain.send(direction, [bytes(4)] * 3, train=True)
    assert plain.receive(direction) == [bytes(4), wanted, bytes(4)]


@given(st.binary(min_size=1, max_size=50), st.lists(st.integers(0, 500), unique_by=lambda n: n))
def test_flipping_bits_again_repairs_them(frame: bytes, bits: list[int]):
    flip = Flip(tuple(bits))
    assert len(flip(frame)) == len(frame)
    assert flip(flip(frame)) == frame


@given(st.binary(max_size=50), st.integers(0, 100), st.binary(min_size=1, max_size=9))
def test_a_frame_is_cut_or_lengthened_or_overwritten_within(frame: bytes, at: int, content: bytes):
    resized = Resize(at, content)(frame)
    assert len(resized) == at
    assert resized[: len(frame)] == frame[:at]
    overwritten = Overwrite(at, content)(frame)
    assert len(overwritten) == len(frame)
    assert overwritten[:at] == frame[:at]
    assert overwritten[at + len(content) :] == frame[at + len(content) :]


# -- random faults -------------------------------------------------------------------------------


def by_chance(
    seed: int, faults: Faults, direction: int, train: bool = True
) -> tuple[list[bytes], FateCounts]:
    """Send 1000 packets through random faults; return the packets that come out, and the counts."""
    with cable(seed, **{("up", "down")[direction]: faults}) as made:
        received = []
        for start in range(0, 1000, 20):
            made.send(direction, numbered(1000)[start : start + 20], train)
            received += made.receive(direction)
        return received, made.wiring.counts(0, direction)


def test_the_seed_decides_and_not_how_packets_travel(direction: int):
    faults = Faults.all(0.1)
    one, other = (by_chance(7, faults, direction, train) for train in (True, False))
    assert one == other
    assert by_chance(8, faults, direction) != one


@pytest.mark.parametrize("chance", [0.01, 0.05, 0.2])
def test_all_faults_happen_as_often_as_they_are_likely(direction: int, chance: float):
    _, counts = by_chance(3, Faults.all(chance), direction)
    for times in counts.faults.values():
        assert abs(times - 1000 * chance) < 5 * (1000 * chance) ** 0.5
    assert counts.packets == 1000 + counts.scripted
    assert counts.sent + counts.held == counts.packets - counts.dropped + counts.duplicated


@pytest.mark.parametrize("kind", Faults().__dict__)
def test_what_is_not_asked_for_does_not_happen(direction: int, kind: str):
    received, counts = by_chance(5, Faults(**{kind: 0.1}), direction)
    assert {name for name, times in counts.faults.items() if times} == {kind}
    intact = [packet for packet in received if packet in set(numbered(1000))]
    match kind:
        case "drop":
            assert received == sorted(set(received))
            assert len(received) == 1000 - counts.dropped
        case "duplicate":
            assert sorted(set(received)) == numbered(1000)
            assert received == sorted(received)
        case "reorder" | "delay":
            assert received != sorted(received)
            assert len(set(received)) == len(received) == 1000 - counts.held
        case "corrupt":
            assert len(received) == 1000
            assert intact == sorted(intact)
            assert 0 < 1000 - len(intact) <= counts.corrupted


# -- a line of bounded rate ----------------------------------------------------------------------


def test_packets_leave_the_queue_at_the_lines_rate():
    queue = Queue(Line(rate=1000.0, queue=10_000))
    for number in range(5):
        assert queue.put(bytes([number]) * 100, now=50.0)
    assert queue.take(50.09) == []
    assert [packet[0] for packet in queue.take(50.11)] == [0]
    assert [packet[0] for packet in queue.take(50.41)] == [1, 2, 3]
    assert queue.busy
    assert [packet[0] for packet in queue.take(60.0)] == [4]
    assert not queue.busy
    assert queue.put(bytes(100), now=60.0)  # an idle line saves up no capacity
    assert queue.take(60.09) == []
    assert queue.take(60.11) == [bytes(100)]


def test_what_finds_the_queue_full_is_lost():
    queue = Queue(Line(rate=1000.0, queue=350))
    assert [queue.put(bytes(100), 1.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert len(queue.take(1.11)) == 1
    assert [queue.put(bytes(100), 1.11) for _ in range(2)] == [True, False]


def test_a_cable_of_bounded_rate_counts_what_it_had_no_room_for(direction: int):
    with cable(line=Line(rate=1e6, queue=3220)) as made:
        made.send(direction, numbered(50), train=True)
        assert made.wiring.counts(0, direction).crowded_out == 40
        assert [receive(made.ends[1 - direction]) for _ in range(10)] == numbered(10)


# -- its end -------------------------------------------------------------------------------------


def test_a_far_end_that_nobody_has_loses_packets_and_no_more(direction: int):
    with cable() as made:
        here, there = made.ends[direction], made.ends[1 - direction]
        address, other = there.getsockname(), there.getpeername()
        there.close()
        for _ in range(3):
            made.send(direction, numbered(20), train=True)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(address)
            again.connect(other)
            again.settimeout(ANSWERS_WITHIN)
            back = Cable(made.wiring, (here, again) if direction == UP else (again, here))
            back.receive(direction)
            back.send(direction, numbered(3))
            assert back.receive(direction) == numbered(3)


def test_nothing_of_it_is_left_whatever_ends_it():
    def fail() -> None:
        with cable() as made:
            where.extend(parse_endpoints(made.wiring.links[0]))
            raise ZeroDivisionError

    where: list[tuple[str, int]] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    for address in where:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(address)  # a process that still runs would hold it
