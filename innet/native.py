"""Compiles C with the machine's compiler, once: the result is cached by digest."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from innet.errors import CompilerError


def compile_library(
    flags: Sequence[str],
    key: Iterable[bytes],
    sources: Callable[[], Mapping[str, bytes]],
    libraries: Sequence[str] = (),
) -> Path:
    """Compile C files to a shared object, or find it in the cache.

    `sources` makes the files by name, and `key` is all that they follow from: what is in the cache need
    not be made again. Raises CompilerError, and what `sources` raises.
    """
    compiler = find_compiler()
    target = cache_folder() / f"{_digest(compiler, [*flags, *libraries], key)}.so"
    if not target.exists():
        files = sources()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            folder = Path(scratch)
            write_files(folder, files)
            _run_compiler(compiler, flags, libraries, folder)
            # Renaming is atomic: another process finds a whole file or none.
            (folder / "program.so").replace(target)
    return target


def find_compiler() -> str:
    """The C compiler's path: ``$CC``, or the first of cc, gcc and clang. Raises CompilerError."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)):
            return path
    raise CompilerError("no C compiler found: install gcc or clang, or set CC to yours")


def cache_folder() -> Path:
    """Where compiled programs are kept: ``$INNET_CACHE_DIR``, or innet's folder in the user's cache."""
    if configured := os.environ.get("INNET_CACHE_DIR"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "innet"


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _digest(compiler: str, flags: Sequence[str], key: Iterable[bytes]) -> str:
    """Of all that shapes the result: the key, compiler, flags, the processor's features."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    parts = [*key, version, " ".join(flags).encode()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts.append(next((line for line in lines if line.startswith("flags")), "").encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _run_compiler(
    compiler: str, flags: Sequence[str], libraries: Sequence[str], folder: Path
) -> None:
    sources = sorted(file.name for file in folder.glob("*.c"))
    command = [compiler, *flags, *sources, "-o", "program.so", *libraries]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(f"{compiler} failed on the generated program:\n{done.stderr[:2000]}")
