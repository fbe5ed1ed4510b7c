"""The tests' own P4 programs and their compiled forms belong together."""

import json
from pathlib import Path

import pytest
import tiny_programs
from compilers import kept, needs_compiler
from tiny_programs import DIGESTS, FOLDER, SOURCES, compile_to, digests

from innet.p4.compile import COMPILER

RENEW = "run `python tests/support/tiny_programs.py`"


def test_the_compiled_programs_are_those_of_the_sources():
    assert json.loads(DIGESTS.read_text())["sha256"] == digests(), RENEW


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_compiling_a_program_again_gives_the_same(source):
    needs_compiler(json.loads(DIGESTS.read_text())["compiler"])
    sources = [source, Path(tiny_programs.__file__)]
    files = kept(COMPILER, source.stem, sources, lambda folder: compile_to(folder, source))
    assert len(files) == 2
    for made in files:
        assert made.read_bytes() == (FOLDER / made.name).read_bytes(), RENEW
