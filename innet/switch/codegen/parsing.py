"""The parser and the deparser: from frames to headers and back."""

from collections.abc import Iterable, Iterator

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen import fields, tracing
from innet.switch.codegen.data import runs
from innet.switch.codegen.deferral import defers, unread_checksums
from innet.switch.codegen.headers import Headers
from innet.switch.codegen.references import fields_in
from innet.switch.codegen.scope import HeaderLvalues, Scope
from innet.switch.codegen.steps import Steps
from innet.switch.codegen.text import c_number
from innet.switch.expressions.byte_arrays import is_bytes
from innet.switch.expressions.number import bytes_literal
from innet.switch.layout import value_set_bytes

_CORE_ERRORS = (
    "NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort", "ParserTimeout",
    "ParserInvalidArgument",
)  # fmt: skip

_MAX_CYCLES = 1 << 16
"""The number of times that one packet may enter states of cycles. No frame has more bytes than this."""


class Parsing:
    """A renderer of the parser, state by state, and of the deparser."""

    def __init__(self, scope: Scope, steps: Steps, headers: Headers) -> None:
        self._scope, self._steps, self._headers = scope, steps, headers
        self._emit = scope.emit
        self._failures: dict[str, None] = {}
        self._skipped: frozenset[str] = frozenset()
        self._defers = defers(scope.program)
        self._unread = unread_checksums(scope.program) if self._defers else {}
        core = map(scope.names.of, _CORE_ERRORS)
        self._codes = _error_codes(scope.program.errors, core)
        steps.define(
            extract=self._extract, set=self._set, advance=self._advance, verify=self._verify
        )

    def parser(self, name: str = "parse", only: frozenset[str] | None = None) -> None:
        """Write a function that parses a frame and returns the number of bytes parsed.

        With `only`, it skips the contents of all headers but these and those that the parser reads.
        """
        program = self._scope.program
        looping = _looping(program)
        self._failures = {}
        untouched = _untouched(program)
        loaded = [each for each in untouched if only is None or each.name in only]
        self._skipped = frozenset({each.name for each in untouched if each not in loaded})
        with self._scope.block(
            f"static uint32_t {name}(struct sw *sw, struct state *s, struct phv *restrict p, "
            "const uint8_t *frame, uint32_t length)"
        ):
            self._emit("const uint64_t *a = NULL; (void)a; (void)sw; (void)s; (void)frame;")
            self._emit("uint32_t at = 0, error = 0, cycles = 0; (void)length; (void)cycles;")
            self._emit(*(f"memset(&{each}, 0, sizeof {each});" for each in _cleared(self._scope)))
            self._scope.trace("Parser 'parser': start")
            self._emit(_goto_state(program.parser_start))
            for state in program.states:
                self._emit(f"state_{state.name}:")
                self._scope.trace(
                    "Parser 'parser' entering state '%s'", self._scope.shown(state.name)
                )
                if state.name in looping:
                    self._emit(f"if (cycles++ == {_MAX_CYCLES}) {self._fail('ParserTimeout')}")
                for step in state.body:
                    self._check_indices(step.args)
                    self._steps.body((step,))
                self._select(state)
            for error in self._failures:
                self._emit(f"{_label(error)}:")
                self._emit(f"error = {self._codes[self._scope.names.of(error)]}; goto accept;")
            self._emit("accept:", self._scope.set_standard("parser_error", "error"))
            for header in loaded:
                lvalues = self._scope.header_lvalues(header.name)
                clear = f"memset(&{lvalues.fields}, 0, sizeof {lvalues.fields});"
                self._emit(f"if (!{lvalues.valid}) {clear}")
            tracing.parsed(self._scope, self._codes)
            self._emit("return at;")
        self._emit("")

    def deparser(self) -> None:
        """Write a function that counts the bytes of all valid headers, and one that writes them."""
        with self._scope.block("static uint32_t header_bytes(const struct phv *p)"):
            self._emit("(void)p;", "uint32_t bytes = 0;")
            for name in self._scope.program.deparser:
                lvalues = self._scope.header_lvalues(name)
                varbit = f" + {lvalues.varbit_bytes}" if lvalues.varbit_bytes else ""
                size = self._scope.headers[name].fixed_bytes
                self._emit(f"if ({lvalues.valid}) bytes += {size}{varbit};")
            self._emit("return bytes;")
        self._emit("")
        with self._scope.block(
            "static void deparse(struct sw *sw, const struct phv *p, uint8_t *out)"
        ):
            self._emit("(void)sw; (void)p; (void)out;", "uint32_t at = 0;")
            self._scope.trace("Deparser 'deparser': start")
            for name in self._scope.program.deparser:
                lvalues = self._scope.header_lvalues(name)
                with self._scope.block(f"if ({lvalues.valid})"):
                    self._scope.trace("Deparsing header '%s'", self._scope.shown(name))
                    self._write(self._scope.headers[name], lvalues)
            self._emit("(void)at;")
            self._scope.trace("Deparser 'deparser': end")
        self._emit("")

    def max_header_bytes(self) -> int:
        """Return the most bytes that the deparser can write."""
        headers = (self._scope.headers[name] for name in self._scope.program.deparser)
        return sum(field.bits for header in headers for field in header.fields) // 8

    def _fail(self, error: str) -> str:
        """Return a statement that ends parsing with one of P4's own errors."""
        self._failures[error] = None
        return f"goto {_label(error)};"

    def _check_indices(self, nodes: tuple[object, ...]) -> None:
        for element in dict.fromkeys(_elements(nodes)):
            depth = len(self._scope.program.stack(element.stack).headers)
            index = self._scope.expressions.index(element)
            self._emit(f"if ({index} >= {depth}) {self._fail('StackOutOfBounds')}")

    def _extract(self, target: ir.Name, length: ir.Expr | None = None) -> None:
        if target.kind == "header":
            header = self._scope.headers[target.name]
            self._load(header, self._scope.header_lvalues(target.name), length)
            return
        stack = self._scope.program.stack(target.name)
        following = self._scope.next_index(stack.counter)
        self._emit(f"if ({following} >= {len(stack.headers)}) {self._fail('StackOutOfBounds')}")
        header = self._scope.headers[stack.headers[0]]
        self._load(header, self._scope.next_lvalues(stack), length)
        self._emit(f"{following}++;")

    def _load(self, header: ir.Header, lvalues: HeaderLvalues, length: ir.Expr | None) -> None:
        if (header.varbit is None) != (length is None):
            name = self._scope.names.shown(header.name)
            raise UnsupportedProgram(f"extracting {name}: only a header with a varbit has a length")
        self._scope.trace("Extracting header '%s'", self._scope.shown(header.name))
        size = header.fixed_bytes
        if length is None:
            self._emit(f"if (length - at < {size}) {self._fail('PacketTooShort')}")
            self._read(header, lvalues)
        else:
            with self._scope.block(""):
                most = fields.size(header.varbit) if header.varbit else 0
                self._whole_bytes(length)
                self._emit(
                    f"if (length - at < {size} + bytes) {self._fail('PacketTooShort')}",
                    f"if (bytes > {most}) {self._fail('HeaderTooShort')}",
                    f"{lvalues.varbit_bytes} = (uint32_t)bytes;",
                )
                self._read(header, lvalues)
        self._headers.make_valid(lvalues)

    def _whole_bytes(self, bits: ir.Expr) -> None:
        number = self._scope.expressions.number(bits)
        self._emit(f"const uint64_t bits = (uint64_t){number.text}, bytes = bits / 8;")
        self._emit(f"if (bits % 8) {self._fail('ParserInvalidArgument')}")

    def _meet_checksum(self, header: ir.Header) -> None:
        """Write code that notes which field of a header has a partial checksum, or completes it."""
        varbit = " + (uint32_t)bytes" if header.varbit else ""
        with self._scope.block(f"if (rt_is_partial(&p->m.path, at, {header.fixed_bytes}{varbit}))"):
            for number, ((name, _), place) in enumerate(self._unread.items(), start=1):
                if name == header.name:
                    self._emit(
                        f"if (p->m.path.partial == at + {place}) p->m.path.field = {number};"
                    )
                    self._emit("else")
            self._emit("rt_complete(sw, &p->m.path);")

    def checksum_place(self) -> None:
        """Write a function that returns where a packet's partial checksum leaves in a field, or 0."""
        with self._scope.block("static uint32_t checksum_place(const struct phv *p)"):
            self._emit("(void)p;", "uint32_t bytes = 0;")
            for name in self._scope.program.deparser:
                lvalues = self._scope.header_lvalues(name)
                varbit = f" + {lvalues.varbit_bytes}" if lvalues.varbit_bytes else ""
                with self._scope.block(f"if ({lvalues.valid})"):
                    for number, ((of, _), place) in enumerate(self._unread.items(), start=1):
                        if of == name:
                            self._emit(f"if (p->m.path.field == {number}) return bytes + {place};")
                    self._emit(f"bytes += {self._scope.headers[name].fixed_bytes}{varbit};")
            self._emit("(void)bytes;", "return 0;")
        self._emit("")

    def _read(self, header: ir.Header, lvalues: HeaderLvalues) -> None:
        offset, source = 0, "frame + at"
        if header.name in self._skipped:
            varbit = " + (uint32_t)bytes" if header.varbit else ""
            self._emit(f"at += {header.fixed_bytes}{varbit};")
            return
        if self._defers:
            self._meet_checksum(header)
        for run in runs(header):
            first = f"{lvalues.fields}.{run[0].name}"
            if run[0].varbit:
                self._emit(
                    f"rt_load_bytes({first}, (uint32_t)bytes, {source}, {offset}, 8 * (uint32_t)bytes);"
                )
                self._emit("at += (uint32_t)bytes;")
                continue
            if len(run) > 1:
                self._emit(f"rt_load32(&{first}, {source} + {offset // 8}, {len(run)});")
            else:
                self._emit(fields.load(first, run[0], source, offset, run[0].bits))
            offset += sum(field.bits for field in run)
        self._emit(f"at += {header.fixed_bytes};")

    def _set(self, target: ir.FieldRef, value: ir.Expr) -> None:
        if isinstance(value, ir.Lookahead):
            source = self._lookahead(value)
            kind = self._scope.expressions.field_type(target)
            lvalue = self._scope.lvalue(target)
            self._emit(fields.load(lvalue, kind, source, value.offset, value.bits))
        elif self._scope.expressions.field_type(target).varbit:
            self._headers.assign_varbit(target, value)
        else:
            self._steps.assign(target, value)

    def _lookahead(self, ahead: ir.Lookahead) -> str:
        end = (ahead.offset + ahead.bits + 7) // 8
        self._emit(f"if (length - at < {end}) {self._fail('PacketTooShort')}")
        if self._defers:
            self._emit(f"if (rt_is_partial(&p->m.path, at, {end})) rt_complete(sw, &p->m.path);")
        return "frame + at"

    def _advance(self, bits: ir.Expr) -> None:
        with self._scope.block(""):
            self._whole_bytes(bits)
            self._emit(f"if (length - at < bytes) {self._fail('PacketTooShort')}")
            self._emit("at += (uint32_t)bytes;")

    def _verify(self, condition: ir.Expr, error: ir.Expr) -> None:
        truth = self._scope.expressions.truth(condition)
        code = self._scope.expressions.number(error).text
        self._emit(f"if (!{truth}) {{ error = (uint32_t){code}; goto accept; }}")

    def _select(self, state: ir.ParserState) -> None:
        with self._scope.block(""):
            self._check_indices(tuple(key for key, _ in state.keys))
            for i, (key, bits) in enumerate(state.keys):
                self._emit(f"{self._select_key(f'k{i}', key, bits)} (void)k{i};")
            tracing.selection(self._scope, state)
            # As in BMv2, a state without a default accepts a packet that matches nothing.
            for transition in state.transitions:
                if transition.value is None:
                    continue
                if isinstance(transition.value, str):
                    self._ask_value_set(state, transition.value, transition.next_state)
                else:
                    tests = " && ".join(_select_tests(state, transition.value, transition.mask))
                    self._emit(f"if ({tests}) {_goto_state(transition.next_state)}")
            defaults = [each.next_state for each in state.transitions if each.value is None]
            self._emit(_goto_state(defaults[-1] if defaults else None))

    def _select_key(self, name: str, key: ir.Expr, bits: int) -> str:
        """Return a statement that declares a select key, as a number or, if too wide, as bytes."""
        kind = ir.FieldType(name, bits)
        if isinstance(key, ir.Lookahead):
            declared = (
                f"uint8_t {name}[{fields.size(kind)}];" if is_bytes(kind) else f"uint128_t {name};"
            )
            source = self._lookahead(key)
            return f"{declared} {fields.load(name, kind, source, key.offset, bits)}"
        if array := self._scope.expressions.bytes_of(key):
            return f"const uint8_t *const {name} = {array[0]};"
        return f"const uint128_t {name} = {self._scope.expressions.low_128_bits(key)};"

    def _ask_value_set(self, state: ir.ParserState, name: str, following: str | None) -> None:
        program = self._scope.program
        names = [each.name for each in program.value_sets]
        value_set = program.value_sets[names.index(name)]
        if value_set.bits != sum(bits for _, bits in state.keys):
            shown = self._scope.names.shown(name)
            raise UnsupportedProgram(f"value set {shown} is not as wide as the select keys")
        with self._scope.block(""):
            size = value_set_bytes(value_set)
            self._emit(f"uint8_t key[{size}] __attribute__((aligned(8))) = {{0}};")
            offset = 0
            for i, (_, bits) in enumerate(state.keys):
                self._emit(fields.store(f"k{i}", ir.FieldType(f"k{i}", bits), "key", offset))
                offset += bits
            number = len(program.tables) + names.index(name)
            self._emit(f"if (rt_lookup(sw, {number}, key)) {_goto_state(following)}")

    def _write(self, header: ir.Header, lvalues: HeaderLvalues) -> None:
        offset, target = 0, "out + at"
        for run in runs(header):
            first = f"{lvalues.fields}.{run[0].name}"
            if run[0].varbit:
                length = lvalues.varbit_bytes
                self._emit(f"rt_put_bytes({target}, {offset}, 8 * {length}, {first});")
                self._emit(f"at += {length};")
                continue
            if len(run) > 1:
                self._emit(f"rt_store32({target} + {offset // 8}, &{first}, {len(run)});")
            else:
                self._emit(fields.store(first, run[0], target, offset))
            offset += sum(field.bits for field in run)
        self._emit(f"at += {header.fixed_bytes};")


