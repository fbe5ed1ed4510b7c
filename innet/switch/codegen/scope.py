"""The context that all parts of the generator share: the program, the text, and its lvalues in C."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen.names import Names, renamed
from innet.switch.codegen.references import fields_in, outside_actions
from innet.switch.codegen.temporaries import temporaries
from innet.switch.codegen.text import Text, c_string
from innet.switch.expressions.rendering import Expressions

_WORD = 64

OUTSIDE = 2
"""The extra elements of each stack in C, for indices outside of the stack.

The first one reads as zeros, and the second one takes lost writes.
"""


@dataclass(frozen=True)
class HeaderLvalues:
    """The C lvalues of a header's parts. `varbit_bytes` is the length of its varbit.

    `union_others` are the validities of the other headers of its union.
    """

    fields: str
    valid: str
    varbit_bytes: str | None
    union_others: tuple[str, ...]
    metadata: bool


class Scope:
    """One program during its translation to C. All names in `program` are identifiers made by `names`."""

    def __init__(self, program: ir.Program, *, tracing: bool = False) -> None:
        self.names = Names()
        self.program = program = renamed(program, self.names)
        self.tracing = tracing
        self.text = Text()
        self.emit = self.text.emit
        self.block = self.text.block
        self.headers = {header.name: header for header in program.headers}
        self.actions = {action.id: action for action in program.actions}
        self._elements = {
            header: f"{stack.name}[{index}]"
            for stack in program.stacks
            for index, header in enumerate(stack.headers)
        }
        self.expressions = Expressions(program, self)
        self.mentioned = fields_in(program.actions) | outside_actions(program)
        self._standard = self.names.of(ir.STANDARD_METADATA)
        self.temporaries = temporaries(program, self._standard)
        fields = (ir.FieldRef(at.name, each.name) for at in program.headers for each in at.fields)
        self._positions = {field: position for position, field in enumerate(fields)}
        self.overrides: dict[ir.FieldRef, str] = {}
        """C lvalues that stand in for fields while a loop runs."""
        self.primitives = frozenset(_primitives(program))

    def lvalue(self, ref: ir.FieldRef) -> str:
        """Return the C lvalue of a field, or of a header's validity."""
        return self._part(ref, reading=False)

    def value(self, ref: ir.FieldRef) -> str:
        """Return C text that reads a field, or a header's validity."""
        return self._part(ref, reading=True)

    def valid(self, header: str) -> str:
        """Return the C lvalue of a header's validity."""
        return f"p->m.valid.{self._member(header)}"

    def header_lvalues(self, header: str | ir.Element, *, reading: bool = False) -> HeaderLvalues:
        """Return the lvalues of a header. Outside of a stack, those for reads and for writes differ."""
        if isinstance(header, ir.Element):
            stack = self.program.stack(header.stack)
            depth = len(stack.headers)
            index = self.expressions.index(header)
            outside = depth if reading else depth + 1
            member = f"{stack.name}[rt_index({index}, {depth}, {outside})]"
            return self._header_lvalues(stack.headers[0], member)
        return self._header_lvalues(header, self._member(header))

    def next_lvalues(self, stack: ir.Stack) -> HeaderLvalues:
        """Return the lvalues of the next header that the parser extracts to a stack that is not full."""
        at = f"[{self.next_index(stack.counter)}]"
        others = [
            each
            for each in self.program.stacks
            if each.union_stack == stack.counter and each != stack
        ]
        return replace(
            self._header_lvalues(stack.headers[0], f"{stack.name}{at}"),
            union_others=tuple(f"{self.valid_array(other)}{at}" for other in others),
        )

    def length(self, header: str | ir.Element) -> str:
        """Return C text that reads the number of bytes in a header's varbit."""
        return self.header_lvalues(header, reading=True).varbit_bytes or "0"

    def next_index(self, stack: str) -> str:
        """Return the C lvalue of the number of headers that the parser has extracted to a stack."""
        return f"p->m.next.{stack}"

    def valid_array(self, stack: ir.Stack) -> str:
        """Return the C array of the validity of a stack's headers."""
        return f"p->m.valid.{stack.name}"

    def stack_arrays(self, stack: ir.Stack) -> list[str]:
        """Return the C arrays that hold the parts of a stack's headers."""
        arrays = [f"p->{stack.name}", self.valid_array(stack)]
        if self.headers[stack.headers[0]].varbit:
            arrays.append(f"p->m.varbit_bytes.{stack.name}")
        return arrays

    def in_order(self, fields: Iterable[ir.FieldRef]) -> list[ir.FieldRef]:
        """Sort fields as the program declares them."""
        return sorted(fields, key=lambda each: (self._positions.get(each, -1), str(each)))

    def shown(self, identifier: str) -> str:
        """Return a C string literal of the name behind an identifier."""
        return c_string(self.names.shown(identifier))

    def trace(self, message: str, *values: str, of: str = "p", level: str = "D") -> None:
        """Write a printf-like log call about a packet, if the program traces.

        The message is the generator's own. Texts of the program appear only among the values.
        """
        if self.tracing:
            text = ", ".join([c_string(message), *values])
            self.emit(f"rt_trace(sw, &{of}->m.path, '{level}', {text});")

    def mentions(self, field: str) -> bool:
        """Return whether the program reads or writes this field of standard metadata."""
        return ir.FieldRef(self._standard, self.names.of(field)) in self.mentioned

    def standard(self, field: str, copy: str | None = None) -> str:
        """Return the C lvalue of a field of standard metadata or of its copy in another header.

        Raises UnsupportedProgram.
        """
        name, header = self.names.of(field), copy or self._standard
        found = [each for each in self.headers[header].fields if each.name == name]
        if not found:
            raise UnsupportedProgram(
                f"{self.names.shown(header)} has no {field}: it is not v1model's standard metadata"
            )
        if found[0].varbit or found[0].bits > _WORD:
            raise UnsupportedProgram(
                f"{self.names.shown(header)}.{field} is wider than {_WORD} bits"
            )
        return self.lvalue(ir.FieldRef(header, name))

    def set_standard(self, field: str, value: str, copy: str | None = None) -> str:
        """Return a C statement that sets such a field, cut to the width that the program gives it."""
        lvalue, name = self.standard(field, copy), self.names.of(field)
        bits = self.headers[copy or self._standard].field(name).bits
        if bits < ir.STANDARD_FIELDS[field]:
            value = f"(uint64_t)({value}) & UINT64_C({(1 << bits) - 1:#x})"
        return f"{lvalue} = {value};"

    def _part(self, ref: ir.FieldRef, *, reading: bool) -> str:
        if ref in self.overrides:
            return self.overrides[ref]
        if ref in self.temporaries:
            return self.names.of(str(ref.header), ref.field)
        lvalues = self.header_lvalues(ref.header, reading=reading)
        return lvalues.valid if ref.field == ir.VALID else f"{lvalues.fields}.{ref.field}"

    def _member(self, header: str) -> str:
        """Return a header's member name in the structures of fields, validity and lengths."""
        return self._elements.get(header) or header

    def _header_lvalues(self, header: str, member: str) -> HeaderLvalues:
        kind = self.headers[header]
        others = next((each.headers for each in self.program.unions if header in each.headers), ())
        return HeaderLvalues(
            f"p->{'m.' if kind.metadata else ''}{member}",
            f"p->m.valid.{member}",
            f"p->m.varbit_bytes.{member}" if kind.varbit else None,
            tuple(self.valid(each) for each in others if each != header),
            kind.metadata,
        )


def _primitives(program: ir.Program) -> Iterator[str]:
    bodies = [each.body for each in program.states] + [each.body for each in program.actions]
    yield from (step.op for body in bodies for step in body)
