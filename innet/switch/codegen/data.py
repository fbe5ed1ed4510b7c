"""The packet's headers and metadata, and the program's registers, as C structures."""

from collections.abc import Iterator
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.codegen import fields
from innet.switch.codegen.references import fields_in
from innet.switch.codegen.scope import OUTSIDE, Scope

_MIN_RUN = 4

COMMON = "common_"
"""The member in front of the headers that all copies of a packet share."""


@dataclass(frozen=True)
class Bank:
    """Registers of one size, side by side, so that the cells of one index lie together."""

    number: int
    size: int
    registers: tuple[ir.Register, ...]


def banks(registers: tuple[ir.Register, ...]) -> list[Bank]:
    """Return the banks of all registers, one for each size."""
    sizes = dict.fromkeys(register.size for register in registers)
    return [
        Bank(number, size, tuple(each for each in registers if each.size == size))
        for number, size in enumerate(sizes)
    ]


def packet_struct(scope: Scope) -> None:
    """Write the packet's structure.

    Metadata and validity come first, because they are cleared for every packet. Last come the
    headers that the egress does not change, so that all copies of a packet can share them.
    """
    stacks = scope.program.stacks
    stacked = {name for stack in stacks for name in stack.headers}
    headers = [each for each in scope.program.headers if each.name not in stacked]
    of_stack = [(stack, scope.headers[stack.headers[0]]) for stack in stacks]
    with scope.block("struct phv", "};"):
        with scope.block("struct", "} m;"):
            for header in headers:
                if header.metadata:
                    _header_struct(scope, header)
            scope.emit("struct path path;")
            scope.emit("bool exited_;")
            with scope.block("struct", "} valid;"):
                scope.emit(*(f"bool {header.name};" for header in headers))
                scope.emit(*(f"bool {_array(stack)};" for stack in stacks))
            lengths = [f"uint32_t {header.name};" for header in headers if header.varbit]
            lengths += [f"uint32_t {_array(stack)};" for stack, header in of_stack if header.varbit]
            if lengths:
                with scope.block("struct", "} varbit_bytes;"):
                    scope.emit(*lengths)
            if stacks:
                with scope.block("struct", "} next;"):
                    counters = dict.fromkeys(stack.counter for stack in stacks)
                    scope.emit(*(f"uint32_t {counter};" for counter in counters))
        members = [(each, each.name) for each in headers if not each.metadata]
        _members(scope, members + [(header, _array(stack)) for stack, header in of_stack])
    scope.emit("")


def _members(scope: Scope, members: list[tuple[ir.Header, str]]) -> None:
    """Write the headers and stacks under their names, each with the structure of one header."""
    changed = _changed_behind_ingress(scope.program)
    for header, name in members:
        if header.name in changed:
            _header_struct(scope, header, name)
    scope.emit(f"char {COMMON}[0];")
    for header, name in members:
        if header.name not in changed:
            _header_struct(scope, header, name)


def _changed_behind_ingress(program: ir.Program) -> frozenset[str]:
    """Return the headers whose fields the egress or a checksum update may set."""
    actions = {number for table in program.egress.tables for number in table.actions}
    steps = [step for each in program.actions if each.id in actions for step in each.body]
    # An assignment sets its target. Any other step may set everything that it mentions.
    targets = [step.args[:1] if step.op == "assign" else step.args for step in steps]
    updated = [each.target for each in program.checksums if each.update]
    coloured = [each.target for each in program.meters if each.target]
    arguments = [arg for args in targets for arg in args]
    headers = {field.header for field in fields_in([targets, updated, coloured])}
    headers |= {arg for arg in arguments if isinstance(arg, ir.Element)}
    names = {each.stack if isinstance(each, ir.Element) else each for each in headers}
    names |= {arg.name for arg in arguments if isinstance(arg, ir.Name)}
    for union_stack in program.union_stacks:
        if union_stack.name in names:
            names |= {*union_stack.unions}
    for each in program.unions:
        if each.name in names:
            names |= {*each.headers}
    for stack in program.stacks:
        if names & {stack.name, *stack.headers}:
            names |= {*stack.headers}
    return frozenset(names)


def _header_struct(scope: Scope, header: ir.Header, name: str | None = None) -> None:
    with scope.block("struct", f"}} {name or header.name};"):
        for field in header.fields:
            if ir.FieldRef(header.name, field.name) not in scope.temporaries:
                scope.emit(fields.declaration(field))
        scope.emit("char end_[0];")


def _array(stack: ir.Stack) -> str:
    return f"{stack.name}[{len(stack.headers)} + {OUTSIDE}]"


def state_struct(scope: Scope, all_banks: list[Bank]) -> None:
    """Write the structure of registers, in banks of rows."""
    for bank in all_banks:
        with scope.block(f"struct row_{bank.number}", "};"):
            scope.emit(*(fields.declaration(fields.of(each)) for each in bank.registers))
    with scope.block("struct state", "};"):
        scope.emit("char none_[1];")
        for bank in all_banks:
            scope.emit(f"struct row_{bank.number} bank_{bank.number}[{bank.size}];")
            scope.emit(f"struct row_{bank.number} outside_{bank.number};")
    scope.emit("")
    for bank in all_banks:
        n = bank.number
        scope.emit("/* NULL outside of the array. */")
        with scope.block(f"static inline struct row_{n} *row_{n}(struct state *s, uint64_t index)"):
            scope.emit(
                f"return __builtin_expect(index < {bank.size}, 1) ? &s->bank_{n}[index] : NULL;"
            )
        scope.emit("")


def cells(register: ir.Register, all_banks: list[Bank]) -> str:
    """Return the location of a register's cells, as an initializer of the runtime's ``struct cells``."""
    bank = next(each for each in all_banks if register in each.registers)
    row, name = f"struct row_{bank.number}", register.name
    first = f"offsetof(struct state, bank_{bank.number}) + offsetof({row}, {name})"
    size = f"sizeof((({row} *)0)->{name})"
    return f"{{{first}, sizeof({row}), {size}, {bank.size}}},"


def runs(header: ir.Header) -> Iterator[tuple[ir.FieldType, ...]]:
    """Yield the fields in order, with neighbouring byte-aligned 32-bit fields together."""
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
    if len(run) >= _MIN_RUN:
        return [tuple(run)]
    return [(field,) for field in run]
