"""The compiler's answer to the question which packets of a program may run on different cores."""

import dataclasses

import differential
import pytest

from innet.switch import ir
from innet.switch.bmv2json import load
from innet.switch.codegen.partition import Partition, partition


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("innet-64", ("innet.sequence", "innet.slot")),
        ("innet-256", ("innet.sequence", "innet.slot")),
        ("mix_wide", ("given.g",)),
        ("extern_meters", ("probe.index",)),
        ("router", ()),
        ("path_resubmit", ()),
    ],
)
def test_programs_whose_cells_have_one_index_can_be_spread(name, fields):
    found = partition(load(differential.load(name).json))
    assert (found.fields, found.reason) == (fields, "")


CELLS = "register TallyIngress.cells"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("control_plane", "register ControlIngress.last is indexed by 0"),
        ("extern_direct_meter", "packets that hit one entry share a cell of meter TestIngress.speed"),
        ("mix_limit", "register Inward.packets is indexed by scalars.tmp"),
        ("tally", f"{CELLS} is indexed by tally.cell, and {CELLS} by tally.other"),
        ("wide_state", "the controller can change the parser's value sets"),
    ],
)  # fmt: skip
def test_other_programs_run_on_one_core_and_the_reason_is_told(name, reason):
    assert partition(load(differential.load(name).json)) == Partition(reason=reason)


# -- programs of a few steps ---------------------------------------------------------------------

A, B, WIDE = (ir.FieldRef("h", name) for name in ("a", "b", "wide"))
M, NARROW = (ir.FieldRef("m", name) for name in ("m", "narrow"))
STANDARD = ("ingress_port", "ingress_timestamp", "packet_length")
PORT, TIME, LENGTH = (ir.FieldRef("standard_metadata", name) for name in STANDARD)
HEADER = ir.Name("header", "h")
BITS = {
    "a": 16,
    "b": 16,
    "wide": 80,
    "m": 32,
    "narrow": 8,
    "ingress_port": 9,
    "ingress_timestamp": 48,
    "packet_length": 32,
}


def step(op, *args) -> ir.Primitive:
    return ir.Primitive(op, args, ir.SourceLocation())


def assign(target, value) -> ir.Primitive:
    return step("assign", target, value)


def use(index, register: str = "r") -> ir.Primitive:
    return step("register_write", ir.Name("register_array", register), index, ir.Const(1))


def pipeline(name: str, *actions: int) -> ir.Pipeline:
    """Return a pipeline that runs these actions, each in a table without keys."""
    names = [f"{name}{position}" for position in range(len(actions))]
    tables = tuple(
        ir.Table(table, (), (action,), 1, action, (), True, (), None, None, None,
                 {action: following}, following, following)
        for table, action, following in zip(names, actions, [*names[1:], None][: len(names)], strict=True)
    )  # fmt: skip
    return ir.Pipeline(name, names[0] if names else None, tables, ())


def made(*ingress, egress=(), keys=(), parser=()) -> ir.Program:
    """Return a program whose pipelines run these bodies of actions, one after the other."""
    fields = {"h": (A, B, WIDE), "m": (M, NARROW), "standard_metadata": (PORT, TIME, LENGTH)}
    headers = tuple(
        ir.Header(name, tuple(ir.FieldType(f.field, BITS[f.field]) for f in parts), name != "h")
        for name, parts in fields.items()
    )
    bodies = [*ingress, *egress]
    state = ir.ParserState("start", tuple(parser), tuple((key, 16) for key in keys), ())
    return ir.Program(
        headers, {}, (), (), (), (), "start", (state,), ("h",),
        tuple(ir.Action(n, f"action{n}", (("p", 16),), tuple(body)) for n, body in enumerate(bodies)),
        pipeline("ingress", *range(len(ingress))),
        pipeline("egress", *range(len(ingress), len(bodies))),
        (ir.Register("r", 32, 64), ir.Register("s", 32, 64)), (), (), (), (), {}, (), (),
    )  # fmt: skip


