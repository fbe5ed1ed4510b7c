"""The loops that the generator makes from repeated steps. A trace goes step by step instead.

Random actions, most of which do the same to field after field, must have the same effect both ways.
"""

import contextlib
import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from one_port import ANSWERS_WITHIN, OnePort

from innet.p4.artifacts import artifact
from innet.switch import bmv2json
from innet.switch.codegen import generate
from innet.switch.engine import Engine
from innet.switch.ports import cpu_port

Json = dict[str, Any]

ACTIONS, ROUNDS, CELLS = 48, 11, 3
LINES = [[f"{line}_{k}" for k in range(ROUNDS + 1)] for line in "fg"]
FIELDS = ["action", "cell", "x", *LINES[0], *LINES[1]]
OTHERS = [
    *([f"short_{k}", 16, False] for k in range(ROUNDS + 1)),
    *([f"signed_{k}", 32, True] for k in range(ROUNDS)),
]
IN_HEADER = {*FIELDS, *(name for name, _, _ in OTHERS)}
FULL = {"type": "hexstr", "value": "0xffffffff"}
STANDARD = [
    ("ingress_port", 9), ("egress_spec", 9), ("egress_port", 9), ("instance_type", 32),
    ("packet_length", 32), ("enq_timestamp", 32), ("enq_qdepth", 19), ("deq_timedelta", 32),
    ("deq_qdepth", 19), ("ingress_global_timestamp", 48), ("egress_global_timestamp", 48),
    ("mcast_grp", 16), ("egress_rid", 16), ("checksum_error", 1), ("parser_error", 32),
    ("priority", 3),
]  # fmt: skip


def field(name: str) -> Json:
    return {"type": "field", "value": ["h" if name in IN_HEADER else "scalars", name]}


def op(operator: str, *operands: Json) -> Json:
    sides = ("cond", "left", "right") if operator == "?" else ("left", "right")
    value = {"op": operator, **dict(zip(sides, operands, strict=False))}
    return {"type": "expression", "value": value}


class Round:
    """A maker of one kind of round. Its rounds differ only in the operands that move along."""

    def __init__(self, seed: int, action: int, oddity: int | None) -> None:
        self._seed, self._action, self._oddity = seed, action, oddity

    def steps(self, number: int, first: int) -> list[Json]:
        self._random = random.Random(self._seed)
        self._odd = random.Random(number) if number == self._oddity else None
        self._number = number
        temporary = f"t{self._action}_{number}"
        made = [self._step(temporary, "assign")]
        for _ in range(self._random.randrange(1, 4)):
            if self._random.random() < 0.3:
                to = {"type": "hexstr", "value": hex(first + len(made) + 2)}
                made.append({"op": "_jump_if_zero", "parameters": [self._condition(), to]})
            target = self._random.choice([self._line(), temporary, "acc", "x"])
            made.append(
                self._step(target, self._random.choice(["assign", "assign", "read", "write"]))
            )
        if self._odd and self._odd.random() < 0.5:
            made[-1] = self._step("acc", "assign")
        return made

    def _step(self, target: str, kind: str) -> Json:
        cell = {"type": "register_array", "value": f"r_{self._number}"}
        if kind == "assign":
            return {"op": kind, "parameters": [field(target), op("&", self._value(2), FULL)]}
        if kind == "read":
            return {"op": "register_read", "parameters": [field(target), cell, field("cell")]}
        return {"op": "register_write", "parameters": [cell, field("cell"), self._value(1)]}

    def _line(self) -> str:
        off = int(self._odd is not None and self._odd.random() < 0.3)
        return self._random.choice(LINES)[self._number + off]

    def _value(self, depth: int) -> Json:
        if not depth or self._random.random() < 0.2:
            return self._operand()
        left, right = self._value(depth - 1), self._value(depth - 1)
        width = {"type": "hexstr", "value": "0x20"}
        match self._random.choice(["+", "-", "*", "&", "|", "^", "?", "saturate", "shift"]):
            case "?":
                return op("?", self._condition(), left, right)
            case "saturate":
                signed = (op("two_comp_mod", each, width) for each in (left, right))
                return op("sat_cast", op(self._random.choice("+-"), *signed), width)
            case "shift":
                by = {"type": "hexstr", "value": hex(self._random.randrange(32))}
                return op(self._random.choice(["<<", ">>"]), op("two_comp_mod", left, width), by)
            case operator:
                return op(operator, left, right)

    def _condition(self) -> Json:
        return op(self._random.choice(["<", ">", "=="]), self._operand(), self._operand())

    def _operand(self) -> Json:
        choice = self._random.randrange(6)
        constant = self._random.getrandbits(32)
        if choice == 0:  # one that differs in every round
            constant = random.Random(constant + self._number).getrandbits(32)
        if choice < 2:
            return {"type": "hexstr", "value": hex(constant)}
        line, temporary = self._line(), f"t{self._action}_{self._number}"
        return field([line, line, temporary, self._random.choice(["acc", "x"])][choice - 2])


