"""A small model of Tofino's pipeline. It executes the assembly that p4c-barefoot made of a program.

It executes the match-action stages: tables with their constant entries, gateways, actions, hashes
to an index, and the programs of the stateful ALUs, on the containers that the compiler chose. All
tables of a stage read the values from the stage's beginning. The caller provides parser and
deparser, and gets fields by name. `tofino_parser` is the parser.
"""

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from tofino_alu import execute
from tofino_assembly import (
    SLICE,
    Action,
    Bits,
    Table,
    bits_of,
    pattern_bits,
    read_places,
    read_tables,
)

_OPERAND = re.compile(rf"^(.*?){SLICE}$")
_CONTAINER = re.compile(r"^[TMD]?[WHB]\d+$")

Reader = Callable[[dict[str, int]], int]
"""A function that reads a number from the containers."""


class Pipe:
    """One direction of the pipeline, ingress or egress."""

    def __init__(self, assembly: str, gress: str) -> None:
        self.places = read_places(assembly, gress)
        self.tables, self.registers, self.order = read_tables(assembly, gress)
        self.first = self.order[0].name
        self.counters: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))

    # -- fields and containers -------------------------------------------------------------------

    @cache  # noqa: B019 - a test's pipe does not outlive it by much
    def pieces(self, name: str, stage: int) -> list[tuple[int, Bits]]:
        """Return the places of a field's parts, each with the lowest bit of the part."""
        found = []
        for each, places in self.places.items():
            part = re.fullmatch(re.escape(name) + r"(?:\.(\d+)-\d+)?", each)
            if part:
                last = max(alive.stop for alive, _ in places) - 1
                at = min(stage, last)
                found += [(int(part[1] or 0), bits) for alive, bits in places if at in alive]
        return found

    def get(self, phv: dict[str, int], name: str, stage: int) -> int:
        return self._field(name, stage)(phv)

    def put(self, phv: dict[str, int], name: str, value: int, stage: int = 0) -> None:
        for low, bits in self.pieces(name, stage):
            _put(phv, bits, value >> low)

    @cache  # noqa: B019
    def covered(self, name: str, stage: int) -> int:
        """Return the bits of a field that are in containers."""
        found = 0
        for low, (_, first, last) in self.pieces(name, stage):
            found |= (1 << last - first + 1) - 1 << low
        return found

    @cache  # noqa: B019
    def place(self, operand: str, stage: int) -> Bits:
        """Return the place of an operand: a container, a field or a slice of either."""
        name, low, high = _OPERAND.match(operand).groups()
        if _CONTAINER.match(name):
            return bits_of(name, low or "", high or "")
        last = max(alive.stop for alive, _ in self.places[name]) - 1
        container, base, top = next(
            bits for alive, bits in self.places[name] if min(stage, last) in alive
        )
        if low is None:
            return container, base, top
        return container, base + int(low), base + int(high or low)

    @cache  # noqa: B019
    def _field(self, name: str, stage: int) -> Reader:
        """Return the reader of a field."""
        return _reader(self.pieces(name, stage))

    @cache  # noqa: B019
    def _keys(self, table: str) -> Reader:
        """Return the reader of all keys of a table, as one number."""
        return _reader(self._key_parts(self.tables[table]))

    def _key_parts(self, table: Table) -> Iterator[tuple[int, Bits]]:
        at = 0
        for key in table.keys:
            for low, (container, first, last) in self.pieces(key.field, table.stage):
                begin = max(low, key.low)
                end = min(low + last - first, key.low + key.size - 1)
                if begin <= end:
                    yield at + begin - key.low, (container, first + begin - low, first + end - low)
            at += key.size

    @cache  # noqa: B019
    def _gate(self, table: str) -> tuple[Reader, list[tuple[str, dict[str, str]]]]:
        """Return the reader of the key of a table's gateway, and the verdicts."""
        it = self.tables[table]
        parts, rows = _gateway(it.gate)
        return _reader((low, self.place(each, it.stage)) for low, each in parts), rows

    @cache  # noqa: B019
    def _hash(self, table: str) -> Reader:
        """Return the reader of a hash. In this program it is always bits of fields, in another order."""
        it = self.tables[table]
        bits = it.hashes["index"]
        return _reader((low, self.place(each, it.stage)) for low, each in bits.items())

    @cache  # noqa: B019
    def _inputs(self, register: str, stage: int) -> list[Reader]:
        """Return the readers of the two words that a stateful ALU gets."""
        it = self.registers[register]
        base = min(it.inputs, default=0) // 64 * 64
        parts: list[list[tuple[int, Bits]]] = [[], []]
        for at, operand in it.inputs.items():
            word, offset = divmod(at - base, it.width)
            parts[word].append((offset, self.place(operand, stage)))
        return [_reader(each) for each in parts]

    # -- execution -------------------------------------------------------------------------------

    def run(self, phv: dict[str, int]) -> None:
        """Pass one packet through all stages. `phv` is its header vector, by container."""
        due, stage, before = {self.first}, 0, dict(phv)
        for table in self.order:
            if table.stage != stage:
                stage, before = table.stage, dict(phv)
            if table.always or table.name in due:
                due.update(_names(self._apply(table, before, phv)))

    def _apply(self, table: Table, before: dict[str, int], phv: dict[str, int]) -> str:
        """Apply one table. Returns the names of the next tables to run."""
        verdict = self._gateway(table, before)
        if action := verdict.get("action"):
            self._act(
                table,
                next(each for each in table.actions if each.replace(".", "_").endswith(action)),
                {},
                before,
                phv,
            )
        if table.counts:
            if "next" in verdict:
                self._act(table, table.default, {}, before, phv)
            return verdict.get("next", table.miss)
        if "next" in verdict:
            return verdict["next"]
        entry = self._match(table, before)
        name, values = entry or (table.default, {})
        self._act(table, name, values, before, phv)
        if entry or not table.keys:
            return table.hit[table.actions[name].next_table] if table.hit else table.miss
        return table.miss

    def _gateway(self, table: Table, phv: dict[str, int]) -> dict[str, str]:
        if not table.gate:
            return {}
        read, rows = self._gate(table.name)
        key = read(phv)
        for pattern, verdict in rows:
            if pattern == "miss" or _fits(key, pattern):
                return verdict
        return {"next": "END"}

    def _match(self, table: Table, phv: dict[str, int]) -> tuple[str, dict[str, int]] | None:
        if not table.entries:
            return None
        keys = self._keys(table.name)(phv)
        for value, mask, handle, parameters in table.entries:
            if not (keys ^ value) & mask:
                return table.action(handle), parameters
        return None

    def _act(
        self,
        table: Table,
        name: str,
        values: dict[str, int],
        before: dict[str, int],
        phv: dict[str, int],
    ) -> None:
        action, returned = table.actions[name], {}
        calls, assignments = _program(action.instructions)
        for register, program, counter in calls:
            if register:
                returned[register] = self._stateful(table, register, program, before)
            else:
                self.counters[counter][self._hash(table.name)(before)] += 1
        for operation, target, sources in assignments:
            to = self.place(target, table.stage + 1)
            got = [self._value(each, table, action, values, returned, before) for each in sources]
            if operation == "deposit-field":  # bits of the first, rotated; the rest of the second
                whole = bits_of(to[0], "", "")
                first = got[0]
                if _CONTAINER.match(sources[0].partition("(")[0]):
                    source = self.place(sources[0], table.stage)
                    first = _rotated(before, source[0], source[1] - to[1]) >> to[1]
                elif skipped := re.match(r"\$data\d+\((\d+)", sources[0]):
                    data = sources[0].partition("(")[0]
                    aside = {"W": self._value(data, table, action, values, returned, before)}
                    first = _rotated(aside, "W", int(skipped[1]) - to[1]) >> to[1]
                _put(phv, whole, _get(before, bits_of(sources[1].partition("(")[0], "", "")))
                _put(phv, to, first)
            elif operation == "bitmasked-set":
                data, mask = _masked(action.aliases["$constants"], to[2] + 1)
                _put(phv, to, got[1] & ~mask | data & mask)
            else:
                _put(phv, to, _OPERATIONS[operation](*got))

    def _value(
        self,
        operand: str,
        table: Table,
        action: Action,
        values: dict[str, int],
        returned: dict[str, int],
        phv: dict[str, int],
    ) -> int:
        number, name, low, parameter, skipped = _operand(operand)
        if number is not None:
            return number
        if name in returned:
            return returned[name] >> low
        if parameter in values:
            return values[parameter] >> skipped >> low
        if name.startswith("$data"):
            constants = action.aliases["$constants"]
            fields, number = rf"{re.escape(name)}\((\d+)\.\.\d+\)", r"\$constant\w+: (\d+)"
            packed = [
                (values[each], at)
                for each, at in re.findall(rf"(\w+?)_\d: {fields}", constants)
                if each in values
            ]
            packed += [
                (int(value), at) for at, value in re.findall(f"{fields}, {number}", constants)
            ]
            return sum(value << int(at) for value, at in packed)
        if name.startswith("$constant"):
            [value] = re.findall(re.escape(name) + r": (\d+)", action.aliases["$constants"])
            return int(value)
        return _get(phv, self.place(operand, table.stage))

    def _stateful(self, table: Table, register: str, program: str, phv: dict[str, int]) -> int:
        it = self.registers[register]
        words = [read(phv) for read in self._inputs(register, table.stage)]
        cell = it.cells[self._hash(table.name)(phv)]
        return execute(it.programs[program], cell, words, it.width)


