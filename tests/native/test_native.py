"""C code gets its constants from Python, and its files call each other one way."""

import ctypes
import enum
import errno
import graphlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import innet
from innet.errors import CompilerError
from innet.host import fastpath
from innet.native import compiler
from innet.native.compiler import compile_library, find_compiler
from innet.native.constants import HEADER, Constants, header
from innet.servers.pbox import native as pbox
from innet.servers.rack import native as rack
from innet.switch.constants import CONSTANTS as SWITCH

PACKAGE = Path(innet.__file__).parent
SHARED = (PACKAGE / "wire", PACKAGE / "servers/pbox/runtime")
FLAGS = ("-shared", "-fPIC", "-Wall", "-Werror")
LARGE, MASK = 1000, (1 << 32) - 1
"""Smaller numbers, and the mask, occur in C by chance."""

modules = pytest.mark.parametrize(
    ("folder", "constants"),
    [
        pytest.param("host", fastpath._CONSTANTS, id="worker"),
        pytest.param("servers/pbox/runtime", pbox._CONSTANTS, id="parameter server"),
        pytest.param("servers/rack/runtime", rack._CONSTANTS, id="server above racks"),
        pytest.param("switch/runtime", SWITCH, id="switch"),
    ],
)


class SlotState(enum.IntEnum):
    DUE = 3
    FLYING = 4


SOURCE = {
    "read.c": b"""
#include "constants.h"

int small(void) { return SMALL; }
uint64_t large(void) { return LARGE; }
uint64_t third(void) { return WEIGHTS[2]; }
enum slot_state flying(void) { return STATE_FLYING; }
"""
}


def compiled(constants: Constants) -> Path:
    return compile_library(FLAGS, SOURCE.values(), lambda: SOURCE, constants)


def constants(**changed: object) -> Constants:
    weights = [1, 2, (1 << 64) - 1]
    return {"SMALL": 7, "LARGE": 1 << 63, "WEIGHTS": weights, "STATE": SlotState, **changed}


def test_a_library_calls_its_own_functions_and_not_others_of_the_same_name():
    def library(answer: int, mode: int) -> ctypes.CDLL:
        source = (
            b"int innet_answer(void) { return %d; } int innet_ask(void) { return innet_answer(); }"
        )
        files = {"both.c": source % answer}
        return ctypes.CDLL(str(compile_library(FLAGS, files.values(), lambda: files)), mode)

    library(1, ctypes.RTLD_GLOBAL)
    assert library(2, ctypes.RTLD_LOCAL).innet_ask() == 2


def test_numbers_arrays_and_enumerations_of_python_are_those_of_c():
    library = ctypes.CDLL(str(compiled(constants())))
    library.large.restype = library.third.restype = ctypes.c_uint64
    assert library.small() == 7
    assert library.large() == 1 << 63
    assert library.third() == (1 << 64) - 1
    assert library.flying() == SlotState.FLYING


@pytest.mark.parametrize(
    "changed",
    [
        {"SMALL": 8},
        {"LARGE": (1 << 63) + 1},
        {"WEIGHTS": [1, 2, 3]},
        {"STATE": enum.IntEnum("SlotState", {"DUE": 3, "FLYING": 5})},
        {"ANOTHER": 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_another_value_makes_another_header_and_another_library(changed: dict[str, object]):
    assert header(constants(**changed)) != header(constants())
    assert compiled(constants(**changed)) != compiled(constants())
    assert compiled(constants()) == compiled(constants())


def test_a_library_is_on_disk_before_it_has_its_name(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("INNET_CACHE_DIR", str(tmp_path))
    on_disk: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fsync", lambda file: on_disk.append(content_of(os.fstat(file))))
    made = compiled(constants()).stat()
    assert on_disk == [content_of(made)]


def content_of(file: os.stat_result) -> tuple[int, int]:
    """Return what identifies a file, and its size."""
    return file.st_ino, file.st_size


def numbers(given: Constants) -> Iterator[int]:
    for value in given.values():
        match value:
            case int():
                yield value
            case type():
                yield from (each.value for each in value)
            case _:
                yield from value


@modules
def test_no_number_of_python_is_written_again_in_c(folder: str, constants: Constants):
    ours = {number for number in numbers(constants) if number > LARGE and number != MASK}
    for file in [*(PACKAGE / folder).glob("*.[ch]"), *(PACKAGE / "wire").glob("*.[ch]")]:
        text = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
        found = {int(each, 0) for each in re.findall(r"\b(0[xX][0-9a-fA-F]+|[1-9]\d*)", text)}
        assert not ours & found, file


@modules
@pytest.mark.skipif(not shutil.which("nm"), reason="nm tells which functions a file calls")
def test_files_call_each_other_one_way(folder: str, constants: Constants, tmp_path: Path):
    (tmp_path / HEADER).write_bytes(header(constants))
    includes = [f"-I{each}" for each in (tmp_path, PACKAGE / folder, *SHARED)]
    defined: dict[str, str] = {}
    called: dict[str, set[str]] = {}
    for file in sorted((PACKAGE / folder).glob("*.c")):
        flags = ["-std=gnu11", "-D_GNU_SOURCE", "-w", "-c", *includes]
        made = tmp_path / f"{file.stem}.o"
        subprocess.run([find_compiler(), *flags, str(file), "-o", str(made)], check=True)
        listing = subprocess.run(["nm", "-gP", made], capture_output=True, text=True, check=True)
        symbols = [line.split()[:2] for line in listing.stdout.splitlines()]
        called[file.name] = {name for name, kind in symbols if kind == "U"}
        defined |= {name: file.name for name, kind in symbols if kind != "U"}
    assert called
    graph = {
        file: {defined[name] for name in names if name in defined} for file, names in called.items()
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("obstacle", ["no program", "a full disk"])
def test_what_keeps_the_compiler_from_its_work_is_a_compiler_error(
    obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("INNET_CACHE_DIR", str(tmp_path / "cache"))
    if obstacle == "no program":
        (broken := tmp_path / "cc").write_text("no program")
        broken.chmod(0o755)
        monkeypatch.setenv("CC", str(broken))
    else:
        monkeypatch.setattr(compiler, "write_files", full)
    with pytest.raises(CompilerError, match=r"Exec format error|No space left"):
        compiler.compile_library([], [b"key"], lambda: {"empty.c": b"int x;"})
    assert not list((tmp_path / "cache").glob("*"))
