"""Hashes, checksums, random numbers, meters, counters, log and assertions of v1model."""

import ctypes
import os
import struct
import zlib
from collections.abc import Callable, Iterator

import pytest
from checksums import crc16
from google.rpc import code_pb2
from hypothesis import given
from hypothesis import strategies as st
from one_port import OnePort, action, running
from p4.v1 import p4runtime_pb2 as p4rt
from p4runtime_client import Names, update_errors
from switches import Switch, receive
from tiny_programs import program

from innet.switch.constants import MISS
from innet.switch.engine.counts import Count, MeterRates

WORD = 1 << 64


def csum16(data: bytes) -> int:
    """Return RFC 1071's checksum."""
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2))
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def xor16(data: bytes) -> int:
    result = 0
    for (word,) in struct.iter_unpack("!H", data + bytes(len(data) % 2)):
        result ^= word
    return result


def identity(data: bytes) -> int:
    return int.from_bytes(data[:8], "big")


def packed(*fields: tuple[int, int]) -> bytes:
    """Return fields of (value, bits) one behind the other, with zeros to the end of the last byte."""
    value = size = 0
    for field, bits in fields:
        value, size = value << bits | field, size + bits
    return (value << -size % 8).to_bytes((size + 7) // 8, "big")


# -- hashes ----------------------------------------------------------------------------------------

HASHES: list[Callable[[bytes], int]] = [
    zlib.crc32, zlib.crc32, crc16, crc16, identity, csum16, xor16,
]  # fmt: skip
HASHED = struct.Struct("!9sQQ7QB")


@pytest.fixture(scope="module")
def hashes() -> Iterator[OnePort]:
    with running("extern_hashes") as port:
        yield port


def hashed(port: OnePort, data: bytes, base: int = 0, size: int = WORD - 1) -> tuple[int, ...]:
    [answer] = port.ask(HASHED.pack(data, base, size, *[0] * 8))
    return HASHED.unpack(answer)[3:]


def test_hashes_of_the_digits_are_the_check_values_of_the_literature(hashes):
    # CRC-32/ISO-HDLC and CRC-16/ARC. The checksum was added by hand: 0x3132 + ... + 0x3900 is
    # 0x109d4.
    wanted = (0xCBF43926, 0xCBF43926, 0xBB3D, 0xBB3D, 0x3132333435363738, 0xF62A, 0x3908, 0x26)
    assert hashed(hashes, b"123456789") == wanted


@given(st.binary(min_size=9, max_size=9))
def test_hashes_are_those_of_their_definitions(hashes, data):
    wanted = [function(data) for function in HASHES]
    assert hashed(hashes, data) == (*wanted, zlib.crc32(data) & 0xFF)


@given(
    st.binary(min_size=9, max_size=9),
    st.integers(0, WORD - 1),
    st.one_of(st.integers(0, 300), st.integers(0, WORD - 1)),
)
def test_a_hash_is_taken_modulo_the_size_and_put_on_the_base(hashes, data, base, size):
    wanted = [(base + function(data) % (size or 1)) % WORD for function in HASHES]
    assert hashed(hashes, data, base, size)[:7] == tuple(wanted)


# Hashes of the digits that a BMv2 JSON can ask for, but that p4c does not emit. CRC-64 is by its
# definition.
OTHERS = {
    "crc8_custom": 0xF4,
    "crcCCITT": 0x29B1,
    "crc64_custom": 0x46A5A9388A5BEFFE,
    "cksum16": 0xF62A,
    "xor32": 0x31323334 ^ 0x35363738 ^ 0x39000000,
    "xxh64": 0x8CB841DB40E6AE83,
}


@pytest.mark.parametrize(("algorithm", "wanted"), OTHERS.items())
def test_the_other_hashes_of_bmv2_have_their_check_values_too(hashes, algorithm, wanted):
    assert library_hash(hashes, algorithm, b"123456789") == wanted


def test_xxh64_is_right_for_inputs_of_all_lengths(hashes):
    known = {
        b"": 0xEF46DB3751D8E999,
        b"a": 0xD24EC4F1A98C6E5B,
        b"abc": 0x44BC2CF5AD770999,
        b"Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
    }
    assert {data: library_hash(hashes, "xxh64", data) for data in known} == known


def library_hash(port: OnePort, algorithm: str, data: bytes) -> int:
    function = getattr(port.engine._library.functions, f"rt_hash_{algorithm}")
    function.restype, function.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_uint32)
    return int(function(data, len(data)))


