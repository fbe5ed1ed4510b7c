"""The driver of p4c: ``innet p4 compile`` makes the artifacts, or a program of other dimensions."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from innet.errors import CompilerError
from innet.p4.artifacts import SLOTS, digest
from innet.p4.versions import CompilerVersion

COMPILER = "p4c-bm2-ss"
SOURCES = Path(__file__).parent
_POSITION = "source_info"
_MAIN = Path("v1model/innet.p4")
_MOST_LANES_WITH_POSITIONS = 256
"""The most lanes for which the JSON keeps the positions in the sources.

With them and with p4c's indentation, a switch would have to read 24 MB for 1024 lanes.
"""


def compile_program(lanes: int, slots: int, target: Path) -> list[Path]:
    """Compile the v1model program to `target`, a folder. Returns the JSON's and the P4Info's path.

    Raises CompilerError if p4c is not there, or fails.
    """
    target.mkdir(parents=True, exist_ok=True)
    program = target.resolve() / f"innet-{lanes}.json"
    info = target.resolve() / f"innet-{lanes}.p4info.txtpb"
    # Run in the sources' folder, so that p4c writes relative paths into the JSON.
    done = subprocess.run(
        [
            compiler_path(COMPILER), "--arch", "v1model", *options(lanes, slots),
            "-o", str(program), "--p4runtime-files", str(info), str(_MAIN),
        ],
        cwd=SOURCES, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CompilerError(f"{COMPILER} failed:\n{done.stderr.strip()}")
    if lanes > _MOST_LANES_WITH_POSITIONS:
        without = _without_positions(json.loads(program.read_bytes()))
        program.write_text(json.dumps(without, separators=(",", ":")) + "\n")
    return [program, info]


def _without_positions(part: Any) -> Any:
    """Return a part of p4c's JSON without the positions in the sources."""
    if isinstance(part, dict):
        return {name: _without_positions(each) for name, each in part.items() if name != _POSITION}
    if isinstance(part, list):
        return [_without_positions(each) for each in part]
    return part


def compile_artifacts(target: Path) -> None:
    """Compile every included program to `target`, with the manifest."""
    made = {}
    for lanes, slots in SLOTS.items():
        files = compile_program(lanes, slots, target)
        made[f"innet-{lanes}"] = {
            "options": options(lanes, slots),
            "sha256": {file.name: digest(file.read_bytes()) for file in files},
        }
    manifest = {
        "compiler": str(compiler_version()),
        "sources": source_digests(),
        "programs": made,
    }
    (target / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def options(lanes: int, slots: int) -> list[str]:
    """Return the preprocessor's options for these dimensions."""
    return [f"-DLANES={lanes}", f"-DSLOTS={slots}"]


def source_digests(folder: str = "v1model") -> dict[str, str]:
    """Return the SHA-256 of every P4 source file that the program in this folder may include."""
    files = sorted((*SOURCES.glob("shared/**/*.p4"), *SOURCES.glob(f"{folder}/*.p4")))
    return {file.relative_to(SOURCES).as_posix(): digest(file.read_bytes()) for file in files}


def compiler_version(compiler: str = COMPILER) -> CompilerVersion:
    """Ask a compiler on the PATH for its version. Raises CompilerError."""
    command = [compiler_path(compiler), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return CompilerVersion.printed(compiler, done.stdout + done.stderr)


def compiler_path(compiler: str) -> str:
    """Return the path of a compiler on the PATH. Raises CompilerError if it is not there."""
    path = shutil.which(compiler)
    if not path:
        raise CompilerError(
            f"{compiler} is not on the PATH: install p4c, or use the programs that come with innet"
        )
    return path
