"""P4 compilers: the committed programs, and compilers on the PATH that can make them again."""

import contextlib
import gzip
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from innet.native.compiler import open_cache
from innet.p4 import tofino
from innet.p4.artifacts import folder
from innet.p4.compile import compiler_path, compiler_version
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


def kept(
    compiler: str, name: str, sources: Iterable[Path], make: Callable[[Path], object]
) -> list[Path]:
    """Return the files that `make` writes to a folder, with a compiler on the PATH.

    A P4 compiler is slow. So the files stay in innet's cache, by a digest of the compiler and of all
    `sources`: the P4, and the modules that run the compiler. Raises CompilerError.
    """
    place = open_cache()
    made = place / f"{_digest(Path(compiler_path(compiler)), sources)}.{name}"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=place) as scratch:
            new = Path(scratch) / name
            new.mkdir()
            make(new)
            with contextlib.suppress(OSError):  # another run was faster
                new.rename(made)
    return sorted(made.iterdir())


def _digest(compiler: Path, sources: Iterable[Path]) -> str:
    about = compiler.stat()
    digest = hashlib.sha256(f"{compiler} {about.st_size} {about.st_mtime_ns}".encode())
    for file in sources:
        digest.update(b"\0" + file.read_bytes())
    return digest.hexdigest()[:32]


@cache
def _found_version(compiler: str) -> CompilerVersion:
    return compiler_version(compiler)


def needs_compiler(recorded: str) -> None:
    """Skip the test unless a compiler on the PATH should make the same files as the recorded one."""
    wanted = recorded_version(recorded)
    if not shutil.which(wanted.name):
        pytest.skip(f"{wanted.name} is not on the PATH")
    found = _found_version(wanted.name)
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
