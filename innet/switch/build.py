"""The compiler run that turns generated C and the runtime into a library, cached by digest."""

from collections.abc import Callable, Mapping
from pathlib import Path

from innet.errors import CompilerError
from innet.machine.packaged import read, read_folder
from innet.native.compiler import compile_library, compile_object, write_files
from innet.native.constants import HEADER, header
from innet.switch.constants import CONSTANTS
from innet.switch.sources import unchanged

FLAGS = (
    *("-std=gnu11", "-O2", "-ftree-vectorize", "-march=native", "-fPIC", "-pthread"),
    # So the speed of the loops does not depend on where the linker happens to put them.
    *("-falign-functions=64", "-falign-loops=32"),
)


def compile_program(origin: bytes, generate: Callable[[], str], keep: Path | None = None) -> Path:
    """Compile a program's C and the runtime to a shared object, or find it in the cache.

    `generate` makes the C. For a cached library it is not called, because this takes long. So the key in
    the cache is what the C is made from: `origin`, which is everything but this package's modules, and
    the modules. With `keep`, the sources are also written to that folder. Raises CompilerError,
    IncompleteInstallation, and the exceptions of `generate`.
    """
    runtime = runtime_sources()

    def sources() -> dict[str, bytes]:
        # All programs share the runtime, which is most of the code.
        shared = compile_object(FLAGS, runtime, CONSTANTS).read_bytes()
        headers = {name: text for name, text in runtime.items() if name.endswith(".h")}
        return {"program.c": generate().encode(), **headers, "runtime.o": shared}

    if keep:
        _write_sources(keep, generate(), runtime)
    modules = unchanged()
    # If files have changed since the import, they no longer show how the C is made: the C itself does.
    key = [generate().encode()] if modules is None else [origin, *modules]
    return compile_library(FLAGS, [*key, *runtime.values()], sources, CONSTANTS)


def _write_sources(folder: Path, program: str, runtime: Mapping[str, bytes]) -> None:
    files = {"program.c": program.encode(), **runtime, HEADER: header(CONSTANTS)}
    try:
        write_files(folder, files)
    except OSError as problem:
        raise CompilerError(
            f"the generated C cannot be written to {folder}: {problem.strerror}"
        ) from None


def runtime_sources() -> dict[str, bytes]:
    """Return the runtime's source files by name."""
    shared = {name: read("innet.wire", name) for name in ("ring.h", "weighted_sum.h")}
    return {**read_folder("innet.switch", "runtime", (".h", ".c")), **shared}
