"""No text of a P4 program becomes C: programs with any names generate the same C.

``INNET_FUZZ_PROGRAMS=all INNET_FUZZ_NAMES=20`` is the long mode: all programs, 20 times.
"""

import json
import os
import random
import re
from pathlib import Path

import differential
import hostile
import pytest
from switch_commands import frame
from switches import receive, running_switch
from tiny_programs import FOLDER, program

from innet.switch import bmv2json
from innet.switch.codegen import generate
from innet.switch.engine import Engine

ROUNDS = int(os.environ.get("INNET_FUZZ_NAMES", "1"))
PROGRAMS = (
    "mix_learning", "path_clone_egress", "path_resubmit", "parse_union_stack", "parse_value_set",
    "match_selector", "extern_hashes", "extern_direct_meter", "extern_assertions", "wide_state",
)  # fmt: skip
NAMES = differential.names() if os.environ.get("INNET_FUZZ_PROGRAMS") == "all" else PROGRAMS
LITERAL = re.compile(r'"(?:[^"\\\n]|\\[0-7]{3})*"')


def skeleton(text: str) -> str:
    """Return C without its string literals, and with numbers for the identifiers made from names."""
    numbers: dict[str, int] = {}
    bare = LITERAL.sub('""', text)
    return re.sub(
        r"p4_[A-Za-z0-9_]*", lambda name: f"@{numbers.setdefault(name[0], len(numbers))}", bare
    )


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("tracing", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_names_change_nothing_in_the_generated_c_but_identifiers_and_literals(name, tracing):
    json = differential.load(name).json
    wanted = skeleton(generate(bmv2json.load(json), tracing=tracing))
    assert '"' not in wanted.replace('""', "")
    for seed in range(ROUNDS):
        renamed = hostile.renamed(json, random.Random(f"{name} {seed}"))
        assert skeleton(generate(bmv2json.load(renamed), tracing=tracing)) == wanted


def test_a_program_with_hostile_names_compiles_and_forwards_as_before(tmp_path):
    json = tmp_path / "hostile.json"
    json.write_bytes(hostile.renamed(program("wire").json, random.Random(3)))
    for path in (FOLDER / "wire.json", json):
        with running_switch(2, "--log-console", program=path) as switch:
            switch.hosts[0].send(frame(1))
            assert receive(switch.hosts[1]) == frame(1)


def exploit(marker: Path) -> str:
    """Return a name that ends its comment and defines a function which makes a file when loaded."""
    run = (
        f'__attribute__((constructor)) static void run(void) {{ fclose(fopen("{marker}", "w")); }}'
    )
    return f"**//\n#include <stdio.h>\n{run}\n/*"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("hub", "actions"),
        ("path_digest", "learn_lists"),
        ("path_resubmit", "field_lists"),
        ("hub", "header_types"),
    ],
)
def test_no_name_runs_native_code(tmp_path, name, part):
    marker = tmp_path / "ran"
    document = json.loads(program(name).json)
    for number, each in enumerate(document[part]):
        each["name"] += exploit(marker) + str(number)
        for header in document["headers"]:
            if part == "header_types" and header["header_type"] == each["name"].partition("*")[0]:
                header["header_type"] = each["name"]
    for table in (table for each in document["pipelines"] for table in each["tables"]):
        if part == "actions":
            ids = {each["id"]: each["name"] for each in document["actions"]}
            old = dict(
                zip(table["actions"], (ids[each] for each in table["action_ids"]), strict=True)
            )
            table["actions"] = [*old.values()]
            table["next_tables"] = {
                old.get(key, key): value for key, value in table["next_tables"].items()
            }
    Engine(json.dumps(document)).close()
    assert not marker.exists()
