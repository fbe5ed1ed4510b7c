"""The pipelines: conditions and tables, and where control goes from them."""

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen import externs, tracing
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_name, c_number, c_type, storage_bits

_KEY_WORD = 8


def spans(table: ir.Table) -> tuple[tuple[int, int], ...]:
    """Where in a table's key the components are that are matched by a range: offset and bytes."""
    sizes = key_sizes(table)
    return tuple(
        (sum(sizes[:i]), sizes[i]) for i, key in enumerate(table.keys) if key.match == "range"
    )


def key_sizes(table: ir.Table) -> tuple[int, ...]:
    """Bytes of each component of a table's key.

    They are 1, 2, 4, 8 or 16, little-endian, or as many as a wider component needs, big-endian.
    """
    return tuple(
        storage_bits(key.bits) // 8 if key.bits <= 128 else (key.bits + 7) // 8
        for key in table.keys
    )


def key_bytes(table: ir.Table) -> int:
    """Bytes of a table's whole key, padded to 64-bit words."""
    return -(-sum(key_sizes(table)) // _KEY_WORD) * _KEY_WORD


def pipeline(scope: Scope, name: str, control: ir.Pipeline) -> None:
    """A function that takes one packet through a pipeline."""
    with scope.block(
        f"static void {name}(struct sw *sw, struct state *s, struct phv *p, u32 length)"
    ):
        scope.emit("(void)sw; (void)s; (void)p; (void)length;")
        scope.trace(f"Pipeline '{name}': start")
        scope.emit(_goto_node(control.start))
        for conditional in control.conditionals:
            scope.emit(f"node_{c_name(conditional.name)}:")
            with scope.block(""):
                scope.emit(f"const bool truth = {scope.expressions.truth(conditional.condition)};")
                tracing.condition(scope, conditional)
                scope.emit(f"if (truth) {_goto_node(conditional.if_true)}")
            scope.emit(_goto_node(conditional.if_false))
        for table in control.tables:
            scope.emit(f"node_{c_name(table.name)}:")
            with scope.block(""):
                _table(scope, table)
        scope.emit("end:;")
        scope.trace(f"Pipeline '{name}': end")
        scope.emit("return;")
    scope.emit("")


def _table(scope: Scope, table: ir.Table) -> None:
    number = scope.program.tables.index(table)
    if table.keys:
        scope.emit(f"u8 key[{key_bytes(table)}] __attribute__((aligned(8))) = {{0}};")
        _pack_key(scope, table)
        tracing.lookup(scope, table, key_sizes(table))
        scope.emit(f"struct entry *e = rt_lookup(sw, {number}, key);")
    else:
        tracing.lookup(scope, table, ())
        scope.emit("struct entry *e = NULL;")
    scope.emit("const bool hit = e != NULL; (void)hit;")
    scope.emit(f"if (!e) e = rt_miss(sw, {number});")
    tracing.result(scope, table)
    if table.direct_counter:
        scope.emit("e->hits.packets++;", "e->hits.bytes += length;")
    if table.direct_meter:
        externs.direct_meter(scope, table.direct_meter)
    action, args = ("action", "args") if table.profile else ("e->action", "e->args")
    if table.profile:
        externs.choose(scope, table.profile)
    with scope.block(f"switch ({action})"):
        for identifier in table.actions:
            scope.emit(
                *(f"case {each}:" for each in externs.same_actions(scope, table, identifier))
            )
            tracing.chosen(scope, scope.actions[identifier], args)
            scope.emit(f"    action_{identifier}(sw, s, p, {args}, length);")
            if any(step.op in externs.LEAVING for step in scope.actions[identifier].body):
                with scope.block("if (p->m.valid.none_)"):
                    scope.trace("Packet is marked for exit, interrupting pipeline")
                    scope.emit("goto end;")
            if not table.by_hit:
                scope.emit(f"    {_goto_node(table.next_by_action[identifier])}")
            else:
                scope.emit("    break;")
    if table.by_hit:
        scope.emit(f"if (hit) {_goto_node(table.next_on_hit)}")
    scope.emit(_goto_node(table.next_on_miss))


def _pack_key(scope: Scope, table: ir.Table) -> None:
    offset = 0
    for i, (key, size) in enumerate(zip(table.keys, key_sizes(table), strict=True)):
        if key.bits > 128:
            _pack_bytes(scope, key, offset, size)
            offset += size
            continue
        mask = f" & {c_number(key.mask)}" if key.mask is not None else ""
        scope.emit(f"const {c_type(size * 8)} k{i} = ({_matched(scope, key.expr)}){mask};")
        scope.emit(f"memcpy(key + {offset}, &k{i}, {size});")
        offset += size


def _pack_bytes(scope: Scope, key: ir.MatchKey, offset: int, size: int) -> None:
    if key.mask is not None or key.match == "range":
        raise UnsupportedProgram(f"matching {key.name}, {key.bits} bits wide, by {key.match}")
    header = scope.program.header_of(key.expr)
    guard = "" if header.metadata else f"if ({scope.valid(header.name)}) "
    scope.emit(f"{guard}memcpy(key + {offset}, {scope.value(key.expr)}, {size});")


def _matched(scope: Scope, ref: ir.FieldRef) -> str:
    """What a field is to a match: that of a header that is not valid is 0."""
    header = scope.program.header_of(ref)
    if header.metadata or ref.field == ir.VALID or not isinstance(ref.header, str):
        return scope.place(ref)
    return f"{scope.valid(ref.header)} ? {scope.place(ref)} : 0"


def _goto_node(name: str | None) -> str:
    return "goto end;" if name is None else f"goto node_{c_name(name)};"
