"""Compiles generated C with the machine's compiler, once: the result is cached by digest."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path

from innet.errors import CompilerError

FLAGS = ("-std=gnu11", "-O2", "-ftree-vectorize", "-march=native", "-fPIC", "-shared", "-pthread")


def compile_program(key: bytes, generate: Callable[[], str], keep: Path | None = None) -> Path:
    """Compile a program's C and the runtime to a shared object, or find it in the cache.

    `generate` makes the C, and `key` is all that the C follows from: what is in the cache need not be
    generated again. With `keep`, what was compiled is also written to that folder. Raises
    CompilerError, and what `generate` raises.
    """
    if keep:
        _write_sources(keep, generate())
    compiler = find_compiler()
    target = cache_folder() / f"{_digest(compiler, key)}.so"
    if not target.exists():
        source = generate()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            folder = Path(scratch)
            _write_sources(folder, source)
            _run_compiler(compiler, folder)
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


def _runtime_files() -> dict[str, bytes]:
    folder = resources.files("innet.switch") / "runtime"
    files = (file for file in folder.iterdir() if file.name.endswith((".h", ".c")))
    return {file.name: file.read_bytes() for file in sorted(files, key=lambda file: file.name)}


def _write_sources(folder: Path, source: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.c").write_text(source)
    for name, content in _runtime_files().items():
        (folder / name).write_bytes(content)


@cache
def _generator_files() -> tuple[bytes, ...]:
    """The code that makes the C: this package's."""
    folder = Path(__file__).parent
    return tuple(file.read_bytes() for file in sorted(folder.rglob("*.py")))


def _digest(compiler: str, key: bytes) -> str:
    """Of all that shapes the result: program, generator, compiler, flags, the processor's features."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    parts = [
        key,
        *_generator_files(),
        *_runtime_files().values(),
        version,
        " ".join(FLAGS).encode(),
    ]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts.append(next((line for line in lines if line.startswith("flags")), "").encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _run_compiler(compiler: str, folder: Path) -> None:
    sources = sorted(file.name for file in folder.glob("*.c"))
    command = [compiler, *FLAGS, *sources, "-o", "program.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(f"{compiler} failed on the generated program:\n{done.stderr[:2000]}")
