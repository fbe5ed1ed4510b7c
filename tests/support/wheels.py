"""innet's sdist and wheel, and fresh environments to install the wheel in."""

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from paths import ROOT

NOT_SOURCE = shutil.ignore_patterns("__pycache__", "*.so", "*.orig")
_WITHIN = 800.0
"""Seconds for one command, which may download packages."""


@dataclass(frozen=True)
class Built:
    """The sdist of the source tree, and the wheel built from the sdist."""

    sdist: Path
    wheel: Path


def build(folder: Path) -> Built:
    """Build the sdist and the wheel in a folder."""
    # Build from a copy: setuptools writes beside the sources, and reuses an earlier build's files.
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "innet", source / "innet", ignore=NOT_SOURCE)
    sdist = _build("sdist", source, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    return Built(sdist, _build("wheel", unpacked, folder))


def fresh_environment(place: Path, python: str = sys.executable) -> Path:
    """Make an environment without packages, and return its Python."""
    succeed([python, "-m", "venv", "--without-pip", str(place)])
    return place / "bin" / "python"


def pip(python: Path, *arguments: str) -> str:
    """Run the tests' pip for an environment, and return its output."""
    return succeed(pip_command(python, *arguments))


def pip_command(python: Path, *arguments: str) -> list[str]:
    """Return a command of the tests' pip for an environment."""
    options = ["--python", str(python), "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", *options, *arguments]


def plain_environment() -> dict[str, str]:
    """Return this process's environment variables without innet's and Python's."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("INNET_", "PYTHON"))
    }


def succeed(command: list[str], folder: Path | None = None) -> str:
    """Run a command to its end, and return what it prints."""
    done = subprocess.run(
        command, cwd=folder, env=plain_environment(), capture_output=True, text=True,
        timeout=_WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _build(kind: str, source: Path, target: Path) -> Path:
    """Call the build backend that pyproject.toml names, as pip does, with the installed packages."""
    call = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(target)!r}))"
    return target / succeed([sys.executable, "-c", call], source).split()[-1]