@given(
    st.integers(0, 7), st.integers(0, (1 << 13) - 1), st.integers(0, 127),
    st.one_of(st.none(), st.integers(0, (1 << 20) - 1)),
)  # fmt: skip
def test_fields_are_hashed_without_gaps_and_what_is_not_there_is_left_out(fields, a, b, c, e):
    more = e is not None
    frame = packed((more, 1), (a, 3), (b, 13), (c, 7), (0, 64))
    frame += packed((5, 4), (e, 20)) if more else b""
    [answer] = fields.ask(frame)
    assert answer[3:7] == zlib.crc32(packed((a, 3), (b, 13), (9, 5), (c, 7))).to_bytes(4, "big")
    present = [(e, 20)] if more else []
    assert answer[7:11] == zlib.crc32(packed((a, 3), *present, (b, 13))).to_bytes(4, "big")


@pytest.fixture(scope="module")
def fields() -> Iterator[OnePort]:
    with running("extern_hash_fields") as port:
        yield port


# -- random numbers --------------------------------------------------------------------------------


def drawn(port: OnePort, low: int, high: int, times: int) -> list[tuple[int, int, int]]:
    frame = struct.pack("!IIIQ", low, high, 77, 0)
    numbers = [struct.unpack("!IIIQ", answer)[2:] for answer in port.ask(*[frame] * times)]
    return [(result, both >> 60, both & (1 << 60) - 1) for result, both in numbers]


def test_random_numbers_are_all_those_between_the_bounds_and_no_others():
    with running("extern_random", seed=1) as port:
        numbers = drawn(port, 10, 13, 200)
        assert {result for result, _, _ in numbers} == {10, 11, 12, 13}
        assert {small for _, small, _ in numbers} == {3, 4, 5}
        assert len({large for _, _, large in numbers}) == 200
        assert {result for result, _, _ in drawn(port, 5, 5, 5)} == {5}
        assert len({result for result, _, _ in drawn(port, 0, 0xFFFFFFFF, 50)}) > 45


def test_bounds_in_the_wrong_order_leave_the_field_as_it_is():
    with running("extern_random") as port:
        assert [result for result, _, _ in drawn(port, 6, 5, 3)] == [77] * 3


def test_the_same_seed_gives_the_same_random_numbers_and_another_one_others():
    def begin(seed: int) -> list[tuple[int, int, int]]:
        with running("extern_random", seed) as port:
            return drawn(port, 0, 0xFFFFFFFF, 20)

    assert begin(7) == begin(7)
    assert begin(7) != begin(8)


def test_the_random_hash_stays_in_its_range():
    with running("extern_hash_random", seed=3) as port:
        answers = port.ask(*[struct.pack("!III", 100, 4, 0)] * 100)
        assert {struct.unpack("!III", answer)[2] for answer in answers} == {100, 101, 102, 103}


# -- checksums -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checksums() -> Iterator[OnePort]:
    with running("extern_checksums") as port:
        yield port


SUMS = struct.Struct("!HHIHHIH")


