"""What all parts of the generator share: the program, the text, and where things live in C."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from innet.switch import ir
from innet.switch.codegen.references import fields_in
from innet.switch.codegen.temporaries import temporaries
from innet.switch.codegen.text import Text, c_name, c_string
from innet.switch.expressions import Expressions

STANDARD = "standard_metadata"

OUTSIDE = 2
"""Behind its headers a stack in C has one that reads as zeros, and one where writes are lost: they
are where an index outside of the stack leads."""


@dataclass(frozen=True)
class HeaderPlace:
    """The C lvalues of a header's parts; `varbit_bytes` is the length of its varbit.

    `rivals` are those of the validity of the other headers of its union.
    """

    fields: str
    valid: str
    varbit_bytes: str | None
    rivals: tuple[str, ...]
    metadata: bool


_PARTS = (
    "states", "actions", "ingress", "egress", "checksums", "calculations", "profiles", "meters",
    "field_lists", "learn_lists",
)  # fmt: skip


class Scope:
    """One program on its way to C."""

    def __init__(self, program: ir.Program, *, tracing: bool = False) -> None:
        self.program, self.tracing = program, tracing
        self.text = Text()
        self.emit = self.text.emit
        self.block = self.text.block
        self.headers = {header.name: header for header in program.headers}
        self.actions = {action.id: action for action in program.actions}
        self._elements = {
            header: f"{c_name(stack.name)}[{index}]"
            for stack in program.stacks
            for index, header in enumerate(stack.headers)
        }
        self.expressions = Expressions(program, self)
        self.mentioned = fields_in([getattr(program, part) for part in _PARTS])
        self.temporaries = temporaries(program, STANDARD)
        self.stand_ins: dict[ir.FieldRef, str] = {}
        """C lvalues of fields that are elsewhere while a loop runs."""
        self.primitives = frozenset(_primitives(program))

    def place(self, ref: ir.FieldRef) -> str:
        """The C lvalue of a field, or of a header's validity."""
        return self._part(ref, reading=False)

    def value(self, ref: ir.FieldRef) -> str:
        """C text that reads a field, or a header's validity."""
        return self._part(ref, reading=True)

    def valid(self, header: str) -> str:
        """The C lvalue of a header's validity."""
        return f"p->m.valid.{self._member(header)}"

    def header_place(self, header: str | ir.Element, *, reading: bool = False) -> HeaderPlace:
        """Where a header is; one outside of its stack is elsewhere for reading and for writing."""
        if isinstance(header, ir.Element):
            stack = self.program.stack(header.stack)
            depth = len(stack.headers)
            index = self.expressions.index(header)
            outside = depth if reading else depth + 1
            member = f"{c_name(stack.name)}[rt_index({index}, {depth}, {outside})]"
            return self._header_place(stack.headers[0], member)
        return self._header_place(header, self._member(header))

    def next_place(self, stack: ir.Stack) -> HeaderPlace:
        """Where the parser extracts the next header of a stack that is not full."""
        at = f"[{self.next_index(stack.counter)}]"
        others = [
            each
            for each in self.program.stacks
            if each.union_stack == stack.counter and each != stack
        ]
        return replace(
            self._header_place(stack.headers[0], f"{c_name(stack.name)}{at}"),
            rivals=tuple(f"{self.valid_array(other)}{at}" for other in others),
        )

    def length(self, header: str | ir.Element) -> str:
        """C text that reads how many bytes a header's varbit has."""
        return self.header_place(header, reading=True).varbit_bytes or "0"

    def next_index(self, stack: str) -> str:
        """The C lvalue of how many headers the parser has extracted to a stack."""
        return f"p->m.next.{c_name(stack)}"

    def valid_array(self, stack: ir.Stack) -> str:
        """The C array of the validity of a stack's headers."""
        return f"p->m.valid.{c_name(stack.name)}"

    def stack_arrays(self, stack: ir.Stack) -> list[str]:
        """The C arrays that hold what belongs to the headers of a stack."""
        arrays = [f"p->{c_name(stack.name)}", self.valid_array(stack)]
        if self.headers[stack.headers[0]].varbit:
            arrays.append(f"p->m.varbit_bytes.{c_name(stack.name)}")
        return arrays

    def trace(self, message: str, *values: str, of: str = "p", level: str = "D") -> None:
        """Say what happens to a packet, in the form of C's printf, if this is a program that does."""
        if self.tracing:
            text = ", ".join([c_string(message), *values])
            self.emit(f"rt_trace(sw, &{of}->m.path, '{level}', {text});")

    def mentions(self, field: str) -> bool:
        """Whether the program reads or writes this field of standard metadata."""
        return ir.FieldRef(STANDARD, field) in self.mentioned

    def standard(self, field: str) -> str:
        """The C lvalue of a field of standard metadata."""
        return f"p->m.{STANDARD}.{field}"

    def _part(self, ref: ir.FieldRef, *, reading: bool) -> str:
        if ref in self.stand_ins:
            return self.stand_ins[ref]
        if ref in self.temporaries:
            return c_name(f"{ref.header}_{ref.field}")
        place = self.header_place(ref.header, reading=reading)
        return place.valid if ref.field == ir.VALID else f"{place.fields}.{c_name(ref.field)}"

    def _member(self, header: str) -> str:
        """What a header is called in the structures of fields, of validity and of lengths."""
        return self._elements.get(header) or c_name(header)

    def _header_place(self, header: str, member: str) -> HeaderPlace:
        kind = self.headers[header]
        others = next((each.headers for each in self.program.unions if header in each.headers), ())
        return HeaderPlace(
            f"p->{'m.' if kind.metadata else ''}{member}",
            f"p->m.valid.{member}",
            f"p->m.varbit_bytes.{member}" if kind.varbit else None,
            tuple(self.valid(each) for each in others if each != header),
            kind.metadata,
        )


def _primitives(program: ir.Program) -> Iterator[str]:
    bodies = [each.body for each in program.states] + [each.body for each in program.actions]
    yield from (step.op for body in bodies for step in body)