def only_if(program: ir.Program, skipped: str, condition: ir.Expr) -> ir.Program:
    """Return the program with a table of the ingress, its first one, behind a condition."""
    following = {each.name: each for each in program.ingress.tables}[skipped].next_on_hit
    branch = ir.Conditional("branch", condition, skipped, following, ir.SourceLocation())
    ingress = dataclasses.replace(program.ingress, start="branch", conditionals=(branch,))
    return dataclasses.replace(program, ingress=ingress)


CONDITION = ir.Op("==", (B, ir.Const(1)))
AGAIN = step("resubmit", ir.Const(1))
CLONE = step("clone_egress_pkt_to_egress", ir.Const(1), ir.Const(0))
SHORT = ir.Op("&", (A, ir.Const(255)))


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (made([use(A)]), A),
        (made([use(A), use(A, "s")], egress=[[use(A)]]), A),
        (made([assign(M, A)], [use(M)], [use(A, "s")]), A),
        (made([assign(NARROW, A), use(NARROW)]), SHORT),
        (made([assign(A, B), use(A)], [use(B, "s")]), B),
        (made([use(PORT)]), PORT),
        (made([use(M)], parser=[step("set", M, A)]), M),
        (made([use(A), AGAIN], keys=[A]), A),
        (made([use(A), AGAIN], [assign(M, A), use(M)]), A),
        (made([use(A)], egress=[[use(A), CLONE]]), A),
        (made([use(A), step("exit")], [use(B)]), A),
        (made([step("_jump_if_zero", CONDITION, ir.Const(2)), assign(M, A), assign(M, A), use(M)]), A),
        (only_if(made([use(A)], [use(A, "s")]), "ingress0", CONDITION), A),
    ],
)  # fmt: skip
def test_the_key_is_what_the_parsed_packet_says_of_the_index(program, key):
    assert partition(program) == Partition(key)


@pytest.mark.parametrize(
    "program",
    [
        made([use(A)], [use(B, "s")]),  # two indices
        made([use(A)], [assign(NARROW, A), use(NARROW, "s")]),  # 256 and 0 would be one cell
        made([use(A), assign(A, B)], [use(A, "s")]),  # changed in between
        made([use(A)], egress=[[assign(A, ir.Const(1))], [use(A)]]),
        made([use(ir.Const(3))]),
        made([use(ir.ParamRef(0))]),
        made([assign(M, ir.ParamRef(0)), use(M)]),
        made([use(WIDE)]),
        made([use(TIME)]),
        made([step("register_read", M, ir.Name("register_array", "r"), A), use(M, "s")]),
        made([step("modify_field_rng_uniform", M, ir.Const(0), ir.Const(9)), use(M)]),
        made([step("remove_header", HEADER)], [use(A)]),
        made([step("add_header", HEADER), use(A)]),
        made([step("_jump_if_zero", CONDITION, ir.Const(2)), assign(M, A), use(M)]),
        only_if(made([assign(M, A)], [use(M)]), "ingress0", CONDITION),
        made([step("_jump_if_zero", CONDITION, ir.Const(2)), step("exit"), assign(M, A)],
             egress=[[use(M)]]),
        made([use(A), step("recirculate", ir.Const(1))]),
        made([use(A), AGAIN], keys=[M]),  # the second pass may be parsed in another way
        made([use(M), AGAIN]),  # metadata of the first pass
        made([use(PORT), AGAIN]),  # the second pass has port 0
        made([use(A)], egress=[[use(A), assign(A, B), CLONE]]),  # the clone has another value
        made([use(A)], parser=[use(A)]),
        made([use(M)], parser=[step("set", M, TIME)]),  # not known before the packet runs
        made([use(M)], parser=[step("set", M, LENGTH)]),
        made([use(A)], keys=[LENGTH]),
        made([use(A)], parser=[step("count", ir.Name("counter_array", "c"), A)]),  # it would count twice
        made([use(M)], parser=[step("modify_field_rng_uniform", M, ir.Const(0), ir.Const(9))]),
        dataclasses.replace(made([use(A)]), value_sets=(ir.ValueSet("v", 16),)),
    ],
)  # fmt: skip
def test_an_index_that_is_not_certain_keeps_a_program_on_one_core(program):
    found = partition(program)
    assert found.key is None
    assert found.reason
