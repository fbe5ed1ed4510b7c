"""A small model of Tofino's pipeline. It executes the assembly that p4c-barefoot made of a program.

It executes the match-action stages: tables with their constant entries, gateways, actions, hashes
to an index, and the programs of the stateful ALUs, on the containers that the compiler chose. All
tables of a stage read the values from the stage's beginning. The caller provides parser and
deparser, and gets fields by name. `tofino_parser` is the parser.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

Bits = tuple[str, int, int]
"""A container, and the lowest and the highest bit of a part of it."""

_SLICE = r"(?:\((\d+)(?:\.\.(\d+))?\))?"
_OPERAND = re.compile(rf"^(.*?){_SLICE}$")
_CONTAINER = re.compile(r"^[TMD]?[WHB]\d+$")
_WIDTH = {"W": 32, "H": 16, "B": 8}


@dataclass
class Action:
    handle: int = 0
    next_table: int = 0
    aliases: dict[str, str] = field(default_factory=dict)
    instructions: list[str] = field(default_factory=list)


@dataclass
class Register:
    """A stateful table: its programs by name, and its cells."""

    width: int = 32
    inputs: dict[int, str] = field(default_factory=dict)
    programs: dict[str, list[str]] = field(default_factory=dict)
    cells: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))


@dataclass
class Table:
    name: str
    stage: int
    kind: str
    p4_name: str = ""
    keys: list[tuple[str, str]] = field(default_factory=list)  # field, name
    entries: list[tuple[dict[str, tuple[int, int]], int, dict[str, int]]] = field(
        default_factory=list
    )  # fields' values and masks, handle, parameters
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


class Pipe:
    """One direction of the pipeline, ingress or egress."""

    def __init__(self, assembly: str, gress: str) -> None:
        self.places: dict[str, list[tuple[range, Bits]]] = {}
        self.tables: dict[str, Table] = {}
        self.registers: dict[str, Register] = {}
        self.counters: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.order: list[Table] = []
        self._read_places(assembly, gress)
        self._read_tables(assembly, gress)

    # -- reading the assembly --------------------------------------------------------------------

    def _read_places(self, assembly: str, gress: str) -> None:
        text = re.search(rf"^phv {gress}:\n((?: .*\n)+)", assembly, re.MULTILINE)
        assert text
        pattern = rf"(?:stage ([\d.]+): )?\b([TMD]?[WHB]\d+){_SLICE}"
        for name, where in re.findall(r"^  ([\w.$-]+): (.*)$", text[1], re.MULTILINE):
            self.places[name] = []
            for stages, container, low, high in re.findall(pattern, where):
                first, dots, last = stages.partition("..") if stages else ("0", "..", "99")
                alive = range(int(first), int(last if dots else first) + 1)
                self.places[name].append((alive, _bits(container, low, high)))

    def _read_tables(self, assembly: str, gress: str) -> None:
        for stage, text in re.findall(
            rf"^stage (\d+) {gress}:\n((?: .*\n|\n)*)", assembly, re.MULTILINE
        ):
            blocks = re.split(r"^  (\w+) (\S+)(?: (\d+))?:\n", text, flags=re.MULTILINE)[1:]
            logical = []
            for kind, name, number, body in zip(*[iter(blocks)] * 4, strict=True):
                if kind == "stateful":
                    self.registers[name] = _register(body)
                elif kind in {"ternary_match", "exact_match", "hash_action", "gateway"}:
                    self.tables[name] = _table(Table(name, int(stage), kind), body)
                    logical.append((int(number), name))
                elif kind == "ternary_indirect":
                    table = self.tables[name.removesuffix("$tind")]
                    table.actions, table.default = _actions(body)
            self.order += [self.tables[name] for _, name in sorted(logical)]
            if moves := re.search(r"^  always_run_action:\n((?:    - .*\n)+)", text, re.MULTILINE):
                instructions = re.findall(r"^    - (.*)$", moves[1], re.MULTILINE)
                run = Action(instructions=instructions)
                self.order.append(Table("", int(stage), "action", actions={"": run}, always=True))
        self.first = self.order[0].name

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
        return sum(_get(phv, bits) << low for low, bits in self.pieces(name, stage))

    def put(self, phv: dict[str, int], name: str, value: int, stage: int = 0) -> None:
        for low, bits in self.pieces(name, stage):
            _put(phv, bits, value >> low)

    @cache  # noqa: B019
    def place(self, operand: str, stage: int) -> Bits:
        """Return the place of an operand: a container, a field or a slice of either."""
        name, low, high = _OPERAND.match(operand).groups()
        if _CONTAINER.match(name):
            return _bits(name, low or "", high or "")
        last = max(alive.stop for alive, _ in self.places[name]) - 1
        container, base, top = next(
            bits for alive, bits in self.places[name] if min(stage, last) in alive
        )
        if low is None:
            return container, base, top
        return container, base + int(low), base + int(high or low)

    # -- execution -------------------------------------------------------------------------------

    def run(self, phv: dict[str, int]) -> None:
        """Pass one packet through all stages. `phv` is its header vector, by container."""
        due, stage, before = {self.first}, 0, dict(phv)
        for table in self.order:
            if table.stage != stage:
                stage, before = table.stage, dict(phv)
            if table.always or table.name in due:
                due.update(re.findall(r"[\w.$-]+", self._apply(table, before, phv)))

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
        text = "\n".join(table.gate)
        where = re.search(r"^ *match: \{(.*)\}", text, re.MULTILINE)
        key, parts = 0, re.findall(r"(\d+): ([^,]+?)(?:,| *$)", where[1]) if where else []
        least = min((int(at) for at, _ in parts), default=0)
        for at, operand in parts:
            key |= _get(phv, self.place(operand.strip(), table.stage)) << int(at) - least
        rows = re.findall(
            r"^ *(0[xbo][\da-f*]+|miss):\n((?: +(?:next|run_table|action) ?:.*\n?)+)",
            text,
            re.MULTILINE,
        )
        for pattern, what in rows:
            if pattern == "miss" or _fits(key, pattern):
                found = dict(re.findall(r"(next|run_table|action) ?: *(\S+)", what))
                return {} if "run_table" in found and "action" not in found else found
        return {"next": "END"}

    def _match(self, table: Table, phv: dict[str, int]) -> tuple[str, dict[str, int]] | None:
        values = {name: self.get(phv, each, table.stage) for each, name in table.keys}
        for wanted, handle, parameters in table.entries:
            if all(values[name] & mask == value & mask for name, (value, mask) in wanted.items()):
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
        for line in action.instructions:
            if call := re.match(r"(\S+)\((\w+), \$hash_dist\)$", line):
                returned[call[1]] = self._stateful(table, self.registers[call[1]], call[2], before)
            elif call := re.match(r"(\S+\$stats\S+?)\((?:\$hash_dist|.*)\)$", line):
                self.counters[call[1].rpartition(".")[2]][self._index(table, before)] += 1
        for line in action.instructions:
            operation, _, rest = line.partition(" ")
            if operation not in {
                "set",
                "or",
                "xor",
                "and",
                "add",
                "deposit-field",
                "bitmasked-set",
            }:
                assert "$hash_dist" in line, line
                continue
            target, *sources = [each.strip() for each in rest.split(",")]
            to = self.place(target, table.stage + 1)
            got = [self._value(each, table, action, values, returned, before) for each in sources]
            if operation == "deposit-field":  # bits of the first, rotated; the rest of the second
                whole = _bits(to[0], "", "")
                first = got[0]
                if _CONTAINER.match(sources[0].partition("(")[0]):
                    source = self.place(sources[0], table.stage)
                    first = _rotated(before, source[0], source[1] - to[1]) >> to[1]
                _put(phv, whole, _get(before, _bits(sources[1].partition("(")[0], "", "")))
                _put(phv, to, first)
            elif operation == "bitmasked-set":
                data, mask = self._masked(action, to[2] + 1)
                _put(phv, to, got[1] & ~mask | data & mask)
            else:
                _put(
                    phv,
                    to,
                    {
                        "set": lambda a: a,
                        "or": lambda a, b: a | b,
                        "xor": lambda a, b: a ^ b,
                        "and": lambda a, b: a & b,
                        "add": lambda a, b: a + b,
                    }[operation](*got),
                )

    @staticmethod
    def _masked(action: Action, width: int) -> tuple[int, int]:
        """Return data and mask: bits of the action bus, at the container's own bit positions."""
        constants = action.aliases["$constants"]
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

    def _value(
        self,
        operand: str,
        table: Table,
        action: Action,
        values: dict[str, int],
        returned: dict[str, int],
        phv: dict[str, int],
    ) -> int:
        if re.fullmatch(r"-?\d+|0x[\da-f]+", operand):
            return int(operand, 0)
        name, low, _ = _OPERAND.match(operand).groups()
        if name in returned:
            return returned[name] >> int(low or 0)
        part = re.fullmatch(r"([\w$]+?)(?:_\d)?(?:\.(\d+)-\d+)?", name)
        if part and part[1] in values:
            return values[part[1]] >> int(part[2] or 0) >> int(low or 0)
        if name.startswith("$data"):
            constants = action.aliases["$constants"]
            fields, number = rf"{re.escape(name)}\((\d+)\.\.\d+\)", r"\$constant\d+: (\d+)"
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

    def _index(self, table: Table, phv: dict[str, int]) -> int:
        """Return the hash of the fields. In this program it is always their bits, in another order."""
        [bits] = [each for name, each in table.hashes.items() if name == "index"]
        return sum(_get(phv, self.place(each, table.stage)) << low for low, each in bits.items())

    def _stateful(self, table: Table, register: Register, program: str, phv: dict[str, int]) -> int:
        cell = register.cells[self._index(table, phv)]
        base = min(register.inputs, default=0) // 64 * 64
        words = [0, 0]
        for at, operand in register.inputs.items():
            offset = at - base
            words[offset // register.width] |= (
                _get(phv, self.place(operand, table.stage)) << offset % register.width
            )
        return execute(register.programs[program], cell, words, register.width)


