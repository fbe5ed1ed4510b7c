"""The reader of the pipelines: tables and conditions, and the way from each to the next."""

from collections import Counter
from collections.abc import Iterable, Mapping

from innet.errors import UnsupportedProgram
from innet.switch import ir, limits
from innet.switch.bmv2json import entries
from innet.switch.bmv2json.actions import source
from innet.switch.bmv2json.document import JsonObject, unique
from innet.switch.bmv2json.expressions import Expressions
from innet.switch.bmv2json.externs import OLD_PROFILE, Externs
from innet.switch.bmv2json.packet import Packet

_MATCHES = ("exact", "lpm", "ternary", "optional", "range", "valid")
_TABLES = ("simple", "indirect", "indirect_ws")
_HIT, _MISS = "__HIT__", "__MISS__"


class Controls:
    """The two pipelines of a program."""

    def __init__(
        self, document: JsonObject, packet: Packet, externs: Externs, actions: Iterable[ir.Action]
    ) -> None:
        nodes = document.nodes("pipelines")
        by_name = unique(((each.text("name"), each) for each in nodes), "pipelines with the name")
        tables = _Tables(packet, externs, actions)
        self.ingress, self.egress = (
            _pipeline(document.look_up(name, by_name, "pipeline"), tables, Expressions(packet))
            for name in ("ingress", "egress")
        )
        all_tables = (*self.ingress.tables, *self.egress.tables)
        unique(((each.name, None) for each in all_tables), "tables with the name")


def _pipeline(node: JsonObject, tables: "_Tables", expressions: Expressions) -> ir.Pipeline:
    conditionals = node.nodes("conditionals")
    names = unique(
        ((name := each.text("name"), name) for each in (*node.nodes("tables"), *conditionals)),
        "tables or conditions with the name",
    )
    return ir.Pipeline(
        node.text("name"),
        _next(node, "init_table", names),
        tuple(tables.read(each, names) for each in node.nodes("tables")),
        tuple(
            ir.Conditional(
                each.text("name"),
                expressions.read(each.node("expression")),
                _next(each, "true_next", names),
                _next(each, "false_next", names),
                source(each),
            )
            for each in conditionals
        ),
    )


def _next(node: JsonObject, key: str, names: Mapping[str, str]) -> str | None:
    """Return the table or condition that follows. Null ends the pipeline."""
    return node.known(key, names, "table or condition") if node.has(key) else None


class _Tables:
    """A reader of tables."""

    def __init__(self, packet: Packet, externs: Externs, actions: Iterable[ir.Action]) -> None:
        self._packet, self._externs = packet, externs
        self._expressions = Expressions(packet)
        self._actions = {each.id: each for each in actions}
        names = Counter(each.name for each in self._actions.values())
        self._by_name = {each.name: each for each in actions if names[each.name] == 1}
        self._counters = {each.table: name for name, each in externs.counters.items()}
        self._direct_meters = {name: name for name, each in externs.meters.items() if each.target}

    def read(self, node: JsonObject, names: Mapping[str, str]) -> ir.Table:
        """Return a table. `names` are those of all tables and conditions of the pipeline."""
        name = node.text("name")
        keys = tuple(self._key(name, each) for each in node.nodes("key"))
        actions = self._actions_of(node)
        default, is_const = None, False
        if node.has("default_entry"):
            entry = node.node("default_entry")
            default, is_const = (
                entries.call(entry, actions),
                entry.flag("action_const", default=False),
            )
        following = node.node("next_tables")
        by_hit = following.contains(_HIT)
        on_miss = (following, _MISS) if following.contains(_MISS) else (node, "base_default_next")
        return ir.Table(
            name=name,
            keys=keys,
            actions=tuple(each.id for each in actions.values()),
            size=node.number("max_size", limits.MAX_ELEMENTS, name=f"table {name}: its size"),
            default_action=default[0] if default else None,
            default_args=default[1] if default else (),
            default_is_const=is_const,
            entries=entries.const_entries(node, keys, actions),
            direct_counter=self._counters.get(name),
            direct_meter=self._direct_meter(node),
            profile=self._profile(node),
            next_by_action={} if by_hit else _next_by_action(following, actions, names),
            next_on_hit=_next(following, _HIT, names),
            next_on_miss=_next(*on_miss, names),
            by_hit=by_hit,
        )

    def _key(self, table: str, node: JsonObject) -> ir.MatchKey:
        match = node.get("match_type")
        if match not in _MATCHES:
            raise UnsupportedProgram(f"table {table}: {match!r} matches are not supported")
        if match == "valid":  # P4_14's test of a header
            match, header = "exact", self._packet.header(node, node.get("target"))
            ref = ir.FieldRef(header, ir.VALID)
        else:
            ref = self._expressions.field(node, "target")
        kind = self._packet.field_type(ref)
        if kind.varbit:
            raise UnsupportedProgram(f"table {table}: the varbit {ref.field} cannot be matched")
        mask = node.hexadecimal("mask") if node.has("mask") else None
        if mask is not None and not 0 <= mask < 1 << kind.bits:
            raise node.error(f"the mask {limits.shown(mask)} does not fit {kind.bits} bits")
        name = node.optional_text("name") or f"{ref.header}.{ref.field}"
        return ir.MatchKey(name, match, ref, kind.bits, mask)

    def _actions_of(self, node: JsonObject) -> dict[str, ir.Action]:
        """Return a table's actions by the names that the table has for them."""
        names, ids = node.texts("actions"), node.numbers("action_ids", limits.MAX_ID)
        if not ids:  # as in versions before 2.5 of the format
            return {each: node.look_up(each, self._by_name, "action") for each in names}
        counts = {len(names), len(ids), len(set(ids))}
        if len(counts) > 1 or not self._actions.keys() >= set(ids):
            raise node.error(
                f"the action_ids {limits.shown(ids)} are not those of the actions {names}"
            )
        pairs = zip(names, (self._actions[each] for each in ids), strict=True)
        return unique(pairs, f"actions of {node.text('name')} with the name")

    def _direct_meter(self, node: JsonObject) -> str | None:
        if not node.has("direct_meters"):
            return None
        return node.known("direct_meters", self._direct_meters, "direct meter")

    def _profile(self, node: JsonObject) -> str | None:
        kind = node.optional_text("type") or "simple"
        if kind not in _TABLES:
            raise UnsupportedProgram(
                f"table {node.text('name')}: tables of type {kind!r} are not supported"
            )
        if kind == "simple":
            return None
        key = "action_profile" if node.has("action_profile") else OLD_PROFILE
        return node.known(key, self._externs.profiles, "action profile").name


def _next_by_action(
    following: JsonObject, actions: Mapping[str, ir.Action], names: Mapping[str, str]
) -> dict[int, str | None]:
    for name in actions:
        if not following.contains(name):
            raise following.error(f"nothing follows the action {name!r}")
    return {action.id: _next(following, name, names) for name, action in actions.items()}
