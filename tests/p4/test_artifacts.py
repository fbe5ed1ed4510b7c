"""The committed programs are p4c's output for the committed sources, and p4c makes them again."""

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from commands import refuse, run
from compilers import kept, manifest, needs_compiler

from innet.controller.switches.entries import OUTCOMES
from innet.errors import UsageError
from innet.p4 import compile as p4c
from innet.p4.artifacts import SLOTS, artifact, digest, folder


def test_the_programs_were_made_from_the_present_sources():
    assert p4c.source_digests() == manifest()["sources"], "P4 sources have changed: make artifacts"


def test_the_programs_are_the_files_that_the_compiler_wrote():
    programs = manifest()["programs"]
    assert set(programs) == {f"innet-{lanes}" for lanes in SLOTS}
    recorded = {}
    for lanes, slots in SLOTS.items():
        program = programs[f"innet-{lanes}"]
        assert program["options"] == p4c.options(lanes, slots)
        recorded |= program["sha256"]
    present = [
        file for file in folder().iterdir() if file.is_file() and file.name != "manifest.json"
    ]
    assert {file.name: digest(file.read_bytes()) for file in present} == recorded


@pytest.mark.parametrize("lanes", SLOTS)
def test_a_program_has_the_lanes_and_slots_that_it_is_named_for(lanes: int):
    program = artifact(lanes)
    assert (program.lanes, program.slots) == (lanes, SLOTS[lanes])
    types = {each["name"]: each for each in json.loads(program.json)["header_types"]}
    assert len(types["lanes_t"]["fields"]) == lanes
    sizes = {register["size"] for register in json.loads(program.json)["register_arrays"]}
    assert sizes == {2 * SLOTS[lanes]}


def test_every_file_that_the_program_includes_is_watched():
    watched = set(p4c.source_digests())
    for name in watched:
        file = p4c.SOURCES / name
        for included in re.findall(r'#include "(.*)"', file.read_text()):
            found = (file.parent / included).resolve().relative_to(p4c.SOURCES.resolve())
            assert found.as_posix() in watched


@pytest.mark.parametrize("name", sorted(manifest()["sources"]))
def test_a_change_of_any_source_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    copy = tmp_path / "p4"
    shutil.copytree(p4c.SOURCES, copy)
    monkeypatch.setattr(p4c, "SOURCES", copy)
    assert p4c.source_digests() == manifest()["sources"]
    (copy / name).write_text((copy / name).read_text() + "\n")
    changed = p4c.source_digests()
    assert {each for each in changed if changed[each] != manifest()["sources"][each]} == {name}


def test_a_new_source_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    copy = tmp_path / "p4"
    shutil.copytree(p4c.SOURCES, copy)
    monkeypatch.setattr(p4c, "SOURCES", copy)
    (copy / "shared" / "new.p4").touch()
    assert p4c.source_digests() != manifest()["sources"]


def test_the_controller_has_the_programs_numbers_of_outcomes():
    text = (p4c.SOURCES / "shared/outcomes.p4").read_text()
    numbers = re.findall(r"OUTCOME_(\w+) += (\d+);", text)
    assert {name.lower(): int(number) for name, number in numbers if int(number)} == OUTCOMES


def test_lanes_without_a_program_are_refused():
    with pytest.raises(UsageError, match="no program for 65 lanes, only for 64, 256 and 1024"):
        artifact(65)


@pytest.mark.timeout(3600)  # a minute and a half of processor time, on a machine that may be busy
def test_compiling_gives_the_committed_programs():
    needs_compiler(manifest()["compiler"])
    sources = [each for each in sorted(p4c.SOURCES.rglob("*")) if each.suffix in (".p4", ".py")]
    for lanes, slots in SLOTS.items():
        made = kept(p4c.COMPILER, f"innet-{lanes}", sources, partial(compile_to, lanes, slots))
        assert len(made) == 2
        for file in made:
            assert file.read_bytes() == (folder() / file.name).read_bytes()


def compile_to(lanes: int, slots: int, target: Path) -> None:
    """Compile a program with innet's command, which prints the files that it has made."""
    size = ["--lanes", str(lanes), "--slots", str(slots)]
    done = run("innet", "p4", "compile", "-o", str(target), *size, within=3000.0)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(file) for file in sorted(target.iterdir())]


def test_lanes_that_the_program_cannot_have_end_with_code_2(tmp_path: Path):
    refuse(
        "65 lanes: .* 64 or 256 or 1024", "innet", *f"p4 compile -o {tmp_path} --lanes 65".split()
    )


def test_without_the_p4_compiler_the_error_says_what_to_do(tmp_path: Path):
    done = run("innet", "p4", "compile", "-o", str(tmp_path), PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        "error: p4c-bm2-ss is not on the PATH: install p4c, or use the programs that come with "
        "innet\n"
    )


def test_folders_and_files_that_cannot_be_used_end_with_code_2(tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(b"\xff")
    inside = str(file / "inside")
    refuse(f"cannot write to {inside}: Not a directory", "innet", "p4", "compile", "-o", inside)
    refuse(
        f"cannot read {tmp_path}: Is a directory", "innet", "p4", "report", "--from", str(tmp_path)
    )
    refuse(f"cannot read {inside}: Not a directory", "innet", "p4", "report", "--from", inside)
    refuse("this is not an assembly", "innet", "p4", "report", "--from", str(file), code=1)
