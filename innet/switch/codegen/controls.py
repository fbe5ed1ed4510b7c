"""The pipelines: conditions and tables, and the jumps between them."""

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen import fields, tracing
from innet.switch.codegen.effects import LEAVING
from innet.switch.codegen.hashes import selector
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_number, c_type
from innet.switch.expressions.number import bytes_literal
from innet.switch.layout import key_bytes, key_sizes

_KEY_WORD = 8

_SIZES = (8, 16)
"""The key sizes, in bytes, for which the runtime has its own lookup functions."""


def spans(table: ir.Table) -> tuple[tuple[int, int], ...]:
    """Return the offset and the size in bytes of each range-matched component of a table's key."""
    sizes = key_sizes(table)
    return tuple(
        (sum(sizes[:i]), sizes[i]) for i, key in enumerate(table.keys) if key.match == "range"
    )


def pipeline(scope: Scope, name: str, control: ir.Pipeline) -> None:
    """Write a function that takes one packet through a pipeline."""
    with scope.block(
        f"static void {name}(struct sw *sw, struct state *s, struct phv *p, uint32_t length)"
    ):
        scope.emit("(void)sw; (void)s; (void)p; (void)length;")
        scope.trace(f"Pipeline '{name}': start")
        scope.emit(_goto_node(control.start))
        for conditional in control.conditionals:
            scope.emit(f"node_{conditional.name}:")
            with scope.block(""):
                scope.emit(f"const bool truth = {scope.expressions.truth(conditional.condition)};")
                tracing.condition(scope, conditional)
                scope.emit(f"if (truth) {_goto_node(conditional.if_true)}")
            scope.emit(_goto_node(conditional.if_false))
        for table in control.tables:
            scope.emit(f"node_{table.name}:")
            with scope.block(""):
                _table(scope, table)
        scope.emit("end:;")
        scope.trace(f"Pipeline '{name}': end")
        scope.emit("return;")
    scope.emit("")


def _table(scope: Scope, table: ir.Table) -> None:
    number = scope.program.tables.index(table)
    if table.keys:
        _pack_key(scope, table)
        tracing.lookup(scope, table, key_sizes(table))
        scope.emit(f"struct entry *e = {_lookup(table)}(sw, {number}, key);")
    else:
        tracing.lookup(scope, table, ())
        scope.emit("struct entry *e = NULL;")
    scope.emit("const bool hit = e != NULL; (void)hit;")
    scope.emit(f"if (!e) e = rt_miss(sw, {number});")
    tracing.result(scope, table)
    if table.direct_counter:
        scope.emit("e->hits.packets++;", "e->hits.bytes += length;")
    if table.direct_meter:
        _direct_meter(scope, table.direct_meter)
    if _has_no_choice(table):
        _run(scope, table, table.actions[0], "e->args")
    else:
        action, args = ("action", "args") if table.profile else ("e->action", "e->args")
        if table.profile:
            _choose(scope, table.profile)
        with scope.block(f"switch ({action})"):
            for identifier in table.actions:
                scope.emit(*(f"case {each}:" for each in _same_actions(scope, table, identifier)))
                _run(scope, table, identifier, args)
                if table.by_hit:
                    scope.emit("    break;")
    if table.by_hit:
        scope.emit(f"if (hit) {_goto_node(table.next_on_hit)}")
    scope.emit(_goto_node(table.next_on_miss))


def _direct_meter(scope: Scope, name: str) -> None:
    """Write the assignment of the hit entry's meter colour to the packet."""
    meter = next(each for each in scope.program.meters if each.name == name)
    if meter.target is None:
        raise UnsupportedProgram(f"{scope.names.shown(name)} is not a direct meter")
    kind = scope.expressions.field_type(meter.target)
    call = f"rt_direct_meter(sw, e, {'length' if meter.by_bytes else '1'})"
    scope.emit(f"if (hit) {fields.put(scope.lvalue(meter.target), kind, call)}")


