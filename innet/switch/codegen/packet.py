"""The processing of one packet: parse, ingress, copies, egress, deparse."""

from innet.switch.codegen import replication
from innet.switch.codegen.effects import CLONES
from innet.switch.codegen.replication import NORMAL, REPLICA
from innet.switch.codegen.scope import Scope


def depart(scope: Scope) -> None:
    """Write a function that takes one copy of a packet through the egress and out of a port."""
    replication.enqueue(scope)
    with scope.block(
        "static void depart(struct sw *sw, struct state *s, struct phv *p, uint32_t port, "
        "const uint8_t *rest, uint32_t rest_bytes, uint32_t length)"
    ):
        _enter_egress(scope)
        scope.emit("egress(sw, s, p, length);")
        if scope.primitives & CLONES:
            scope.emit("if (p->m.path.clone) clone_egress(sw, p, rest, rest_bytes, length);")
        with scope.block(f"if ({scope.standard('egress_spec')} == rt_drop_port(sw))"):
            scope.trace("Dropping packet at the end of egress")
            scope.emit("rt_dropped(sw, DROP_EGRESS);", "return;")
        scope.emit("update_checksums(sw, p, rest, rest_bytes);")
        _leave(scope)
    scope.emit("")


def _enter_egress(scope: Scope) -> None:
    spec = scope.standard("egress_spec")
    if replication.queueing(scope):
        scope.emit("if (!enqueue(sw, p, port)) return;")
    if scope.mentions("egress_global_timestamp"):
        scope.emit(scope.set_standard("egress_global_timestamp", "rt_now_us(sw)"))
    if scope.mentions("deq_timedelta"):
        wait = f"(uint32_t)rt_now_us(sw) - {scope.standard('enq_timestamp')}"
        scope.emit(scope.set_standard("deq_timedelta", wait))
    if scope.mentions("packet_length"):
        scope.emit(scope.set_standard("packet_length", "p->m.path.bytes"))
    scope.emit(
        scope.set_standard("egress_port", "(uint16_t)port"),
        f"{spec} = (rt_drop_port(sw) + 1) & 511; /* any port but the drop port */",
        "p->m.exited_ = false;",
    )


def _leave(scope: Scope) -> None:
    """Write code that puts the headers and the payload where the port's next frame goes."""
    scope.emit("uint32_t head_bytes = header_bytes(p);")
    if "recirculate" in scope.primitives:
        with scope.block("if (p->m.path.recirculate)"):
            scope.emit("recirculate(sw, p, head_bytes, rest, rest_bytes);", "return;")
    if scope.primitives & {"truncate", *CLONES}:
        scope.emit("rt_cut(&p->m.path, &head_bytes, &rest_bytes);")
    scope.emit(
        "uint8_t *out = rt_room(sw, port, head_bytes + rest_bytes);",
        "deparse(sw, p, out);",
        "memcpy(out + head_bytes, rest, rest_bytes);",
        "if (p->m.path.partial)",
        "    rt_defer(sw, &p->m.path, checksum_place(p), out, head_bytes, rest, rest_bytes);",
    )
    scope.trace("Transmitting packet of size %u out of port %u", "head_bytes + rest_bytes", "port")
    scope.emit("rt_emit(sw, port, head_bytes + rest_bytes);")


def process(scope: Scope) -> None:
    """Write the function that the runtime calls for every packet, and its parts."""
    replication.replicate(scope)
    replication.clone_ingress(scope)
    _arrive(scope)
    with scope.block(
        "void program_process(struct sw *sw, void *state, uint32_t port, const uint8_t *frame, "
        "uint32_t length)"
    ):
        scope.emit(
            "struct phv phv, *p = &phv;",
            "memset(&p->m, 0, sizeof p->m);",
            "p->m.path.port = (uint16_t)port;",
            "p->m.path.partial = sw->arrived.at;",
            scope.set_standard("ingress_port", "(uint16_t)port"),
            scope.set_standard("packet_length", "length"),
        )
        if scope.mentions("ingress_global_timestamp"):
            scope.emit(scope.set_standard("ingress_global_timestamp", "rt_now_us(sw)"))
        if scope.tracing:
            scope.emit("p->m.path.number = rt_frame_number(sw);")
        scope.emit("arrive(sw, state, p, frame, length);")
    scope.emit("")
    replication.passes(scope)


def _arrive(scope: Scope) -> None:
    """Write the function for parser and ingress, and for the steps that follow in BMv2's order."""
    with scope.block(
        "static void arrive(struct sw *sw, struct state *s, struct phv *p, const uint8_t *frame, "
        "uint32_t length)"
    ):
        scope.trace("Processing packet received on port %u", "p->m.path.port")
        scope.emit(
            "p->m.path.bytes = length;",
            "const uint32_t parsed = parse(sw, s, p, frame, length);",
            "verify_checksums(sw, p, frame + parsed, length - parsed);",
            "ingress(sw, s, p, length);",
        )
        if scope.primitives & CLONES:
            scope.emit("if (p->m.path.clone) clone_ingress(sw, s, p, frame, length);")
        if "generate_digest" in scope.primitives:
            scope.emit("if (p->m.path.digest) learn(sw, p);")
        if "resubmit" in scope.primitives:
            scope.emit("if (p->m.path.resubmit) { resubmit(sw, p, frame, length); return; }")
        _forward(scope)
    scope.emit("")


def _forward(scope: Scope) -> None:
    group, spec = scope.standard("mcast_grp"), scope.standard("egress_spec")
    rest = "frame + parsed, length - parsed, length"
    with scope.block(f"if ({group})"):
        scope.trace("Multicast requested for packet")
        scope.emit(
            f"const struct copies *copies = rt_group(sw, {group});",
            scope.set_standard("instance_type", f"{REPLICA}"),
            f"if (copies) replicate(sw, s, p, copies, {rest});",
            "else rt_dropped(sw, DROP_NO_MULTICAST_GROUP);",
            "return;",
        )
    scope.trace("Egress port is %u", f"(uint32_t){spec}")
    with scope.block(f"if ({spec} == rt_drop_port(sw))"):
        scope.trace("Dropping packet at the end of ingress")
        scope.emit("rt_dropped(sw, DROP_INGRESS);", "return;")
    scope.emit(
        scope.set_standard("instance_type", f"{NORMAL}"), f"depart(sw, s, p, {spec}, {rest});"
    )
