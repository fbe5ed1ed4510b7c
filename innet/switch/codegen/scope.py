"""What all parts of the generator share: the program, the text, and where things live in C."""

from innet.switch import ir
from innet.switch.codegen.text import Text, c_name
from innet.switch.expressions import Expressions

STANDARD = "standard_metadata"


class Scope:
    """One program on its way to C."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.text = Text()
        self.emit = self.text.emit
        self.block = self.text.block
        self.headers = {header.name: header for header in program.headers}
        self.actions = {action.id: action for action in program.actions}
        self.expressions = Expressions(program, self.place)

    def place(self, ref: ir.FieldRef) -> str:
        """The C lvalue of a field, or of a header's validity."""
        if ref.field == ir.VALID:
            return self.valid(ref.header)
        inner = "m." if self.headers[ref.header].metadata else ""
        return f"p->{inner}{c_name(ref.header)}.{c_name(ref.field)}"

    def valid(self, header: str) -> str:
        """The C lvalue of a header's validity."""
        return f"p->m.valid.{c_name(header)}"

    def standard(self, field: str) -> str:
        """The C lvalue of a field of standard metadata."""
        return f"p->m.{STANDARD}.{field}"
