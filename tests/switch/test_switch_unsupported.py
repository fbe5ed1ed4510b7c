"""Programs that the switch cannot run are refused before they run, with the name and the place."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_programs import program

from innet.errors import UnsupportedProgram
from innet.switch import bmv2json, ir


def refused(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(program("router").json)
    change(document)
    with pytest.raises(UnsupportedProgram) as problem:
        bmv2json.load(json.dumps(document))
    return str(problem.value)


def test_externs_of_other_architectures_are_refused_by_name():
    said = refused(lambda document: document["extern_instances"].append({}))
    assert said == "extern instances are not supported"


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
    "parser operation 'shift'": lambda d: first_parser_operation(d).update(op="shift"),
    "extracting a union": lambda d: first_parser_operation(d)["parameters"][0].update(type="union"),
    "operator '%'": lambda d: first_condition(d).update(op="%"),
}


def first_parser_operation(document: dict[str, Any]) -> dict[str, Any]:
    return document["parsers"][0]["parse_states"][0]["parser_ops"][0]


def first_condition(document: dict[str, Any]) -> dict[str, Any]:
    return document["pipelines"][0]["conditionals"][0]["expression"]["value"]


@pytest.mark.parametrize(("words", "change"), CONSTRUCTS.items())
def test_constructs_that_the_switch_does_not_know_are_refused_by_name(words, change):
    assert words in refused(change)


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a document with each of its keys or indices."""
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from places(node[key])


@given(chance=st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_a_damaged_document_is_refused_or_still_a_program(chance):
    document = json.loads(program("router").json)
    container, key = chance.choice(list(places(document)))
    if chance.random() < 0.3:
        del container[key]
    else:
        container[key] = chance.choice([None, -1, "x", [], {}, 10**9, [container[key]]])
    with contextlib.suppress(UnsupportedProgram):
        assert isinstance(bmv2json.load(json.dumps(document)), ir.Program)
