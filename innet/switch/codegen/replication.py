"""Copies and further passes of a packet: clones, resubmission, recirculation, digests.

Their effects come in the order of BMv2's simple_switch. Only the functions that a program needs are
generated.
"""

from innet.switch import ir
from innet.switch.codegen import data, fields
from innet.switch.codegen.effects import CLONES
from innet.switch.codegen.scope import Scope

# Values of standard_metadata.instance_type.
NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICA, RESUBMITTED = 0, 1, 2, 4, 5, 6

_WAITING = CLONES | {"resubmit", "recirculate"}
"""The primitives whose packets wait for another pass."""


def waits(scope: Scope) -> bool:
    """Return whether packets of the program may have to wait for another pass."""
    return bool(scope.primitives & _WAITING)


def functions(scope: Scope) -> None:
    """Write the functions that `packet` calls, if the program needs them."""
    if waits(scope):
        _reset_metadata(scope)
        _keep_fields(scope)
    if scope.primitives & CLONES:
        _clone_egress(scope)
    if "resubmit" in scope.primitives:
        _resubmit(scope)
    if "recirculate" in scope.primitives:
        _recirculate(scope)
    if "generate_digest" in scope.primitives:
        _learn(scope)


def queueing(scope: Scope) -> bool:
    """Return whether the program mentions metadata of the queues in front of the egress."""
    names = ("priority", "enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth")
    return any(map(scope.mentions, names))


def enqueue(scope: Scope) -> None:
    """Write a function that sets the queue's metadata.

    The function returns false if there is no queue for the packet's priority.
    """
    if not queueing(scope):
        return
    with scope.block("static bool enqueue(struct sw *sw, struct phv *p, uint32_t port)"):
        scope.emit("(void)p; (void)port;")
        if scope.mentions("priority"):
            test = f"{scope.standard('priority')} >= rt_priority_queues(sw)"
            scope.emit(f"if ({test}) {{ rt_dropped(sw, DROP_PRIORITY); return false; }}")
        if scope.mentions("enq_timestamp") or scope.mentions("deq_timedelta"):
            scope.emit(scope.set_standard("enq_timestamp", "(uint32_t)rt_now_us(sw)"))
        for depth in ("enq_qdepth", "deq_qdepth"):
            if scope.mentions(depth):
                scope.emit(scope.set_standard(depth, "rt_queue_depth(sw, port)"))
        scope.emit("return true;")
    scope.emit("")


def replicate(scope: Scope) -> None:
    """Write a function that takes the copies of a packet for a group or a session through the egress.

    All copies use the same structure. The parts that the egress may change are restored before each
    copy.
    """
    with scope.block(
        "static void replicate(struct sw *sw, struct state *s, struct phv *p, "
        "const struct copies *copies, const uint8_t *rest, uint32_t rest_bytes, uint32_t length)"
    ):
        scope.emit(
            f"uint8_t kept[offsetof(struct phv, {data.COMMON})] __attribute__((aligned(64)));",
            "memcpy(kept, p, sizeof kept);",
        )
        with scope.block("for (uint32_t i = 0; i < copies->count; i++)"):
            scope.emit("if (i) memcpy(p, kept, sizeof kept);")
            _trace_replica(scope, of="p")
            _copied_path(scope, of="p")
            scope.emit("depart(sw, s, p, copies->replicas[i].port, rest, rest_bytes, length);")
    scope.emit("")


