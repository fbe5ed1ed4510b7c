"""Hashes, checksums, random numbers, log and assertions of v1model."""

import ctypes
import os
import struct
import zlib
from collections.abc import Callable, Iterator

import pytest
from checksums import crc16
from hypothesis import given
from hypothesis import strategies as st
from one_port import OnePort, action, running

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
