"""One packet's way: parse, ingress, copies, egress, deparse."""

from innet.switch.codegen.scope import Scope


def depart(scope: Scope, most_header_bytes: int) -> None:
    """A function that takes one copy of a packet through the egress and out of a port."""
    spec = scope.standard("egress_spec")
    with scope.block(
        "static void depart(struct sw *sw, struct state *s, struct phv *p, u32 port, "
        "const u8 *rest, u32 rest_bytes, u32 length)"
    ):
        scope.emit(
            f"u8 head[{most_header_bytes}];",
            f"{scope.standard('egress_port')} = (u16)port;",
            f"{spec} = 0;",
            "p->m.valid.none_ = false;",
            "egress(sw, s, p, length);",
            f"if ({spec} == *rt_drop_port(sw)) {{ rt_dropped(sw); return; }}",
            "update_checksums(p);",
            "rt_emit(sw, port, head, deparse(p, head), rest, rest_bytes);",
        )
    scope.emit("")


def process(scope: Scope) -> None:
    """The function that the runtime calls for every packet."""
    group, spec = scope.standard("mcast_grp"), scope.standard("egress_spec")
    rest = "frame + parsed, length - parsed, length"
    with scope.block(
        "void program_process(struct sw *sw, void *state, u32 port, const u8 *frame, u32 length)"
    ):
        scope.emit(
            "struct state *s = state;",
            "struct phv phv, *p = &phv;",
            "memset(&p->m, 0, sizeof p->m);",
            f"{scope.standard('ingress_port')} = (u16)port;",
            f"{scope.standard('packet_length')} = length;",
            f"{scope.standard('ingress_global_timestamp')} = rt_now_us(sw);",
            "const u32 parsed = parse(sw, s, p, frame, length);",
            "verify_checksums(p);",
            "ingress(sw, s, p, length);",
        )
        with scope.block(f"if ({group})"):
            scope.emit("const struct replica *replicas = NULL;")
            scope.emit(f"const u32 n = rt_group(sw, {group}, &replicas);")
            with scope.block("for (u32 i = 0; i < n; i++)"):
                scope.emit(
                    "struct phv copy = phv, *p = &copy;",
                    f"{scope.standard('instance_type')} = 5; /* a replica */",
                    f"{scope.standard('egress_rid')} = (u16)replicas[i].instance;",
                    f"depart(sw, s, p, replicas[i].port, {rest});",
                )
        with scope.block(f"else if ({spec} == *rt_drop_port(sw))"):
            scope.emit("rt_dropped(sw);")
        with scope.block("else"):
            scope.emit(f"depart(sw, s, p, {spec}, {rest});")
    scope.emit("")
