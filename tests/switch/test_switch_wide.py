"""Values of more than 128 bits: arithmetic, arguments, keys, registers and the log."""

import json
import os
from collections.abc import Iterator

import one_port
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_port import OnePort
from p4runtime_client import Controller, Names, encode
from switches import Switch, receive
from tiny_programs import program

from innet.errors import UnsupportedProgram
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch import bmv2json
from innet.switch.codegen import generate


def mask(bits: int) -> int:
    return (1 << bits) - 1


def signed(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def numbers(bits: int) -> st.SearchStrategy[int]:
    """Return numbers of all sizes, and numbers next to powers of two."""
    near = st.builds(lambda bit, by: (1 << bit) + by, st.integers(0, bits), st.integers(-2, 2))
    return st.one_of(st.integers(0, mask(bits)), near).map(lambda value: value & mask(bits))


def pack(widths: dict[str, int], values: dict[str, int]) -> bytes:
    number = 0
    for name, bits in widths.items():
        number = number << bits | values.get(name, 0) & mask(bits)
    return number.to_bytes(sum(widths.values()) // 8, "big")


def unpack(widths: dict[str, int], data: bytes) -> dict[str, int]:
    number, values = int.from_bytes(data, "big"), {}
    for name, bits in reversed(widths.items()):
        values[name], number = number & mask(bits), number >> bits
    return values


# -- without a sign --------------------------------------------------------------------------------

UNSIGNED = {
    "operation": 8, "by": 8, "a": 256, "b": 256, "c": 130, "filler": 6, "d": 128, "e": 128, "seen": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def unsigned() -> Iterator[OnePort]:
    with one_port.running("wide_unsigned") as running:
        yield running


def widened(x: dict[str, int]) -> dict[str, int]:
    total = x["a"] * 0x123456789ABCDEF0123456789ABCDEF + x["c"] & mask(300)
    return {"a": total >> 44, "d": total, "c": x["by"]}


def cut(x: dict[str, int]) -> dict[str, int]:
    part, low = mask(161) << 90, mask(98) << 3
    return {
        "seen": (x["a"] << 386 | x["b"] << 130 | x["c"]) >> 395,
        "a": x["a"] & ~part | (x["b"] >> 1 << 90) & part,
        "c": x["c"] & ~low | x["d"] << 3 & low,
    }


UNSIGNED_OPERATIONS = {
    1: lambda x: {"a": x["a"] + x["b"], "c": x["c"] + 1},
    2: lambda x: {"a": x["a"] - x["b"], "c": x["c"] - x["d"]},
    3: lambda x: {"a": x["a"] * x["b"], "d": x["d"] * x["e"]},
    4: lambda x: {"a": -x["a"], "c": ~x["c"]},
    5: lambda x: {"a": min(x["a"] + x["b"], mask(256)), "d": min(x["d"] + x["e"], mask(128))},
    6: lambda x: {"a": max(x["a"] - x["b"], 0), "d": max(x["d"] - x["e"], 0)},
    7: lambda x: {"a": (x["a"] & x["b"]) | (x["a"] ^ ~x["b"])},
    8: lambda x: {"a": x["a"] << x["by"], "c": x["c"] << 77, "d": x["d"] << x["by"]},
    9: lambda x: {"a": x["a"] >> x["by"], "c": x["c"] >> 77, "b": x["b"] >> 200},
    10: lambda x: {"a": x["c"] << 126 | x["d"] >> 2, "c": x["b"] >> 200 << 74 | x["b"] & mask(74)},
    11: cut,
    12: widened,
}


@given(
    st.sampled_from(list(UNSIGNED_OPERATIONS)),
    st.sampled_from([0, 1, 63, 64, 65, 127, 128, 191, 255]),
    numbers(256), numbers(256), numbers(130), numbers(128), numbers(128),
)  # fmt: skip
def test_arithmetic_without_a_sign_is_that_of_whole_numbers(unsigned, operation, by, a, b, c, d, e):
    x = {"operation": operation, "by": by, "a": a, "b": b, "c": c, "d": d, "e": e, "seen": 0}
    wanted = x | UNSIGNED_OPERATIONS[operation](x)
    wanted = {name: value & mask(UNSIGNED[name]) for name, value in wanted.items()}
    a, b, c, d, e = (wanted[name] for name in "abcde")
    marks = {
        1: a < b,
        2: a >= c,
        4: (a + 1) % (1 << 256) == b,
        8: d > e,
        16: (a - b) % (1 << 256) <= 1 << 255,
        32: d + e != 0,
        64: c >> 128 != 0,
    }
    wanted["seen"] |= sum(bit for bit, holds in marks.items() if holds)
    [answer] = unsigned.ask(pack(UNSIGNED, x) + b"rest")
    assert unpack(UNSIGNED, answer[:-4]) == wanted | {"filler": 0}


# -- with a sign -----------------------------------------------------------------------------------

SIGNED = {
    "operation": 8,
    "by": 8,
    "a": 200,
    "b": 200,
    "c": 8,
    "d": 128,
    "e": 128,
    "f": 256,
    "seen": 16,
}
WITH_SIGN = ("a", "b", "c", "d", "e")


@pytest.fixture(scope="module")
def with_sign() -> Iterator[OnePort]:
    with one_port.running("wide_signed") as running:
        yield running


def saturated(bits: int, value: int) -> int:
    return clamp(value, -(1 << bits - 1), mask(bits - 1))


def widest(x: dict[str, int]) -> dict[str, int]:
    return {"a": signed(signed(x["a"] - signed(x["b"] * 3, 264), 264) >> 60, 200)}


SIGNED_OPERATIONS = {
    1: lambda x: {"a": x["a"] + x["b"], "d": x["d"] + 1},
    2: lambda x: {"a": x["a"] - x["b"], "d": x["d"] - x["e"]},
    3: lambda x: {"a": x["a"] * x["b"], "d": x["d"] * x["e"]},
    4: lambda x: {"a": -x["a"], "b": ~x["b"], "d": -x["d"]},
    5: lambda x: {"a": saturated(200, x["a"] + x["b"]), "d": saturated(128, x["d"] + x["e"])},
    6: lambda x: {"a": saturated(200, x["a"] - x["b"]), "d": saturated(128, x["d"] - x["e"])},
    7: lambda x: {"a": (x["a"] & x["b"]) | (x["a"] ^ 0x55)},
    8: lambda x: {"a": x["a"] << x["by"], "b": x["b"] >> x["by"], "d": x["d"] >> 5},
    9: lambda x: {"a": x["c"], "b": x["d"], "f": x["c"]},
    10: lambda x: {"c": x["a"], "d": x["b"], "f": x["a"] & mask(200)},
    11: widest,
}


@given(
    st.sampled_from(list(SIGNED_OPERATIONS)),
    st.sampled_from([0, 1, 63, 64, 65, 127, 128, 199, 200, 255]),
    numbers(200), numbers(200), numbers(8), numbers(128), numbers(128),
)  # fmt: skip
def test_arithmetic_with_a_sign_is_that_of_whole_numbers(with_sign, operation, by, a, b, c, d, e):
    given_bits = dict(zip(WITH_SIGN, (a, b, c, d, e), strict=True))
    x = {name: signed(value, SIGNED[name]) for name, value in given_bits.items()}
    x |= {"operation": operation, "by": by, "f": 0, "seen": 0}
    after = x | SIGNED_OPERATIONS[operation](x)
    for name in WITH_SIGN:
        after[name] = signed(after[name], SIGNED[name])
    a, b, d, e = (after[name] for name in "abde")
    marks = {
        1: a < b,
        2: a >= d,
        4: a == b,
        8: d > e,
        16: a <= -5,
        32: saturated(128, d + e) != 0,
        64: a != -1,
    }
    after["seen"] = sum(bit for bit, holds in marks.items() if holds)
    [answer] = with_sign.ask(pack(SIGNED, x) + b"rest")
    wanted = {name: value & mask(SIGNED[name]) for name, value in after.items()}
    assert unpack(SIGNED, answer[:-4]) == wanted


# -- arguments, keys, registers, the log -----------------------------------------------------------

STATE = {"operation": 8, "cell": 8, "a": 256, "b": 200, "c": 136, "hash": 32}
NAMES = Names(program("wide_state").p4info)
BIG, OTHER, NEGATIVE = (1 << 255) + 5, 0xABC << 180, -(1 << 130) - 3


@pytest.fixture
def state(controller: Controller) -> Controller:
    controller.configure(program("wide_state"))
    return controller


def ask(switch: Switch, **values: int) -> dict[str, int]:
    switch.hosts[0].send(pack(STATE, values))
    return unpack(STATE, receive(switch.hosts[0]))


def test_arguments_reach_the_action_and_are_read_back(state, switch):
    everything = (0, mask(200))
    match = {
        "hdr.given.a & 0xffff00000000000000000000000000000000000000000000000000000000000f": (7, 15)
    }
    match |= {"hdr.given.b": (OTHER, everything[1]), "hdr.given.operation[1:0]": 0}
    entry = NAMES.entry("operations", match, "set", 9, a=BIG, mask=0xFFFF, c=1 << 135, b=OTHER)
    state.insert(entry)
    assert state.read(NAMES.entry("operations")) == [entry]
    unchanged = NAMES.entry(
        "exactly", {"hdr.given.b": OTHER ^ 0xFFFF}, "set", a=0, mask=0, c=0, b=1
    )
    state.insert(unchanged)
    answer = ask(switch, a=7, b=OTHER + 1, c=5)
    assert (answer["a"], answer["b"], answer["c"]) == (BIG + 7, 1, (1 << 135) + 5)
    # Below the range nothing matches: first the default action applies, then another default
    # action.
    assert ask(switch, a=7, b=OTHER - 1, c=5)["b"] == 7 << 150


def register(name: str, index: int, value: int | None = None, *, size: int = 32) -> p4rt.Entity:
    entity = p4rt.Entity()
    found = next(each for each in NAMES.info.registers if each.preamble.alias == name)
    entity.register_entry.register_id = found.preamble.id
    entity.register_entry.index.index = index
    if value is not None:
        content = encode(value) if value >= 0 else value.to_bytes(size, "big", signed=True)
        entity.register_entry.data.bitstring = content
    return entity


def test_registers_of_any_width_are_served_and_used(state, switch):
    number, with_sign = (
        register("numbers", 2, BIG),
        register("signed_numbers", 2, NEGATIVE, size=17),
    )
    state.modify(number, with_sign)
    assert state.read(number, with_sign) == [number, with_sign]
    answer = ask(switch, operation=1, cell=2, c=10)  # the default action of `exactly`
    assert answer["a"] == BIG
    assert answer["c"] == NEGATIVE & mask(136)
    sum_of_both = (BIG + (5 << 200)) & mask(256)
    changed = register("numbers", 2, sum_of_both), register("signed_numbers", 2, 10 - NEGATIVE)
    assert state.read(*changed) == [*changed]


def test_the_log_has_all_digits():
    reader, writer = os.pipe()
    with (
        os.fdopen(reader) as log,
        os.fdopen(writer, "w") as end,
        one_port.running("wide_state") as port,
    ):
        port.engine.log_to(end.fileno())
        port.ask(pack(STATE, {"c": NEGATIVE}))
        assert log.readline() == f"numbers {5 << 200} and {NEGATIVE}\n"
        port.engine.log_to(-1)


def test_a_value_that_is_looked_at_before_it_is_wrapped_has_its_limit():
    document = json.loads(program("wide_unsigned").json)
    for kind in document["header_types"]:
        for field in kind["fields"]:
            if field[0] in ("a", "b"):
                field[1] = 1 << 14
    with pytest.raises(UnsupportedProgram, match=r"wide_unsigned\.p4:\d+: .*more than 16384 bits"):
        generate(bmv2json.load(json.dumps(document)))
