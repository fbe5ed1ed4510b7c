"""Whole headers in actions and parsers: validity, assignment, stacks, unions, varbits."""

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen.scope import HeaderLvalues, Scope
from innet.switch.codegen.steps import Steps

Header = ir.Name | ir.Element


class Headers:
    """A renderer of the primitives on headers."""

    def __init__(self, scope: Scope, steps: Steps) -> None:
        self._scope, self._emit = scope, scope.emit
        steps.define(
            assign_header=self._assign,
            assign_header_stack=self._assign_stack,
            assign_union=self._assign_union,
            assign_union_stack=self._assign_union_stack,
            add_header=self._add,
            remove_header=self._remove,
            assign_VL=self.assign_varbit,
            push=self._push,
            pop=self._pop,
        )

    def _assign(self, target: Header, source: Header) -> None:
        """Write an assignment of a header. As in BMv2, the fields of an invalid one are not copied."""
        to = self._scope.header_lvalues(_header(target))
        of = self._scope.header_lvalues(_header(source), reading=True)
        if to.metadata:  # a structure, always valid
            self._emit(f"memcpy(&{to.fields}, &{of.fields}, sizeof {to.fields});")
            return
        with self._scope.block(f"if ({of.valid})"):
            self._emit(f"memmove(&{to.fields}, &{of.fields}, sizeof {to.fields});")
            if to.varbit_bytes:
                self._emit(f"{to.varbit_bytes} = {of.varbit_bytes};")
            self.make_valid(to)
        self._emit(f"else {to.valid} = false;")

    def _assign_stack(self, target: ir.Name, source: ir.Name) -> None:
        to, of = (self._scope.program.stack(each.name) for each in (target, source))
        for pair in zip(to.headers, of.headers, strict=True):
            self._assign(*(ir.Name("header", each) for each in pair))
        self._emit(f"{self._scope.next_index(to.name)} = {self._scope.next_index(of.name)};")

    def _assign_union(self, target: ir.Name, source: ir.Name) -> None:
        to, of = (self._scope.program.union(each.name) for each in (target, source))
        for pair in zip(to.headers, of.headers, strict=True):
            self._assign(*(ir.Name("header", each) for each in pair))

    def _assign_union_stack(self, target: ir.Name, source: ir.Name) -> None:
        to, of = (self._scope.program.union_stack(each.name) for each in (target, source))
        for pair in zip(to.unions, of.unions, strict=True):
            self._assign_union(*(ir.Name("header_union", each) for each in pair))
        self._emit(f"{self._scope.next_index(to.name)} = {self._scope.next_index(of.name)};")

    def _add(self, target: Header) -> None:
        lvalues = self._scope.header_lvalues(_header(target))
        with self._scope.block(f"if (!{lvalues.valid})"):
            self._emit(f"memset(&{lvalues.fields}, 0, sizeof {lvalues.fields});")
            self._resize(target, "+=")
        self.make_valid(lvalues)

    def _remove(self, target: Header) -> None:
        valid = self._scope.header_lvalues(_header(target)).valid
        with self._scope.block(f"if ({valid})"):
            self._resize(target, "-=")
            self._emit(f"{valid} = false;")

    def _resize(self, target: Header, operator: str) -> None:
        """Write an update of the packet's size, if the program reads it in the metadata."""
        if self._scope.mentions("packet_length"):
            header = self._scope.program.header_of(ir.FieldRef(_header(target), ir.VALID))
            size = f"{header.fixed_bytes} + {self._scope.length(_header(target))}"
            self._emit(f"p->m.path.bytes {operator} {size};")

    def make_valid(self, lvalues: HeaderLvalues) -> None:
        """Set a header valid, and the others of its union invalid."""
        self._emit(f"{lvalues.valid} = true;")
        self._emit(*(f"{other} = false;" for other in lvalues.union_others))

    def assign_varbit(self, target: ir.FieldRef, source: ir.Expr) -> None:
        """Set a varbit to another of its width."""
        kind = self._scope.expressions.field_type
        if not isinstance(source, ir.FieldRef) or not _are_varbits(kind(target), kind(source)):
            raise UnsupportedProgram("a varbit can only be set to another one of its width")
        to, of = self._scope.lvalue(target), self._scope.value(source)
        self._emit(f"memmove({to}, {of}, sizeof {to});")
        length = self._scope.header_lvalues(source.header, reading=True).varbit_bytes
        self._emit(f"{self._scope.header_lvalues(target.header).varbit_bytes} = {length};")

    def _push(self, name: ir.Name, count: ir.Const) -> None:
        depth, arrays = self._arrays(name)
        n = min(count.value, depth)
        following = self._scope.next_index(name.name)
        count_after = (
            f"{following} < {depth - n} ? {following} + {n} : {depth}" if n < depth else f"{depth}"
        )
        if name.kind == "header_union_stack":
            self._emit(
                *(f"rt_push_front({each}, sizeof {each}[0], {depth}, {n});" for each in arrays)
            )
        else:
            if n < depth:
                self._emit(*(_moved(each, n, 0, depth - n) for each in arrays))
            self._emit(self._made_invalid(name, 0, n))
        self._emit(f"{following} = {count_after};")

    def _pop(self, name: ir.Name, count: ir.Const) -> None:
        depth, arrays = self._arrays(name)
        n = min(count.value, depth)
        following = self._scope.next_index(name.name)
        if name.kind == "header_union_stack":
            self._emit(
                *(f"rt_pop_front({each}, sizeof {each}[0], {depth}, {n});" for each in arrays)
            )
        else:
            if n < depth:
                self._emit(*(_moved(each, 0, n, depth - n) for each in arrays))
            self._emit(self._made_invalid(name, depth - n, n))
        self._emit(f"{following} -= {following} < {n} ? {following} : {n};")

    def _arrays(self, name: ir.Name) -> tuple[int, list[str]]:
        """Return the number of elements in a stack, and the C arrays of all their parts."""
        program = self._scope.program
        names = [name.name]
        if name.kind == "header_union_stack":
            names = [*program.union_stack(name.name).stacks]
        stacks = [program.stack(each) for each in names]
        arrays = [array for stack in stacks for array in self._scope.stack_arrays(stack)]
        return len(stacks[0].headers), arrays

    def _made_invalid(self, name: ir.Name, first: int, count: int) -> str:
        valid = self._scope.valid_array(self._scope.program.stack(name.name))
        return f"memset(&{valid}[{first}], 0, {count} * sizeof {valid}[0]);"


def _moved(array: str, to: int, of: int, count: int) -> str:
    return f"memmove(&{array}[{to}], &{array}[{of}], {count} * sizeof {array}[0]);"


def _header(operand: Header) -> str | ir.Element:
    return operand.name if isinstance(operand, ir.Name) else operand


def _are_varbits(kind: ir.FieldType, other: ir.FieldType) -> bool:
    return kind.varbit and other.varbit and kind.bits == other.bits