def execute(program: list[str], cell: list[int], phv: list[int], width: int) -> int:
    """Run a stateful ALU's program on a cell's two words. Returns its output."""
    mask = (1 << width) - 1
    old, new, compared, out = list(cell), list(cell), [False, False], 0
    memory = {"lo": old[0], "hi": old[1]}

    def value(text: str) -> int:
        found = re.match(r"(-?)(phv_lo|phv_hi|lo|hi|-?\d+)(?:\((\d+)\.\.(\d+)\))?$", text)
        assert found, text
        sign, name, low, high = found.groups()
        number = (
            memory[name]
            if name in memory
            else phv[name == "phv_hi"]
            if name.startswith("phv")
            else int(name)
        )
        if low:
            number = number >> int(low) & (1 << int(high) - int(low) + 1) - 1
        return -number if sign else number

    outputs = []
    for line in program:
        operation, _, rest = line.partition(" ")
        operands = [each.strip() for each in rest.split(",")]
        if operation == "output":
            outputs.append(operands)
        elif operation in {"equ", "neq", "lss.u", "lss.s"}:
            total = sum(map(value, operands[1:]))
            which = operands[0] in {"hi", "cmp1"}
            compared[which] = {"equ": total == 0, "neq": total != 0, "lss.u": total < 0}[operation]
        else:
            if "cmp" in operands[0]:
                condition = (
                    operands.pop(0)
                    .replace("cmplo", str(compared[0]))
                    .replace("cmphi", str(compared[1]))
                    .replace("cmp0", str(compared[0]))
                    .replace("cmp1", str(compared[1]))
                    .replace("!", " not ")
                    .replace("&", " and ")
                    .replace("|", " or ")
                )
                if not eval(condition):  # noqa: S307 - nothing but True, False and operators
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


