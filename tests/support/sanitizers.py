"""The C compiler's sanitizers: scripts that run with them, and the flags that those scripts add."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from innet.native.compiler import find_compiler

FLAGS = ("-Og", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""Additional compiler flags. With more optimization the compiler takes several times as long."""


def run_sanitized(script: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run a script of this folder to its end, with the address sanitizer's library preloaded.

    Skips the test if the compiler has no sanitizers.
    """
    environment = {
        "LD_PRELOAD": _library(),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself leaks a lot
        "PYTHONMALLOC": "malloc",  # so that every object is a separate piece of memory
    }
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def preload_no_further() -> None:
    """Let the processes that this one starts run without the library. It slows the compiler down."""
    os.environ.pop("LD_PRELOAD", None)


def _library() -> str:
    import pytest  # not in the scripts, where imports are slow

    compiler = find_compiler()
    question = [compiler, "-print-file-name=libasan.so"]
    library = subprocess.run(question, capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        target = ["-shared", "-fPIC", "-x", "c", "/dev/null", "-o", f"{folder}/empty.so"]
        done = subprocess.run([compiler, *FLAGS, *target], capture_output=True, check=False)
    if done.returncode or not Path(library).is_absolute():
        pytest.skip(f"{compiler} has no sanitizers")
    return library