def clone_ingress(scope: Scope) -> None:
    """Write a function that clones a packet as it arrived. The clone is parsed again."""
    if not scope.primitives & CLONES:
        return
    with scope.block(
        "static void clone_ingress(struct sw *sw, struct state *s, struct phv *of, "
        "const uint8_t *frame, uint32_t length)"
    ):
        scope.trace("Cloning packet at ingress", of="of")
        scope.emit(
            "const uint32_t session = of->m.path.clone & ~(uint32_t)RT_ASKED;",
            "const uint32_t list = of->m.path.clone_list;",
            "const struct copies *copies = rt_session(sw, session);",
            "of->m.path.clone = of->m.path.clone_list = 0;",
            "if (!copies) return;",
            "struct phv clone, *p = &clone;",
            "memset(&p->m, 0, sizeof p->m);",
        )
        _fresh_path(scope)
        scope.emit(
            "p->m.path.bytes = length;",
            scope.set_standard("ingress_port", "of->m.path.port"),
            "const uint32_t parsed = parse(sw, s, p, frame, length);",
            "reset_metadata(p);",
            "keep_fields(p, of, list);",
            scope.set_standard("instance_type", f"{INGRESS_CLONE}"),
            "replicate(sw, s, p, copies, frame + parsed, length - parsed, length);",
        )
    scope.emit("")


def passes(scope: Scope) -> None:
    """Write the functions that the runtime calls for packets that have waited for another pass."""
    with scope.block("void program_again(struct sw *sw, void *state, struct pending *packet)"):
        if waits(scope):
            scope.emit("arrive(sw, state, packet->phv, packet->data, packet->bytes);")
        else:
            scope.emit("(void)sw; (void)state; (void)packet;")
    scope.emit("")
    with scope.block("void program_clone(struct sw *sw, void *state, struct pending *packet)"):
        if waits(scope):
            scope.emit(
                "depart(sw, state, packet->phv, packet->port, packet->data, packet->bytes,",
                "       packet->length);",
            )
        else:
            scope.emit("(void)sw; (void)state; (void)packet;")
    scope.emit("")


def _copied_path(scope: Scope, of: str = "of") -> None:
    _fresh_path(scope, of)
    scope.emit("if (copies->max_bytes) rt_truncate(&p->m.path, copies->max_bytes);")
    scope.emit(scope.set_standard("egress_rid", "(uint16_t)copies->replicas[i].instance"))
    if scope.mentions("priority"):
        scope.emit("if (copies->class_of_service)")
        value = "(uint8_t)(copies->class_of_service & 7)"
        scope.emit(f"    {scope.set_standard('priority', value)}")


def _fresh_path(scope: Scope, of: str = "of") -> None:
    if of != "p":
        scope.emit(f"p->m.path = {of}->m.path;")
    scope.emit("rt_freshen(&p->m.path);")
    if scope.tracing:
        scope.emit("p->m.path.copy = rt_copy_number(sw);")


def _trace_replica(scope: Scope, of: str = "of") -> None:
    scope.trace("Replicating packet on port %u", "copies->replicas[i].port", of=of)


def _reset_metadata(scope: Scope) -> None:
    with scope.block("static void reset_metadata(struct phv *p)"):
        for header in scope.program.headers:
            if header.metadata:
                metadata = f"p->m.{header.name}"
                scope.emit(f"memset(&{metadata}, 0, sizeof {metadata});")
    scope.emit("")


def _keep_fields(scope: Scope) -> None:
    with scope.block("static void keep_fields(struct phv *p, const struct phv *of, uint32_t list)"):
        scope.emit("(void)p; (void)of;")
        with scope.block("switch (list)"):
            for each in scope.program.field_lists:
                scope.emit(f"case {each.id}: /* {each.name} */")
                for field in each.fields:
                    lvalue = scope.lvalue(field)
                    of = lvalue.replace("p->", "of->", 1)
                    scope.emit(f"    memcpy(&{lvalue}, &{of}, sizeof {lvalue});")
                scope.emit("    break;")
    scope.emit("")


