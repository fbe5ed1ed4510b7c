"""The assembly that p4c-barefoot made of a program: its tables, registers, and places of fields."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

Bits = tuple[str, int, int]
"""A container, and the lowest and the highest bit of a part of it."""

SLICE = r"(?:\((\d+)(?:\.\.(\d+))?\))?"
_WIDTH = {"W": 32, "H": 16, "B": 8}


@dataclass
class Action:
    handle: int = 0
    next_table: int = 0
    aliases: dict[str, str] = field(default_factory=dict)
    instructions: tuple[str, ...] = ()


@dataclass
class Register:
    """A stateful table: its programs by name, and its cells."""

    width: int = 32
    inputs: dict[int, str] = field(default_factory=dict)
    programs: dict[str, list[str]] = field(default_factory=dict)
    cells: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))


@dataclass(frozen=True)
class Key:
    """A key of a table: `size` bits of a field, from bit `low` on, under a name of its own."""

    field: str
    name: str
    low: int
    size: int


@dataclass
class Table:
    name: str
    stage: int
    kind: str
    p4_name: str = ""
    keys: list[Key] = field(default_factory=list)
    entries: list[tuple[int, int, int, dict[str, int]]] = field(
        default_factory=list
    )  # value and mask of all keys, see add(); handle, parameters
    actions: dict[str, Action] = field(default_factory=dict)
    default: str = ""
    hit: list[str] = field(default_factory=list)
    miss: str = "END"
    gate: list[str] = field(default_factory=list)
    hashes: dict[str, dict[int, str]] = field(default_factory=dict)
    always: bool = False
    counts: bool = False  # its gateway's payload runs its action where the gateway ends the table

    def action(self, handle: int) -> str:
        return next(name for name, each in self.actions.items() if each.handle == handle)

    def add(
        self, wanted: dict[str, tuple[int, int]], handle: int, parameters: dict[str, int]
    ) -> None:
        """Add an entry. `wanted` has the values and masks of keys.

        An entry holds all keys as one number, so that one comparison shows whether it matches. The first
        key has the lowest bits.
        """
        names = [each.name for each in self.keys]
        assert len({*names}) == len(names)
        assert wanted.keys() <= {*names}, wanted
        all_values = all_masks = at = 0
        for each in self.keys:
            value, mask = wanted.get(each.name, (0, 0))
            assert not (value & mask) >> each.size, (each, value)
            all_values |= (value & mask) << at
            all_masks |= (mask & (1 << each.size) - 1) << at
            at += each.size
        self.entries.append((all_values, all_masks, handle, parameters))


# -- the text ------------------------------------------------------------------------------------


def read_places(assembly: str, gress: str) -> dict[str, list[tuple[range, Bits]]]:
    """Return each field's containers, with the stages in which it is there."""
    text = re.search(rf"^phv {gress}:\n((?: .*\n)+)", assembly, re.MULTILINE)
    assert text
    pattern = rf"(?:stage ([\d.]+): )?\b([TMD]?[WHB]\d+){SLICE}"
    found: dict[str, list[tuple[range, Bits]]] = {}
    for name, where in re.findall(r"^  ([\w.$-]+): (.*)$", text[1], re.MULTILINE):
        found[name] = []
        for stages, container, low, high in re.findall(pattern, where):
            first, dots, last = stages.partition("..") if stages else ("0", "..", "99")
            alive = range(int(first), int(last if dots else first) + 1)
            found[name].append((alive, bits_of(container, low, high)))
    return found


def read_tables(
    assembly: str, gress: str
) -> tuple[dict[str, Table], dict[str, Register], list[Table]]:
    """Return the tables and the stateful tables by name, and all tables in their order."""
    tables: dict[str, Table] = {}
    registers: dict[str, Register] = {}
    order: list[Table] = []
    for stage, text in re.findall(
        rf"^stage (\d+) {gress}:\n((?: .*\n|\n)*)", assembly, re.MULTILINE
    ):
        blocks = re.split(r"^  (\w+) (\S+)(?: (\d+))?:\n", text, flags=re.MULTILINE)[1:]
        logical = []
        for kind, name, number, body in zip(*[iter(blocks)] * 4, strict=True):
            if kind == "stateful":
                registers[name] = _register(body)
            elif kind in {"ternary_match", "exact_match", "hash_action", "gateway"}:
                tables[name] = _table(Table(name, int(stage), kind), body)
                logical.append((int(number), name))
            elif kind == "ternary_indirect":
                table = tables[name.removesuffix("$tind")]
                table.actions, table.default = _actions(body)
        order += [tables[name] for _, name in sorted(logical)]
        if moves := re.search(r"^  always_run_action:\n((?:    - .*\n)+)", text, re.MULTILINE):
            instructions = tuple(re.findall(r"^    - (.*)$", moves[1], re.MULTILINE))
            run = Action(instructions=instructions)
            order.append(Table("", int(stage), "action", actions={"": run}, always=True))
    return tables, registers, order


def _keys(order: str) -> Iterator[Key]:
    """Yield the keys of a table from its lines ``p4_param_order``."""
    for field_name, rest in re.findall(r"^      (\S+): (\{.*\})", order, re.MULTILINE):
        called = re.search(r'key_name: "(\w+)"', rest)
        low, size = (re.search(rf"\b{word}: (\d+)", rest) for word in ("start_bit", "size"))
        name = called[1] if called else field_name
        yield Key(field_name, name, int(low[1]) if low else 0, int(size[1]))