# -- the text of instructions --------------------------------------------------------------------

_OPERATIONS = {
    "set": lambda a: a,
    "or": operator.or_,
    "xor": operator.xor,
    "and": operator.and_,
    "add": operator.add,
}


@cache
def _names(text: str) -> list[str]:
    return re.findall(r"[\w.$-]+", text)


def _gateway(
    lines: list[str],
) -> tuple[list[tuple[int, str]], list[tuple[str, dict[str, str]]]]:
    """Return the operands that form a gateway's key, each with its lowest bit, and the verdicts."""
    text = "\n".join(lines)
    where = re.search(r"^ *match: \{(.*)\}", text, re.MULTILINE)
    parts = re.findall(r"(\d+): ([^,]+?)(?:,| *$)", where[1]) if where else []
    least = min((int(at) for at, _ in parts), default=0)
    rows = []
    for pattern, what in re.findall(
        r"^ *(0[xbo][\da-f*]+|miss):\n((?: +(?:next|run_table|action) ?:.*\n?)+)",
        text,
        re.MULTILINE,
    ):
        found = dict(re.findall(r"(next|run_table|action) ?: *(\S+)", what))
        rows.append((pattern, {} if "run_table" in found and "action" not in found else found))
    return [(int(at) - least, operand.strip()) for at, operand in parts], rows


