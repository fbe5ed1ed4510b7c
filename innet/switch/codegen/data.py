"""The packet's headers and metadata, and the program's registers, as C structures."""

from collections.abc import Iterator
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.codegen.fields import declaration
from innet.switch.codegen.scope import OUTSIDE, Scope
from innet.switch.codegen.text import c_name, c_type

_SHORTEST_RUN = 4


@dataclass(frozen=True)
class Bank:
    """Registers of one size, side by side: what one index touches lies together."""

    number: int
    size: int
    registers: tuple[ir.Register, ...]


def banks(registers: tuple[ir.Register, ...]) -> list[Bank]:
    """All registers, by size."""
    sizes = dict.fromkeys(register.size for register in registers)
    return [
        Bank(number, size, tuple(each for each in registers if each.size == size))
        for number, size in enumerate(sizes)
    ]


def packet_struct(scope: Scope) -> None:
    """Metadata and validity come first: they are what is cleared for every packet."""
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
            with scope.block("struct", "} valid;"):
                scope.emit("bool none_;")
                scope.emit(*(f"bool {c_name(header.name)};" for header in headers))
                scope.emit(*(f"bool {_array(stack)};" for stack in stacks))
            lengths = [f"u32 {c_name(header.name)};" for header in headers if header.varbit]
            lengths += [f"u32 {_array(stack)};" for stack, header in of_stack if header.varbit]
            if lengths:
                with scope.block("struct", "} varbit_bytes;"):
                    scope.emit(*lengths)
            if stacks:
                with scope.block("struct", "} next;"):
                    scope.emit(*(f"u32 {c_name(stack.name)};" for stack in stacks))
        for header in headers:
            if not header.metadata:
                _header_struct(scope, header)
        for stack, header in of_stack:
            _header_struct(scope, header, _array(stack))
    scope.emit("")


def _header_struct(scope: Scope, header: ir.Header, name: str | None = None) -> None:
    with scope.block("struct", f"}} {name or c_name(header.name)};"):
        scope.emit(*map(declaration, header.fields), "char end_[0];")


def _array(stack: ir.Stack) -> str:
    return f"{c_name(stack.name)}[{len(stack.headers)} + {OUTSIDE}]"


def state_struct(scope: Scope, all_banks: list[Bank]) -> None:
    """Registers, in banks of rows."""
    for bank in all_banks:
        with scope.block(f"struct row_{bank.number}", "};"):
            scope.emit(*(f"{c_type(each.bits)} {c_name(each.name)};" for each in bank.registers))
    with scope.block("struct state", "};"):
        scope.emit("char none_[1];")
        for bank in all_banks:
            scope.emit(f"struct row_{bank.number} bank_{bank.number}[{bank.size}];")
            scope.emit(f"struct row_{bank.number} outside_{bank.number};")
    scope.emit("")
    for bank in all_banks:
        _row_function(scope, bank)


def _row_function(scope: Scope, bank: Bank) -> None:
    n = bank.number
    scope.emit("/* Outside of the array, reads give zeros and writes are lost. */")
    with scope.block(f"static inline struct row_{n} *row_{n}(struct state *s, u64 index)"):
        scope.emit(
            f"if (__builtin_expect(index < {bank.size}, 1))",
            f"    return &s->bank_{n}[index];",
            f"memset(&s->outside_{n}, 0, sizeof s->outside_{n});",
            f"return &s->outside_{n};",
        )
    scope.emit("")


def cells(register: ir.Register, all_banks: list[Bank]) -> str:
    """Where the cells of a register lie, as the runtime's ``struct cells``."""
    bank = next(each for each in all_banks if register in each.registers)
    row, name = f"struct row_{bank.number}", c_name(register.name)
    first = f"offsetof(struct state, bank_{bank.number}) + offsetof({row}, {name})"
    size = f"sizeof((({row} *)0)->{name})"
    return f"{{{first}, sizeof({row}), {size}, {bank.size}}},"


def runs(header: ir.Header) -> Iterator[tuple[ir.FieldType, ...]]:
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
