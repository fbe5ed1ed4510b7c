"""The names and ids of P4Info, bound to those of the compiled program.

The P4Info and the BMv2 JSON of one compilation share the names of tables, actions and counters.
Only P4Info has P4Runtime's ids.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeVar

from innet.errors import UnsupportedProgram
from innet.p4runtime import p4info_pb2
from innet.switch import ir
from innet.switch.p4runtime.digest_types import digest_types
from innet.switch.p4runtime.entities import (
    Action,
    Counter,
    Field,
    Meter,
    Profile,
    Register,
    Table,
    ValueSet,
)
from innet.switch.p4runtime.info import check, mismatch
from innet.switch.p4runtime.refusals import not_found

_KINDS = ("exact", "lpm", "ternary", "optional", "range")
_COMPILED = {"optional": "ternary"}
"""P4Info has the source's kinds of keys. In the program, p4c turns optional keys into ternary ones."""

Entity = TypeVar("Entity")


class Schema:
    """All of a program's P4Runtime entities. Raises UnsupportedProgram if P4Info and program differ.

    p4c removes unreachable parts from the program, but not from its P4Info. Such a part is known by
    name, but cannot be written or read.
    """

    def __init__(self, info: p4info_pb2.P4Info, program: ir.Program) -> None:
        check(info)
        _check_related(info, program)
        _check_sizes(info, program)
        self._removed: dict[int, str] = {}
        layouts = {table.name: table for table in program.tables}
        tables = _Tables(info, program)
        self.tables: dict[int, Table] = {
            each.preamble.id: tables.bind(each, layouts[each.preamble.name])
            for each in self._present(info.tables, layouts)
        }
        self.profiles = {
            each.preamble.id: _profile(each, self.tables)
            for each in self._present(
                info.action_profiles, {profile.name for profile in program.profiles}
            )
        }
        sets = {each.name: each.bits for each in program.value_sets}
        self.value_sets = {
            each.preamble.id: _value_set(each, sets[each.preamble.name])
            for each in self._present(info.value_sets, sets)
        }
        self.meters = {
            each.preamble.id: Meter(each.preamble.id, each.preamble.name, each.size)
            for each in self._present(info.meters, {meter.name for meter in program.meters})
        }
        self.counters = {
            each.preamble.id: Counter(each.preamble.id, each.preamble.name, each.size)
            for each in self._present(info.counters, {each.name for each in program.counters})
        }
        cells = {register.name: register.bits for register in program.registers}
        self.registers = {
            each.preamble.id: _register(each, cells[each.preamble.name])
            for each in self._present(info.registers, cells)
        }
        self.digests = digest_types(info, program)
        headers = {each.preamble.name: each for each in info.controller_packet_metadata}
        self.packet_in = _packet_header(headers, "packet_in")
        self.packet_out = _packet_header(headers, "packet_out")

    def _present(self, nodes: Iterable[Any], names: Container[str]) -> list[Any]:
        """Return the entities that the program has, and remember the names of the others."""
        missing = (each.preamble for each in nodes if each.preamble.name not in names)
        self._removed |= {preamble.id: preamble.name for preamble in missing}
        return [each for each in nodes if each.preamble.name in names]

    def table(self, number: int) -> Table:
        """Return the table with this P4Runtime id. Raises Refusal."""
        return self._find(self.tables, number, "table")

    def profile(self, number: int) -> Profile:
        """Return the action profile with this P4Runtime id. Raises Refusal."""
        return self._find(self.profiles, number, "action profile")

    def value_set(self, number: int) -> ValueSet:
        """Return the value set with this P4Runtime id. Raises Refusal."""
        return self._find(self.value_sets, number, "value set")

    def meter(self, number: int) -> Meter:
        """Return the indirect meter with this P4Runtime id. Raises Refusal."""
        return self._find(self.meters, number, "meter")

    def counter(self, number: int) -> Counter:
        """Return the indirect counter with this P4Runtime id. Raises Refusal."""
        return self._find(self.counters, number, "counter")

    def register(self, number: int) -> Register:
        """Return the register with this P4Runtime id. Raises Refusal."""
        return self._find(self.registers, number, "register")

    def _find(self, entities: Mapping[int, Entity], number: int, kind: str) -> Entity:
        if number in self._removed:
            raise not_found(
                f"{self._removed[number]} is not in the program: p4c has removed it, because no packet "
                "gets there"
            )
        if number not in entities:
            raise not_found(f"the program has no {kind} with id {number:#x}")
        return entities[number]


