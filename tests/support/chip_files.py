"""A folder with the files that a compiler and an assembler make for a Tofino, but no working binary."""

import json
import random
from pathlib import Path

from innet.p4 import tofino


def make(folder: Path, chip: str = "tofino") -> Path:
    """Write the folder. The names of the tables are the program's, and the rest is a placeholder."""
    (folder / "pipe").mkdir(parents=True)
    _describe(folder, chip)
    (folder / "pipe/context.json").write_text(json.dumps({"program_name": "innet"}))
    (folder / f"pipe/{chip}.bin").write_bytes(random.Random(1).randbytes(50_000))
    return folder


def make_for_both(folder: Path) -> Path:
    """Write the folder with a second binary, for Tofino 2. Returns the folder."""
    make(folder)
    _describe(folder, *tofino.CHIPS)
    (folder / "pipe/tofino2.bin").write_bytes(b"another chip's")
    return folder


def _describe(folder: Path, *chips: str) -> None:
    """Write the names of the tables of the program for these chips."""
    names = {f"pipe.{each.preamble.name}" for chip in chips for each in tofino.p4info(chip).tables}
    tables = [{"name": each} for each in sorted(names)]
    (folder / "bfrt.json").write_text(json.dumps({"tables": tables}))
