"""A program's library in the cache is of the running code, even if a process outlives its checkout."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT
from tiny_programs import FOLDER

COMPILE = """
import sys
from functools import partial
from pathlib import Path

from innet.switch.bmv2json import load
from innet.switch.build import compile_program
from innet.switch.codegen import generate

text = Path(sys.argv[1]).read_bytes()
print("imported", flush=True)
sys.stdin.read()
print(compile_program(text, partial(generate, load(text)) if sys.argv[2] else exit))
"""
LATER = b"made by a later version"
CHANGE = f"""

_generate = generate


def generate(*arguments, **options):
    return _generate(*arguments, **options) + 'const char later[] = "{LATER.decode()}";\\n'
"""

Started = Callable[[], Path]
"""A process that has imported innet. The call lets it compile, and returns the library's path."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a copy of the package innet.switch, with links to innet's others, and return its folder."""
    (tmp_path / "innet").mkdir()
    for each in (ROOT / "innet").iterdir():
        if each.name != "switch":
            (tmp_path / "innet" / each.name).symlink_to(each)
    shutil.copytree(ROOT / "innet/switch", tmp_path / "innet/switch")
    return tmp_path


def start(checkout: Path, *, generates: bool = True) -> Started:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", COMPILE, str(FOLDER / "wire.json"), "yes" if generates else ""],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "imported\n"

    def finish() -> Path:
        said, _ = process.communicate()
        assert process.returncode == 0
        return Path(said.strip())

    return finish


def test_a_library_in_the_cache_is_found_without_its_c(checkout: Path):
    made = start(checkout)()
    assert start(checkout, generates=False)() == made


def test_a_process_whose_sources_change_does_not_compile_for_those_that_start_later(checkout: Path):
    before = start(checkout)
    with (checkout / "innet/switch/codegen/__init__.py").open("a") as module:
        module.write(CHANGE)
    old, new = before(), start(checkout)()
    assert LATER not in old.read_bytes()
    assert LATER in new.read_bytes()
