"""P4 compilers: the committed programs, and compilers on the PATH that can make them again."""

import gzip
import json
import re
import shutil
from typing import Any

import pytest

from innet.p4 import tofino
from innet.p4.artifacts import folder
from innet.p4.compile import compiler_version
from innet.p4.versions import CompilerVersion

_RECORDED = re.compile(r"^(\S+) ([\w.-]+)(?: \(SHA: ([0-9a-f]{7,40})\))?")


def manifest() -> dict[str, Any]:
    """Return the sources, options and compiler of the v1model programs, and their digests."""
    return json.loads((folder() / "manifest.json").read_text())


def tofino_manifest() -> dict[str, Any]:
    """Return the same of the Tofino programs."""
    return json.loads((tofino.artifacts() / "manifest.json").read_text())


def assembly(chip: str) -> str:
    """Return a chip's program in the form that p4c-barefoot wrote for the assembler."""
    name = f"innet-{tofino.LANES}.{chip}.bfa.gz"
    return gzip.decompress((tofino.artifacts() / name).read_bytes()).decode()


def needs_compiler(recorded: str) -> None:
    """Skip the test unless a compiler on the PATH should make the same files as the recorded one."""
    wanted = recorded_version(recorded)
    if not shutil.which(wanted.name):
        pytest.skip(f"{wanted.name} is not on the PATH")
    found = compiler_version(wanted.name)
    if not should_agree(found, wanted):
        pytest.skip(f"{wanted} made the programs, and {found} is on the PATH")


def recorded_version(text: str) -> CompilerVersion:
    """Read the entry ``compiler`` of a manifest."""
    found = _RECORDED.match(text)
    assert found, text
    return CompilerVersion(*found.groups())


def should_agree(one: CompilerVersion, other: CompilerVersion) -> bool:
    """Return whether both compilers should make the same files of the same sources.

    They should if they are of one release and, where both know their commits, of one commit.
    """
    if (one.name, _release(one)) != (other.name, _release(other)):
        return False
    if not (one.commit and other.commit):
        return True
    # Git abbreviates a commit to as many digits as the checkout needs.
    return one.commit.startswith(other.commit) or other.commit.startswith(one.commit)


def _release(version: CompilerVersion) -> list[str]:
    return version.number.split(".")[:3]
