"""The tests' own P4 programs and what they were compiled to belong together."""

import json
import shutil

import pytest
from tiny_programs import DIGESTS, FOLDER, SOURCES, compile_to, digests

from innet.p4.compile import COMPILER, compiler_version

RENEW = "run `python tests/tiny_programs.py`"


def test_the_compiled_programs_are_those_of_the_sources():
    assert json.loads(DIGESTS.read_text())["sha256"] == digests(), RENEW


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_compiling_a_program_again_gives_the_same(source, tmp_path):
    if not shutil.which(COMPILER):
        pytest.skip(f"{COMPILER} is not on the PATH")
    recorded = json.loads(DIGESTS.read_text())["compiler"]
    if compiler_version() != recorded:
        pytest.skip(f"the programs were compiled by {recorded}, this is {compiler_version()}")
    for made in compile_to(tmp_path, source):
        assert made.read_bytes() == (FOLDER / made.name).read_bytes(), RENEW