# -- the text ------------------------------------------------------------------------------------


def _table(table: Table, body: str) -> Table:
    if named := re.search(r"^    p4: \{ name: ([\w.]+)", body, re.MULTILINE):
        table.p4_name = named[1]
    if order := re.search(r"^    p4_param_order: \n((?:      .*\n)+)", body, re.MULTILINE):
        for name, rest in re.findall(r"^      (\S+): (\{.*\})", order[1], re.MULTILINE):
            called = re.search(r'key_name: "(\w+)"', rest)
            table.keys.append((name, called[1] if called else name))
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
    table.entries = list(_entries(body, [name for _, name in table.keys]))
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
            current.instructions.append(line.removeprefix("      - "))
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


def _bits(container: str, low: str, high: str) -> Bits:
    if low:
        return container, int(low), int(high or low)
    return container, 0, _WIDTH[container.lstrip("TMD")[0]] - 1


def _get(phv: dict[str, int], bits: Bits) -> int:
    container, low, high = bits
    return phv.get(container, 0) >> low & (1 << high - low + 1) - 1


def _rotated(phv: dict[str, int], container: str, right: int) -> int:
    bits = _bits(container, "", "")
    width, value = bits[2] + 1, _get(phv, bits)
    right %= width
    return (value >> right | value << width - right) & (1 << width) - 1


def _put(phv: dict[str, int], bits: Bits, value: int) -> None:
    container, low, high = bits
    mask = (1 << high - low + 1) - 1 << low
    phv[container] = phv.get(container, 0) & ~mask | value << low & mask


def _fits(key: int, pattern: str) -> bool:
    """Return whether a number matches a gateway's constant. Its digit ``*`` matches anything."""
    width = {"0x": 4, "0o": 3, "0b": 1}[pattern[:2]]
    digits = pattern[2:][::-1]
    return all(
        digit == "*" or key >> width * n & (1 << width) - 1 == int(digit, 1 << width)
        for n, digit in enumerate(digits)
    ) and not key >> width * len(digits)
