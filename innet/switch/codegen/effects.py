"""The effects of primitives, for the analyses of a program: what they set, and where they lead."""

from innet.switch import ir

TARGETS = {
    "assign": 0, "register_read": 0, "execute_meter": 2,
    "modify_field_with_hash_based_offset": 0, "modify_field_rng_uniform": 0,
}  # fmt: skip
"""The primitives that set one field, with its position."""

CLONES = frozenset({"clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress"})

LEAVING = frozenset({"exit", "assert", "assume"})
"""The primitives that can end a control."""

SET_NO_FIELD = CLONES | {
    "register_write", "count", "exit", "no_op", "_jump", "_jump_if_zero", "resubmit", "recirculate",
    "generate_digest", "truncate", "log_msg", "assert", "assume",
}  # fmt: skip
"""The primitives that set no field, neither of a header nor of metadata."""


def following(step: ir.Primitive, number: int) -> tuple[int, ...]:
    """Return the numbers of the steps that may come next. `number` is that of `step` in its body."""
    match step:
        case ir.Primitive("_jump", (ir.Const(target),)):
            return (target,)
        case ir.Primitive("_jump_if_zero", (_, ir.Const(target))):
            return (number + 1, target)
        case ir.Primitive("exit"):
            return ()
    return (number + 1,)