@given(
    st.integers(0, 7), st.integers(0, (1 << 13) - 1), st.integers(0, 255), st.binary(max_size=70),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_checksums_are_verified_and_updated(checksums, a, b, c, payload, right, right_too):
    verified = packed((a, 3), (b, 13), (c, 8))
    sums = csum16(verified) ^ (not right), crc16(verified + payload) ^ (not right_too)
    head = verified + struct.pack("!HHB", *sums, 0)
    [answer] = checksums.ask(head + SUMS.pack(*[0xABCD] * 7) + payload)
    # The checksum with the payload is verified only if a is not 0.
    wrong = not right or (not right_too and a != 0)
    c = (c + 1) % 256
    new = packed((a, 3), (b, 13), (c, 8))
    assert answer[:8] == new + head[3:7] + bytes([wrong])
    assert SUMS.unpack(answer[8 : 8 + SUMS.size]) == (
        csum16(new),
        crc16(new),
        zlib.crc32(new + b"\xf0"),
        xor16(new),
        csum16(packed((b, 13), (a, 3)) + payload),
        zlib.crc32(packed((a, 3)) + payload),
        csum16(packed((a, 3))) if a == 7 else 0xABCD,
    )
    assert answer[8 + SUMS.size :] == payload


# -- meters ----------------------------------------------------------------------------------------

# Without a rate, tokens never come back, so that no colour depends on time.
GREEN, YELLOW, RED = range(3)


@pytest.fixture
def meters() -> Iterator[OnePort]:
    with running("extern_meters") as port:
        yield port


def colours(port: OnePort, index: int, count: int, length: int = 3) -> list[tuple[int, int]]:
    frame = bytes([index, 9, 9]).ljust(length, b"\0")
    return [(answer[1], answer[2]) for answer in port.ask(*[frame] * count)]


def test_a_meter_is_green_up_to_the_committed_burst_then_yellow_then_red(meters):
    meters.engine.arrays.set_meter("TestIngress.by_packets", 1, MeterRates(0, 3, 0, 5))
    seen = [packets for packets, _ in colours(meters, 1, 8)]
    assert seen == [GREEN] * 3 + [YELLOW] * 2 + [RED] * 3
    assert colours(meters, 0, 8) == [(GREEN, GREEN)] * 8


def test_a_meter_of_bytes_takes_as_many_tokens_as_the_packet_is_long(meters):
    meters.engine.arrays.set_meter("TestIngress.by_bytes", 2, MeterRates(0, 100, 0, 250))
    seen = [of_bytes for _, of_bytes in colours(meters, 2, 6, length=50)]
    assert seen == [GREEN] * 2 + [YELLOW] * 3 + [RED]
    # A packet that is too large for the remaining tokens takes none of them.
    meters.engine.arrays.set_meter("TestIngress.by_bytes", 2, MeterRates(0, 60, 0, 60))
    sizes = (61, 50, 11, 10, 3)
    seen = [colours(meters, 2, 1, length=size)[0][1] for size in sizes]
    assert seen == [RED, GREEN, RED, GREEN, RED]


def test_configuring_a_meter_again_fills_its_burst_and_taking_it_away_makes_it_green(meters):
    name = "TestIngress.by_packets"
    for _ in range(2):
        meters.engine.arrays.set_meter(name, 0, MeterRates(0, 1, 0, 1))
        assert [packets for packets, _ in colours(meters, 0, 2)] == [GREEN, RED]
    meters.engine.arrays.set_meter(name, 0, None)
    assert [packets for packets, _ in colours(meters, 0, 2)] == [GREEN, GREEN]


def test_tokens_come_back_at_the_meters_rate(meters):
    # The first rate adds a token every microsecond, and an answer takes longer. The second one
    # exceeds a counter.
    for rate in (10**6, (1 << 63) - 1):
        meters.engine.arrays.set_meter("TestIngress.by_packets", 3, MeterRates(rate, 1, rate, 1))
        for _ in range(20):
            assert colours(meters, 3, 1) == [(GREEN, GREEN)]


def test_outside_of_the_meters_the_colour_is_not_written(meters):
    assert colours(meters, 4, 1) == [(9, 9)]


def test_a_direct_meter_belongs_to_its_entry_and_a_miss_has_none():
    with running("extern_direct_meter") as port:
        engine = port.engine
        entries = [
            engine.entries.insert(
                "TestIngress.flows", [key], [255], 1, action(engine, "pass"), [key + 10]
            )
            for key in (1, 2)
        ]
        engine.entries.set_meter("TestIngress.flows", entries[0], MeterRates(0, 1, 0, 2))
        answers = port.ask(*(bytes([key, 0, 0]) for key in (1, 1, 1, 2, 2, 2, 3)))
        assert [answer[1] for answer in answers] == [GREEN, YELLOW, RED, GREEN, GREEN, GREEN, 9]
        assert [answer[2] for answer in answers] == [11, 11, 11, 12, 12, 12, 0]
        counts = [engine.entries.count("TestIngress.flows", entry) for entry in (*entries, MISS)]
        assert counts == [Count(3, 9), Count(3, 9), Count(1, 3)]


# -- meters and counters through P4Runtime ---------------------------------------------------------


def ask(switch: Switch, *frames: bytes) -> list[bytes]:
    answers = []
    for frame in frames:
        switch.hosts[0].send(frame)
        answers.append(receive(switch.hosts[0]))
    return answers


def config(cir: int, cburst: int, pir: int, pburst: int) -> p4rt.MeterConfig:
    return p4rt.MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst)


