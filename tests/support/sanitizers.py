"""The C compiler's sanitizers."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from innet.native.compiler import find_compiler


def sanitizer(flags: Sequence[str]) -> str:
    """Return the path of the address sanitizer's library, to preload. Skip if the compiler has none."""
    compiler = find_compiler()
    question = [compiler, "-print-file-name=libasan.so"]
    library = subprocess.run(question, capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        target = ["-shared", "-fPIC", "-x", "c", "/dev/null", "-o", f"{folder}/empty.so"]
        done = subprocess.run([compiler, *flags, *target], capture_output=True, check=False)
    if done.returncode or not Path(library).is_absolute():
        pytest.skip(f"{compiler} has no sanitizers")
    return library