def _clone_egress(scope: Scope) -> None:
    """Write a function that clones a packet with its headers at the end of the egress.

    The clone waits behind other packets.
    """
    with scope.block(
        "static void clone_egress(struct sw *sw, struct phv *of, const uint8_t *rest, "
        "uint32_t rest_bytes, uint32_t length)"
    ):
        scope.trace("Cloning packet at egress", of="of")
        scope.emit(
            "const uint32_t session = of->m.path.clone & ~(uint32_t)RT_ASKED;",
            "const uint32_t list = of->m.path.clone_list;",
            "const struct copies *copies = rt_session(sw, session);",
            "of->m.path.clone = of->m.path.clone_list = 0;",
        )
        with scope.block("for (uint32_t i = 0; copies && i < copies->count; i++)"):
            scope.emit(
                "struct pending *packet = rt_push(sw, RT_CLONES, rest_bytes);",
                "if (!packet) { rt_dropped(sw, DROP_QUEUE_FULL); return; }",
                "packet->port = copies->replicas[i].port;",
                "packet->length = length;",
                "memcpy(packet->data, rest, rest_bytes);",
                "struct phv *p = packet->phv;",
                "*p = *of;",
                "reset_metadata(p);",
                "keep_fields(p, of, list);",
                scope.set_standard("instance_type", f"{EGRESS_CLONE}"),
            )
            _copied_path(scope)
            _trace_replica(scope)
    scope.emit("")


def _resubmit(scope: Scope) -> None:
    """Write a function that queues a packet for another pass, as it arrived."""
    with scope.block(
        "static void resubmit(struct sw *sw, struct phv *of, const uint8_t *frame, uint32_t length)"
    ):
        scope.trace("Resubmitting packet", of="of")
        scope.emit(
            "struct pending *packet = rt_push(sw, RT_AGAIN, length);",
            "if (!packet) { rt_dropped(sw, DROP_QUEUE_FULL); return; }",
            "memcpy(packet->data, frame, length);",
        )
        _begin_again(scope, "resubmit", RESUBMITTED, "length")
    scope.emit("")


def _recirculate(scope: Scope) -> None:
    """Write a function that queues a packet for another pass, as it would have been sent."""
    with scope.block(
        "static void recirculate(struct sw *sw, struct phv *of, uint32_t head_bytes, "
        "const uint8_t *rest, uint32_t rest_bytes)"
    ):
        scope.emit(
            "struct pending *packet = rt_push(sw, RT_AGAIN, head_bytes + rest_bytes);",
            "if (!packet) { rt_dropped(sw, DROP_QUEUE_FULL); return; }",
            "deparse(sw, of, packet->data);",
            "memcpy(packet->data + head_bytes, rest, rest_bytes);",
        )
        scope.trace("Recirculating packet", of="of")
        _begin_again(scope, "recirculate", RECIRCULATED, "head_bytes + rest_bytes")
    scope.emit("")


def _begin_again(scope: Scope, why: str, instance_type: int, size: str) -> None:
    """Write code that sets the metadata of a new pass.

    As in BMv2, the code sets the packet's size and its instance type, but not the port.
    """
    scope.emit(
        "struct phv *p = packet->phv;",
        "memset(&p->m, 0, sizeof p->m);",
        f"keep_fields(p, of, of->m.path.{why});",
        scope.set_standard("instance_type", f"{instance_type}"),
        scope.set_standard("packet_length", size),
    )
    _fresh_path(scope)


def _learn(scope: Scope) -> None:
    """Write a function that sends digests, with the values at the end of the ingress in whole bytes."""
    with (
        scope.block("static void learn(struct sw *sw, struct phv *p)"),
        scope.block("switch (p->m.path.digest)"),
    ):
        for number, each in enumerate(scope.program.learn_lists):
            with scope.block(f"case {each.id}: /* {each.name} */"):
                _sample(scope, number, each)
                scope.emit("break;")
    scope.emit("")


def _sample(scope: Scope, number: int, digest: ir.FieldList) -> None:
    kinds = [scope.expressions.field_type(field) for field in digest.fields]
    size = sum((kind.bits + 7) // 8 for kind in kinds)
    scope.emit(f"uint8_t sample[{size + 1}] = {{0}};")
    end = 0
    for field, kind in zip(digest.fields, kinds, strict=True):
        end += (kind.bits + 7) // 8 * 8
        header = scope.program.header_of(field)
        guard = "" if header.metadata else f"if ({scope.valid(header.name)}) "
        scope.emit(guard + fields.store(scope.value(field), kind, "sample", end - kind.bits))
    scope.emit(f"rt_learn(sw, {number}, sample, {size});")