def _error_codes(declared: dict[str, int], core: Iterable[str]) -> dict[str, int]:
    """Return the codes of all errors. As in BMv2, P4's own undeclared errors get the next codes."""
    codes = dict(declared)
    for name in core:
        codes.setdefault(name, max(codes.values(), default=-1) + 1)
    return codes


def _cleared(scope: Scope) -> list[str]:
    """Return the headers to clear before parsing."""
    program = scope.program
    late = {each.name for each in _untouched(program)}
    early = [each for each in _alone(program) if each.name not in late]
    first = [scope.header_lvalues(each.name).fields for each in early]
    return first + [f"p->{stack.name}" for stack in program.stacks]


def _untouched(program: ir.Program) -> list[ir.Header]:
    """Return the headers that the parser only extracts, which are cleared after it if they are invalid.

    A valid header needs no clearing. So late clearing costs nothing if most packets have the header.
    """
    steps = [step for state in program.states for step in state.body if step.op != "extract"]
    nodes = [state.keys for state in program.states], [step.args for step in steps]
    touched: set[object] = {field.header for field in fields_in(nodes)}
    touched |= {arg.name for step in steps for arg in step.args if isinstance(arg, ir.Name)}
    touched |= {name for each in program.unions if each.name in touched for name in each.headers}
    return [each for each in _alone(program) if each.name not in touched]