def meter(name: str, index: int | None = None, rates: p4rt.MeterConfig | None = None):
    info = program("extern_meters").p4info
    number = next(each.preamble.id for each in info.meters if each.preamble.alias == name)
    entity = p4rt.Entity()
    entity.meter_entry.meter_id = number
    if index is not None:
        entity.meter_entry.index.index = index
    if rates:
        entity.meter_entry.config.CopyFrom(rates)
    return entity


def test_meters_are_written_and_read_one_cell_or_all_of_them(switch, controller):
    controller.configure(program("extern_meters"))
    rates = config(0, 1, 0, 2)
    controller.modify(meter("by_packets", 1, rates))
    assert controller.read(meter("by_packets", 1)) == [meter("by_packets", 1, rates)]
    cells = [meter("by_packets", index, rates if index == 1 else None) for index in range(4)]
    assert controller.read(meter("by_packets")) == cells
    everything = p4rt.Entity()
    everything.meter_entry.SetInParent()
    assert len(controller.read(everything)) == 8
    answers = ask(switch, *[bytes([1, 9, 9])] * 3)
    assert [answer[1] for answer in answers] == [GREEN, YELLOW, RED]
    controller.modify(meter("by_packets", 1))
    assert controller.read(meter("by_packets", 1)) == [meter("by_packets", 1)]
    assert ask(switch, bytes([1, 9, 9]))[0][1] == GREEN
    controller.modify(meter("by_packets", None, rates))
    assert controller.read(meter("by_packets", 3)) == [meter("by_packets", 3, rates)]


def test_meter_configurations_that_make_no_sense_are_refused(controller):
    controller.configure(program("extern_meters"))
    for rates in (config(5, 1, 4, 1), config(-2, 1, 4, 1), config(1, -1, 1, 1)):
        [(code, _)] = update_errors(controller.modify, meter("by_bytes", 0, rates))
        assert code == code_pb2.INVALID_ARGUMENT
    outside = meter("by_bytes", 4, config(1, 1, 1, 1))
    assert update_errors(controller.modify, outside)[0][0] == code_pb2.OUT_OF_RANGE
    assert update_errors(controller.read, outside)[0][0] == code_pb2.OUT_OF_RANGE
    for call in (controller.insert, controller.delete):
        [(code, _)] = update_errors(call, meter("by_bytes", 0, config(1, 1, 1, 1)))
        assert code == code_pb2.INVALID_ARGUMENT
    assert controller.read(meter("by_bytes", 0)) == [meter("by_bytes", 0)]


