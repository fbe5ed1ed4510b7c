"""Programs that are changed and compiled again: the switch then does what the changed program says."""

import itertools
import json
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from p4runtime_client import Controller, Names, group
from scapy.layers.inet import IP, IPOption_RR
from scapy.layers.l2 import ARP, Ether
from switches import Switch, receive, running_switch
from tiny_programs import FOLDER, Program, compile_to, program

from innet.p4.compile import COMPILER

ROUTER = Names(program("router").p4info)
LAST = "192.0.2.1"
MASK = 0xFFFFFFFF
TALLY_CELLS = 16


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(3) as running:
        yield running


@pytest.fixture(scope="module")
def controller(switch: Switch) -> Iterator[Controller]:
    with Controller(switch.address, 1) as primary:
        yield primary


# -- tally: arithmetic on registers --------------------------------------------------------------


def tally(switch: Switch, operation: int, cell: int, other: int, value: int) -> int:
    frame = bytes(12) + struct.pack("!HBIII", 0x88B5, operation, cell, other, value)
    switch.hosts[0].send(frame)
    answer = receive(switch.hosts[0])
    assert answer[:-4] == frame[:-4]
    return int.from_bytes(answer[-4:], "big")


def signed(value: int) -> int:
    return (value & MASK) - ((value & 1 << 31) << 1)


OPERATIONS: dict[int, Callable[[int, int], int]] = {
    1: lambda held, value: held + value,
    2: lambda held, value: min(held + value, MASK),
    3: lambda held, value: max(held - value, 0),
    4: lambda held, value: min(max(signed(held) + signed(value), -(1 << 31)), (1 << 31) - 1),
    5: lambda held, _: held << 8 | held >> 24,
    6: lambda held, value: signed(held) >> (value & 31),
    7: lambda _, value: value,
}


def test_arithmetic_and_registers_are_p4s(switch, controller):
    controller.configure(program("tally"))
    chance = random.Random(1)
    cells = [0] * TALLY_CELLS
    for _ in range(400):
        operation = chance.choice(list(OPERATIONS))
        # One cell, and another one that may be outside of the array.
        cell, other = chance.randrange(TALLY_CELLS), chance.choice((0, 3, 15, 16, MASK))
        value = chance.choice((0, 1, 1 << 31, (1 << 31) - 1, MASK, chance.getrandbits(32)))
        cells[cell] = expected = OPERATIONS[operation](cells[cell], value) & MASK
        if operation == 7:
            expected = cells[other] if other < TALLY_CELLS else value
        assert tally(switch, operation, cell, other, value) == expected


def test_outside_of_a_register_array_reads_change_nothing_and_writes_are_lost(switch, controller):
    controller.configure(program("tally"))
    for cell in (TALLY_CELLS, MASK):
        for operation in (1, 1, 7):
            assert tally(switch, operation, cell, cell, 5) == 5
    assert [tally(switch, 1, cell, 0, 0) for cell in range(TALLY_CELLS)] == [0] * TALLY_CELLS
    used = Names(program("tally").p4info).counter("used")
    counts = [each.counter_entry.data for each in controller.read(used)]
    assert [(each.packet_count, each.byte_count) for each in counts] == [(1, 27)] * TALLY_CELLS


def with_another_operator(target: Path) -> Program:
    """Return the tally with `add` made an exclusive or in the compiled program."""
    tally = program("tally")
    document = json.loads(tally.json)
    add = next(each for each in document["actions"] if each["name"] == "TallyIngress.add")
    text, changes = re.subn(r'"op": "\+"', '"op": "^"', json.dumps(add["primitives"]))
    assert changes == 1
    add["primitives"] = json.loads(text)
    return replace(tally, json=json.dumps(document).encode())


def with_another_source(target: Path) -> Program:
    """Return the tally with `add` made an exclusive or in the source, compiled again."""
    if not shutil.which(COMPILER):
        pytest.skip(f"{COMPILER} is not on the PATH")
    source = target / "tally.p4"
    text = (FOLDER / "tally.p4").read_text()
    assert text.count("held + hdr.tally.value") == 1
    source.write_text(text.replace("held + hdr.tally.value", "held ^ hdr.tally.value"))
    compile_to(target, source)
    return program("tally", target)


@pytest.mark.parametrize("changed", [with_another_operator, with_another_source])
def test_another_operator_in_the_program_is_another_behaviour(
    switch, controller, changed, tmp_path
):
    results = []
    for running in (program("tally"), changed(tmp_path)):
        controller.configure(running)
        tally(switch, 1, 0, 0, 0b1100)
        results.append(tally(switch, 1, 0, 0, 0b1010))
    assert results == [0b1100 + 0b1010, 0b1100 ^ 0b1010]


# -- router: prefixes, ternary rules, checksums --------------------------------------------------


@pytest.fixture
def router(controller) -> Controller:
    """Configure a router that lets protocol 99 through, whatever its other rules."""
    controller.configure(program("router"))
    controller.insert(
        route(0xC0000200, 24), ROUTER.entry("rules", {"protocol": 99}, "permit", 1000)
    )
    return controller


