"""The parser and the deparser: frames to headers and back."""

from innet.switch import ir
from innet.switch.codegen.data import runs
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.steps import Steps
from innet.switch.codegen.text import c_name, c_type


class Parsing:
    """Renders the parser, state by state, and the deparser."""

    def __init__(self, scope: Scope, steps: Steps) -> None:
        self._scope, self._steps = scope, steps
        self._emit = scope.emit
        steps.define(
            extract=self._extract, set=self._set, advance=self._advance, verify=self._verify
        )

    def parser(self) -> None:
        """A function that returns how many bytes were parsed."""
        program = self._scope.program
        codes = program.errors
        with self._scope.block(
            "static u32 parse(struct sw *sw, struct state *s, struct phv *restrict p, "
            "const u8 *frame, u32 length)"
        ):
            self._emit("const u64 *a = NULL; (void)a; (void)sw; (void)s;", "u32 at = 0, error = 0;")
            self._emit(_goto_state(program.parser_start))
            for state in program.states:
                self._emit(f"state_{c_name(state.name)}:")
                self._steps.body(state.body)
                self._select(state)
            self._emit("too_short:", f"error = {codes.get('PacketTooShort', 1)}; goto accept;")
            self._emit("no_match:", f"error = {codes.get('NoMatch', 2)}; goto accept;")
            self._emit("goto too_short; goto no_match; /* whichever no state needs */")
            self._emit("accept:", f"{self._scope.standard('parser_error')} = error;", "return at;")
        self._emit("")

    def deparser(self) -> None:
        """A function that writes the valid headers and returns how many bytes they are."""
        with self._scope.block("static u32 deparse(const struct phv *p, u8 *out)"):
            self._emit("u32 at = 0;")
            for name in self._scope.program.deparser:
                with self._scope.block(f"if ({self._scope.valid(name)})"):
                    self._write(self._scope.headers[name])
            self._emit("return at;")
        self._emit("")

    def most_header_bytes(self) -> int:
        """The most that the deparser can write, and 1, for C has no empty arrays."""
        headers = (self._scope.headers[name] for name in self._scope.program.deparser)
        return sum(field.bits for header in headers for field in header.fields) // 8 + 1

    def _extract(self, target: ir.Name) -> None:
        header = self._scope.headers[target.name]
        size = sum(field.bits for field in header.fields) // 8
        self._emit(f"if (length - at < {size}) goto too_short;")
        offset = 0
        for run in runs(header):
            first = self._scope.place(ir.FieldRef(header.name, run[0].name))
            if len(run) > 1:
                self._emit(f"rt_load32(&{first}, frame + at + {offset // 8}, {len(run)});")
            else:
                read = "rt_wide_bits" if run[0].bits > 64 else "rt_bits"
                part = f"{read}(frame + at, {offset}, {run[0].bits})"
                self._emit(f"{first} = ({c_type(run[0].bits)}){part};")
            offset += sum(field.bits for field in run)
        self._emit(f"at += {size};", f"{self._scope.valid(header.name)} = true;")

    def _set(self, target: ir.FieldRef, value: ir.Expr) -> None:
        if isinstance(value, ir.Lookahead):
            kind = c_type(self._scope.expressions.field_type(target).bits)
            self._emit(f"{self._scope.place(target)} = ({kind}){self._lookahead(value)};")
        else:
            self._steps.assign(target, value)

    def _lookahead(self, ahead: ir.Lookahead) -> str:
        end = (ahead.offset + ahead.bits + 7) // 8
        self._emit(f"if (length - at < {end}) goto too_short;")
        return f"rt_wide_bits(frame + at, {ahead.offset}, {ahead.bits})"

    def _advance(self, bits: ir.Expr) -> None:
        step = f"(u32)({self._scope.expressions.number(bits).text} / 8)"
        self._emit(f"if (length - at < {step}) goto too_short;", f"at += {step};")

    def _verify(self, condition: ir.Expr, error: ir.Expr) -> None:
        truth = self._scope.expressions.truth(condition)
        code = self._scope.expressions.number(error).text
        self._emit(f"if (!{truth}) {{ error = {code}; goto accept; }}")

    def _select(self, state: ir.ParserState) -> None:
        with self._scope.block(""):
            for i, (key, _) in enumerate(state.keys):
                self._emit(f"const u128 k{i} = {self._select_key(key)}; (void)k{i};")
            for transition in state.transitions:
                tests = _select_tests(state, transition)
                prefix = f"if ({' && '.join(tests)}) " if tests else ""
                self._emit(prefix + _goto_state(transition.next_state))
            if all(transition.value is not None for transition in state.transitions):
                self._emit("goto no_match;")

    def _select_key(self, key: ir.Expr) -> str:
        if isinstance(key, ir.Lookahead):
            return self._lookahead(key)
        return self._scope.expressions.wide(key)

    def _write(self, header: ir.Header) -> None:
        offset = 0
        for run in runs(header):
            first = self._scope.place(ir.FieldRef(header.name, run[0].name))
            if len(run) > 1:
                self._emit(f"rt_store32(out + at + {offset // 8}, &{first}, {len(run)});")
            else:
                self._emit(f"rt_put_bits(out + at, {offset}, {run[0].bits}, {first});")
            offset += sum(field.bits for field in run)
        self._emit(f"at += {offset // 8};")


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
    return "goto accept;" if name is None else f"goto state_{c_name(name)};"
