"""Sizes in a program are limited. Too large ones are refused, and accepted ones really exist.

``INNET_FUZZ_SIZES=20000`` is the long mode: so many programs with odd numbers, of which a hundredth
run.
"""

import json
import os
import subprocess
import sys
import tracemalloc

import grpc
import pytest
import sizes
from commands import refuse
from one_port import running
from p4runtime_client import Controller, refusal
from sanitizers import run_sanitized
from switch_commands import frame
from switches import receive, running_switch
from tiny_programs import Program, program

from innet.errors import UnsupportedProgram
from innet.switch import bmv2json, limits
from innet.switch.constants import MAX_FRAME
from innet.switch.engine import Engine

ROUNDS = int(os.environ.get("INNET_FUZZ_SIZES", "200"))
ARRAYS = {
    "register_arrays": "mix_registers", "counter_arrays": "extern_counters",
    "meter_arrays": "extern_meters",
}  # fmt: skip
TOO_LARGE = (
    (1 << 32) - 1,
    1 << 32,
    (1 << 32) + 1,
    1 << 40,
    1 << 64,
    -1,
    -(1 << 31),
    2.5,
    "7",
    None,
)


def with_array(part: str, size: object) -> Program:
    """Return a program with an array of this size, and if possible a P4Info with the same size."""
    made = program(ARRAYS[part])
    document = json.loads(made.json)
    array = next(each for each in document[part] if not each.get("is_direct"))
    array["size"] = size
    for each in (*made.p4info.registers, *made.p4info.counters, *made.p4info.meters):
        if each.preamble.name == array["name"] and type(size) is int and abs(size) < 1 << 63:
            each.size = size if part != "register_arrays" or abs(size) < 1 << 31 else 1
    return Program(json.dumps(document).encode(), made.p4info)


@pytest.mark.parametrize("size", TOO_LARGE)
@pytest.mark.parametrize("part", ARRAYS)
def test_an_array_of_too_many_cells_is_refused(part, size):
    with pytest.raises(UnsupportedProgram, match=f"its size is .*from 0 to {limits.MAX_ELEMENTS}"):
        bmv2json.load(with_array(part, size).json)


def test_arrays_that_are_too_large_together_are_refused():
    document = json.loads(with_array("register_arrays", limits.MAX_ELEMENTS).json)
    for each in document["register_arrays"]:
        each |= {"bitwidth": 1024, "size": limits.MAX_ELEMENTS}
    with pytest.raises(
        UnsupportedProgram, match=r"of all registers, counters and meters: their sum"
    ):
        bmv2json.load(json.dumps(document))


@pytest.mark.parametrize("size", TOO_LARGE)
def test_a_table_of_too_many_entries_is_refused(size):
    document = json.loads(program("router").json)
    document["pipelines"][0]["tables"][0]["max_size"] = size
    with pytest.raises(UnsupportedProgram, match=r"table .*: its size is"):
        bmv2json.load(json.dumps(document))


@pytest.mark.parametrize("bits", [(8 << 16) + 1, 1 << 32, 1 << 40, -1, 2.5, "7", None])
@pytest.mark.parametrize(
    ("name", "part", "key"),
    [
        ("mix_registers", "register_arrays", "bitwidth"),
        ("parse_value_set", "parse_vsets", "compressed_bitwidth"),
    ],
)
def test_a_width_that_no_field_can_have_is_refused(name, part, key, bits):
    document = json.loads(program(name).json)
    document[part][0][key] = bits
    with pytest.raises(UnsupportedProgram, match="the width in bits is"):
        bmv2json.load(json.dumps(document))


def test_headers_that_do_not_fit_a_stack_are_refused():
    document = json.loads(program("router").json)
    scalars = next(each for each in document["header_types"] if each["name"].startswith("scalars"))
    scalars["fields"] += [[f"large{number}", limits.MAX_BITS, False] for number in range(100)]
    with pytest.raises(UnsupportedProgram, match="the bytes of all headers and metadata"):
        bmv2json.load(json.dumps(document))


