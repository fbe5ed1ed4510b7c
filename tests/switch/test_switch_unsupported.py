"""Programs that the switch cannot run are refused before they run, with the name and the place.

``INNET_FUZZ_DOCUMENTS=100000`` is the long mode: so many damaged programs.
"""

import dataclasses
import itertools
import json
import os
import random
from collections.abc import Callable
from typing import Any

import damage
import pytest
from tiny_programs import SOURCES, program

from innet.errors import InnetError, UnsupportedProgram
from innet.switch import bmv2json
from innet.switch.bmv2json.document import MAX_DEPTH
from innet.switch.codegen import generate

ROUNDS = int(os.environ.get("INNET_FUZZ_DOCUMENTS", "600"))
SPOILT = [source.stem for source in SOURCES]


def refused(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(program("router").json)
    change(document)
    with pytest.raises(UnsupportedProgram) as problem:
        bmv2json.load(json.dumps(document))
    return str(problem.value)


def test_externs_of_other_architectures_are_refused_by_name():
    instance = {"name": "ingress.counts", "id": 0, "type": "Counter"}
    said = refused(lambda document: document["extern_instances"].append(instance))
    assert said == "extern instances are not supported: ingress.counts of type Counter"


def test_a_header_of_the_last_union_of_a_stack_is_refused_by_name():
    document = json.loads(program("parse_union_stack").json)
    # p4c turns `hdr.options.last.s.kind` into this.
    first_condition(document)["left"] = {"type": "field", "value": ["options", "s.kind"]}
    with pytest.raises(UnsupportedProgram, match=r"options\.last: fields of the last union"):
        bmv2json.load(json.dumps(document))


def rules(document: dict[str, Any]) -> dict[str, Any]:
    tables = document["pipelines"][0]["tables"]
    return next(table for table in tables if table["name"] == "RouterIngress.rules")


def drop(document: dict[str, Any]) -> dict[str, Any]:
    """Return a step of an action that is ``mark_to_drop(standard)`` in the source."""
    return next(each for action in document["actions"] for each in action["primitives"])


CONSTRUCTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "rules: 'prefix' matches": lambda d: rules(d)["key"][0].update(match_type="prefix"),
    "rules: tables of type 'indirect_xs'": lambda d: rules(d).update(type="indirect_xs"),
    "only two rates": lambda d: d["meter_arrays"].append(
        {"name": "m", "rate_count": 3, "type": "packets"}
    ),
    "mark_to_drop(standard): primitive 'clone'": lambda d: drop(d).update(op="clone"),
    "hash algorithm 'toeplitz'": lambda d: d["calculations"][0].update(algo="toeplitz"),
    "a checksum by 'random'": lambda d: d["calculations"][0].update(algo="random"),
    "log_msg has 1 arguments for 2 pairs of braces": lambda d: drop(d).update(
        op="log_msg",
        parameters=[
            {"type": "string", "value": "{} {}"},
            {"type": "parameters_vector", "value": [{"type": "hexstr", "value": "0x1"}]},
        ],
    ),
    "more than one varbit": lambda d: d["header_types"][-1].update(
        fields=[["options", "*"], ["more", "*"]], max_length=8
    ),
    "parser operation 'skip'": lambda d: first_parser_operation(d).update(op="skip"),
    "extracting a union": lambda d: first_parser_operation(d)["parameters"][0].update(type="union"),
    "saturating fields of P4_14": lambda d: d["header_types"][-1].update(
        fields=[["level", 8, False, True]]
    ),
    "the length expressions of P4_14": lambda d: d["header_types"][-1].update(
        fields=[["options", "*"]], max_length=8, length_exp={"type": "hexstr", "value": "0x8"}
    ),
    "checksums of type 'ipv4' are not supported: compile the program again": (
        lambda d: d["checksums"][0].update(type="ipv4")
    ),
    "so it is for the architecture PSA: write it for v1model": lambda d: next(
        each for each in d["headers"] if each["name"] == "standard_metadata"
    ).update(name="psa_ingress_input_metadata"),
    "operator '%'": lambda d: first_condition(d).update(op="%"),
}


def first_parser_operation(document: dict[str, Any]) -> dict[str, Any]:
    return document["parsers"][0]["parse_states"][0]["parser_ops"][0]