def _table(table: Table, body: str) -> Table:
    if named := re.search(r"^    p4: \{ name: ([\w.]+)", body, re.MULTILINE):
        table.p4_name = named[1]
    if order := re.search(r"^    p4_param_order: \n((?:      .*\n)+)", body, re.MULTILINE):
        table.keys = [*_keys(order[1])]
    table.always = "    always_run: true\n" in body
    if enabled := re.search(
        r"^      payload: (\w+)\n.*counter_pfe(?:\(0\))?: (\d+)", body, re.MULTILINE
    ):
        table.counts = bool(int(enabled[1], 0) >> int(enabled[2]) & 1)
    if table.kind == "gateway":
        table.gate = body.splitlines()
    elif gate := re.search(r"^    gateway:\n((?:      .*\n)+)", body, re.MULTILINE):
        table.gate = gate[1].splitlines()
    if after := re.search(r"^    (?:hit|next): +\[?([^\]\n]*)\]?", body, re.MULTILINE):
        table.hit = [each.strip() for each in after[1].split(",")]
    if after := re.search(r"^    (?:miss|next): +(\S+)", body, re.MULTILINE):
        table.miss = after[1]
    table.actions, table.default = _actions(body)
    for entry in _entries(body, [each.name for each in table.keys]):
        table.add(*entry)
    # The index comes from the hash distribution unit's hash group: one of three parts of 16 bits.
    if unit := re.search(r"^    hash_dist:\n      (\d+): \{ hash: (\d+)", body, re.MULTILINE):
        first = int(unit[1]) % 3 * 16
        group = re.search(
            rf"^      hash group {unit[2]}:\n        table: \[(\d+)\]", body, re.MULTILINE
        )
        bits = re.search(rf"^      hash {group[1]}:\n((?:        \d.*\n)+)", body, re.MULTILINE)
        table.hashes["index"] = {
            int(low) - first: each
            for low, each in re.findall(r"^ +(\d+)(?:\.\.\d+)?: (\S+)$", bits[1], re.MULTILINE)
        }
    return table


def _entries(
    body: str, keys: list[str]
) -> Iterator[tuple[dict[str, tuple[int, int]], int, dict[str, int]]]:
    """Yield constant entries. Their fields are in the keys' order, sometimes under other names."""
    for text in re.split(r"^      - priority: \d+\n", body, flags=re.MULTILINE)[1:]:
        found = re.findall(r'field_name: \S+\n +value: "(\w+)"(?:\n +mask: "(\w+)")?', text)
        values = [(int(value, 0), int(mask, 0) if mask else -1) for value, mask in found]
        wanted = dict(zip(keys, values, strict=True))
        handle = int(re.search(r"action_handle: (\w+)", text)[1], 0)
        given = re.findall(r'parameter_name: (\S+)\n +value: "(\w+)"', text)
        yield wanted, handle, {name: int(value, 0) for name, value in given}


def _actions(body: str) -> tuple[dict[str, Action], str]:
    found: dict[str, Action] = {}
    part = re.search(r"^    actions:\n((?:      .*\n)+)", body, re.MULTILINE)
    current = Action()
    for line in part[1].splitlines() if part else ():
        if named := re.match(r"      ([\w.$]+)\(.*\):$", line):
            current = found[named[1]] = Action()
        elif told := re.match(r"      - (handle|next_table): (\w+)$", line):
            setattr(current, told[1], int(told[2], 0))
        elif line.startswith("      - {"):
            current.aliases["$constants"] = line
        elif not re.match(
            r"      - (hit_allowed|default_action|p4_param_order|next_table_miss):", line
        ):
            current.instructions += (line.removeprefix("      - "),)
    default = re.search(r"^    default_action: (\S+)", body, re.MULTILINE)
    return found, default[1] if default else ""


def _register(body: str) -> Register:
    made = Register(width=int(re.search(r"format: \{ *lo: (\d+)", body)[1]))
    if group := re.search(r"exact group \d+: \{(.*)\}", body):
        made.inputs = {
            int(at): name.strip() for at, name in re.findall(r"(\d+): ([^,]+)", group[1])
        }
    current: list[str] = []
    for line in re.search(r"^    actions:\n((?:      .*\n)+)", body, re.MULTILINE)[1].splitlines():
        if line.startswith("      - "):
            current.append(line.removeprefix("      - "))
        else:
            current = made.programs[line.strip().removesuffix(":")] = []
    return made


def bits_of(container: str, low: str, high: str) -> Bits:
    if low:
        return container, int(low), int(high or low)
    return container, 0, _WIDTH[container.lstrip("TMD")[0]] - 1


@cache
def pattern_bits(pattern: str) -> tuple[int, int, int]:
    """Return a constant's value, mask and width in bits. Its digit ``*`` matches anything."""
    width = {"0x": 4, "0o": 3, "0b": 1}[pattern[:2]]
    value = mask = 0
    for digit in pattern[2:]:
        value, mask = value << width, mask << width
        if digit != "*":
            value |= int(digit, 1 << width)
            mask |= (1 << width) - 1
    return value, mask, width * len(pattern[2:])
