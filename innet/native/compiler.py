"""The compilers of this machine for C and C++, with a cache of their results by digest."""

import contextlib
import fcntl
import hashlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from innet.errors import CompilerError, UsageError
from innet.machine.private import check_file, make_folder
from innet.native.constants import HEADER, Constants, header


@dataclass(frozen=True)
class Language:
    """A language: its name, the suffix of its files, and where its compiler is found.

    The compiler is the one that the `variable` names, or the first of `compilers` on the PATH.
    """

    name: str
    suffix: str
    variable: str
    compilers: Sequence[str]


C = Language("C", ".c", "CC", ("cc", "gcc", "clang"))
CXX = Language("C++", ".cpp", "CXX", ("c++", "g++", "clang++"))


def compile_library(
    flags: Sequence[str],
    key: Iterable[bytes],
    sources: Callable[[], Mapping[str, bytes]],
    constants: Constants = MappingProxyType({}),
    libraries: Sequence[str] = (),
    language: Language = C,
) -> Path:
    """Compile files of C or C++ to a shared object, or find it in the cache.

    `sources` generates the files by name, which may include compiled objects. It is called only if the
    cache has no result for `key`, which must determine the files completely. The files find the
    `constants` in ``constants.h``. Raises CompilerError, also if another user may have changed the cache,
    and any error of `sources`.
    """
    # Calls of the library's own functions stay inside, even if another library has some of these names.
    own = ["-shared", "-Wl,-Bsymbolic"]
    return _compile(".so", [*own, *flags], key, sources, constants, libraries, language)


def compile_object(
    flags: Sequence[str], sources: Mapping[str, bytes], constants: Constants
) -> Path:
    """Compile C files to one object for :func:`compile_library`, or find it in the cache.

    Raises CompilerError, also if another user may have changed the cache.
    """
    return _compile(".o", ["-r", *flags], sources.values(), lambda: sources, constants)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise CompilerError in place of OSError: the disk is full, or the compiler is no program."""
    try:
        yield
    except OSError as problem:
        raise CompilerError(f"the C code cannot be compiled: {problem}") from None


@_explained()
def _compile(
    suffix: str,
    flags: Sequence[str],
    key: Iterable[bytes],
    sources: Callable[[], Mapping[str, bytes]],
    constants: Constants,
    libraries: Sequence[str] = (),
    language: Language = C,
) -> Path:
    compiler = find_compiler(language)
    defined = header(constants)
    digest = _digest(compiler, [*flags, *libraries], [*key, defined])
    target = open_cache() / f"{digest}{suffix}"
    with contextlib.nullcontext() if os.path.lexists(target) else _alone(target):
        if not os.path.lexists(target):  # another process may have compiled it meanwhile
            files = {**sources(), HEADER: defined}
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                folder = Path(scratch)
                write_files(folder, files)
                made = _run_compiler(compiler, flags, libraries, folder, language)
                made.chmod(0o600)  # whatever the umask is
                with made.open("rb") as content:
                    os.fsync(content.fileno())  # if the machine fails now, no empty file is left
                # Renaming is atomic: another process finds a whole file or none.
                made.replace(target)
    _check_library(target)
    return target


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Make a file alone: the ranks of a machine start at once, and would all compile the same one.

    A file that is made meanwhile from others, such as a library from an object, has a lock of its own.
    """
    lock = target.with_suffix(".lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        lock.unlink(missing_ok=True)  # who waits for it finds the target, or has the file in hand
        os.close(descriptor)


def open_cache() -> Path:
    """Create the cache's folder if it is missing, and return its real path.

    Raises CompilerError if it cannot be written, or if another user can write to it.
    """
    try:
        return make_folder(cache_folder())
    except UsageError as problem:
        raise CompilerError(f"the cache of compiled programs cannot be used: {problem}") from None


def check_libraries(folder: Path) -> None:
    """Raise CompilerError if another user may have written a library of the cache."""
    for library in itertools.chain(folder.glob("*.so"), folder.glob("*.o")):
        _check_library(library)


def find_compiler(language: Language = C) -> str:
    """Return the path of a language's compiler. Raises CompilerError."""
    for name in (os.environ.get(language.variable), *language.compilers):
        if name and (path := shutil.which(name)):
            return path
    raise CompilerError(
        f"no {language.name} compiler found: install {' or '.join(language.compilers[1:])}, or set "
        f"{language.variable} to yours"
    )


def cache_folder() -> Path:
    """Return the folder of compiled programs: ``$INNET_CACHE_DIR``, or the user's cache.

    As the XDG Base Directory Specification says, ``$XDG_CACHE_HOME`` counts only if it is absolute.
    Raises CompilerError if the user has no home.
    """
    if configured := os.environ.get("INNET_CACHE_DIR"):
        return Path(configured)
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if caches.is_absolute():
        return caches / "innet"
    try:
        return Path.home() / ".cache" / "innet"
    except RuntimeError:
        raise CompilerError("there is no home folder for a cache: set INNET_CACHE_DIR") from None


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder. Create the folder if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _check_library(path: Path) -> None:
    try:
        check_file(path)
    except UsageError as problem:
        raise CompilerError(f"a compiled program cannot be trusted: {problem}") from None


def _digest(compiler: str, flags: Sequence[str], key: Iterable[bytes]) -> str:
    """Return a digest of everything that shapes the result: key, compiler, flags, processor."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    parts = [*key, version, " ".join(flags).encode()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts.append(next((line for line in lines if line.startswith("flags")), "").encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _run_compiler(
    compiler: str,
    flags: Sequence[str],
    libraries: Sequence[str],
    folder: Path,
    language: Language = C,
) -> Path:
    """Compile a folder's files, and return the result's path."""
    suffixes = language.suffix, ".o"
    sources = sorted(file.name for file in folder.iterdir() if file.suffix in suffixes)
    command = [compiler, *flags, *sources, "-o", "made", *libraries]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(f"{compiler} failed on the generated program:\n{done.stderr[:2000]}")
    return folder / "made"
