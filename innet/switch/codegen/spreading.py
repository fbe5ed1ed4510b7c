"""The functions that follow from a packet's key: the core that runs it, and the cells that it needs.

:mod:`.partition` finds the key: the index of all cells that a packet may access.
"""

from innet.switch import ir
from innet.switch.codegen.data import Bank
from innet.switch.codegen.parsing import Parsing
from innet.switch.codegen.references import fields_in
from innet.switch.codegen.scope import Scope


def key_function(scope: Scope, parsing: Parsing, key: ir.Expr | None) -> None:
    """Write the function that computes a frame's key, which is 0 if the program has none.

    The function parses the frame, but it loads only the headers that the parser or the key needs.
    """
    if key:
        read = fields_in((key, scope.program.states))
        parsing.parser("parse_key", frozenset(str(each.header) for each in read))
    with scope.block(
        "uint64_t program_key(struct sw *sw, uint32_t port, const uint8_t *frame, uint32_t length)",
    ):
        if key:
            scope.emit(
                "struct phv phv, *p = &phv;",
                "memset(&p->m, 0, sizeof p->m);",
                "p->m.path.partial = sw->arrived.at;",
                scope.set_standard("ingress_port", "(uint16_t)port"),
                "parse_key(sw, NULL, p, frame, length);",
                f"return (uint64_t){scope.expressions.number(key).text};",
            )
        else:
            scope.emit("(void)sw; (void)port; (void)frame; (void)length;", "return 0;")
    scope.emit("")


def fetch_function(scope: Scope, banks: list[Bank]) -> None:
    """Write the function that fetches the cells of a key into the cache, for a packet that comes soon."""
    with scope.block("void program_fetch(void *state, uint64_t key)"):
        scope.emit("struct state *s = state;", "(void)s; (void)key;")
        for bank in banks:
            row = f"&s->bank_{bank.number}[key]"
            scope.emit(f"if (key < {bank.size}) rt_fetch({row}, sizeof(struct row_{bank.number}));")
    scope.emit("")