def route(value: int, length: int, port: int = 2, next_hop: int = 0x0200_0000_0102):
    match = {"destination": (value, length)}
    return ROUTER.entry("routes", match, "forward", next_hop=next_hop, port=port)


def packet(source: str = "10.0.0.1", destination: str = "10.1.2.3", **ip) -> Ether:
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:fe") / IP(
        src=source, dst=destination, **{"proto": 6, **ip}
    )


def routed(switch: Switch, *frames: Ether) -> list[Ether]:
    """Return the frames that leave port 2 when these frames come in at port 1."""
    for frame in (*frames, packet(destination=LAST, proto=99)):
        switch.hosts[0].send(bytes(frame))
    arriving = (Ether(receive(switch.hosts[1])) for _ in itertools.count())
    return list(itertools.takewhile(lambda frame: frame[IP].dst != LAST, arriving))


def test_the_longest_prefix_wins_and_the_packet_is_rewritten(switch, router):
    router.insert(
        route(0x0A010200, 24),
        route(0x0A010000, 16, port=1),
        route(0x0A010203, 32, next_hop=0xABC),
    )
    one, other = routed(switch, packet(ttl=9), packet(destination="10.1.2.4", ttl=2) / b"data")
    assert (one.dst, one.src, one[IP].ttl) == ("00:00:00:00:0a:bc", "02:00:00:00:00:fe", 8)
    assert (other.dst, other[IP].ttl) == ("02:00:00:00:01:02", 1)
    for frame in (one, other):
        raw = bytes(frame)
        del frame[IP].chksum
        assert bytes(frame) == raw  # Scapy fills in the right checksum


def test_of_constant_prefixes_too_the_longest_wins(switch, router):
    router.insert(route(0x0A010200, 24))
    sources = ("10.1.2.9", "10.1.9.9", "10.9.9.9", "11.0.0.1")
    marked = routed(switch, *(packet(source) for source in sources))
    assert [frame[IP].tos for frame in marked] == [3, 2, 1, 0]


def test_what_must_not_be_routed_is_dropped(switch, router):
    router.insert(route(0x0A010200, 24))
    wrong = (
        packet(chksum=0xDEAD), packet(ttl=1), packet(ttl=0), packet(options=[IPOption_RR()]),
        packet(destination="10.9.9.9"), packet(version=6), Ether() / ARP(),
    )  # fmt: skip
    assert len(routed(switch, *wrong, packet())) == 1


def test_of_overlapping_rules_the_one_of_highest_priority_decides(switch, router):
    router.insert(
        route(0x0A010200, 24),
        ROUTER.entry("rules", {"source": (0x0A000000, 0xFF000000)}, "deny", 10),
        ROUTER.entry("rules", {"source": (1, 1), "protocol": 6}, "permit", 20),
    )
    sent = [packet(f"10.0.0.{last}", proto=proto) for last in (1, 2) for proto in (6, 17)]
    assert [frame[IP].src for frame in routed(switch, *sent)] == ["10.0.0.1"]
    router.delete(ROUTER.entry("rules", {"source": (1, 1), "protocol": 6}, priority=20))
    assert routed(switch, *sent) == []
    assert len(routed(switch, packet("11.0.0.2"))) == 1


def test_a_default_action_that_is_changed_decides_from_then_on(switch, router):
    router.insert(route(0x0A010200, 24))
    router.modify(ROUTER.default("rules", "deny"))
    assert routed(switch, packet()) == []
    router.modify(ROUTER.default("rules"))
    assert len(routed(switch, packet())) == 1


def test_a_direct_counter_counts_what_its_entry_matched(switch, router):
    router.insert(route(0x0A010200, 24), ROUTER.entry("rules", {"protocol": 17}, "deny", 1))
    denied = packet(proto=17)  # `exit` ends the control before the route is looked up
    routed(switch, packet(), packet() / bytes(100), denied)
    asked = ROUTER.entry("routes", {"destination": (0x0A010200, 24)})
    asked.table_entry.counter_data.SetInParent()
    [entry] = router.read(asked)
    count = entry.table_entry.counter_data
    assert (count.packet_count, count.byte_count) == (2, 34 + 134)


# -- hub: copies, headers that come and go -------------------------------------------------------


def test_every_copy_of_a_group_is_told_which_it_is(switch, controller):
    controller.configure(program("hub"))
    controller.insert(group(1, (1, 1), (2, 2), (2, 7), (3, 0x1234)))
    addresses, rest = bytes(range(12)), b"\x12\x34payload"
    switch.hosts[0].send(addresses + rest)
    copies = [receive(switch.hosts[host]) for host in (1, 1, 2)]
    assert copies == [
        addresses + struct.pack("!HHH", 0x88B6, instance, 1) + rest for instance in (2, 7, 0x1234)
    ]
    # A frame that is sent back with its tag loses it, and leaves through the port that it came
    # from.
    switch.hosts[2].send(copies[2])
    assert receive(switch.hosts[0]) == addresses + rest


def test_looking_ahead_past_the_end_is_a_parser_error(switch, controller):
    controller.configure(program("hub"))
    controller.insert(group(1, (2, 2)))
    switch.hosts[0].send(bytes(13))
    switch.hosts[0].send(bytes(14))
    assert len(receive(switch.hosts[1])) == 14 + 6
