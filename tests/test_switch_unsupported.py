"""What the switch cannot run is refused before it runs, by name and place."""

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


ADDED = {
    "header_stacks": "header stacks",
    "header_unions": "header unions",
    "header_union_stacks": "header union stacks",
    "parse_vsets": "parser value sets",
    "meter_arrays": "meters",
    "extern_instances": "extern instances",
}


@pytest.mark.parametrize(("section", "name"), ADDED.items())
def test_sections_that_the_switch_does_not_know_are_refused_by_name(section, name):
    assert refused(lambda document: document[section].append({})) == f"{name} are not supported"


def rules(document: dict[str, Any]) -> dict[str, Any]:
    tables = document["pipelines"][0]["tables"]
    return next(table for table in tables if table["name"] == "RouterIngress.rules")


def drop(document: dict[str, Any]) -> dict[str, Any]:
    """A step of an action, ``mark_to_drop(standard)`` in the source."""
    return next(each for action in document["actions"] for each in action["primitives"])


CONSTRUCTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "rules: 'range' matches": lambda d: rules(d)["key"][0].update(match_type="range"),
    "rules: indirect or metered tables": lambda d: rules(d).update(type="indirect_ws"),
    "action profiles": lambda d: d["pipelines"][0]["action_profiles"].append({}),
    "mark_to_drop(standard): primitive 'clone'": lambda d: drop(d).update(op="clone"),
    "checksum 'crc16'": lambda d: d["calculations"][0].update(algo="crc16"),
    "varbits": lambda d: d["header_types"][-1]["fields"].append(["options", "*"]),
    "parser operation 'shift'": lambda d: first_parser_operation(d).update(op="shift"),
    "extracting a stack": lambda d: first_parser_operation(d)["parameters"][0].update(type="stack"),
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
    """Every container of a document with each of its keys or indices."""
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
