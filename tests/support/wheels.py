"""innet's sdist and wheel, and fresh environments to install the wheel in."""

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from libraries import QUIET
from page_commands import PageCommand
from paths import ROOT, SUPPORT

NOT_SOURCE = shutil.ignore_patterns("__pycache__", "*.so", "*.orig")
_WITHIN = float(os.environ.get("INNET_INSTALL_WITHIN", "800"))
"""Seconds for one command, which may download packages."""


@dataclass(frozen=True)
class Built:
    """The sdist of the source tree, and the wheel built from the sdist."""

    sdist: Path
    wheel: Path


def build(folder: Path) -> None:
    """Build the sdist, and from it the wheel, in a folder."""
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
    _build("wheel", unpacked, folder)


def built_in(folder: Path) -> Built:
    """Return what :func:`build` has built in a folder."""
    [sdist], [wheel] = folder.glob("innet-*.tar.gz"), folder.glob("innet-*.whl")
    return Built(sdist, wheel)


def fresh_environment(place: Path, python: str = sys.executable) -> Path:
    """Make an environment with pip only, and return its Python."""
    if python == sys.executable:  # its pip can be this environment's, which is compiled
        succeed([python, "-m", "venv", "--without-pip", str(place)])
        share(distribution("pip"), place)
    else:
        succeed([python, "-m", "venv", str(place)])
    return place / "bin" / "python"


def share(package: Distribution, place: Path) -> None:
    """Make links to an installed package's files in another environment, and its commands."""
    [target] = place.glob("lib/python*/site-packages")
    tops = {Path(file).parts[0] for file in package.files or ()}
    for top in tops - {"..", "__pycache__"}:
        if not (target / top).exists():
            (target / top).symlink_to(str(package.locate_file(top)))
    for each in package.entry_points.select(group="console_scripts"):
        command = place / "bin" / each.name
        command.write_text(
            f"#!{place}/bin/python\nimport sys\n"
            f"from {each.module} import {each.attr}\nsys.exit({each.attr}())\n"
        )
        command.chmod(0o755)


def pip(python: Path, *arguments: str) -> str:
    """Run an environment's pip, and return its output."""
    return succeed([str(python), "-m", "pip", "--disable-pip-version-check", *arguments])


def install_or_skip(python: Path, *wanted: str) -> None:
    """Install packages that are not innet's own choice. Skip the test if the registry lacks them."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    done = _run([*command, *wanted])
    if done.returncode:
        pytest.skip(f"the registry does not serve {', '.join(wanted)}: {done.stderr[-500:]}")


@dataclass(frozen=True)
class Said:
    """The output of a command, and what it wrote to standard error."""

    lines: list[str]
    errors: str


def sum_in_a_rack(commands: Path, folder: Path) -> Said:
    """Run two_workers.py in a rack, with innet's commands from a folder, and caches in another one.

    One of the workers has no compiler, which a cable in shared memory needs.
    """
    rack = [str(commands / "innet"), "rack", "--udp", "--workers", "2", "--lanes", "64", "--"]
    workers = [str(commands / "python"), "-P", str(SUPPORT / "two_workers.py"), str(folder)]
    done = _run([*rack, *workers], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return Said(done.stdout.splitlines(), done.stderr)


def skip_without(python: Path, module: str) -> None:
    """Skip the test if a module of another package does not load on this Python."""
    done = _run([str(python), "-c", f"import {module}"])
    if done.returncode:
        pytest.skip(f"{module} does not load: {done.stderr[-500:]}")


def run_demo(commands: Path, folder: Path) -> str:
    """Run the demo with innet's commands from a folder, and return its output."""
    return succeed([str(commands / "innet"), "demo", "--epochs", "10", "--workers", "2"], folder)


def run_example(commands: Path, folder: Path, command: PageCommand, steps: int = 20) -> str:
    """Run an example in a rack, with the programs from a folder. Return its output."""
    rack = [str(commands / "innet"), "rack", "--workers", str(command.workers), "--"]
    words = [*rack, *command.line(commands, ["--steps", str(steps)])]
    return succeed(words, folder, **QUIET)


def _plain_environment() -> dict[str, str]:
    """Return this process's environment variables without innet's and Python's."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("INNET_", "PYTHON"))
    }


def succeed(command: list[str], folder: Path | None = None, **environment: str) -> str:
    """Run a command to its end, and return what it prints."""
    done = _run(command, folder, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _run(
    command: list[str], folder: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=folder, env=_plain_environment() | environment, capture_output=True, text=True,
        timeout=_WITHIN, check=False,
    )  # fmt: skip


def _build(kind: str, source: Path, target: Path) -> Path:
    """Call the build backend that pyproject.toml names, as pip does, with the installed packages."""
    call = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(target)!r}))"
    return target / succeed([sys.executable, "-c", call], source).split()[-1]
