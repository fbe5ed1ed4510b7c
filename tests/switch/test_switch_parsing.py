"""Parsers: stacks, unions, selects, value sets, lookahead, errors. Each has one small program."""

from collections.abc import Iterator

import one_port
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_port import OnePort
from p4runtime_client import Controller, encode, update_errors
from switches import receive, running_switch
from tiny_programs import program

from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

DEPTH = 4
NO_ERROR, TOO_SHORT, WORSE = 0x10, 0x11, 0x18


def one(switch: OnePort, *parts: int | bytes) -> bytes:
    """Return the switch's answer to one frame. Numbers are bytes."""
    frame = b"".join(bytes([part]) if isinstance(part, int) else part for part in parts)
    [answer] = switch.ask(frame)
    return answer


@pytest.fixture(scope="module")
def stack() -> Iterator[OnePort]:
    with one_port.running("parse_stack") as running:
        yield running


# Code, last_index, sum, overflow, valid; then labels, of which the last has its lowest bit set.
STACKS = {
    "what was parsed leaves as it came": (0, [3, 5, 7], [3, 5, 7], 0b00111),
    "a push makes room for one": (1, [3, 5], [99, 3, 5], 0b00111),
    "a push to a full stack loses the last": (1, [1, 2, 3, 4], [99, 1, 2, 3], 0b01111),
    "pushed headers are not valid": (2, [3], [3], 0b01000),
    "a push of more than there are leaves nothing": (3, [3, 5], [], 0),
    "a pop loses the first": (4, [3, 5, 7], [5, 7], 0b00011),
    "a pop of several": (5, [1, 2, 3, 4], [4], 0b00001),
    "a pop of more than there are leaves nothing": (6, [1, 2, 3, 4], [], 0),
    "a copy of a stack is another stack": (7, [3, 5], [5, 3, 5], 0b00001),
    "an element is a header like any other": (8, [3, 5, 7], [3, 3], 0b00101),
}


@pytest.mark.parametrize("case", STACKS)
def test_a_stack(stack, case):
    code, numbers, after, valid = STACKS[case]
    labels = [number << 1 for number in numbers]
    labels[-1] |= 1
    answer = one(stack, code, 0, 0, 0, 0, bytes(labels), b"rest")
    equal = 0b10000 if not after else 0
    assert answer[:5] == bytes([code, len(numbers) - 1, sum(numbers), 0, valid | equal])
    assert [label >> 1 for label in answer[5:-4]] == after
    assert answer[-4:] == b"rest"


def test_the_header_that_does_not_fit_a_stack_is_an_error_and_stays_in_the_packet(stack):
    answer = one(stack, bytes(5), bytes([2, 4, 6, 8, 10]), b"rest")
    assert answer == bytes([0, DEPTH - 1, 10, 1, 0b1111, 2, 4, 6, 8, 10]) + b"rest"


@given(
    st.lists(st.integers(0, 127), min_size=1, max_size=DEPTH),
    st.sampled_from([(1, 1, 0), (2, 3, 0), (3, 9, 0), (4, 0, 1), (5, 0, 3), (6, 0, 9)]),
)
def test_a_stack_is_a_list_of_fixed_length(stack, numbers, change):
    code, pushed, popped = change
    labels = [number << 1 for number in numbers]
    labels[-1] |= 1
    model = [None] * pushed + labels + [None] * (DEPTH - len(labels))
    model = (model[popped:] + [None] * popped)[:DEPTH]
    if code == 1:
        model[0] = 99 << 1
    answer = one(stack, code, bytes(4), bytes(labels))
    assert answer[4] & 0b1111 == sum(1 << i for i, each in enumerate(model) if each is not None)
    assert list(answer[5:]) == [each for each in model if each is not None]


@pytest.fixture(scope="module")
def index() -> Iterator[OnePort]:
    with one_port.running("parse_index") as running:
        yield running


ITEMS = bytes([10, 20, 30])
INDICES = {
    "read in the parser": ((1, 2, 0), (1, 2, 30), ITEMS),
    "read outside in the parser": ((1, 3, 0), (1, 3, 0xEE), ITEMS),
    "read": ((2, 1, 0), (2, 1, 20), ITEMS),
    "read outside": ((2, 200, 7), (2, 200, 0), ITEMS),
    "write": ((3, 1, 9), (3, 1, 9), bytes([10, 9, 30])),
    "write outside": ((3, 3, 9), (3, 3, 9), ITEMS),
    "invalidate": ((4, 0, 0), (4, 0, 0), ITEMS[1:]),
    "invalidate outside": ((4, 255, 0), (4, 255, 0), ITEMS),
    "copy from": ((5, 2, 0), (5, 2, 0), bytes([30, 20, 30])),
    "copy from outside, where nothing is valid": ((5, 3, 0), (5, 3, 0), ITEMS[1:]),
    "copy to": ((6, 2, 0), (6, 2, 0), bytes([10, 20, 10])),
    "copy to outside": ((6, 4, 0), (6, 4, 0), ITEMS),
    "read what was written outside": ((7, 77, 9), (7, 77, 0), ITEMS),
}