class _Tables:
    """A binder of P4Info's tables and their actions to those of the program."""

    def __init__(self, info: p4info_pb2.P4Info, program: ir.Program) -> None:
        self._program_actions = {action.id: action for action in program.actions}
        self._actions = {each.preamble.id: each for each in info.actions}
        self._profiles = {each.preamble.id: each.preamble.name for each in info.action_profiles}

    def bind(self, node: Any, layout: ir.Table) -> Table:
        """Return a table. Raises UnsupportedProgram if the program's table differs."""
        fields = tuple(
            Field(field.id, field.name, field.bitwidth, _match_kind(field))
            for field in node.match_fields
        )
        declared = [(field.bits, _COMPILED.get(field.match, field.match)) for field in fields]
        if declared != [(key.bits, _COMPILED.get(key.match, key.match)) for key in layout.keys]:
            raise mismatch(f"the keys of {layout.name} differ")
        profile = self._profiles.get(node.implementation_id)
        if profile != layout.profile or (node.implementation_id and not profile):
            raise mismatch(f"the action profiles of {layout.name} differ")
        by_name = {self._program_actions[each].name: each for each in layout.actions}
        actions = {each.id: self._action(each, layout, by_name) for each in node.action_refs}
        used = {entry.action for entry in layout.entries} | {layout.default_action} - {None}
        if not used <= {each.number for each in actions.values()}:
            raise mismatch(f"it lacks an action of {layout.name}")
        return Table(
            node.preamble.id,
            node.preamble.name,
            fields,
            actions,
            node.size,
            node.is_const_table,
            node.idle_timeout_behavior == p4info_pb2.Table.NOTIFY_CONTROL,
            layout,
            node.implementation_id,
        )

    def _action(self, ref: Any, layout: ir.Table, by_name: Mapping[str, int]) -> Action:
        if ref.id not in self._actions:
            raise mismatch(f"{layout.name} has an action with id {ref.id:#x}, which is not there")
        node = self._actions[ref.id]
        name, params = node.preamble.name, _fields(node.params)
        if name not in by_name:
            raise mismatch(f"the program's {layout.name} does not have the action {name}")
        number = by_name[name]
        if [param.bits for param in params] != [
            bits for _, bits in self._program_actions[number].params
        ]:
            raise mismatch(f"the parameters of {name} differ")
        in_entries = ref.scope != p4info_pb2.ActionRef.DEFAULT_ONLY
        return Action(
            ref.id, name, number, params, in_entries, ref.scope != p4info_pb2.ActionRef.TABLE_ONLY
        )


def _profile(node: Any, tables: Mapping[int, Table]) -> Profile:
    users = [tables[each] for each in node.table_ids if each in tables]
    return Profile(
        node.preamble.id,
        node.preamble.name,
        users[0].actions if users else {},
        node.with_selector,
        node.size,
        node.max_group_size,
        node.HasField("sum_of_members"),
        node.sum_of_members.max_member_weight,
    )


def _value_set(node: Any, bits: int) -> ValueSet:
    fields = tuple(
        Field(match.id, match.name or node.preamble.name, match.bitwidth, _match_kind(match))
        for match in node.match
    )
    if sum(field.bits for field in fields) != bits:
        raise mismatch(f"the keys of {node.preamble.name} differ")
    if any(field.match == "range" for field in fields):
        raise UnsupportedProgram(
            f"value set {node.preamble.name}: a range in a value set is not supported"
        )
    return ValueSet(node.preamble.id, node.preamble.name, fields, node.size)


def _register(node: Any, bits: int) -> Register:
    spec = node.type_spec
    kind = spec.WhichOneof("type_spec")
    if kind == "bitstring":
        kind = spec.bitstring.WhichOneof("type_spec")
    if kind == "int" and not bits:
        raise mismatch(f"the cells of {node.preamble.name} have no bits")
    return Register(node.preamble.id, node.preamble.name, node.size, bits, kind)


def _packet_header(headers: Mapping[str, Any], name: str) -> tuple[Field, ...]:
    fields = _fields(headers[name].metadata) if name in headers else ()
    if sum(field.bits for field in fields) % 8:
        raise UnsupportedProgram(f"the P4Info's {name} is not of whole bytes")
    return fields


def _fields(nodes: Iterable[Any]) -> tuple[Field, ...]:
    return tuple(Field(node.id, node.name, node.bitwidth) for node in nodes)


def _match_kind(field: Any) -> str:
    kinds = p4info_pb2.MatchField.MatchType
    known = {kinds.Value(kind.upper()): kind for kind in _KINDS}
    if field.match_type not in known:
        raise UnsupportedProgram(f"{field.name}: a match of kind {field.match_type} is unknown")
    return known[field.match_type]


def _check_related(info: p4info_pb2.P4Info, program: ir.Program) -> None:
    """Raise UnsupportedProgram if the program has none of the entities in the P4Info, but others.

    The names of entities in a control have a dot, unlike those that p4c makes itself.
    """
    named: list[Any] = [*program.registers, *program.counters, *program.meters]
    named += [*program.tables, *program.value_sets, *program.profiles]
    known = {each.name for each in named}
    there = [*info.registers, *info.counters, *info.meters]
    there += [*info.tables, *info.value_sets, *info.action_profiles]
    others = any("." in name for name in known)
    if there and others and not any(each.preamble.name in known for each in there):
        raise mismatch(f"the program does not have {there[0].preamble.name!r}")


def _check_sizes(info: p4info_pb2.P4Info, program: ir.Program) -> None:
    """Raise UnsupportedProgram if the sizes of arrays differ.

    A program that is compiled with other dimensions has the same names.
    """
    sizes = {register.name: register.size for register in program.registers}
    sizes |= {counter.name: counter.size for counter in program.counters}
    sizes |= {meter.name: meter.size for meter in program.meters}
    for each in (*info.registers, *info.counters, *info.meters):
        size = sizes.get(each.preamble.name, each.size)
        if size != each.size:
            raise mismatch(
                f"{each.preamble.name} has {each.size} cells there, {size} in the program"
            )