def _choose(scope: Scope, name: str) -> None:
    """Write code that sets `action` and `args` to an action of the entry's bundle.

    An entry without a bundle, such as the default entry, has an action of its own.
    """
    profile = next(each for each in scope.program.profiles if each.name == name)
    scope.emit("uint32_t action = e->action;", "const uint64_t *args = e->args;")
    with scope.block("if (e->bundle)"):
        scope.emit("action = ~0u; /* an empty group runs no action */")
        with scope.block("if (e->bundle->count)"):
            pick = "0"
            if profile.selector:
                scope.emit(
                    f"const uint32_t chosen = (uint32_t){selector(profile)}(sw, p, NULL, 0);"
                )
                pick = "chosen % e->bundle->count"
            scope.emit(f"const struct call *call = &e->bundle->calls[{pick}];")
            scope.emit("action = call->action;", "args = call->args;")


def _same_actions(scope: Scope, table: ir.Table, action: int) -> list[int]:
    """Return all ids of a table's action. Tables that share a profile have their own copies of it."""
    if not table.profile:
        return [action]
    sharing = [each for each in scope.program.tables if each.profile == table.profile]
    name = scope.actions[action].name
    ids = {number for each in sharing for number in each.actions}
    return [action, *(each for each in sorted(ids - {action}) if scope.actions[each].name == name)]


def _has_no_choice(table: ir.Table) -> bool:
    """Return whether the table has one action and always runs it, as p4c's tables for statements do."""
    only = (table.default_action,)
    return not table.keys and not table.profile and table.default_is_const and table.actions == only


def _run(scope: Scope, table: ir.Table, action: int, args: str) -> None:
    tracing.chosen(scope, scope.actions[action], args)
    scope.emit(f"    action_{action}(sw, s, p, {args}, length);")
    if any(step.op in LEAVING for step in scope.actions[action].body):
        with scope.block("if (p->m.exited_)"):
            scope.trace("Packet is marked for exit, interrupting pipeline")
            scope.emit("goto end;")
    if not table.by_hit:
        scope.emit(f"    {_goto_node(table.next_by_action[action])}")


def _lookup(table: ir.Table) -> str:
    """Return the name of the runtime's lookup function for keys of this size."""
    size = key_bytes(table)
    return f"rt_lookup_{size}" if size in _SIZES and not spans(table) else "rt_lookup"


def _pack_key(scope: Scope, table: ir.Table) -> None:
    """Write code that packs a table's key word by word.

    Loading a whole word is slow if the word has been stored in smaller parts.
    """
    words = ["0"] * (key_bytes(table) // _KEY_WORD)
    wide: list[tuple[ir.MatchKey, int, int]] = []
    offset = 0
    for i, (key, size) in enumerate(zip(table.keys, key_sizes(table), strict=True)):
        if key.bits > 128:
            wide.append((key, offset, size))
        else:
            mask = f" & {c_number(key.mask)}" if key.mask is not None else ""
            scope.emit(f"const {c_type(size * 8)} k{i} = ({_matched(scope, key.expr)}){mask};")
            for first in range(offset - offset % _KEY_WORD, offset + size, _KEY_WORD):
                by = 8 * (first - offset)
                part = f"(k{i} >> {by})" if by > 0 else f"k{i}"
                shift = f" << {-by}" if by < 0 else ""
                words[first // _KEY_WORD] += f" | (uint64_t){part}{shift}"
        offset += size
    scope.emit(f"uint64_t words[] = {{{', '.join(word.removeprefix('0 | ') for word in words)}}};")
    scope.emit("uint8_t *const key = (uint8_t *)words;")
    for key, offset, size in wide:
        _pack_bytes(scope, key, offset, size)


def _pack_bytes(scope: Scope, key: ir.MatchKey, offset: int, size: int) -> None:
    header = scope.program.header_of(key.expr)
    guard = "" if header.metadata else f"if ({scope.valid(header.name)}) "
    scope.emit(f"{guard}memcpy(key + {offset}, {scope.value(key.expr)}, {size});")
    if key.mask is not None:
        scope.emit(f"rt_mask_bytes(key + {offset}, {bytes_literal(key.mask, size)}, {size});")


def _matched(scope: Scope, ref: ir.FieldRef) -> str:
    """Return C text of a field's value in a match, which is 0 if the field's header is invalid."""
    header = scope.program.header_of(ref)
    if header.metadata or ref.field == ir.VALID or not isinstance(ref.header, str):
        return scope.lvalue(ref)
    return f"{scope.valid(ref.header)} ? {scope.lvalue(ref)} : 0"


def _goto_node(name: str | None) -> str:
    return "goto end;" if name is None else f"goto node_{name};"
