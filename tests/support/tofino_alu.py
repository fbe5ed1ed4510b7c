"""The programs of Tofino's stateful ALUs."""

import re
from collections.abc import Callable
from functools import cache


def execute(program: list[str], cell: list[int], phv: list[int], width: int) -> int:
    """Run a stateful ALU's program on a cell's two words. Returns its output."""
    mask = (1 << width) - 1
    old, new, compared, out = list(cell), list(cell), [False, False], 0
    memory = {"lo": old[0], "hi": old[1]}

    def value(text: str) -> int:
        sign, name, low, mask = _operand(text)
        number = (
            memory[name]
            if name in memory
            else phv[name == "phv_hi"]
            if name.startswith("phv")
            else int(name)
        )
        return sign * (number >> low & mask)

    outputs = []
    for line in program:
        operation, operands = _instruction(line)
        if operation == "output":
            outputs.append(operands)
        elif operation in {"equ", "neq", "lss.u", "lss.s"}:
            total = sum(map(value, operands[1:]))
            which = operands[0] in {"hi", "cmp1"}
            compared[which] = {"equ": total == 0, "neq": total != 0, "lss.u": total < 0}[operation]
        else:
            if "cmp" in operands[0]:
                condition, *operands = operands
                if not _condition(condition)(*compared):
                    continue
            target, got = operands[0] == "hi", [value(each) for each in operands[1:]]
            new[target] = _ALU[operation](*got, width) & mask
    cell[:] = new
    for operands in outputs:
        # Tofino 2 names its outputs. The second is in the third part of the action bus's word.
        at = 64 if operands[0] == "word1" else 0
        found = {
            "mem_lo": old[0],
            "mem_hi": old[1],
            "alu_lo": new[0],
            "alu_hi": new[1],
            "predicate": 16 << compared[0] + 2 * compared[1],
        }[operands[-1]]
        out |= found << at
    return out


@cache
def _instruction(line: str) -> tuple[str, list[str]]:
    operation, _, rest = line.partition(" ")
    return operation, [each.strip() for each in rest.split(",")]


@cache
def _condition(text: str) -> Callable[[bool, bool], bool]:
    """Return a condition as a function of what the two comparisons have found."""
    for each, name in (("cmplo", "low"), ("cmphi", "high"), ("cmp0", "low"), ("cmp1", "high")):
        text = text.replace(each, name)
    text = text.replace("!", " not ").replace("&", " and ").replace("|", " or ")
    return eval(f"lambda low, high: {text}")  # noqa: S307 - nothing but names and operators


@cache
def _operand(text: str) -> tuple[int, str, int, int]:
    """Return an operand's sign, its name or number, and its lowest bit and mask."""
    found = re.match(r"(-?)(phv_lo|phv_hi|lo|hi|-?\d+)(?:\((\d+)\.\.(\d+)\))?$", text)
    assert found, text
    sign, name, low, high = found.groups()
    mask = (1 << int(high) - int(low) + 1) - 1 if low else -1
    return -1 if sign else 1, name, int(low or 0), mask


def _signed(value: int, width: int) -> int:
    return (value & (1 << width) - 1) - (value >> width - 1 & 1) * (1 << width)


def _saturated(value: int, width: int) -> int:
    return max(-(1 << width - 1), min((1 << width - 1) - 1, value))


_ALU = {
    "alu_a": lambda a, _: a,
    "alu_b": lambda b, _: b,
    "add": lambda a, b, _: a + b,
    "or": lambda a, b, _: a | b,
    "sadds": lambda a, b, w: _saturated(_signed(a, w) + _signed(b, w), w),
    "maxs": lambda a, b, w: max(_signed(a, w), _signed(b, w)),
    "ssubu": lambda a, b, _: max(0, a - b),
}
