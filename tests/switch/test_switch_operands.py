"""Expressions whose operands are constants, or as wide as C's widest integers."""

from typing import Any

import pytest
from one_port import running

WIDE = 1 << 127


def constant(value: int) -> dict[str, Any]:
    return {"type": "hexstr", "value": f"{value:#x}"}


def field(name: str) -> dict[str, Any]:
    return {"type": "field", "value": ["probe", name]}


def operation(op: str, left: Any, right: Any, cond: Any = None) -> dict[str, Any]:
    value = {"op": op, "left": left, "right": right}
    return {"type": "expression", "value": value if cond is None else {**value, "cond": cond}}


def computed(value: dict[str, Any], shift: int, one: int = 0, other: int = 0) -> int:
    """Return the value of an expression over the fields `shift`, `one` and `other` of a packet."""

    def change(document: dict[str, Any]) -> None:
        probe = next(each for each in document["header_types"] if each["name"] == "probe_t")
        probe["fields"] = [
            ["shift", 6, False], ["pad", 2, False], ["one", 128, True], ["other", 128, True],
            ["result", 128, False],
        ]  # fmt: skip
        assigned = {"type": "field", "value": ["standard_metadata", "egress_spec"]}
        steps = [
            {"op": "assign", "parameters": [assigned, constant(1)]},
            {"op": "assign", "parameters": [field("result"), value]},
        ]
        for pipeline in document["pipelines"]:
            pipeline |= {"init_table": None, "conditionals": []}
        action = next(each for each in document["actions"] if each["name"] == "path_truncate31")
        action["primitives"] = steps
        document["actions"] = [action]
        name = "tbl_path_truncate31"
        ingress = document["pipelines"][0]
        ingress["tables"] = [each for each in ingress["tables"] if each["name"] == name]
        ingress["tables"][0] |= {"base_default_next": None, "next_tables": {action["name"]: None}}
        ingress["init_table"] = name
        document["pipelines"][1]["tables"] = []

    numbers = one % (1 << 128), other % (1 << 128)
    frame = bytes([shift << 2]) + b"".join(each.to_bytes(16, "big") for each in numbers) + bytes(16)
    with running("path_truncate", change=change) as port:
        [answer] = port.ask(frame)
    return int.from_bytes(answer[-16:], "big")


@pytest.mark.parametrize("shift", [0, 3, 31, 32, 40, 63])
def test_a_constant_is_shifted_by_more_bits_than_an_int_has(shift):
    assert computed(operation(">>", constant(1000), field("shift")), shift) == 1000 >> shift


def test_a_choice_between_constants_is_shifted_by_more_bits_than_an_int_has():
    chosen = operation(
        "?", constant(1000), constant(7), operation("==", field("shift"), constant(33))
    )
    assert computed(operation(">>", chosen, field("shift")), 33) == 0


def test_a_sum_of_constants_that_an_int_does_not_hold_is_exact():
    chosen = operation(
        "?", constant((1 << 31) - 1), constant(7), operation("==", field("shift"), constant(5))
    )
    total = operation("+", chosen, constant((1 << 31) - 1))
    assert computed(operation("usat_cast", total, constant(40)), 5) == (1 << 32) - 2


def test_a_constant_that_is_shifted_to_the_right_may_become_small():
    shifted = operation(">>", constant(WIDE), field("shift"))
    unsigned = operation("&", field("one"), constant(2 * WIDE - 1))
    value = operation("usat_cast", operation("-", unsigned, shifted), constant(128))
    assert computed(value, 1, one=-1) == 2 * WIDE - 1 - (WIDE >> 1)


@pytest.mark.parametrize("op", ["&", "|", "^"])
@pytest.mark.parametrize(("one", "other"), [(-WIDE, WIDE - 1), (-5, 3), (WIDE - 1, -1)])
def test_bits_of_the_widest_signed_integers_are_combined(op, one, other):
    python = {"&": one & other, "|": one | other, "^": one ^ other}[op]
    combined = operation(op, field("one"), field("other"))
    value = operation("&", operation(">>", combined, field("shift")), constant((1 << 128) - 1))
    assert computed(value, 9, one, other) == (python >> 9) % (1 << 128)
