"""The analysis that finds which packets of a program may run on different cores.

Two packets must run on the same core if they access the same cell of a register or of a meter. If all
accesses of a program have one index, and the parsed packet determines this index before any table is
applied, then the index is a key: packets with different keys share no cell.

The analysis follows the values of fields forward through actions and tables. A value is an expression
over the packet as the parser leaves it, or unknown. Where two paths meet and their values differ, the
value is unknown. An access with an unknown index keeps the program on one core.

Tables, groups and sessions do not change while packets run. Each core has its own counts, which are
added up when they are read. So none of these ties packets together.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from innet.switch import ir
from innet.switch.codegen.effects import CLONES, LEAVING, SET_NO_FIELD, TARGETS, following
from innet.switch.codegen.references import fields_in

_ACCESSES = {"register_read": (1, 2), "register_write": (0, 1), "execute_meter": (0, 1)}
"""The primitives that access cells, with the positions of the array and the index."""

_SET_NOTHING = SET_NO_FIELD | {"drop"}
"""The primitives that change no field, except fields of standard metadata that are never followed."""

_NOT_TWICE = frozenset({
    "count", "log_msg", "modify_field_rng_uniform", "modify_field_with_hash_based_offset",
})  # fmt: skip
"""The primitives that the parser must not have, because it also runs to find a packet's key."""

_PORT = ir.FieldRef(ir.STANDARD_METADATA, "ingress_port")
"""The port of arrival."""

_FOLLOWED = frozenset({"+", "-", "*", "&", "|", "^"})
_SHIFTS = frozenset({"<<", ">>"})
_WORD = 64
_MAX_NODES = 32

Node = TypeVar("Node")

State = Mapping[ir.FieldRef, ir.Expr | None]
"""The fields that have changed, each with its value or None. Any other field is as the parser left it."""


