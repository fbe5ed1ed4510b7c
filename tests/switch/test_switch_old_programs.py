"""Programs in the older forms of BMv2's JSON: they do what they do in today's form.

Today's p4c cannot write these forms, so the tests turn compiled programs into them.
"""

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clone_sessions import ROOM
from compared_switches import Target, embedded
from p4runtime_client import group
from packet_paths import insert, seen
from tiny_programs import Program, program

from innet.switch import bmv2json, ir
from innet.switch.codegen import generate
from innet.switch.p4runtime.device_config import unwrapped

Document = Any
"""A parsed JSON, or a part of it."""

Change = Callable[[Document], object]


def objects(part: Document) -> Iterator[dict[str, Any]]:
    """Yield all objects in a part of a document, the outer ones first."""
    if isinstance(part, dict):
        yield part
        yield from (each for value in part.values() for each in objects(value))
    elif isinstance(part, list):
        yield from (each for value in part for each in objects(value))


def tables(document: Document) -> list[dict[str, Any]]:
    return [table for pipeline in document["pipelines"] for table in pipeline["tables"]]


def transitions(document: Document) -> list[dict[str, Any]]:
    states = document["parsers"][0]["parse_states"]
    return [each for state in states for each in state["transitions"]]


def primitives(document: Document) -> list[dict[str, Any]]:
    return [each for action in document["actions"] for each in action["primitives"]]


def parser_steps(document: Document, op: str) -> list[dict[str, Any]]:
    states = document["parsers"][0]["parse_states"]
    return [each for state in states for each in state["parser_ops"] if each["op"] == op]


def c_of(document: Document) -> str:
    return generate(bmv2json.load(json.dumps(document)))


# -- the same C ----------------------------------------------------------------------------------


def without_types(document: Document) -> None:
    for each in transitions(document):
        if each.pop("type") == "default":
            each["value"] = "default"


def with_types_but_default_values(document: Document) -> None:
    for each in transitions(document):
        if each["type"] == "default":
            each.update(type="hexstr", value="default")


def without_source_details(document: Document) -> None:
    for each in objects(document):
        if "source_info" in each:
            each["source_info"] = {"column": 3}


def renamed_primitives(document: Document) -> None:
    for each in primitives(document):
        each["op"] = {"assign": "modify_field", "assign_header": "copy_header"}.get(
            each["op"], each["op"]
        )


def numbers_for_truth(document: Document) -> None:
    for kind in document["header_types"]:
        kind["fields"] = [[name, bits, 0, 0] for name, bits, *_ in kind["fields"]]


def plain_error_codes(document: Document) -> None:
    for each in parser_steps(document, "verify"):
        each["parameters"][1] = int(each["parameters"][1]["value"], 16)