@pytest.mark.parametrize("case", INDICES)
def test_elements_that_the_packet_chooses(index, case):
    request, answer, items = INDICES[case]
    assert one(index, bytes(request), ITEMS, b"rest") == bytes(answer) + items + b"rest"


UNIONS = {
    "the member that was extracted": ((1, 0), b"\x77", 1, b"\x77"),
    "the other member": ((2, 0), b"\x77\x88", 1, b"\x77\x88"),
    "none": ((0, 0), b"", 4, b""),
    "the second extracted replaces the first": ((3, 0), b"\x77\x88\x99", 1, b"\x88\x99"),
    "setValid replaces": ((2, 1), b"\x77\x88", 1, b"\xaa"),
    "assigning a union": ((2, 2), b"\x77\x88", 7, b"\x77\x88\x77\x88"),
    "assigning a union to one with another member": ((2, 3), b"\x77\x88", 7, b"\x77\x88" * 2),
    "assigning a union without a valid member": ((0, 3), b"", 4, b""),
    "setInvalid of a member that is not valid": ((1, 4), b"\x77", 1, b"\x77"),
    "setInvalid of the valid member": ((2, 4), b"\x77\x88", 4, b""),
    "assigning a valid member": ((1, 5), b"\x77", 7, b"\x77\x77"),
    "assigning an invalid member": ((2, 5), b"\x77\x88", 3, b"\x77\x88\xbb\xcc"),
}


@pytest.fixture(scope="module")
def element() -> Iterator[OnePort]:
    with one_port.running("parse_union_element") as running:
        yield running


UNION_ELEMENTS = {
    "none": (0, b"", 8, b""),
    "one of two": (1, b"\x11", 1 | 8, b"\x11"),
    "both, and then one": (2, b"\x22\x22\x11", 1 | 2 | 8, b"\x22\x22"),
    "more than there are": (3, b"\x33\x22\x22\x11", 1 | 2 | 4, b"\x33\x22\x22\x11"),
}


@pytest.mark.parametrize("case", UNION_ELEMENTS)
def test_a_union_of_a_stack_is_valid_if_one_of_its_headers_is(element, case):
    options, members, seen, after = UNION_ELEMENTS[case]
    answer = one(element, bytes([options, 0]), members, b"rest")
    assert answer == bytes([options, seen]) + after + b"rest"


@pytest.fixture(scope="module")
def union() -> Iterator[OnePort]:
    with one_port.running("parse_union") as running:
        yield running


@pytest.mark.parametrize("case", UNIONS)
def test_at_most_one_member_of_a_union_is_valid(union, case):
    request, members, seen, after = UNIONS[case]
    answer = one(union, bytes(request), 0, members, b"rest")
    seen_now = seen & ~4 if case.startswith("none") and after else seen
    assert answer == bytes([*request, seen_now]) + after + b"rest"


@pytest.fixture(scope="module")
def select() -> Iterator[OnePort]:
    with one_port.running("parse_select") as running:
        yield running


SELECTS = {
    "masked": (1, 0x10FF, 0, 1),
    "masked, other bits": (1, 0x11FF, 0, 0),
    "range, its first": (2, 100, 1, 2),
    "range, its last": (2, 1003, 1, 2),
    "below the range": (2, 99, 1, 0),
    "above the range": (2, 1004, 1, 0),
    "another key": (2, 100, 0, 3),
    "small range": (5, 0, 0, 3),
    "exact": (6, 0x0AAA, 0, 4),
    "the first that matches": (6, 0x0AAA, 1, 0),
    "no case: accepted without an error": (0, 1, 1, 0),
    "a wide key": (7, 1, 0, 1),
    "a wide key, masked": (7, 0x10F, 1, 2),
    "rejected: accepted without an error": (7, 0x200, 1, 0),
}


