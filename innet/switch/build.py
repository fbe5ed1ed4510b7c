"""The compiler run that turns generated C and the runtime into a library, cached by digest."""

from collections.abc import Callable
from pathlib import Path

from innet.errors import CompilerError
from innet.machine.packaged import read, read_folder
from innet.native.compiler import compile_library, compile_object, write_files
from innet.native.constants import HEADER, header
from innet.switch.constants import CONSTANTS
from innet.switch.sources import unchanged

FLAGS = ("-std=gnu11", "-O2", "-ftree-vectorize", "-march=native", "-fPIC", "-pthread")


def compile_program(key: bytes, generate: Callable[[], str], keep: Path | None = None) -> Path:
    """Compile a program's C and the runtime to a shared object, or find it in the cache.

    `generate` makes the C. `key` has to cover everything that determines the C except for this
    package's modules, because for a cached library `generate` is not called. If the modules' files
    have changed since the import, they no longer show how the C is made, so the C itself is the key.
    With `keep`, the compiled sources are also written to that folder. Raises CompilerError,
    IncompleteInstallation, and the exceptions of `generate`.
    """
    runtime = runtime_sources()

    def sources() -> dict[str, bytes]:
        # All programs share the runtime, which is most of the code.
        shared = compile_object(FLAGS, runtime, CONSTANTS).read_bytes()
        headers = {name: text for name, text in runtime.items() if name.endswith(".h")}
        return {"program.c": generate().encode(), **headers, "runtime.o": shared}

    if keep:
        files = {"program.c": generate().encode(), **runtime, HEADER: header(CONSTANTS)}
        try:
            write_files(keep, files)
        except OSError as problem:
            raise CompilerError(
                f"the generated C cannot be written to {keep}: {problem.strerror}"
            ) from None
    modules = unchanged()
    origin = [generate().encode()] if modules is None else [key, *modules]
    key_parts = [*origin, *runtime.values()]
    return compile_library(FLAGS, key_parts, sources, CONSTANTS)


def runtime_sources() -> dict[str, bytes]:
    """Return the runtime's source files by name."""
    shared = {"ring.h": read("innet.wire", "ring.h")}
    return {**read_folder("innet.switch", "runtime", (".h", ".c")), **shared}
