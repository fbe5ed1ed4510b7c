"""From the intermediate form to C.

The generated file reads top down like the P4 program: headers, registers, actions, parser,
checksums, pipelines, deparser, and `program_process`, which walks one packet through all of them.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.expressions import Expressions

_STANDARD = "standard_metadata"
_NO_ACTION = 0xFFFFFFFF
_KEY_WORD = 8
_SHORTEST_RUN = 4


def generate(program: ir.Program) -> str:
    """The program as the text of a C file that includes ``runtime.h``."""
    return _Generator(program).text()


def key_sizes(table: ir.Table) -> tuple[int, ...]:
    """Bytes of each component of a table's key, little-endian: 1, 2, 4, 8 or 16."""
    return tuple(storage_bits(key.bits) // 8 for key in table.keys)


def key_bytes(table: ir.Table) -> int:
    """Bytes of a table's whole key, padded to 64-bit words."""
    return -(-sum(key_sizes(table)) // _KEY_WORD) * _KEY_WORD


def storage_bits(bits: int) -> int:
    """Bits of the C integer that holds `bits` bits."""
    return next(size for size in (8, 16, 32, 64, 128) if size >= bits)


@dataclass(frozen=True)
class _Bank:
    """Registers of one size, side by side: what one index touches lies together."""

    number: int
    size: int
    registers: tuple[ir.Register, ...]


class _Generator:
    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.depth = 0
        self.expressions = Expressions(program, self.place)
        self.headers = {header.name: header for header in program.headers}
        self.actions = {action.id: action for action in program.actions}
        self.counters = {counter.name: i for i, counter in enumerate(program.counters)}
        self.banks = _banks(program.registers)
        self.bank_of = {each.name: bank for bank in self.banks for each in bank.registers}
        self.rows: dict[tuple[int, ir.Expr], str] = {}

    def text(self) -> str:
        self.emit('#include "runtime.h"', "")
        for part in (
            self.packet_struct,
            self.state_struct,
            self.action_functions,
            self.parser,
            self.verification,
            self.update,
            self.deparser,
        ):
            part()
        self.pipeline("ingress", self.program.ingress)
        self.pipeline("egress", self.program.egress)
        self.process()
        self.description()
        return "\n".join(self.lines) + "\n"

    # -- text ------------------------------------------------------------------------------------

    def emit(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line if line else "" for line in lines]

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        self.emit(opening + " {")
        self.depth += 1
        yield
        self.depth -= 1
        self.emit(closing)

    def place(self, ref: ir.FieldRef) -> str:
        if ref.field == ir.VALID:
            return f"p->m.valid.{_c(ref.header)}"
        inner = "m." if self.headers[ref.header].metadata else ""
        return f"p->{inner}{_c(ref.header)}.{_c(ref.field)}"

    def standard(self, field: str) -> str:
        return f"p->m.{_STANDARD}.{field}"

    # -- data ------------------------------------------------------------------------------------

    def packet_struct(self) -> None:
        """Metadata and validity come first: they are what is cleared for every packet."""
        with self.block("struct phv", "};"):
            with self.block("struct", "} m;"):
                for header in self.program.headers:
                    if header.metadata:
                        self.header_struct(header)
                with self.block("struct", "} valid;"):
                    self.emit("bool none_;")
                    self.emit(*(f"bool {_c(h.name)};" for h in self.program.headers))
            for header in self.program.headers:
                if not header.metadata:
                    self.header_struct(header)
        self.emit("")

    def header_struct(self, header: ir.Header) -> None:
        with self.block("struct", f"}} {_c(header.name)};"):
            self.emit(*(f"{_type(f.bits)} {_c(f.name)};" for f in header.fields), "char end_[0];")

    def state_struct(self) -> None:
        for bank in self.banks:
            with self.block(f"struct row_{bank.number}", "};"):
                self.emit(*(f"{_type(r.bits)} {_c(r.name)};" for r in bank.registers))
        with self.block("struct state", "};"):
            self.emit("char none_[1];")
            for bank in self.banks:
                self.emit(f"struct row_{bank.number} bank_{bank.number}[{bank.size}];")
                self.emit(f"struct row_{bank.number} outside_{bank.number};")
        self.emit("")
        for bank in self.banks:
            n = bank.number
            self.emit("/* Outside of the array, reads give zeros and writes are lost. */")
            with self.block(f"static inline struct row_{n} *row_{n}(struct state *s, u64 index)"):
                self.emit(
                    f"if (__builtin_expect(index < {bank.size}, 1))",
                    f"    return &s->bank_{n}[index];",
                    f"memset(&s->outside_{n}, 0, sizeof s->outside_{n});",
                    f"return &s->outside_{n};",
                )
            self.emit("")
        with self.block("static inline u128 args_wide(const u64 *a, u32 index)"):
            self.emit("return (u128)a[2 * index + 1] << 64 | a[2 * index];")
        self.emit("")

    # -- actions ---------------------------------------------------------------------------------

    def action_functions(self) -> None:
        for action in self.program.actions:
            self.expressions.params = action.params
            self.emit(f"/* {action.name} */")
            with self.block(
                f"static void action_{action.id}(struct sw *sw, struct state *s, "
                "struct phv *restrict p, const u64 *a, u32 length)"
            ):
                self.emit("(void)sw; (void)s; (void)p; (void)a; (void)length;")
                self.hoist_rows(action.body)
                self.steps(action.body)
            self.emit("")
            self.rows = {}

    def hoist_rows(self, body: tuple[ir.Primitive, ...]) -> None:
        """Look a bank's row up once if the action uses no other, and its index does not change.

        Two rows could be the same one, which `restrict` would deny.
        """
        written = {_written(step) for step in body}
        indices: dict[_Bank, dict[ir.Expr, None]] = {}
        for name, index in filter(None, map(_register_access, body)):
            indices.setdefault(self.bank_of[name], {})[index] = None
        for bank, (index, *others) in indices.items():
            if others or _reads(index) & written:
                continue
            row = f"r{len(self.rows)}"
            self.rows[bank.number, index] = row
            self.emit(f"struct row_{bank.number} *restrict {row} = {self.row_call(bank, index)};")

    def row_call(self, bank: _Bank, index: ir.Expr) -> str:
        return f"row_{bank.number}(s, (u64){self.expressions.number(index).text})"

    def cell(self, name: str, index: ir.Expr) -> str:
        bank = self.bank_of[name]
        row = self.rows.get((bank.number, index)) or self.row_call(bank, index)
        return f"{row}->{_c(name)}"

    def steps(self, body: tuple[ir.Primitive, ...]) -> None:
        """Straight-line code; p4c's jumps go to the number of a step."""
        targets = {
            step.args[-1].value
            for step in body
            if step.op.startswith("_jump") and isinstance(step.args[-1], ir.Const)
        }
        for number, step in enumerate(body):
            if number in targets:
                self.emit(f"at_{number}:;")
            try:
                _PRIMITIVES[step.op](self, *step.args)
            except UnsupportedProgram as problem:
                raise UnsupportedProgram(f"{step.source}: {problem}") from None
        if len(body) in targets:
            self.emit(f"at_{len(body)}:;")

    def assign(self, target: ir.FieldRef, value: ir.Expr) -> None:
        bits = self.expressions.field_type(target).bits
        if isinstance(value, ir.ParamRef):
            wide = bits > 64
            text = f"args_wide(a, {value.index})" if wide else f"a[{2 * value.index}]"
            text = f"({_type(bits)}){text}"
        else:
            text = f"({_type(bits)})({self.expressions.stored(value, bits)})"
        self.emit(f"{self.place(target)} = {text};")

    def assign_header(self, target: ir.Name, source: ir.Name) -> None:
        to, of = _c(target.name), _c(source.name)
        self.emit(f"memcpy(&p->{to}, &p->{of}, sizeof p->{to});")
        self.emit(f"p->m.valid.{to} = p->m.valid.{of};")

    def add_header(self, target: ir.Name) -> None:
        name = _c(target.name)
        self.emit(f"if (!p->m.valid.{name}) memset(&p->{name}, 0, sizeof p->{name});")
        self.emit(f"p->m.valid.{name} = true;")

    def remove_header(self, target: ir.Name) -> None:
        self.emit(f"p->m.valid.{_c(target.name)} = false;")

    def register_read(self, target: ir.FieldRef, array: ir.Name, index: ir.Expr) -> None:
        bits = self.expressions.field_type(target).bits
        self.emit(f"{self.place(target)} = ({_type(bits)}){self.cell(array.name, index)};")

    def register_write(self, array: ir.Name, index: ir.Expr, value: ir.Expr) -> None:
        bits = next(r.bits for r in self.bank_of[array.name].registers if r.name == array.name)
        text = self.expressions.stored(value, bits)
        self.emit(f"{self.cell(array.name, index)} = ({_type(bits)})({text});")

    def count(self, counter: ir.Name, index: ir.Expr) -> None:
        at = self.expressions.number(index).text
        self.emit(f"rt_count(sw, {self.counters[counter.name]}, (u64){at}, length);")

    def drop(self, *_: object) -> None:
        self.emit(f"{self.standard('egress_spec')} = (u16)*rt_drop_port(sw);")
        self.emit(f"{self.standard('mcast_grp')} = 0;")

    def leave(self) -> None:
        self.emit("p->m.valid.none_ = true; /* exit */", "return;")

    def nothing(self, *_: object) -> None:
        self.emit(";")

    def jump(self, target: ir.Const) -> None:
        self.emit(f"goto at_{target.value};")

    def jump_if_zero(self, condition: ir.Expr, target: ir.Const) -> None:
        self.emit(f"if (!{self.expressions.truth(condition)}) goto at_{target.value};")

    # -- parser ----------------------------------------------------------------------------------

    def parser(self) -> None:
        codes = self.program.errors
        with self.block(
            "static u32 parse(struct sw *sw, struct state *s, struct phv *restrict p, "
            "const u8 *frame, u32 length)"
        ):
            self.emit("const u64 *a = NULL; (void)a; (void)sw; (void)s;", "u32 at = 0, error = 0;")
            self.emit(_goto_state(self.program.parser_start))
            for state in self.program.states:
                self.emit(f"state_{_c(state.name)}:")
                self.steps(state.body)
                self.select(state)
            self.emit("too_short:", f"error = {codes.get('PacketTooShort', 1)}; goto accept;")
            self.emit("no_match:", f"error = {codes.get('NoMatch', 2)}; goto accept;")
            self.emit("goto too_short; goto no_match; /* whichever no state needs */")
            self.emit("accept:", f"{self.standard('parser_error')} = error;", "return at;")
        self.emit("")

    def extract(self, target: ir.Name) -> None:
        header = self.headers[target.name]
        bits = sum(field.bits for field in header.fields)
        self.emit(f"if (length - at < {bits // 8}) goto too_short;")
        offset = 0
        for run in _runs(header):
            first = self.place(ir.FieldRef(header.name, run[0].name))
            if len(run) > 1:
                self.emit(f"rt_load32(&{first}, frame + at + {offset // 8}, {len(run)});")
            else:
                read = "rt_wide_bits" if run[0].bits > 64 else "rt_bits"
                part = f"{read}(frame + at, {offset}, {run[0].bits})"
                self.emit(f"{first} = ({_type(run[0].bits)}){part};")
            offset += sum(field.bits for field in run)
        self.emit(f"at += {bits // 8};", f"p->m.valid.{_c(header.name)} = true;")

    def parser_assign(self, target: ir.FieldRef, value: ir.Expr) -> None:
        if isinstance(value, ir.Lookahead):
            kind = _type(self.expressions.field_type(target).bits)
            self.emit(f"{self.place(target)} = ({kind}){self.lookahead(value)};")
        else:
            self.assign(target, value)

    def lookahead(self, ahead: ir.Lookahead) -> str:
        end = (ahead.offset + ahead.bits + 7) // 8
        self.emit(f"if (length - at < {end}) goto too_short;")
        return f"rt_wide_bits(frame + at, {ahead.offset}, {ahead.bits})"

    def advance(self, bits: ir.Expr) -> None:
        step = f"(u32)({self.expressions.number(bits).text} / 8)"
        self.emit(f"if (length - at < {step}) goto too_short;", f"at += {step};")

    def verify(self, condition: ir.Expr, error: ir.Expr) -> None:
        code = self.expressions.number(error).text
        self.emit(f"if (!{self.expressions.truth(condition)}) {{ error = {code}; goto accept; }}")

    def select(self, state: ir.ParserState) -> None:
        with self.block(""):
            for i, (key, _) in enumerate(state.keys):
                self.emit(f"const u128 k{i} = {self.select_key(key)}; (void)k{i};")
            for transition in state.transitions:
                tests = _select_tests(state, transition)
                prefix = f"if ({' && '.join(tests)}) " if tests else ""
                self.emit(prefix + _goto_state(transition.next_state))
            if all(transition.value is not None for transition in state.transitions):
                self.emit("goto no_match;")

    def select_key(self, key: ir.Expr) -> str:
        if isinstance(key, ir.Lookahead):
            return self.lookahead(key)
        return self.expressions.wide(key)

    # -- checksums, deparser ---------------------------------------------------------------------

    def verification(self) -> None:
        with self.block("static void verify_checksums(struct phv *p)"):
            self.emit("(void)p;")
            for checksum in self.program.checksums:
                if checksum.verify:
                    with self.checksum(checksum):
                        target = self.place(checksum.target)
                        self.emit(
                            f"if (sum != {target}) {self.standard('checksum_error')} = 1;",
                        )
        self.emit("")

    def update(self) -> None:
        with self.block("static void update_checksums(struct phv *p)"):
            self.emit("(void)p;")
            for checksum in self.program.checksums:
                if checksum.update:
                    with self.checksum(checksum):
                        self.emit(f"{self.place(checksum.target)} = sum;")
        self.emit("")

    @contextmanager
    def checksum(self, checksum: ir.Checksum) -> Iterator[None]:
        total = sum(bits for _, bits in checksum.inputs)
        present = ir.FieldRef(checksum.target.header, ir.VALID)
        condition = self.expressions.truth(checksum.condition)
        with self.block(f"if ({self.place(present)} && {condition})"):
            self.emit(f"u8 bytes[{total // 8 + 1}] = {{0}};")
            offset = 0
            for value, bits in checksum.inputs:
                self.emit(f"rt_put_bits(bytes, {offset}, {bits}, {self.expressions.wide(value)});")
                offset += bits
            self.emit(f"const u16 sum = rt_csum16(bytes, {(total + 7) // 8});")
            yield

    def deparser(self) -> None:
        with self.block("static u32 deparse(const struct phv *p, u8 *out)"):
            self.emit("u32 at = 0;")
            for name in self.program.deparser:
                with self.block(f"if (p->m.valid.{_c(name)})"):
                    self.write_header(self.headers[name])
            self.emit("return at;")
        self.emit("")

    def header_bytes(self) -> int:
        """The most that the deparser can write, and 1, for C has no empty arrays."""
        fields = (field for name in self.program.deparser for field in self.headers[name].fields)
        return sum(field.bits for field in fields) // 8 + 1

    def write_header(self, header: ir.Header) -> None:
        offset = 0
        for run in _runs(header):
            first = self.place(ir.FieldRef(header.name, run[0].name))
            if len(run) > 1:
                self.emit(f"rt_store32(out + at + {offset // 8}, &{first}, {len(run)});")
            else:
                self.emit(f"rt_put_bits(out + at, {offset}, {run[0].bits}, {first});")
            offset += sum(field.bits for field in run)
        self.emit(f"at += {offset // 8};")

    # -- pipelines -------------------------------------------------------------------------------

    def pipeline(self, name: str, pipeline: ir.Pipeline) -> None:
        with self.block(
            f"static void {name}(struct sw *sw, struct state *s, struct phv *p, u32 length)"
        ):
            self.emit("(void)sw; (void)s; (void)length;", _goto_node(pipeline.start))
            for conditional in pipeline.conditionals:
                self.emit(f"node_{_c(conditional.name)}:")
                test = self.expressions.truth(conditional.condition)
                self.emit(f"if ({test}) {_goto_node(conditional.if_true)}")
                self.emit(_goto_node(conditional.if_false))
            for table in pipeline.tables:
                self.emit(f"node_{_c(table.name)}:")
                with self.block(""):
                    self.table(table)
            self.emit("end: return;")
        self.emit("")

    def table(self, table: ir.Table) -> None:
        number = self.program.tables.index(table)
        if table.keys:
            self.emit(f"u8 key[{key_bytes(table)}] __attribute__((aligned(8))) = {{0}};")
            self.pack_key(table)
            self.emit(f"struct entry *e = rt_lookup(sw, {number}, key);")
        else:
            self.emit("struct entry *e = NULL;")
        self.emit("const bool hit = e != NULL; (void)hit;")
        self.emit(f"if (!e) e = rt_miss(sw, {number});")
        if table.direct_counter:
            self.emit("e->hits.packets++;", "e->hits.bytes += length;")
        with self.block("switch (e->action)"):
            for identifier in table.actions:
                self.emit(f"case {identifier}:")
                self.emit(f"    action_{identifier}(sw, s, p, e->args, length);")
                if any(step.op == "exit" for step in self.actions[identifier].body):
                    self.emit("    if (p->m.valid.none_) goto end;")
                if not table.by_hit:
                    self.emit(f"    {_goto_node(table.next_by_action[identifier])}")
                else:
                    self.emit("    break;")
        if table.by_hit:
            self.emit(f"if (hit) {_goto_node(table.next_on_hit)}")
        self.emit(_goto_node(table.next_on_miss))

    def pack_key(self, table: ir.Table) -> None:
        offset = 0
        for i, (key, size) in enumerate(zip(table.keys, key_sizes(table), strict=True)):
            mask = f" & {key.mask}u" if key.mask is not None else ""
            self.emit(f"const {_type(size * 8)} k{i} = {self.place(key.expr)}{mask};")
            self.emit(f"memcpy(key + {offset}, &k{i}, {size});")
            offset += size

    # -- the whole -------------------------------------------------------------------------------

    def process(self) -> None:
        with self.block(
            "static void depart(struct sw *sw, struct state *s, struct phv *p, u32 port, "
            "const u8 *rest, u32 rest_bytes, u32 length)"
        ):
            self.emit(
                f"u8 head[{self.header_bytes()}];",
                f"{self.standard('egress_port')} = (u16)port;",
                f"{self.standard('egress_spec')} = 0;",
                "p->m.valid.none_ = false;",
                "egress(sw, s, p, length);",
                f"if ({self.standard('egress_spec')} == *rt_drop_port(sw)) {{ rt_dropped(sw); return; }}",
                "update_checksums(p);",
                "rt_emit(sw, port, head, deparse(p, head), rest, rest_bytes);",
            )
        self.emit("")
        with self.block(
            "void program_process(struct sw *sw, void *state, u32 port, const u8 *frame, u32 length)"
        ):
            self.emit(
                "struct state *s = state;",
                "struct phv phv, *p = &phv;",
                "memset(&p->m, 0, sizeof p->m);",
                f"{self.standard('ingress_port')} = (u16)port;",
                f"{self.standard('packet_length')} = length;",
                f"{self.standard('ingress_global_timestamp')} = rt_now_us(sw);",
                "const u32 parsed = parse(sw, s, p, frame, length);",
                "verify_checksums(p);",
                "ingress(sw, s, p, length);",
            )
            with self.block(f"if ({self.standard('mcast_grp')})"):
                self.emit("const struct replica *replicas = NULL;")
                self.emit(f"const u32 n = rt_group(sw, {self.standard('mcast_grp')}, &replicas);")
                with self.block("for (u32 i = 0; i < n; i++)"):
                    self.emit(
                        "struct phv copy = phv, *p = &copy;",
                        f"{self.standard('instance_type')} = 5; /* a replica */",
                        f"{self.standard('egress_rid')} = (u16)replicas[i].instance;",
                        "depart(sw, s, p, replicas[i].port, frame + parsed, length - parsed, length);",
                    )
            with self.block(f"else if ({self.standard('egress_spec')} == *rt_drop_port(sw))"):
                self.emit("rt_dropped(sw);")
            with self.block("else"):
                spec = self.standard("egress_spec")
                self.emit(f"depart(sw, s, p, {spec}, frame + parsed, length - parsed, length);")
        self.emit("")

    def description(self) -> None:
        tables = self.program.tables
        defaults = [_NO_ACTION if t.default_action is None else t.default_action for t in tables]
        sizes = [0 if c.table else c.size for c in self.program.counters]
        self.emit(
            f"static const u32 key_bytes[] = {{{_list([key_bytes(t) for t in tables])}}};",
            f"static const u32 default_action[] = {{{_list(defaults)}}};",
            f"static const u32 counter_size[] = {{{_list(sizes)}}};",
            "const struct program program = {",
            f"    {len(tables)}, key_bytes, default_action, {len(sizes)}, counter_size,",
            "    sizeof(struct state),",
            "};",
        )


_PRIMITIVES: dict[str, Callable[..., None]] = {
    "assign": _Generator.assign,
    "set": _Generator.parser_assign,
    "assign_header": _Generator.assign_header,
    "add_header": _Generator.add_header,
    "remove_header": _Generator.remove_header,
    "register_read": _Generator.register_read,
    "register_write": _Generator.register_write,
    "count": _Generator.count,
    "drop": _Generator.drop,
    "mark_to_drop": _Generator.drop,
    "exit": _Generator.leave,
    "no_op": _Generator.nothing,
    "log_msg": _Generator.nothing,
    "_jump": _Generator.jump,
    "_jump_if_zero": _Generator.jump_if_zero,
    "extract": _Generator.extract,
    "advance": _Generator.advance,
    "verify": _Generator.verify,
}


def _banks(registers: tuple[ir.Register, ...]) -> list[_Bank]:
    sizes = dict.fromkeys(register.size for register in registers)
    return [
        _Bank(number, size, tuple(each for each in registers if each.size == size))
        for number, size in enumerate(sizes)
    ]


def _register_access(step: ir.Primitive) -> tuple[str, ir.Expr] | None:
    match step:
        case ir.Primitive("register_read", (_, ir.Name(_, name), index)):
            return name, index  # type: ignore[return-value]
        case ir.Primitive("register_write", (ir.Name(_, name), index, _)):
            return name, index  # type: ignore[return-value]
    return None


def _written(step: ir.Primitive) -> ir.FieldRef | None:
    first = step.args[0] if step.args else None
    return first if isinstance(first, ir.FieldRef) and step.op != "_jump_if_zero" else None


def _reads(expr: ir.Expr) -> set[ir.FieldRef | None]:
    if isinstance(expr, ir.FieldRef):
        return {expr}
    if isinstance(expr, ir.Op):
        return set().union(*(_reads(operand) for operand in expr.operands))
    return set()


def _runs(header: ir.Header) -> Iterator[tuple[ir.FieldType, ...]]:
    """Fields in order, neighbouring byte-aligned 32-bit ones together."""
    run: list[ir.FieldType] = []
    offset = 0
    for field in header.fields:
        if field.bits == 32 and offset % 8 == 0:
            run.append(field)
        else:
            yield from _as_runs(run)
            run = []
            yield (field,)
        offset += field.bits
    yield from _as_runs(run)


def _as_runs(run: list[ir.FieldType]) -> list[tuple[ir.FieldType, ...]]:
    if len(run) >= _SHORTEST_RUN:
        return [tuple(run)]
    return [(field,) for field in run]


def _select_tests(state: ir.ParserState, transition: ir.Transition) -> list[str]:
    """One test per key; in the JSON their values stand in one number, each padded to bytes."""
    if transition.value is None:
        return []
    tests = []
    shift = sum(-(-bits // 8) * 8 for _, bits in state.keys)
    for i, (_, bits) in enumerate(state.keys):
        shift -= -(-bits // 8) * 8
        full = (1 << bits) - 1
        value = transition.value >> shift & full
        mask = full if transition.mask is None else transition.mask >> shift & full
        if mask:
            tests.append(f"(k{i} & {_u128(mask)}) == {_u128(value & mask)}")
    return tests or ["true"]


def _u128(value: int) -> str:
    if value < 1 << 64:
        return f"UINT64_C({value})"
    return f"((u128)UINT64_C({value >> 64}) << 64 | UINT64_C({value & (1 << 64) - 1}))"


def _goto_state(name: str | None) -> str:
    return "goto accept;" if name is None else f"goto state_{_c(name)};"


def _goto_node(name: str | None) -> str:
    return "goto end;" if name is None else f"goto node_{_c(name)};"


def _list(numbers: list[int]) -> str:
    return ", ".join(f"{number}u" for number in [*numbers, 0])


def _type(bits: int) -> str:
    return f"u{storage_bits(bits)}"


def _c(name: str) -> str:
    """A P4 name as a C identifier."""
    text = re.sub(r"\W", "_", name)
    return f"f_{text}" if text[0].isdigit() or text in _C_WORDS else text


_C_WORDS = frozenset(
    """auto bool break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while m""".split()
)