@pytest.mark.parametrize("case", SELECTS)
def test_select_takes_the_first_case_that_matches_all_keys(select, case):
    small, large, flag, way = SELECTS[case]
    keys = (small << 21 | large << 8 | flag << 7).to_bytes(3, "big")
    assert one(select, keys, 0, b"rest") == keys + bytes([way]) + b"rest"


@pytest.fixture(scope="module")
def lookahead() -> Iterator[OnePort]:
    with one_port.running("parse_lookahead") as running:
        yield running


def test_a_header_in_front_of_the_parser_is_read_and_stays(lookahead):
    address = bytes(range(0x10, 0x20))
    wide = b"\x9a" + bytes(7) + address + b"\xbe\xef"
    answer = one(lookahead, 1, bytes(3), wide)
    assert answer == b"\x01\x00\x00\x00\x90" + address + b"\xbe\xef" + wide[1:]


def test_a_struct_in_front_of_the_parser_is_read_field_by_field(lookahead):
    answer = one(lookahead, 2, bytes(3), b"\xab\xcd\xef\x12", b"rest")
    assert answer == b"\x02\0\0\0" + b"\x0a\xbc\x0d\xef\x12" + b"\xab\xcd\xef\x12rest"


ADVANCES = {
    "as many bytes as the packet says": (b"\x03\x02\0\0\x77abc", b"\x03\x02\0\0bc"),
    "to the end": (b"\x03\x04\0\0\x77abc", b"\x03\x04\0\0"),
    "past the end": (b"\x03\x05\0\0\x77abc", b"\x03\x05\0\x01\x77abc"),
    "bits that are bytes": (b"\x04\x10\0\0abc", b"\x04\x10\0\0c"),
    "bits that are not bytes": (b"\x04\x11\0\0abc", b"\x04\x11\0\x02abc"),
    "nothing to look at": (b"\x01\0\0\0", b"\x01\0\0\x01"),
    "too little to look at": (b"\x01\0\0\0" + bytes(25), b"\x01\0\0\x01" + bytes(25)),
}


@pytest.mark.parametrize("case", ADVANCES)
def test_bytes_passed_over_do_not_come_back(lookahead, case):
    frame, answer = ADVANCES[case]
    assert one(lookahead, frame) == answer


@pytest.fixture(scope="module")
def errors() -> Iterator[OnePort]:
    with one_port.running("parse_errors") as running:
        yield running


@pytest.mark.parametrize("code", range(1, 9))
def test_what_verify_says_is_what_the_ingress_sees(errors, code):
    answer = one(errors, code, 0, b"\x12\x34\x56\x78rest")
    assert answer == bytes([code, NO_ERROR + code - 1]) + b"\x12\x34\x56\x78rest"


@pytest.mark.parametrize(
    ("frame", "seen"),
    [
        (b"\x00\x00\x12\x34\x56\x78rest", NO_ERROR),
        (b"\x00\x00\x12\x34\x56\x78", NO_ERROR),
        (b"\x00\x00\x12\x34\x56", TOO_SHORT),
        (b"\x00\x00\x12", TOO_SHORT),
        (b"\x00\x00", TOO_SHORT),
        (b"\x00\x00\x80\x00\x56", WORSE),
        (b"\x09\x00\x12\x34\x56", WORSE),
    ],
)
def test_headers_that_were_parsed_before_an_error_stay(errors, frame, seen):
    assert one(errors, frame) == frame[:1] + bytes([seen]) + frame[2:]


def test_a_frame_that_is_too_short_for_any_header_passes_as_it_is(errors):
    assert one(errors, b"\x07") == b"\x07"


@pytest.mark.parametrize(
    "case", [(b"\x01\x00abc\x00", 0), (b"\x00\x00abc", 1), (b"\x01\x00abc", 2)]
)
def test_a_parser_that_gets_nowhere_is_stopped(case):
    frame, ended = case
    with one_port.running("parse_endless") as endless:
        assert one(endless, frame)[:2] == frame[:1] + bytes([ended])


def test_a_parser_within_a_parser_has_its_stack_for_every_use():
    with one_port.running("parse_subparser") as groups:
        assert one(groups, 2, b"\x05\x06", 1, b"\x07", b"rest") == b"\x02\x05\x06\x01\x0crest"
        assert one(groups, 0, b"rest") == b"\x00rest"
        assert one(groups, 4, b"\x01\x02\x03", b"rest") == b"rest"


KINDS, PAIRS = "kinds", "pairs"
SETS = {each.preamble.alias: each for each in program("parse_value_set").p4info.value_sets}


