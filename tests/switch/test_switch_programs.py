"""The tests' own P4 programs and their compiled forms belong together."""

import json

import pytest
from compilers import needs_compiler
from tiny_programs import DIGESTS, FOLDER, SOURCES, compile_to, digests

RENEW = "run `python tests/support/tiny_programs.py`"


def test_the_compiled_programs_are_those_of_the_sources():
    assert json.loads(DIGESTS.read_text())["sha256"] == digests(), RENEW


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_compiling_a_program_again_gives_the_same(source, tmp_path):
    needs_compiler(json.loads(DIGESTS.read_text())["compiler"])
    for made in compile_to(tmp_path, source):
        assert made.read_bytes() == (FOLDER / made.name).read_bytes(), RENEW
