"""The pipelines: conditions and tables, and where control goes from them."""

from innet.switch import ir
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_name, c_type, storage_bits

_KEY_WORD = 8


def key_sizes(table: ir.Table) -> tuple[int, ...]:
    """Bytes of each component of a table's key, little-endian: 1, 2, 4, 8 or 16."""
    return tuple(storage_bits(key.bits) // 8 for key in table.keys)


def key_bytes(table: ir.Table) -> int:
    """Bytes of a table's whole key, padded to 64-bit words."""
    return -(-sum(key_sizes(table)) // _KEY_WORD) * _KEY_WORD


def pipeline(scope: Scope, name: str, control: ir.Pipeline) -> None:
    """A function that takes one packet through a pipeline."""
    with scope.block(
        f"static void {name}(struct sw *sw, struct state *s, struct phv *p, u32 length)"
    ):
        scope.emit("(void)sw; (void)s; (void)length;", _goto_node(control.start))
        for conditional in control.conditionals:
            scope.emit(f"node_{c_name(conditional.name)}:")
            test = scope.expressions.truth(conditional.condition)
            scope.emit(f"if ({test}) {_goto_node(conditional.if_true)}")
            scope.emit(_goto_node(conditional.if_false))
        for table in control.tables:
            scope.emit(f"node_{c_name(table.name)}:")
            with scope.block(""):
                _table(scope, table)
        scope.emit("end: return;")
    scope.emit("")


def _table(scope: Scope, table: ir.Table) -> None:
    number = scope.program.tables.index(table)
    if table.keys:
        scope.emit(f"u8 key[{key_bytes(table)}] __attribute__((aligned(8))) = {{0}};")
        _pack_key(scope, table)
        scope.emit(f"struct entry *e = rt_lookup(sw, {number}, key);")
    else:
        scope.emit("struct entry *e = NULL;")
    scope.emit("const bool hit = e != NULL; (void)hit;")
    scope.emit(f"if (!e) e = rt_miss(sw, {number});")
    if table.direct_counter:
        scope.emit("e->hits.packets++;", "e->hits.bytes += length;")
    with scope.block("switch (e->action)"):
        for identifier in table.actions:
            scope.emit(f"case {identifier}:")
            scope.emit(f"    action_{identifier}(sw, s, p, e->args, length);")
            if any(step.op == "exit" for step in scope.actions[identifier].body):
                scope.emit("    if (p->m.valid.none_) goto end;")
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
        mask = f" & {key.mask}u" if key.mask is not None else ""
        scope.emit(f"const {c_type(size * 8)} k{i} = {scope.place(key.expr)}{mask};")
        scope.emit(f"memcpy(key + {offset}, &k{i}, {size});")
        offset += size


def _goto_node(name: str | None) -> str:
    return "goto end;" if name is None else f"goto node_{c_name(name)};"