@dataclass(frozen=True)
class Partition:
    """A way to spread packets over cores.

    Packets whose `key` differs may run on different cores. Without a key all packets may, unless
    there is a `reason` for one core.
    """

    key: ir.Expr | None = None
    reason: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields in the key."""
        return tuple(sorted(f"{each.header}.{each.field}" for each in fields_in(self.key)))


def partition(program: ir.Program) -> Partition:
    """Return how the packets of a program may be spread over cores."""
    bodies = [each.body for each in program.states] + [each.body for each in program.actions]
    primitives = {step.op for body in bodies for step in body}
    meters = [each.direct_meter for each in program.tables if each.direct_meter]
    if meters:
        return Partition(reason=f"packets that hit one entry share a cell of meter {meters[0]}")
    if not primitives & {*_ACCESSES}:
        return Partition()
    if program.value_sets:
        return Partition(reason="the controller can change the parser's value sets")
    if any(step.op in _ACCESSES for state in program.states for step in state.body):
        return Partition(reason="the parser uses registers")
    if any(step.op in _NOT_TWICE for state in program.states for step in state.body):
        return Partition(reason="the parser counts, logs, hashes, or draws random numbers")
    read = _parsed_fields(program)
    if any(each.header == ir.STANDARD_METADATA and each != _PORT for each in read):
        return Partition(reason="the parser uses other metadata of the switch than the port")
    if "recirculate" in primitives:
        return Partition(reason="a packet that recirculates may change its index")
    if primitives & {*CLONES, "resubmit"} and _parser_reads_metadata(program):
        return Partition(reason="the parser of a second pass may depend on the first pass")
    return _Flow(program, primitives).partition()


def _parser_reads_metadata(program: ir.Program) -> bool:
    metadata = {each.name for each in program.headers if each.metadata}
    return any(field.header in metadata for field in _parsed_fields(program))


def _parsed_fields(program: ir.Program) -> frozenset[ir.FieldRef]:
    """Return all fields that the parser mentions."""
    return fields_in([(each.keys, [step.args for step in each.body]) for each in program.states])


class _Flow:
    """The values of fields along all paths of a program."""

    def __init__(self, program: ir.Program, primitives: set[str]) -> None:
        self._program, self._primitives = program, primitives
        self._actions = {each.id: each for each in program.actions}
        self._headers = {each.name: each for each in program.headers}
        self._accesses: dict[tuple[str, str], ir.Expr | None] = {}
        self._relevant = _relevant(program)
        self._passes = bool(primitives & {*CLONES, "resubmit"})

    def partition(self) -> Partition:
        """Return the program's partition."""
        parsed: State = self._forget_metadata({}) if self._passes else {}
        departing = self._pipeline(self._program.ingress, parsed)
        if "clone_ingress_pkt_to_egress" in self._primitives:
            departing = _joined(departing, parsed)
        done: State | None = None
        while departing is not None and departing != done:
            done = departing
            left = self._pipeline(self._program.egress, departing)
            if left is not None and "clone_egress_pkt_to_egress" in self._primitives:
                departing = _joined(departing, self._forget_metadata(left))
        return self._verdict()

    def _verdict(self) -> Partition:
        for (what, index), value in self._accesses.items():
            if value is None or _is_constant(value):
                return Partition(reason=f"{what} is indexed by {index}")
        keys = {value: (what, index) for (what, index), value in self._accesses.items()}
        if len(keys) > 1:
            (one, first), (other, second) = list(keys.values())[:2]
            indices = f"by {first}, and {other} by {second}"
            return Partition(reason=f"{one} is indexed {indices}")
        return Partition(next(iter(keys), None))

    # -- pipelines -------------------------------------------------------------------------------

    def _pipeline(self, pipeline: ir.Pipeline, start: State | None) -> State | None:
        """Return the state at the end of a pipeline, or None if no packet gets there."""
        conditionals = {each.name: each for each in pipeline.conditionals}
        tables = {each.name: each for each in pipeline.tables}

        def behind(name: str | None, state: State) -> Iterable[tuple[str | None, State | None]]:
            if name is None:
                return ()
            if name in conditionals:
                both = conditionals[name].if_true, conditionals[name].if_false
                return [(each, state) for each in both]
            return self._table(tables[name], state)

        return _states(pipeline.start, start, behind).get(None)

    def _table(self, table: ir.Table, state: State) -> Iterator[tuple[str | None, State | None]]:
        """Yield the nodes that follow a table, each with a state at which it may be reached."""
        for number in table.actions:
            after, left = self._action(self._actions[number], state)
            yield None, left
            if table.by_hit:
                yield table.next_on_hit, after
                yield table.next_on_miss, after
            else:
                yield table.next_by_action[number], after
        if table.default_action is None or table.profile:
            yield table.next_on_miss, state
            yield table.next_on_hit, state

    # -- actions ---------------------------------------------------------------------------------

    def _action(self, action: ir.Action, state: State) -> tuple[State | None, State | None]:
        """Return the state behind an action, and the state with which it leaves the pipeline."""
        end = len(action.body)

        def behind(number: int, state: State) -> Iterable[tuple[int, State | None]]:
            if number == end:
                return ()
            step = action.body[number]
            after = self._step(step, state)
            return [(each, after) for each in following(step, number)]

        at = _states(0, state, behind)
        left: State | None = None
        for number, step in enumerate(action.body):
            if step.op in LEAVING:
                left = _joined(left, at.get(number))
        return at.get(end), left

    def _step(self, step: ir.Primitive, state: State) -> State:
        if step.op in _ACCESSES:
            self._note_access(step, state)
        if step.op in TARGETS:
            target = step.args[TARGETS[step.op]]
            if isinstance(target, ir.FieldRef) and isinstance(target.header, str):
                if target not in self._relevant:
                    return state
                assigned = step.op == "assign"
                value = self._assigned(target, step.args[1], state) if assigned else None
                return {**state, target: value}
            return self._forget(target, state)
        return state if step.op in _SET_NOTHING else self._forget(step.args, state)

    def _note_access(self, step: ir.Primitive, state: State) -> None:
        array, index = (step.args[position] for position in _ACCESSES[step.op])
        if isinstance(array, ir.Name):
            access = f"{array.kind.removesuffix('_array')} {array.name}", _shown(index)
            value = self._value(index, state)
            before = self._accesses.setdefault(access, value)
            if before != value:
                self._accesses[access] = None

    # -- values ----------------------------------------------------------------------------------

    def _assigned(self, target: ir.FieldRef, value: object, state: State) -> ir.Expr | None:
        """Return the value of a field behind an assignment, wrapped to the field's width."""
        known, width = self._value(value, state), self._width(target)
        if known is None or not width:
            return None
        if isinstance(known, ir.FieldRef) and self._width(known) <= width:
            return known
        mask = (1 << width) - 1
        match known:
            case ir.Const(number):
                return ir.Const(number & mask)
            case ir.Op("&", (inner, ir.Const(other))):
                return ir.Op("&", (inner, ir.Const(mask & other)))
        return ir.Op("&", (known, ir.Const(mask)))

    def _value(self, expr: object, state: State) -> ir.Expr | None:
        value = self._substituted(expr, state)
        return value if value is None or _nodes(value) <= _MAX_NODES else None

    def _substituted(self, expr: object, state: State) -> ir.Expr | None:
        match expr:
            case ir.Const():
                return expr
            case ir.FieldRef(str()) if self._width(expr):
                return state.get(expr, expr)
            case ir.Op(op, (left, ir.Const(distance) as by)) if op in _SHIFTS:
                value = self._substituted(left, state)
                return ir.Op(op, (value, by)) if value is not None and distance < _WORD else None
            case ir.Op(op, (left, right)) if op in _FOLLOWED:
                values = self._substituted(left, state), self._substituted(right, state)
                return ir.Op(op, values) if None not in values else None  # type: ignore[arg-type]
        return None

    def _width(self, ref: ir.FieldRef) -> int:
        """Return the bits of a field whose value is followed, and 0 for any other field."""
        header = self._headers[str(ref.header)]
        # The port of arrival is known in a packet's only pass. A later pass has another one.
        if ref.field == ir.VALID or (
            header.name == ir.STANDARD_METADATA and (ref != _PORT or self._passes)
        ):
            return 0
        kind = header.field(ref.field)
        return 0 if kind.signed or kind.varbit or kind.bits > _WORD else kind.bits

    # -- what is no longer known -----------------------------------------------------------------

    def _forget(self, node: object, state: State) -> State:
        """Return the state after all headers and fields that a node mentions may have changed."""
        names: set[str] = set()
        for each in node if isinstance(node, tuple) else (node,):
            match each:
                case ir.Name(_, name) | ir.Element(name) | ir.FieldRef(str(name)):
                    names.add(name)
                case ir.FieldRef(ir.Element(name)):
                    names.add(name)
        return self._forget_headers(self._related(names), state)

    def _related(self, names: set[str]) -> set[str]:
        """Return the headers of stacks and unions that these names belong to or stand for."""
        program = self._program
        related = set(names)
        groups = [{each.name, *each.headers} for each in program.unions]
        groups += [{each.name, *each.headers} for each in program.stacks]
        size = 0
        while len(related) > size:
            size = len(related)
            for each in program.union_stacks:
                if related & {each.name, *each.unions, *each.stacks}:
                    related |= {each.name, *each.unions, *each.stacks}
            for group in groups:
                if related & group:
                    related |= group
        return related & {*self._headers}

    def _forget_metadata(self, state: State) -> State:
        metadata = {each.name for each in self._program.headers if each.metadata}
        return self._forget_headers(metadata, state)

    def _forget_headers(self, names: set[str], state: State) -> State:
        return {**state, **{field: None for field in self._relevant if field.header in names}}