def test_a_shift_of_a_stack_by_less_than_nothing_is_refused():
    document = json.loads(program("parse_stack").json)
    steps = [step for action in document["actions"] for step in action["primitives"]]
    moves = [step for step in steps if step["op"] in ("push", "pop")]
    for step in moves:
        step["parameters"][1]["value"] = "-0x5"
    assert moves
    with pytest.raises(UnsupportedProgram, match="the count of a push or pop is -5"):
        bmv2json.load(json.dumps(document))


def test_only_actions_have_arguments():
    document = json.loads(program("parse_select").json)
    argument = {"type": "runtime_data", "value": 0}
    for state in document["parsers"][0]["parse_states"]:
        for step in state["parser_ops"]:
            if step["op"] == "set":
                step["parameters"][1] = argument
    state["parser_ops"].append(
        {
            "op": "set",
            "parameters": [
                {"type": "field", "value": ["standard_metadata", "mcast_grp"]},
                argument,
            ],
        }
    )
    with pytest.raises(UnsupportedProgram, match="malformed"):
        sizes.generate(bmv2json.load(json.dumps(document)))


def test_a_large_register_is_filled_without_an_object_for_each_cell():
    cells = (1 << 20) + 5
    document = json.loads(program("control_plane").json)
    name = document["register_arrays"][0]["name"]
    document["register_arrays"][0]["size"] = cells
    engine = Engine(json.dumps(document))
    tracemalloc.start()
    engine.arrays.fill_register(name, 2, cells - 3, 7)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    ends = [*engine.arrays.register(name, 0, 4), *engine.arrays.register(name, cells - 3, 3)]
    engine.close()
    assert ends == [0, 0, 7, 7, 7, 7, 0]
    assert peak < cells


@pytest.mark.parametrize("part", ARRAYS)
def test_p4runtime_refuses_what_is_too_large_and_the_program_before_it_runs_on(part):
    with running_switch(2) as switch, Controller(switch.address, 1) as controller:
        controller.configure(program("wire"))
        for size in ((1 << 32) - 1, (1 << 32) + 1, 1 << 40):
            code, message = refusal(controller.configure, with_array(part, size))
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert f"its size is {size}" in message
            switch.hosts[0].send(frame(1))
            assert receive(switch.hosts[1]) == frame(1)


def test_the_command_refuses_what_is_too_large(tmp_path):
    large = tmp_path / "large.json"
    large.write_bytes(with_array("counter_arrays", (1 << 32) - 1).json)
    refuse("its size is 4294967295: it has to be a number from 0 to", "innet-switch", str(large))


def test_what_the_machine_has_no_memory_for_is_refused(tmp_path):
    large = tmp_path / "large.json"
    large.write_bytes(with_array("counter_arrays", limits.MAX_ELEMENTS - 8).json)
    limited = (
        "import resource, sys; from innet.switch.engine import Engine; from pathlib import Path\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "Engine(Path(sys.argv[1]).read_bytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, str(large)], capture_output=True, text=True, check=False
    )
    assert "UnsupportedProgram: this machine has no memory for the program's arrays" in done.stderr


SPOILT = (
    "match_selector", "mix_learning", "path_clone_egress", "parse_union_stack", "parse_value_set",
    "extern_hashes", "extern_direct_meter", "wide_state", "parse_varbit", "parse_lookahead",
    "extern_counters", "extern_meters", "mix_registers",
)  # fmt: skip


@pytest.mark.timeout(4 * 3600)
def test_no_number_in_a_program_makes_it_do_what_c_leaves_undefined():
    runs = max(2, ROUNDS // 100)
    done = run_sanitized("sizes.py", 5, ROUNDS, runs, *SPOILT)
    assert (done.stdout, done.returncode) == ("clean\n", 0), done.stderr[-5000:]


def test_the_longest_frame_is_whole_and_a_longer_one_is_dropped():
    with running("parse_value_set") as port:
        longest = bytes(range(256)) * (MAX_FRAME // 256)
        assert port.ask(longest) == [longest]
        port.lose(longest + b"more")
        assert port.ask(b"the next") == [b"the next"]
        assert port.engine.drops()["too_long"] == 1
