"""The trace of tables, actions and the parser, in the words of BMv2's log."""

from innet.switch import ir
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_string
from innet.switch.layout import argument_offset


def lookup(scope: Scope, table: ir.Table, sizes: tuple[int, ...]) -> None:
    """Trace a table's key, which lies in `key` if the table has one."""
    if not scope.tracing:
        return
    scope.trace("Applying table '%s'", scope.shown(table.name), level="T")
    with scope.block(""):
        texts, offset = [], 0
        for i, (key, size) in enumerate(zip(table.keys, sizes, strict=True)):
            scope.emit(f"char text{i}[{2 * size + 1}];")
            texts.append(scope.shown(key.name))
            texts.append(f"rt_hex(text{i}, key + {offset}, {size}, {key.bits})")
            offset += size
        scope.trace("Looking up key:\n" + "* %-20s: %s\n" * len(table.keys), *texts)


def result(scope: Scope, table: ir.Table) -> None:
    """Trace whether a table was hit, and by which entry."""
    if not scope.tracing:
        return
    with scope.block("if (hit)"):
        scope.trace("Table '%s': hit with handle %u", scope.shown(table.name), "e->id")
    with scope.block("else"):
        scope.trace("Table '%s': miss", scope.shown(table.name))


def chosen(scope: Scope, action: ir.Action, args: str) -> None:
    """Trace the action that a table runs, and its arguments."""
    if not scope.tracing:
        return
    with scope.block(""):
        texts = [scope.shown(action.name)]
        for i, (_, bits) in enumerate(action.params):
            size, at = (bits + 7) // 8, argument_offset(action.params, i)
            scope.emit(f"char text{i}[{2 * size + 1}];")
            texts.append(f"rt_hex(text{i}, {args} + {at}, {size}, {bits})")
        scope.trace("Action entry is %s - " + "%s," * len(action.params), *texts)


def step(scope: Scope, primitive: ir.Primitive) -> None:
    """Trace a step of an action."""
    fragment = primitive.source.fragment or "(no source info)"
    scope.trace("%sPrimitive %s", _where(primitive.source), c_string(fragment), level="T")


def parsed(scope: Scope, codes: dict[str, int]) -> None:
    """Trace the end of parsing, with the names of errors by their codes."""
    if not scope.tracing:
        return
    with scope.block("switch (error)"):
        for name, code in codes.items():
            scope.emit(f"case {code}:")
            if code:
                scope.trace("Exception while parsing: %s", scope.shown(name), level="E")
            scope.emit("break;")
    scope.trace("Parser 'parser': end")


def condition(scope: Scope, conditional: ir.Conditional) -> None:
    """Trace a condition, whose outcome is in `truth`."""
    name = scope.shown(conditional.name)
    fragment = conditional.source.fragment
    texts = _where(conditional.source), c_string(fragment) if fragment else name, name
    truth = 'truth ? "true" : "false"'
    scope.trace('%sCondition "%s" (%s) is %s', *texts, truth, level="T")


def selection(scope: Scope, state: ir.ParserState) -> None:
    """Trace the keys of a parser state's select, which are in ``k0`` and so on."""
    if not scope.tracing:
        return
    name = scope.shown(state.name)
    if state.keys:
        with scope.block(""):
            for i, (_, bits) in enumerate(state.keys):
                scope.emit(f"char text{i}[{2 * ((bits + 7) // 8) + 1}];")
            texts = [
                f"rt_hex(text{i}, {'&' if bits <= 128 else ''}k{i}, {(bits + 7) // 8}, {bits})"
                for i, (_, bits) in enumerate(state.keys)
            ]
            scope.trace("Parser state '%s': key is " + "%s" * len(texts), name, *texts)
    else:
        scope.trace("Parser state '%s' has no switch, going to default next state", name)
    scope.trace("Bytes parsed: %u", "at", level="T")


def _where(source: ir.SourceLocation) -> str:
    """Return the place in the P4 source as a C string literal, as BMv2 puts it in front of a message."""
    return c_string(f"{source.file}({source.line}) " if source.file else "")
