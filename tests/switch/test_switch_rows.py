"""Registers whose index a step of the same action changes: the row is not looked up before that step."""

from typing import Any

from one_port import running

Json = dict[str, Any]

CELLS = "cells"
MARK = 7


def write_behind(document: Json, action: str, header: str, field: str) -> None:
    """Let an action's first step be followed by a write to the cell that a field selects."""
    [register] = document["register_arrays"] = [
        {"name": CELLS, "id": 0, "size": 16, "bitwidth": 32}
    ]
    [steps] = [each["primitives"] for each in document["actions"] if each["name"] == action]
    steps[1:] = [
        {
            "op": "register_write",
            "parameters": [
                {"type": "register_array", "value": register["name"]},
                {"type": "field", "value": [header, field]},
                {"type": "hexstr", "value": hex(MARK)},
            ],
        }
    ]


def test_an_index_in_a_stack_of_unions_is_read_after_the_stack_has_moved() -> None:
    pop, short = 4, 1

    def change(document: Json) -> None:
        write_behind(document, "Inward.pop", "options[0].s", "value")

    with running("parse_union_stack", change=change) as port:
        port.ask(bytes([pop, 0, 0, 0, short, short, 0, 0, short, 3, short, 9]))
        cells = port.engine.arrays.register(CELLS, 0, 16)
    assert cells == [0] * 9 + [MARK] + [0] * 6


def test_an_index_that_a_drop_changes_is_read_after_the_drop() -> None:
    """The port of dropped packets, 511, selects no cell. The one before, 1, would."""

    def change(document: Json) -> None:
        write_behind(document, "TallyIngress.refuse", "standard_metadata", "egress_spec")
        for action in document["actions"]:
            if action["name"] != "TallyIngress.refuse":
                action["primitives"] = [
                    each for each in action["primitives"] if "register" not in each["op"]
                ]

    ethernet = bytes(12) + b"\x88\xb5"
    refuse, add = (ethernet + bytes([operation]) + bytes(12) for operation in (99, 1))
    with running("tally", change=change) as port:
        port.lose(refuse)
        port.ask(add)
        cells = port.engine.arrays.register(CELLS, 0, 16)
    assert cells == [0] * 16
