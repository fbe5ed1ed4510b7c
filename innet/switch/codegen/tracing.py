"""What a program that traces says about tables, actions and the parser, in the words of BMv2's log."""

from innet.switch import ir
from innet.switch.codegen.scope import Scope


def where(source: ir.Source) -> str:
    """The place in the P4 source, as BMv2 puts it in front of a message."""
    return f"{source.file}({source.line}) " if source.file else ""


def lookup(scope: Scope, table: ir.Table, sizes: tuple[int, ...]) -> None:
    """A table's key, which lies in `key` if the table has one."""
    if not scope.tracing:
        return
    scope.trace(f"Applying table '{table.name}'", level="T")
    with scope.block(""):
        texts, offset = [], 0
        for i, (key, size) in enumerate(zip(table.keys, sizes, strict=True)):
            scope.emit(f"char text{i}[{2 * size + 1}];")
            texts.append(f"rt_hex(text{i}, key + {offset}, {size}, {key.bits})")
            offset += size
        lines = "".join(f"* {key.name:<20}: %s\n" for key in table.keys)
        scope.trace(f"Looking up key:\n{lines}", *texts)


def result(scope: Scope, table: ir.Table) -> None:
    """Whether a table was hit, and by which entry."""
    if not scope.tracing:
        return
    with scope.block("if (hit)"):
        scope.trace(f"Table '{table.name}': hit with handle %u", "e->id")
    with scope.block("else"):
        scope.trace(f"Table '{table.name}': miss")


def chosen(scope: Scope, action: ir.Action, args: str) -> None:
    """The action that a table runs, and its arguments."""
    if not scope.tracing:
        return
    with scope.block(""):
        texts, form = [], ""
        for i, (_, bits) in enumerate(action.params):
            size, at = (bits + 7) // 8, ir.argument_place(action.params, i)
            scope.emit(f"char text{i}[{2 * size + 1}];")
            texts.append(f"rt_hex(text{i}, {args} + {at}, {size}, {bits})")
            form += "%s,"
        scope.trace(f"Action entry is {action.name} - {form}", *texts)


def step(scope: Scope, primitive: ir.Primitive) -> None:
    """A step of an action."""
    fragment = primitive.source.fragment or "(no source info)"
    text = f"{where(primitive.source)}Primitive {fragment}"
    scope.trace(text.replace("%", "%%"), level="T")


def parsed(scope: Scope, codes: dict[str, int]) -> None:
    """How parsing ended; the names of errors have these codes."""
    if not scope.tracing:
        return
    with scope.block("switch (error)"):
        for name, code in codes.items():
            scope.emit(f"case {code}:")
            if code:
                scope.trace(f"Exception while parsing: {name}", level="E")
            scope.emit("break;")
    scope.trace("Parser 'parser': end")


def condition(scope: Scope, conditional: ir.Conditional) -> None:
    """An if, whose outcome is in `truth`."""
    fragment = conditional.source.fragment or conditional.name
    text = f'{where(conditional.source)}Condition "{fragment}" ({conditional.name}) is '
    scope.trace(text.replace("%", "%%") + "%s", 'truth ? "true" : "false"', level="T")


def selection(scope: Scope, state: ir.ParserState) -> None:
    """What a parser's state selects by, which is in ``k0`` and so on."""
    if not scope.tracing:
        return
    if state.keys:
        with scope.block(""):
            for i, (_, bits) in enumerate(state.keys):
                scope.emit(f"char text{i}[{2 * ((bits + 7) // 8) + 1}];")
            texts = [
                f"rt_hex(text{i}, {'&' if bits <= 128 else ''}k{i}, {(bits + 7) // 8}, {bits})"
                for i, (_, bits) in enumerate(state.keys)
            ]
            form = "%s" * len(texts)
            scope.trace(f"Parser state '{state.name}': key is {form}", *texts)
    else:
        scope.trace(f"Parser state '{state.name}' has no switch, going to default next state")
    scope.trace("Bytes parsed: %u", "at", level="T")
