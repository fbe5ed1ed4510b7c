"""The driver of p4c's Tofino backend, and the compiled program for Tofino 1 and Tofino 2."""

import gzip
import json
import re
import subprocess
import tempfile
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from innet.errors import CompilerError
from innet.p4.artifacts import digest, folder, parse_p4info
from innet.p4.compile import SOURCES, compiler_path, compiler_version, options, source_digests
from innet.p4.report import ResourceReport
from innet.p4runtime import p4info_pb2

COMPILER = "p4c-barefoot"
LANES = 64
"""Lanes per packet: two per stateful ALU, in four stateful ALUs per stage."""


class Chip(NamedTuple):
    """A chip that the program is compiled for: its architecture, and the program's slots there."""

    architecture: str
    slots: int


_RUN_ID = re.compile(r"^(  run_id: ).*$", re.MULTILINE)
"""The line that differs between two runs of the compiler."""

CHIPS = {"tofino": Chip("tna", 8192), "tofino2": Chip("t2na", 8192)}


def compile_program(chip: str, slots: int, target: Path) -> list[Path]:
    """Compile the program for a chip to the folder `target`. Returns the files' paths.

    The files are the compressed assembly, the P4Info and the report. Raises CompilerError if
    p4c-barefoot is not there, fails, loses a parser's select keys, or needs more stages than the
    chip has.
    """
    with tempfile.TemporaryDirectory() as scratch:
        _run(
            COMPILER, "--target", chip, "--arch", CHIPS[chip].architecture,
            "--p4runtime-force-std-externs", *options(LANES, slots),
            "-o", scratch, "--p4runtime-files", f"{scratch}/p4info.txtpb",
            "tna/innet.p4",
        )  # fmt: skip
        return _keep(chip, Path(scratch), target)


def _keep(chip: str, made: Path, target: Path) -> list[Path]:
    """Write the files worth keeping of the compiler's output. Returns their paths."""
    text = _RUN_ID.sub(r'\1""', (made / "pipe/innet.bfa").read_text())
    if not selects(text):
        raise CompilerError(
            f"this {COMPILER} loses the select keys of parsers: use one with pull request 5753 of "
            "p4lang/p4c"
        )
    taken = ResourceReport.of(text)
    if len(taken.stages) > taken.stages_available:  # p4c-barefoot leaves this test to the assembler
        raise CompilerError(
            f"the program needs {len(taken.stages)} stages, {chip} has {taken.stages_available}"
        )
    files = {
        "bfa.gz": gzip.compress(text.encode(), mtime=0),
        "p4info.txtpb": (made / "p4info.txtpb").read_bytes(),
        "report.json": taken.to_json().encode(),
    }
    target.mkdir(parents=True, exist_ok=True)
    paths = [target / f"innet-{LANES}.{chip}.{kind}" for kind in files]
    for path, content in zip(paths, files.values(), strict=True):
        path.write_bytes(content)
    return paths


def selects(assembly: str) -> bool:
    """Return whether parser states choose between their transitions."""
    parsers, _, _ = assembly.partition("\nstage ")
    return bool(re.search(r"^ +match: \[", parsers, re.MULTILINE))


def compile_artifacts(target: Path) -> None:
    """Compile the program for every chip to `target`, with the manifest."""
    programs = {}
    for chip, (_, slots) in CHIPS.items():
        files = compile_program(chip, slots, target)
        programs[chip] = {
            "options": options(LANES, slots),
            "sha256": {file.name: digest(file.read_bytes()) for file in files},
        }
    made = {
        "compiler": str(compiler_version(COMPILER)),
        "sources": source_digests("tna"),
        "programs": programs,
    }
    (target / "manifest.json").write_text(json.dumps(made, indent=2) + "\n")


def report(chip: str) -> ResourceReport:
    """Return the included program's use of a chip's resources."""
    return ResourceReport.from_json(_artifact(f"{chip}.report.json").read_text())


def p4info(chip: str) -> p4info_pb2.P4Info:
    """Return the program's schema for P4Runtime."""
    return parse_p4info(_artifact(f"{chip}.p4info.txtpb").read_text())


def artifacts() -> Traversable:
    """Return the folder of the artifacts."""
    return folder() / "tofino"


def _artifact(kind: str) -> Traversable:
    return artifacts() / f"innet-{LANES}.{kind}"


def _run(compiler: str, *arguments: str) -> None:
    # Run in the sources' folder, so that p4c writes relative paths.
    command = [compiler_path(compiler), *arguments]
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(f"{compiler} failed:\n{done.stderr.strip()}")
