"""Header fields of every kind: varbits, wide ones, signed ones; whole headers; stacks of varbits."""

from collections.abc import Iterator, Sequence

import one_port
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_port import OnePort

TOO_SHORT, HEADER_TOO_SHORT, INVALID_ARGUMENT = 1, 2, 3


def checksum(data: bytes) -> bytes:
    """Return RFC 1071's checksum."""
    padded = data + bytes(len(data) % 2)
    total = sum(int.from_bytes(padded[i : i + 2], "big") for i in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (total ^ 0xFFFF).to_bytes(2, "big")


@pytest.fixture(scope="module")
def varbit() -> Iterator[OnePort]:
    with one_port.running("parse_varbit") as running:
        yield running


def options_header(options: bytes, first: int = 0xA, last: int = 0xB, add: bytes = b"??") -> bytes:
    """Return the program's header: four bits, options, four bits, a checksum."""
    bits = 8 * len(options)
    number = (first << bits | int.from_bytes(options, "big")) << 4 | last
    return number.to_bytes(len(options) + 1, "big") + add


def with_checksum(options: bytes, first: int = 0xA) -> bytes:
    header = options_header(options, first)[:-2]
    return header + checksum(header)


def request(code: int, bits: int, error: int = 0) -> bytes:
    return bytes([code, error]) + bits.to_bytes(2, "big")


@given(st.binary(max_size=8), st.binary(max_size=4))
def test_a_varbit_has_as_many_bits_as_the_packet_says_and_is_in_the_checksum(
    varbit, options, payload
):
    bits = 8 * len(options)
    [answer] = varbit.ask(request(0, bits) + options_header(options) + payload)
    assert answer == request(0, bits) + with_checksum(options) + payload


@given(st.binary(max_size=8))
def test_a_copy_of_a_header_has_its_varbit(varbit, options):
    bits = 8 * len(options)
    [answer] = varbit.ask(request(1, bits) + options_header(options) + b"rest")
    copy = options_header(options, first=0xF)
    assert answer == request(1, bits) + with_checksum(options) + copy + b"rest"


def test_a_header_that_was_not_extracted_has_a_varbit_of_no_bits(varbit):
    [answer] = varbit.ask(request(2, 32) + options_header(b"abcd") + b"rest")
    assert answer == request(2, 32) + b"\x70\x00\x00" + b"rest"


@given(st.binary(max_size=8), st.binary(min_size=2, max_size=2))
def test_varbits_are_equal_as_numbers(varbit, one, two):
    bits = 8 * len(one)
    [answer] = varbit.ask(request(3, bits) + options_header(one) + options_header(two) + b"rest")
    same = int.from_bytes(one, "big") == int.from_bytes(two, "big")
    said = request(3, 0xEEEE if same else bits)
    assert answer == said + with_checksum(one) + options_header(one) + b"rest"


WRONG_LENGTHS = {
    "not whole bytes": (9, b"a" * 20, INVALID_ARGUMENT),
    "not whole bytes, and too many": (0xFFFF, b"", INVALID_ARGUMENT),
    "more than the type has": (72, b"a" * 20, HEADER_TOO_SHORT),
    "more than the packet has": (64, b"a" * 10, TOO_SHORT),
    "more than both have": (0xFFF8, b"a" * 10, TOO_SHORT),
    "less than the fixed part": (0, b"aa", TOO_SHORT),
}


@pytest.mark.parametrize("case", WRONG_LENGTHS)
def test_a_varbit_that_cannot_be_is_an_error_and_its_header_stays_in_the_packet(varbit, case):
    bits, payload, error = WRONG_LENGTHS[case]
    [answer] = varbit.ask(request(0, bits) + payload)
    assert answer == request(0, bits, error) + payload


@pytest.fixture(scope="module")
def options() -> Iterator[OnePort]:
    with one_port.running("parse_options") as running:
        yield running


def option(kind: int, value: bytes) -> bytes:
    return bytes([kind, len(value)]) + value


OPTIONS = {
    "all as they came": ([(1, b"abc"), (2, b""), (3, b"0123456789abcdef")], None),
    "a pop moves them with their lengths": (
        [(1, b"abc"), (0x22, b"de"), (3, b"f")],
        [(0x22, b"de"), (3, b"f")],
    ),
    "a push moves them with their lengths": ([(0x33, b"abc"), (2, b"d")], None),
    "a push loses the last": (
        [(0x33, b"abc"), (2, b"d"), (3, b"efg")],
        [(0x33, b"abc"), (2, b"d")],
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_a_stack_of_headers_with_varbits(options, case):
    given_options, after = OPTIONS[case]
    frame = bytes([len(given_options), 0]) + b"".join(option(*each) for each in given_options)
    wanted = frame if after is None else frame[:2] + b"".join(option(*each) for each in after)
    assert options.ask(frame + b"rest") == [wanted + b"rest"]


def test_options_that_do_not_fit_the_stack_stay_in_the_packet(options):
    several = b"".join(option(number, b"ab") for number in range(5))
    assert options.ask(b"\x05\x00" + several) == [b"\x05\x01" + several]
    assert options.ask(b"\x01\x00" + option(1, bytes(17))) == [b"\x01\x02" + option(1, bytes(17))]
    assert options.ask(b"\x02\x00" + option(1, b"a")) == [b"\x02\x02" + option(1, b"a")]


def mark(switch: OnePort, table: str, values: Sequence[int], masks: Sequence[int], what: int):
    """Add an entry that marks the packets which match it."""
    engine = switch.engine
    names = {each.id: each.name for each in engine.program.actions}
    see = next(
        each for each in engine.entries.table(table).actions if names[each] == "WideIngress.see"
    )
    engine.entries.insert(table, values, masks, 1, see, (what,))


@pytest.fixture(scope="module")
def wide() -> Iterator[OnePort]:
    with one_port.running("parse_wide") as running:
        full, top = (1 << 130) - 1, 0b11 << 128
        prefix = (1 << 256) - (1 << 256 - 20)
        mark(running, "WideIngress.exactly", (5 << 125,), (full,), 0x10)
        mark(running, "WideIngress.masked", (top, 7), (top, 0xF), 0x20)
        mark(running, "WideIngress.by_prefix", (0xABCDE << 236,), (prefix,), 0x40)
        yield running


CODE, ONE, TWO, THREE, SEEN = 4, 256, 130, 130, 8
FIELDS = (CODE, ONE, TWO, THREE, SEEN)
LITERAL = 0x0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF


def pack(*values: int) -> bytes:
    number = 0
    for bits, value in zip(FIELDS, values, strict=True):
        number = number << bits | value
    return number.to_bytes(sum(FIELDS) // 8, "big")


def seen(one: int, two: int, three: int, code: int) -> int:
    """Return the results of the program's tables and conditions for a header."""
    marks = {
        0x10: three == 5 << 125,
        0x20: two >> 128 == 3 and code == 7,
        0x40: one >> 236 == 0xABCDE,
        1: two == three,
        2: two < three,
        4: one == LITERAL,
    }
    return sum(mark for mark, holds in marks.items() if holds)


def numbers(bits: int, *special: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(0, (1 << bits) - 1), st.sampled_from([0, 1, *special]))


@given(
    numbers(ONE, LITERAL, 0xABCDE << 236, (1 << 256) - 1),
    numbers(TWO, 5 << 125, (1 << 130) - 1),
    numbers(THREE, 5 << 125, (1 << 130) - 1),
    st.sampled_from([0, 1, 2, 3, 4, 5, 7]),
)
def test_wide_fields_are_matched_compared_copied_and_sliced(wide, one, two, three, code):
    marks = seen(one, two, three, code)
    after = {
        0: [(one, two, three, marks)],
        1: [(one, two, three, marks), (one, three, three, marks)],
        2: [(0xFEDCBA9876543210FEDCBA9876543210FEDCBA9876543210, two, three, marks)],
        3: [(two, one & (1 << 130) - 1, three, marks)],
        4: [
            (
                one & ~((1 << 64) - 1 << 8) | (two >> 5 & (1 << 64) - 1) << 8,
                two,
                three,
                one >> 132 & 0xFF,
            )
        ],
        5: [(marks, two, three, marks)],
        7: [(one, two, three, marks)],
    }[code]
    [answer] = wide.ask(pack(code, one, two, three, 0) + b"rest")
    assert answer == b"".join(pack(code, *each) for each in after) + b"rest"


@pytest.fixture(scope="module")
def types() -> Iterator[OnePort]:
    with one_port.running("parse_types") as running:
        yield running


SMALL, LARGE = 1, 7


def signed(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@given(
    st.sampled_from([SMALL, LARGE, 3]),
    st.one_of(st.integers(-128, 127), st.just(5)),
    st.integers(-2048, 2047),
    st.booleans(),
)
def test_signed_enum_and_bool_fields(types, kind, number, odd, flag):
    def pack(kind, number, odd, flag, seen):
        value = (number & 0xFF) << 24 | (odd & 0xFFF) << 12 | 0b010 << 9 | flag << 8 | seen
        return bytes([kind]) + value.to_bytes(4, "big")

    marks = 0
    if (kind, number) == (SMALL, 5) or (kind == LARGE and flag):
        marks |= 1
    if kind == LARGE:
        marks |= 2
    if number < 0 and odd < number * 16:
        marks |= 4
    if kind == SMALL:
        after = (LARGE, min(number + 100, 127), number, flag)
    else:
        after = (kind, signed(-number, 8), odd >> 3, not flag)
    [answer] = types.ask(pack(kind, number, odd, flag, 0) + b"rest")
    assert answer == pack(*after, marks) + b"rest"


@pytest.fixture(scope="module")
def headers() -> Iterator[OnePort]:
    with one_port.running("parse_headers") as running:
        yield running


EQUAL, DIFFERENT, VALID = 1, 2, 4
A, B = b"\x1a\xbc", b"\x2d\xef"
HEADERS = {
    "none is valid: equal": (0, b"", EQUAL, b""),
    "assigned": (1, A + B, EQUAL | VALID, B + B),
    "assigned an invalid one": (2, A + B, EQUAL, b""),
    "made invalid and valid: zeros": (3, A + B, DIFFERENT | VALID, b"\0\0" + B),
    "made valid while it is: no change": (4, A + B, DIFFERENT | VALID, A + B),
    "assigned fields": (5, A + B, DIFFERENT | VALID, b"\x50\x06" + B),
    "one is invalid: different": (6, A + B, DIFFERENT, B),
    "swapped": (7, A + B, DIFFERENT | VALID, B + A),
    "the same": (8, A + A, EQUAL | VALID, A + A),
    "too short for the second": (8, A + b"?", DIFFERENT | VALID, A + b"?"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_whole_headers(headers, case):
    code, given_headers, marks, after = HEADERS[case]
    rest = b"" if case.startswith("too short") else b"rest"
    assert headers.ask(bytes([code, 0]) + given_headers + rest) == [
        bytes([code, marks]) + after + rest
    ]


def test_headers_leave_in_the_order_of_the_deparser_whatever_they_were_parsed_in(headers):
    assert headers.ask(b"\x09\x00" + A + B + b"rest") == [B + A + b"rest"]