def _alone(program: ir.Program) -> list[ir.Header]:
    """Return the headers that are in no stack."""
    stacked = {name for stack in program.stacks for name in stack.headers}
    return [each for each in program.headers if not each.metadata and each.name not in stacked]


def _looping(program: ir.Program) -> set[str]:
    """Return the states that can lead back to themselves."""
    following = {
        state.name: {each.next_state for each in state.transitions} - {None}
        for state in program.states
    }
    looping = set()
    for name, next_states in following.items():
        reached: set[str | None] = set()
        waiting = list(next_states)
        while waiting:
            if (state := waiting.pop()) not in reached:
                reached.add(state)
                waiting += following.get(state or "", ())
        if name in reached:
            looping.add(name)
    return looping


def _elements(node: object) -> Iterator[ir.Element]:
    """Yield the stack elements that are always read. Right operands of `and`, `or` and `?` may not be."""
    match node:
        case tuple():
            for each in node:
                yield from _elements(each)
        case ir.Op("and" | "or" | "?", operands):
            yield from _elements(operands[0])
        case ir.Op(_, operands):
            yield from _elements(operands)
        case ir.FieldRef(header, _):
            yield from _elements(header)
        case ir.Element(_, index):
            yield from _elements(index)
            yield node


def _select_tests(state: ir.ParserState, value: int, mask: int | None) -> list[str]:
    """Return one test per key. In the JSON, one number holds the values of all keys, padded to bytes."""
    tests = []
    shift = sum(-(-bits // 8) * 8 for _, bits in state.keys)
    for i, (_, bits) in enumerate(state.keys):
        shift -= -(-bits // 8) * 8
        full = (1 << bits) - 1
        wanted = value >> shift & full
        looked_at = full if mask is None else mask >> shift & full
        if looked_at and bits > 128:
            count = -(-bits // 8)
            wanted_bytes = bytes_literal(wanted & looked_at, count)
            tests.append(
                f"rt_match_bytes(k{i}, {wanted_bytes}, {bytes_literal(looked_at, count)}, {count})"
            )
        elif looked_at:
            tests.append(f"(k{i} & {c_number(looked_at)}) == {c_number(wanted & looked_at)}")
    return tests or ["true"]


def _label(error: str) -> str:
    return f"error_{error}"


def _goto_state(name: str | None) -> str:
    return "goto accept;" if name is None else f"goto state_{name};"