def shifts(document: Document) -> None:
    for each in parser_steps(document, "advance"):
        if each["parameters"][0]["type"] == "hexstr":
            each.update(op="shift", parameters=[int(each["parameters"][0]["value"], 16) // 8])


def validity_operators(document: Document) -> None:
    for each in objects(document):
        if each.get("op") == "d2b" and each["right"]["value"][1:] == ["$valid$"]:
            header = each["right"]["value"][0]
            each.update(op="valid", right={"type": "header", "value": header})


def keys_of_headers(document: Document) -> None:
    for table in tables(document):
        for key in table["key"]:
            if key["match_type"] == "exact" and key["target"][1] == "$valid$":
                key.update(match_type="valid", target=key["target"][0])


def own_profiles(document: Document) -> None:
    for pipeline in document["pipelines"]:
        selectors = {each["name"]: each["selector"] for each in pipeline.pop("action_profiles")}
        for table in pipeline["tables"]:
            if "action_profile" in table:
                name = table.pop("action_profile")
                table.update(act_prof_name=name, selector=selectors[name])


def constants_in_field_lists(document: Document) -> None:
    for each in document["field_lists"]:
        each["elements"].insert(0, {"type": "hexstr", "value": "0x1", "bitwidth": 8})


def headers_called_metadata(document: Document) -> None:
    for each in document["headers"]:
        each["metadata"] = True


def headers_of_nothing(document: Document) -> None:
    for each in document["headers"]:
        if each["name"] == "standard_metadata":
            del each["metadata"]


OLD_FORMS: dict[str, tuple[str, Change]] = {
    "transitions without a type, before May 2020": ("router", without_types),
    "transitions for the value 'default'": ("router", with_types_but_default_values),
    "tables with the names of their actions only": (
        "router",
        lambda d: [each.pop("action_ids") for each in tables(d)],
    ),
    "tables with empty action_ids": (
        "router",
        lambda d: [each.update(action_ids=[]) for each in tables(d)],
    ),
    "null for an empty list": (
        "router",
        lambda d: d.update(register_arrays=None, meter_arrays=None, parse_vsets=None),
    ),
    "places in the source without details": ("router", without_source_details),
    "P4_14's names of primitives": ("mix_vlan", renamed_primitives),
    "0 and 1 for false and true": ("router", numbers_for_truth),
    "errors as plain numbers, in 2017": ("parse_errors", plain_error_codes),
    "shifts by bytes": ("parse_lookahead", shifts),
    "the operator `valid`": ("router", validity_operators),
    "keys that test a header": ("match_invalid", keys_of_headers),
    "profiles that belong to a table": ("match_selector", own_profiles),
    "constants in the fields that a copy keeps": ("path_clone_ingress", constants_in_field_lists),
    "extracted headers that are called metadata, in 2017": ("router", headers_called_metadata),
    "headers that do not say whether they are metadata": ("router", headers_of_nothing),
}


@pytest.mark.parametrize(("name", "change"), OLD_FORMS.values(), ids=OLD_FORMS)
def test_an_older_form_gives_the_same_c(name, change):
    today, older = (json.loads(program(name).json) for _ in range(2))
    change(older)
    assert older != today
    assert c_of(older) == c_of(today)


def test_line_breaks_of_the_source_may_stand_in_strings():
    text = program("router").json.decode()
    broken = text.replace('"source_fragment" : "', '"source_fragment" : "two\nlines\t')
    assert broken != text
    assert generate(bmv2json.load(broken)) == generate(bmv2json.load(text))


ARITHMETIC = {
    "add": "+",
    "subtract": "-",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "shift_left": "<<",
    "shift_right": ">>",
}
LEFT, RIGHT = {"type": "hexstr", "value": "0x7"}, {"type": "field", "value": ["ipv4", "protocol"]}


def assigned(document: Document) -> dict[str, Any]:
    """Return the first step that assigns something to a field."""
    return next(each for each in primitives(document) if each["op"] == "assign")


@pytest.mark.parametrize("name", [*ARITHMETIC, "add_to_field", "subtract_from_field"])
def test_arithmetic_of_p4_14_is_an_assignment(name):
    today, older = (json.loads(program("router").json) for _ in range(2))
    target = assigned(today)["parameters"][0]
    in_place = name not in ARITHMETIC
    left = target if in_place else LEFT
    op = ARITHMETIC[name.split("_")[0] if in_place else name]
    value = {"type": "expression", "value": {"op": op, "left": left, "right": RIGHT}}
    assigned(today)["parameters"] = [target, value]
    operands = [RIGHT] if in_place else [LEFT, RIGHT]
    assigned(older).update(op=name, parameters=[target, *operands])
    assert c_of(older) == c_of(today)


@pytest.mark.parametrize("sign", ["+", "-"])
def test_a_sign_is_an_operator_without_a_left_operand(sign):
    documents = []
    for left in (None, {"type": "hexstr", "value": "0x0"}):
        document = json.loads(program("router").json)
        value = {"op": sign, "left": left, "right": RIGHT}
        assigned(document)["parameters"][1] = {"type": "expression", "value": value}
        documents.append(document)
    assert c_of(documents[0]) == c_of(documents[1])


# -- standard metadata ---------------------------------------------------------------------------


def moved(document: Document, owner: str, names: dict[str, str], bits: int = 16) -> Document:
    """Declare fields of standard metadata in a header of their own, under other names."""
    kinds = {each["name"]: each for each in document["header_types"]}
    fields = kinds["standard_metadata"]["fields"]
    kinds["standard_metadata"]["fields"] = [each for each in fields if each[0] not in names]
    kind = {"name": f"{owner}_t", "id": 90, "fields": [[new, bits] for new in names.values()]}
    document["header_types"].append(kind)
    document["headers"].append(
        {"name": owner, "id": 90, "header_type": f"{owner}_t", "metadata": True}
    )
    for each in objects(document):
        match each:
            case {"value": ["standard_metadata", name]} if name in names:
                each["value"] = [owner, names[name]]
    document["field_aliases"] = []
    return document


def run(document: Document) -> Any:
    """Run the program ``path_multicast`` in another form. Group 5 has copies to two ports."""
    return embedded(Program(json.dumps(document).encode(), program("path_multicast").p4info))


def copies(target: Target, command: int = 0) -> list[tuple[int, int]]:
    """Return the port and the instance of each copy of a packet for group 5."""
    header = struct.pack("!BHH", command, 5, 0)
    found = seen(target.send(2, header + ROOM), len(header))
    return [(what.left, what.instance) for what, _, _ in found]


OWN_NAMES = {"mcast_grp": "mcast_grp", "egress_rid": "egress_rid"}


def multicast() -> Document:
    return json.loads(program("path_multicast").json)


def test_fields_in_p4_14s_headers_serve_as_standard_metadata():
    with run(moved(multicast(), "intrinsic_metadata", OWN_NAMES)) as target:
        insert(target, group(5, (1, 1), (4, 4)))
        assert copies(target) == [(1, 1), (4, 4)]
        assert copies(target, 0b1) == []  # mark_to_drop takes the group back


def test_fields_that_an_alias_names_serve_as_standard_metadata():
    document = moved(multicast(), "mine", {"mcast_grp": "to", "egress_rid": "number"})
    aliases = {"mcast_grp": "to", "egress_rid": "number"}
    document["field_aliases"] = [
        [f"intrinsic_metadata.{field}", ["mine", name]] for field, name in aliases.items()
    ]
    with run(document) as target:
        insert(target, group(5, (1, 1), (4, 4)))
        assert copies(target) == [(1, 1), (4, 4)]


def test_an_alias_goes_before_a_field_of_the_same_name():
    document = moved(multicast(), "intrinsic_metadata", {})
    kinds = {each["name"]: each for each in document["header_types"]}
    kinds["intrinsic_metadata_t"]["fields"] = [["mcast_grp", 16]]
    document["field_aliases"] = [
        ["intrinsic_metadata.mcast_grp", ["standard_metadata", "mcast_grp"]]
    ]
    with run(document) as target:
        insert(target, group(5, (1, 1), (4, 4)))
        assert copies(target) == [(1, 1), (4, 4)]


def test_what_the_switch_sets_is_cut_to_the_declared_width():
    with run(
        moved(multicast(), "intrinsic_metadata", {"egress_rid": "egress_rid"}, bits=2)
    ) as target:
        insert(target, group(5, (1, 1), (4, 6)))
        assert copies(target) == [(1, 1), (4, 2)]


def used(document: Document) -> set[str]:
    """Return the fields of standard metadata that a program mentions."""
    values = [each["value"] for each in objects(document) if isinstance(each.get("value"), list)]
    return {each[1] for each in values if each and each[0] == "standard_metadata"}


UNUSED = sorted({*ir.STANDARD_FIELDS} - used(json.loads(program("hub").json)))


@pytest.mark.parametrize("name", UNUSED)
def test_a_program_need_not_declare_fields_that_it_does_not_use(name):
    document = json.loads(program("hub").json)
    kinds = {each["name"]: each for each in document["header_types"]}
    kind = kinds["standard_metadata"]
    kind["fields"] = [each for each in kind["fields"] if each[0] != name]
    document["field_aliases"] = [each for each in document["field_aliases"] if each[1][1] != name]
    assert "program_process" in c_of(document)


def test_a_copy_of_standard_metadata_has_all_of_its_fields():
    document = json.loads(program("path_drop_copy").json)
    kinds = {each["name"]: each for each in document["header_types"]}
    fields = kinds["standard_metadata"]["fields"]
    kinds["standard_metadata"]["fields"] = [each for each in fields if each[0] != "mcast_grp"]
    document["field_aliases"] = []
    assert "program_process" in c_of(document)


# -- the device configuration --------------------------------------------------------------------


def wrapped(data: bytes) -> bytes:
    """Return a message p4.tmp.P4DeviceConfig with `reassign`, one `extra`, and this program."""
    size = bytes([len(data) & 0x7F | 0x80, len(data) >> 7 & 0x7F | 0x80, len(data) >> 14])
    return b"\x08\x01" + b"\x12\x00" + b"\x1a" + size + data


def test_a_program_in_p4langs_old_message_runs():
    document = program("path_multicast").json
    with embedded(Program(wrapped(document), program("path_multicast").p4info)) as target:
        insert(target, group(5, (1, 1), (4, 4)))
        assert copies(target) == [(1, 1), (4, 4)]


@pytest.mark.parametrize(
    "config",
    [b"", b" {}", b"\x1a", b"\x1a\x7fshort", b"\x08", b"\x0d\0\0\0\0", b"\x08\x01", b"x" * 9],
)
def test_what_is_no_such_message_stays_as_it_is(config):
    assert unwrapped(config) == config
