"""The Python that has p4runtime-shell: this one, or one in an environment that is made for it.

p4runtime-shell needs old versions of protobuf, IPython and jedi. Other packages need newer ones. So the
shell gets a virtual environment of its own in the user's cache, unless it is installed beside innet.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from innet.errors import InnetError
from innet.machine.private import check_folder, make_folder
from innet.native.compiler import cache_folder
from innet.terminal.console import console

SHELL = "p4runtime-shell==0.0.6"
"""The release of the shell. The extra ``shell`` of innet installs the same."""

MODULE = "p4runtime_sh"


def python() -> list[str]:
    """Return the Python that can import the shell, with its options. Install the shell if it is missing.

    Raises InnetError if it cannot be installed.
    """
    if importlib.util.find_spec(MODULE):
        return [sys.executable]
    return [
        str(_own_python()),
        "-I",
    ]  # PYTHONPATH may name packages that the shell does not work with


def _own_python() -> Path:
    """Return the Python of the shell's environment. Make the environment if it is missing."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = make_folder(cache_folder()) / f"{SHELL}-python{version}"
    if not folder.exists():
        console(stderr=True, soft_wrap=True).print(f"installing {SHELL} in {folder}, only once")
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / "environment"
            _install(made)
            _rename(made, folder)
    check_folder(folder)
    found = folder / "bin" / "python"
    if not found.exists():
        raise InnetError(f"{folder} is of a Python that is no longer installed: remove this folder")
    return found


def _install(folder: Path) -> None:
    _run(sys.executable, "-m", "venv", str(folder))
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", SHELL)


def _rename(made: Path, folder: Path) -> None:
    """Move a whole environment to its place, where another process may have put one meanwhile."""
    try:
        made.rename(folder)
    except OSError:
        if not folder.exists():
            raise


def _run(*arguments: str) -> None:
    done = subprocess.run(
        arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise InnetError(
            f"cannot install {SHELL}, which `innet shell` needs: {' '.join(arguments)} failed:\n{said}"
        )