def first_condition(document: dict[str, Any]) -> dict[str, Any]:
    return document["pipelines"][0]["conditionals"][0]["expression"]["value"]


@pytest.mark.parametrize(("words", "change"), CONSTRUCTS.items())
def test_constructs_that_the_switch_does_not_know_are_refused_by_name(words, change):
    assert words in refused(change)


def table(document: dict[str, Any], name: str) -> dict[str, Any]:
    tables = document["pipelines"][0]["tables"]
    return next(each for each in tables if each["name"] == f"RouterIngress.{name}")


def entry(document: dict[str, Any]) -> dict[str, Any]:
    return table(document, "classes")["entries"][0]


def assigned(document: dict[str, Any]) -> dict[str, Any]:
    """Return a step of an action that sets a field to another."""
    return next(
        step
        for action in document["actions"]
        for step in action["primitives"]
        if step["op"] == "assign"
    )


def add_step(document: dict[str, Any], op: str, *parameters: tuple[str, Any]) -> None:
    given = [{"type": kind, "value": value} for kind, value in parameters]
    document["actions"][0]["primitives"].append({"op": op, "parameters": given})


def add_parser_step(document: dict[str, Any], op: str, *parameters: tuple[str, Any]) -> None:
    given = [{"type": kind, "value": value} for kind, value in parameters]
    step = {"op": "primitive", "parameters": [{"op": op, "parameters": given}]}
    document["parsers"][0]["parse_states"][0]["parser_ops"].append(step)


def set_condition(document: dict[str, Any], op: str, right: tuple[str, Any]) -> None:
    left = {"type": "field", "value": ["ipv4", "version"]}
    first_condition(document).update(op=op, left=left, right={"type": right[0], "value": right[1]})


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "actions[0].id is missing": lambda d: d["actions"][0].pop("id"),
    "actions[0].name is 7, not a string": lambda d: d["actions"][0].update(name=7),
    "actions[0].name is '\\ud800', not Unicode text": lambda d: d["actions"][0].update(
        name="\ud800"
    ),
    "actions[0].primitives is {}, not a list": lambda d: d["actions"][0].update(primitives={}),
    "actions[0].primitives is [7], not a list of objects": lambda d: d["actions"][0].update(
        primitives=[7]
    ),
    "checksums[0].verify is 1, not true or false": lambda d: d["checksums"][0].update(verify=1),
    "not a hexadecimal number": lambda d: entry(d)["action_entry"].update(action_data=["x"]),
    "there are two actions with the id 0": lambda d: d["actions"][1].update(id=0),
    "there are two headers with the name 'scalars'": lambda d: d["headers"][1].update(
        name="scalars"
    ),
    "there are two tables or conditions with the name 'tbl_drop'": lambda d: d["pipelines"][0][
        "conditionals"
    ][0].update(name="tbl_drop"),
    "there are two errors with the code 0": lambda d: d["errors"][1].__setitem__(1, 0),
    "there is no header type 'x'": lambda d: d["headers"][0].update(header_type="x"),
    "there is no header 'x'": lambda d: d["deparsers"][0].update(order=["x"]),
    "there is no field 'x'": lambda d: assigned(d)["parameters"][0].update(value=["ipv4", "x"]),
    "there is no table or condition 'x'": lambda d: d["pipelines"][0].update(init_table="x"),
    "there is no parser state 'x'": lambda d: d["parsers"][0].update(init_state="x"),
    "there is no calculation 'x'": lambda d: d["checksums"][0].update(calculation="x"),
    "there is no register array 'x'": lambda d: add_step(
        d,
        "register_read",
        ("field", ["ipv4", "version"]),
        ("register_array", "x"),
        ("hexstr", "0x0"),
    ),
    "there is no pipeline 'egress'": lambda d: d["pipelines"].pop(),
    "there is no parser": lambda d: d["parsers"].clear(),
    "there is no deparser": lambda d: d["deparsers"].clear(),
    "nothing follows the action": lambda d: table(d, "rules")["next_tables"].clear(),
    "the action is not one of the table's": lambda d: entry(d)["action_entry"].update(action_id=1),
    "0 parameters, not 2": lambda d: assigned(d).update(parameters=[]),
    "RouterIngress.mark has 1 parameters, not 0": lambda d: entry(d)["action_entry"].update(
        action_data=[]
    ),
    "the table has 1 keys, not 0": lambda d: entry(d).update(match_key=[]),
    "a match of type 'exact' for a key of type 'lpm'": lambda d: entry(d)["match_key"][0].update(
        match_type="exact"
    ),
    "only a field can be set": lambda d: assigned(d)["parameters"][0].update(
        type="hexstr", value="0x1"
    ),
    "its type is 'hexstr', not 'header'": lambda d: add_step(d, "add_header", ("hexstr", "0x1")),
    "the headers differ in type": lambda d: add_step(
        d, "assign_header", ("header", "ipv4"), ("header", "ethernet")
    ),
    "exit in a parser state is not supported": lambda d: add_parser_step(d, "exit"),
    "_jump in a parser state is not supported": lambda d: add_parser_step(
        d, "_jump", ("hexstr", "0x0")
    ),
    "the target of a jump is 2: it has to be a number from 0 to 1": lambda d: add_step(
        d, "_jump", ("hexstr", "0x2")
    ),
    "there are no arguments here": lambda d: set_condition(d, "==", ("runtime_data", 0)),
    "a shift by -1, which is negative": lambda d: set_condition(d, ">>", ("hexstr", "-0x1")),
    "two_comp_mod: the width in bits is 0": lambda d: set_condition(
        d, "two_comp_mod", ("hexstr", "0x0")
    ),
    "sat_cast: the width has to be a constant": lambda d: set_condition(
        d, "sat_cast", ("field", ["ipv4", "version"])
    ),
    "standard_metadata is metadata": lambda d: d["deparsers"][0]["order"].append(
        "standard_metadata"
    ),
    "header ipv4 has 161 bits": lambda d: d["header_types"][-1]["fields"].append(["x", 1, False]),
    "has no standard_metadata": lambda d: d["headers"][1].update(name="standard"),
}