def members(name: str, *values: tuple[int, ...]) -> p4rt.Entity:
    entity = p4rt.Entity()
    entity.value_set_entry.value_set_id = SETS[name].preamble.id
    for parts in values:
        member = entity.value_set_entry.members.add()
        for number, part in enumerate(parts, 1):
            member.match.add(field_id=number).exact.value = encode(part)
    return entity


@pytest.fixture(scope="module")
def selecting() -> Iterator[tuple[Controller, OnePort]]:
    with running_switch(1) as switch, Controller(switch.address, 1) as controller:
        yield controller, switch.hosts[0]


@pytest.fixture
def value_sets(selecting):
    controller, host = selecting
    controller.configure(program("parse_value_set"))

    def mark(kind: int, port: int) -> int | None:
        frame = bytes([kind]) + port.to_bytes(2, "big")
        host.send(frame + b"rest")
        answer = receive(host)
        assert answer.startswith(frame)
        return answer[3] if len(answer) == len(frame) + 5 else None

    return controller, mark


def test_a_value_set_has_what_the_controller_says(value_sets):
    controller, mark = value_sets
    assert [mark(5, 80), mark(6, 81)] == [None, None]
    controller.modify(members(KINDS, (5,), (7,)))
    assert [mark(5, 80), mark(6, 81), mark(7, 0)] == [1, None, 1]
    controller.modify(members(KINDS, (6,)))
    assert [mark(5, 80), mark(6, 81), mark(7, 0)] == [None, 1, None]
    controller.modify(members(KINDS))
    assert [mark(5, 80), mark(6, 81)] == [None, None]


def test_members_of_several_fields_match_in_all_of_them(value_sets):
    controller, mark = value_sets
    controller.modify(members(PAIRS, (6, 81), (0xEE, 2)))
    assert [mark(6, 81), mark(6, 82), mark(7, 81), mark(6, 0x5100)] == [2, None, None, None]
    assert [mark(0xEE, 2), mark(0xEE, 3)] == [2, 1]  # in the order of the cases


def test_value_sets_are_read_back_as_written(value_sets):
    controller, _ = value_sets
    kinds, pairs = members(KINDS, (9,), (2,)), members(PAIRS, (6, 81))
    controller.modify(kinds, pairs)
    everything = p4rt.Entity(value_set_entry=p4rt.ValueSetEntry())
    assert controller.read(everything) == [kinds, pairs]
    assert controller.read(members(PAIRS)) == [pairs]
    controller.modify(members(KINDS))
    assert controller.read(members(KINDS)) == [members(KINDS)]


def test_members_with_leading_zeros_are_read_in_the_shortest_form(value_sets):
    controller, mark = value_sets
    padded = members(KINDS, (9,), (0,))
    for member in padded.value_set_entry.members:
        member.match[0].exact.value = b"\0\0" + member.match[0].exact.value
    controller.modify(padded)
    assert mark(9, 80) == 1
    assert controller.read(members(KINDS)) == [members(KINDS, (9,), (0,))]


REFUSED = {
    "too many": (members(PAIRS, (1, 1), (1, 2), (1, 3)), code_pb2.RESOURCE_EXHAUSTED),
    "one twice": (members(KINDS, (1,), (2,), (1,)), code_pb2.ALREADY_EXISTS),
    "too wide": (members(KINDS, (256,)), code_pb2.OUT_OF_RANGE),
    "half a member": (members(PAIRS, (1,)), code_pb2.INVALID_ARGUMENT),
    "a field too many": (members(KINDS, (1, 2)), code_pb2.INVALID_ARGUMENT),
}


@pytest.mark.parametrize("case", REFUSED)
def test_members_that_cannot_be_are_refused_and_nothing_changes(value_sets, case):
    controller, mark = value_sets
    entity, code = REFUSED[case]
    controller.modify(members(KINDS, (5,)))
    [(refused, _)] = update_errors(controller.modify, entity)
    assert refused == code
    assert [mark(5, 80), mark(1, 1)] == [1, None]


def test_a_value_set_can_only_be_modified_and_has_to_exist(value_sets):
    controller, _ = value_sets
    for call in (controller.insert, controller.delete):
        [(code, message)] = update_errors(call, members(KINDS, (1,)))
        assert (code, message) == (code_pb2.INVALID_ARGUMENT, "a value set can only be modified")
    unknown = p4rt.Entity(value_set_entry=p4rt.ValueSetEntry(value_set_id=7))
    for call in (controller.modify, controller.read):
        [(code, _)] = update_errors(call, unknown)
        assert code == code_pb2.NOT_FOUND
