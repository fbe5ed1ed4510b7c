"""Programs of a page each, to test that a switch runs any P4 program.

They lie in ``programs/`` with p4c's output for them, and the digests of both.
``python tests/support/tiny_programs.py`` compiles them again.
"""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from innet.p4.artifacts import parse_p4info
from innet.p4.compile import COMPILER, compiler_version
from innet.p4runtime import p4info_pb2

FOLDER = Path(__file__).parent / "programs"
DIGESTS = FOLDER / "digests.json"
SOURCES = sorted(FOLDER.glob("*.p4"))


@dataclass(frozen=True)
class Program:
    """A compiled program, as a switch needs it."""

    json: bytes
    p4info: p4info_pb2.P4Info


def program(name: str, folder: Path = FOLDER) -> Program:
    """Return a compiled program of `folder`."""
    text = (folder / f"{name}.p4info.txtpb").read_text()
    return Program((folder / f"{name}.json").read_bytes(), parse_p4info(text))


def compile_to(target: Path, source: Path) -> list[Path]:
    """Compile one source file. Returns the files made."""
    program, info = target / f"{source.stem}.json", target / f"{source.stem}.p4info.txtpb"
    # It runs in the source's folder, because p4c writes the given path into the JSON.
    subprocess.run(
        [
            COMPILER, "--arch", "v1model", "-o", str(program.resolve()),
            "--p4runtime-files", str(info.resolve()), source.name,
        ],
        cwd=source.parent, check=True,
    )  # fmt: skip
    return [program, info]


def digests() -> dict[str, str]:
    """Return the SHA-256 of every source and of its compiled files."""
    files = (file for source in SOURCES for file in sorted(FOLDER.glob(f"{source.stem}.*")))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def renew() -> None:
    """Compile all programs again."""
    for source in SOURCES:
        compile_to(FOLDER, source)
    content = {"compiler": str(compiler_version()), "sha256": digests()}
    DIGESTS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    renew()
