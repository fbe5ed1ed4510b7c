"""The files that a Tofino runs. A compiler and its assembler make them from the program.

innet does not include them, because p4c-barefoot alone makes only the assembly. The user names
their folder. The file names are those of p4lang/p4c's driver
(``backends/tofino/bf-p4c/driver/barefoot.py``) and of the SDE's bf-p4c.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.errors import UsageError

_HOW_TO_COMPILE = (
    "compile innet/p4/tna with p4c-barefoot and bfas, or with the SDE's bf-p4c: "
    "docs/deploy-tofino.md has the commands"
)


@dataclass(frozen=True)
class Binaries:
    """The content of the files: ``bfrt.json``, ``pipe/context.json``, ``pipe/tofino.bin``."""

    bfrt: bytes
    context: bytes
    binary: bytes


def load(chip: str, folder: str, tables: Iterable[str]) -> Binaries:
    """Read a chip's files from a folder. `tables` are the names of the program's tables.

    Raises UsageError if the folder or a file is missing, or a file is damaged or of another
    program.
    """
    if not folder:
        raise UsageError(
            f"a {chip} needs its compiled program: name the folder with --artifact; {_HOW_TO_COMPILE}"
        )
    wanted = {
        "bfrt.json": _first_existing(Path(folder), "bfrt.json", "bf-rt.json"),
        "pipe/context.json": _first_existing(Path(folder), "pipe/context.json"),
        f"pipe/{chip}.bin": _first_existing(Path(folder), f"pipe/{chip}.bin"),
    }
    if missing := [name for name, path in wanted.items() if not path]:
        raise UsageError(f"{folder} has no {' and no '.join(missing)}: {_HOW_TO_COMPILE}")
    bfrt, context, binary = (_read(path) for path in wanted.values() if path)
    _json(folder, "pipe/context.json", context)
    if not binary:
        raise UsageError(f"{folder}: pipe/{chip}.bin is empty: {_HOW_TO_COMPILE}")
    described = _json(folder, "bfrt.json", bfrt).get("tables")
    known = {str(each.get("name")) for each in described or () if isinstance(each, dict)}
    # BF-RT puts the pipeline's name in front, P4Info does not.
    if strange := [each for each in tables if not known & {each, f"pipe.{each}"}]:
        raise UsageError(
            f"{folder} has another program: its bfrt.json has no table {strange[0]}, nor "
            f"{len(strange) - 1} more; compile innet/p4/tna of this version of innet"
        )
    return Binaries(bfrt, context, binary)


def _first_existing(folder: Path, *names: str) -> Path | None:
    return next((folder / each for each in names if (folder / each).is_file()), None)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from None


def _json(folder: str, name: str, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError as problem:
        raise UsageError(f"{folder}: {name} is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{folder}: {name} is not a JSON object, as a compiler writes it")
    return found