def _relevant(program: ir.Program) -> frozenset[ir.FieldRef]:
    """Return the fields from which an index may be computed."""
    steps = [step for action in program.actions for step in action.body]
    indices = {each.args[_ACCESSES[each.op][1]] for each in steps if each.op in _ACCESSES}
    assigned: dict[object, list[object]] = {}
    for step in steps:
        if step.op == "assign":
            assigned.setdefault(step.args[0], []).append(step.args[1])
    found: set[ir.FieldRef] = set()
    waiting = list(fields_in(tuple(indices)))
    while waiting:
        field = waiting.pop()
        if field not in found:
            found.add(field)
            waiting += fields_in(assigned.get(field, []))
    return frozenset(found)


def _states(
    start: Node,
    state: State | None,
    behind: Callable[[Node, State], Iterable[tuple[Node, State | None]]],
) -> dict[Node, State]:
    """Return the state at every node that a packet reaches: the join of the states on all paths.

    `behind` returns the nodes that follow a node, each with its state.
    """
    at: dict[Node, State] = {}
    waiting = [(start, state)]
    while waiting:
        node, state = waiting.pop()
        joined = _joined(at.get(node), state)
        if joined is not None and joined != at.get(node):
            at[node] = joined
            waiting += behind(node, joined)
    return at


def _joined(one: State | None, other: State | None) -> State | None:
    """Return the state where two paths meet. A path that no packet takes is None."""
    if one is None or other is None:
        return other if one is None else one
    return {
        field: value if (value := one.get(field, field)) == other.get(field, field) else None
        for field in {**one, **other}
    }


def _is_constant(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Op):
        return all(map(_is_constant, expr.operands))
    return isinstance(expr, ir.Const)


def _nodes(expr: object) -> int:
    return 1 + sum(map(_nodes, expr.operands)) if isinstance(expr, ir.Op) else 1


def _shown(index: object) -> str:
    match index:
        case ir.FieldRef(str() as header, field):
            return f"{header}.{field}"
        case ir.Const(value):
            return str(value)
        case ir.ParamRef():
            return "an argument of a table entry"
    return "an expression"