@cache
def _program(
    instructions: tuple[str, ...],
) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, list[str]]]]:
    """Return an action's calls, and its assignments."""
    calls = [each for each in map(_call, instructions) if any(each)]
    return calls, [each for each in map(_assignment, instructions) if each[0]]


def _call(line: str) -> tuple[str, str, str]:
    """Return the register and the program that an instruction runs, or the counter that it counts."""
    if call := re.match(r"(\S+)\((\w+), \$hash_dist\)$", line):
        return call[1], call[2], ""
    if call := re.match(r"(\S+\$stats\S+?)\((?:\$hash_dist|.*)\)$", line):
        return "", "", call[1].rpartition(".")[2]
    return "", "", ""


def _assignment(line: str) -> tuple[str, str, list[str]]:
    """Return an instruction's operation, target and sources. Those of a call are empty."""
    operation, _, rest = line.partition(" ")
    if operation not in {*_OPERATIONS, "deposit-field", "bitmasked-set"}:
        assert "$hash_dist" in line, line
        return "", "", []
    target, *sources = [each.strip() for each in rest.split(",")]
    return operation, target, sources


@cache
def _operand(text: str) -> tuple[int | None, str, int, str | None, int]:
    """Return the number that an operand is, or its name and lowest bit, and the parameter it may be."""
    if re.fullmatch(r"-?\d+|0x[\da-f]+", text):
        return int(text, 0), "", 0, None, 0
    name, low, _ = _OPERAND.match(text).groups()
    part = re.fullmatch(r"([\w$]+?)(?:_\d)?(?:\.(\d+)-\d+)?", name)
    return None, name, int(low or 0), part and part[1], int((part and part[2]) or 0)


@cache
def _masked(constants: str, width: int) -> tuple[int, int]:
    """Return data and mask: bits of the action bus, at the container's own bit positions."""
    found = {"data": 0, "mask": 0}
    first = {
        kind: int(low) % width
        for kind, low in re.findall(r"\$(data|mask)0: immediate\((\d+)\.\.", constants)
    }
    for kind, low, value in re.findall(
        r"\$(data|mask)0\((\d+)\.\.\d+\), \$constant\d+: (\d+)", constants
    ):
        found[kind] |= int(value) << int(low) + first[kind]
    return found["data"], found["mask"]


# -- containers ----------------------------------------------------------------------------------


def _reader(parts: Iterable[tuple[int, Bits]]) -> Reader:
    """Return the reader of a number that has parts in these places, each with the part's lowest bit.

    It is compiled, because most of the model's time goes to such reading.
    """
    terms = [
        f"(phv.get({container!r}, 0) >> {low} & {(1 << high - low + 1) - 1}) << {at}"
        for at, (container, low, high) in parts
    ]
    return eval(f"lambda phv: {' | '.join(terms) or 0}")  # noqa: S307 - of names and numbers


def _get(phv: dict[str, int], bits: Bits) -> int:
    container, low, high = bits
    return phv.get(container, 0) >> low & (1 << high - low + 1) - 1


def _rotated(phv: dict[str, int], container: str, right: int) -> int:
    bits = bits_of(container, "", "")
    width, value = bits[2] + 1, _get(phv, bits)
    right %= width
    return (value >> right | value << width - right) & (1 << width) - 1


def _put(phv: dict[str, int], bits: Bits, value: int) -> None:
    container, low, high = bits
    mask = (1 << high - low + 1) - 1 << low
    phv[container] = phv.get(container, 0) & ~mask | value << low & mask


def _fits(key: int, pattern: str) -> bool:
    """Return whether a number matches a gateway's constant."""
    value, mask, width = pattern_bits(pattern)
    return not (key ^ value) & mask and not key >> width