@dataclass(frozen=True)
class WeightedSum:
    """An action that adds words times their weights to a field, and puts the sum into two fields."""

    words: str  # the line of the words
    total: str
    begins: bool  # with a number of its own, so that the total is the action's own variable
    bits: int = 64  # of the sum
    weights: int = ROUNDS  # different ones
    one_call: bool = False  # whether the generator has to make it one call

    def steps(self) -> list[Json]:
        mask = {"type": "hexstr", "value": hex((1 << self.bits) - 1)}
        chance = random.Random(0)
        weights = [chance.getrandbits(self.bits) for _ in range(self.weights)]
        total = field(self.total)
        steps = [{"op": "assign", "parameters": [total, field("x")]}] if self.begins else []
        for k in range(ROUNDS):
            weight = {"type": "hexstr", "value": hex(weights[k % len(weights)])}
            product = op("&", op("*", op("&", field(f"{self.words}_{k}"), mask), weight), mask)
            added = op("&", op("+", total, product), mask)
            steps.append({"op": "assign", "parameters": [total, added]})
        half = {"type": "hexstr", "value": hex(self.bits // 2)}
        for name, value in (("x", op(">>", total, half)), ("cell", total)):
            steps.append({"op": "assign", "parameters": [field(name), op("&", value, FULL)]})
        return steps


WEIGHTED_SUMS = [
    WeightedSum("f", "own", True, one_call=True),
    WeightedSum("g", "kept", False, one_call=True),
    WeightedSum("short", "own", True),
    WeightedSum("signed", "own", True),
    WeightedSum("f", "small", True, bits=32),
    WeightedSum("f", "own", True, weights=1),
]


def body(number: int) -> list[Json]:
    chance = random.Random(number)
    kind = Round(number, number, chance.choice([None, None, 0, 4, ROUNDS - 1]))
    steps: list[Json] = []
    for each in range(ROUNDS):
        steps += kind.steps(each, len(steps))
    if number < len(WEIGHTED_SUMS):
        steps = WEIGHTED_SUMS[number].steps()
    keep = {
        "op": "assign",
        "parameters": [field("x"), op("&", op("+", field("x"), field("acc")), FULL)],
    }
    out = {"type": "field", "value": ["standard_metadata", "egress_spec"]}
    return [*steps, keep, {"op": "assign", "parameters": [out, {"type": "hexstr", "value": "0x1"}]}]


def document() -> Json:
    temporaries = [f"t{action}_{k}" for action in range(ACTIONS) for k in range(ROUNDS)]
    words = [[name, 32, False] for name in (*temporaries, "acc", "small")]
    words += [[name, 64, False] for name in ("own", "kept")]
    types = [
        {"name": "standard", "id": 0, "fields": [[name, bits, False] for name, bits in STANDARD]},
        {"name": "scalars", "id": 1, "fields": words},
        {"name": "h", "id": 2, "fields": [*([name, 32, False] for name in FIELDS), *OTHERS]},
    ]
    numbers = range(ACTIONS)
    table = {
        "name": "choice", "id": 0, "match_type": "exact", "type": "simple", "max_size": ACTIONS,
        "key": [{"match_type": "exact", "name": "action", "target": ["h", "action"], "mask": None}],
        "action_ids": [*numbers], "actions": [f"a{n}" for n in numbers],
        "base_default_next": None, "next_tables": {f"a{n}": None for n in numbers},
        "default_entry": {"action_id": 0, "action_const": False, "action_data": []},
    }  # fmt: skip
    empty: Json = {"tables": [], "conditionals": [], "init_table": None}
    extract = {"op": "extract", "parameters": [{"type": "regular", "value": "h"}]}
    accept = [{"type": "default", "value": None, "mask": None, "next_state": None}]
    start = {"name": "start", "id": 0, "parser_ops": [extract], "transitions": accept}
    return {
        "header_types": types,
        "headers": [
            {"name": "scalars", "id": 0, "header_type": "scalars", "metadata": True},
            {"name": "standard_metadata", "id": 1, "header_type": "standard", "metadata": True},
            {"name": "h", "id": 2, "header_type": "h", "metadata": False},
        ],
        "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [start]}],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["h"]}],
        "actions": [
            {"name": f"a{n}", "id": n, "runtime_data": [], "primitives": body(n)} for n in numbers
        ],
        "register_arrays": [
            {"name": f"r_{k}", "id": k, "size": CELLS, "bitwidth": 32} for k in range(ROUNDS)
        ],
        "pipelines": [
            {"name": "ingress", "id": 0, **empty, "tables": [table], "init_table": "choice"},
            {"name": "egress", "id": 1, **empty},
        ],
    }


TEXT = json.dumps(document())


@contextlib.contextmanager
def running(*, tracing: bool) -> Iterator[OnePort]:
    port, cable = cpu_port(1)
    cable.settimeout(ANSWERS_WITHIN)
    engine = Engine(TEXT, tracing=tracing)
    for number in range(ACTIONS):
        engine.entries.insert("choice", [number], [0xFFFFFFFF], 1, number, [])
    with contextlib.closing(port), cable, contextlib.closing(engine):
        engine.start([port])
        yield OnePort(engine, cable)


def test_a_loop_does_what_its_steps_do_one_by_one(capfd: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(1)
    with running(tracing=False) as looped, running(tracing=True) as traced:
        for _ in range(4):
            for number in range(ACTIONS):
                words = [chance.getrandbits(chance.choice([3, 31, 32])) for _ in FIELDS]
                frame = struct.pack(
                    f">{len(FIELDS)}I", number, chance.randrange(CELLS + 1), *words[2:]
                ) + chance.randbytes(sum(bits for _, bits, _ in OTHERS) // 8)
                assert looped.ask(frame) == traced.ask(frame), body(number)
        for k in range(ROUNDS):
            name = f"r_{k}"
            assert looped.engine.arrays.register(name, 0, CELLS) == traced.engine.arrays.register(
                name, 0, CELLS
            )
    capfd.readouterr()  # the trace


def test_most_of_these_actions_are_loops() -> None:
    text = generate(bmv2json.load(TEXT))
    assert ACTIONS // 2 < text.count("for (uint32_t i = 0") < ACTIONS
    assert "for (uint32_t i = 0; i < 11" in text
    assert "for (uint32_t i = 0; i < 10" in text, "of an odd round at an end the others are a loop"


def test_weighted_sums_are_one_call() -> None:
    text = generate(bmv2json.load(TEXT))
    assert text.count("rt_weighted_sum(") == sum(each.one_call for each in WEIGHTED_SUMS)
    shipped = generate(bmv2json.load(artifact(64).json))
    assert shipped.count("rt_weighted_sum(") == 2, "of what comes in, and of what leaves"