def test_direct_meters_are_written_with_their_entry_or_alone(switch, controller):
    controller.configure(program("extern_direct_meter"))
    names = Names(program("extern_direct_meter").p4info)
    entry = names.entry("flows", {"key": 1}, "pass", number=5)
    asked = names.entry("flows", {"key": 1})
    asked.table_entry.meter_config.SetInParent()
    with_meter = p4rt.Entity()
    with_meter.CopyFrom(entry)
    with_meter.table_entry.meter_config.CopyFrom(config(0, 1, 0, 1))
    controller.insert(with_meter)
    assert controller.read(asked) == [with_meter]
    assert controller.read(names.entry("flows", {"key": 1})) == [entry]
    assert [answer[1] for answer in ask(switch, *[bytes([1, 0, 0])] * 2)] == [GREEN, RED]

    alone = p4rt.Entity()
    alone.direct_meter_entry.table_entry.CopyFrom(entry.table_entry)
    alone.direct_meter_entry.config.CopyFrom(config(0, 1, 0, 2))
    controller.modify(alone)
    assert controller.read(alone) == [alone]
    assert [answer[1] for answer in ask(switch, *[bytes([1, 0, 0])] * 2)] == [GREEN, YELLOW]

    # Modifying an entry without a configuration removes its meter.
    controller.modify(entry)
    assert controller.read(asked) == [entry]
    assert [answer[1] for answer in ask(switch, *[bytes([1, 0, 0])] * 3)] == [GREEN] * 3
    default = names.default("flows", "pass", number=1)
    default.table_entry.meter_config.CopyFrom(config(0, 1, 0, 1))
    assert update_errors(controller.modify, default)[0][0] == code_pb2.UNIMPLEMENTED


def test_counters_of_all_kinds_count_and_outside_of_them_nothing_does(switch, controller):
    controller.configure(program("extern_counters"))
    names = Names(program("extern_counters").p4info)
    frames = [struct.pack("!I", index) + bytes(6) for index in (0, 3, 3, 4, 0xFFFFFFFF)]
    assert ask(switch, *frames) == frames
    for kind in ("packets", "bytes", "both"):
        cells = [each.counter_entry.data for each in controller.read(names.counter(kind))]
        counts = [(each.packet_count, each.byte_count) for each in cells]
        assert counts == [(1, 10), (0, 0), (0, 0), (2, 20)]


# -- the program's log, and its assertions ---------------------------------------------------------


def limited(port: OnePort) -> None:
    port.engine.entries.insert(
        "TestIngress.limits", [1], [511], 1, action(port.engine, "check"), [5]
    )


def test_what_breaks_an_assertion_is_dropped_and_counted_and_the_switch_goes_on(capfd):
    with running("extern_assertions") as port:
        limited(port)
        port.lose(struct.pack("!BbI", 6, 0, 1))  # violates the assert
        port.lose(struct.pack("!BbI", 5, 0, 0xFFFFFFFF))  # violates the assume
        assert port.ask(struct.pack("!BbI", 5, 0, 1)) == [struct.pack("!BbI", 5, 0, 3)]
        assert port.engine.drops()["ingress"] == 2
    said = capfd.readouterr().err
    assert "assert(hdr.probe.small <= most)" in said
    assert "assume(hdr.probe.unbroken != 0)" in said


def test_the_programs_log_says_the_values_where_the_braces_are():
    reader, writer = os.pipe()
    with (
        running("extern_assertions") as port,
        os.fdopen(reader) as log,
        os.fdopen(writer, "w") as end,
    ):
        port.ask(struct.pack("!BbI", 5, -7, 1))  # nothing is written before the log is switched on
        port.engine.log_to(end.fileno())
        port.ask(struct.pack("!BbI", 200, -7, 1))
        assert log.readline() == '200 small 200 of "{}", -7%, done\n'
        assert log.readline() == "nothing to say\n"
        port.engine.log_to(-1)