@pytest.mark.parametrize(("words", "change"), DAMAGE.items())
def test_a_damaged_document_is_refused_by_the_place_or_the_name_of_the_damage(words, change):
    assert words in refused(change)


def test_an_error_of_the_generator_itself_is_not_blamed_on_the_program():
    broken = dataclasses.replace(bmv2json.load(program("router").json), deparser=("nothing",))
    with pytest.raises(Exception, match="nothing") as problem:
        generate(broken)
    assert not isinstance(problem.value, InnetError)


def nested(levels: int, wrap: Callable[[Any], Any]) -> str:
    """Return a program with an expression of so many operators in each other."""
    document = json.loads(program("router").json)
    value: Any = {"type": "field", "value": ["ipv4", "total_length"]}
    for _ in range(levels):
        value = wrap(value)
    assigned(document)["parameters"][1] = value
    return json.dumps(document)


def operation(op: str, left: Any, right: Any, **others: Any) -> Any:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **others}}


ONE = {"type": "hexstr", "value": "0x1"}
WRAPS = {
    "sum": lambda value: operation("+", value, ONE),
    "shift": lambda value: operation(">>", value, ONE),
    "choice": lambda value: operation("?", value, ONE, cond={"type": "bool", "value": True}),
    "saturation": lambda value: operation(
        "sat_cast", operation("+", value, ONE), {"type": "hexstr", "value": "0x20"}
    ),
    "condition": lambda value: operation("b2d", None, operation("d2b", None, value)),
}


@pytest.mark.parametrize("kind", WRAPS)
def test_an_expression_may_be_nested_as_deeply_as_a_document(kind):
    deepest = None
    with pytest.raises(UnsupportedProgram, match="nested in each other"):  # noqa: PT012
        for levels in itertools.count(1):
            deepest = bmv2json.load(nested(levels, WRAPS[kind]))
    assert levels > MAX_DEPTH // 5
    assert deepest
    for tracing in (False, True):
        assert generate(deepest, tracing=tracing)


@pytest.mark.timeout(4 * 3600)
def test_a_damaged_document_is_refused_or_still_a_program():
    for number in range(ROUNDS):
        chance = random.Random(number)
        name = chance.choice(SPOILT)
        text = damage.document(chance, json.loads(program(name).json))
        try:
            generate(bmv2json.load(text), tracing=chance.random() < 0.5)
        except UnsupportedProgram as problem:
            str(problem).encode()  # it can be printed
