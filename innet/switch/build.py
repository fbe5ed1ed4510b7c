"""Compiles generated C together with the runtime, once: the result is cached by digest."""

from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path

from innet.native import compile_library, write_files

FLAGS = ("-std=gnu11", "-O2", "-ftree-vectorize", "-march=native", "-fPIC", "-shared", "-pthread",
         "-Wl,-Bsymbolic")  # fmt: skip


def compile_program(key: bytes, generate: Callable[[], str], keep: Path | None = None) -> Path:
    """Compile a program's C and the runtime to a shared object, or find it in the cache.

    `generate` makes the C, and `key` is all that the C follows from: what is in the cache need not be
    generated again. With `keep`, what was compiled is also written to that folder. Raises
    CompilerError, and what `generate` raises.
    """

    def sources() -> dict[str, bytes]:
        return {"program.c": generate().encode(), **_runtime_files()}

    if keep:
        write_files(keep, sources())
    return compile_library(FLAGS, [key, *_generator_files(), *_runtime_files().values()], sources)


def _runtime_files() -> dict[str, bytes]:
    folder = resources.files("innet.switch") / "runtime"
    files = (file for file in folder.iterdir() if file.name.endswith((".h", ".c")))
    return {file.name: file.read_bytes() for file in sorted(files, key=lambda file: file.name)}


@cache
def _generator_files() -> tuple[bytes, ...]:
    """The code that makes the C: this package's."""
    folder = Path(__file__).parent
    return tuple(file.read_bytes() for file in sorted(folder.rglob("*.py")))
