"""innet's wheel with all extras for users, in a fresh environment beside other packages.

The packages are the registry's newest. By default, PyTorch and the libraries on top of it are the
tests' own, since they take gigabytes. With INNET_NEWEST=1 (`make newest`) nothing is shared.
"""

import json
import os
import sysconfig
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from libraries import SITE
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT
from preforked import OF_TRAININGS, forked_programs
from wheels import Built, fresh_environment, install_or_skip, pip, share

NEWEST = os.environ.get("INNET_NEWEST") == "1"

_LARGE = ("accelerate", "lightning", "torch", "transformers")
# `make newest` leaves these out, and skips their examples.
_MORE = ("deepspeed",)
_OF_DEVELOPERS = {"dev", "docs"}
_PINNING = {"shell"}
_BEFORE = "before.json"
_SLOW_TO_IMPORT = ("deepspeed", "lightning", "transformers.trainer")


@dataclass(frozen=True)
class Installation:
    """An environment in a folder."""

    folder: Path

    @property
    def commands(self) -> Path:
        """The folder of its programs."""
        return _environment(self.folder) / "bin"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.commands / "python"

    @property
    def programs(self) -> Path:
        """A folder of the same programs that start soon, with the libraries that take long to import."""
        slow = (each for each in _SLOW_TO_IMPORT if self._has(each.partition(".")[0]))
        return forked_programs(self.commands, (*OF_TRAININGS, *slow))

    @property
    def before(self) -> dict[str, str]:
        """The versions of all packages before innet was installed."""
        found: dict[str, str] = json.loads((self.folder / _BEFORE).read_text())
        return found

    def needs(self, *modules: str) -> None:
        """Skip the test, unless the environment has these modules."""
        if missing := [each for each in modules if not self._has(each)]:
            reason = "`make newest` leaves it out" if NEWEST else "see `make libraries`"
            pytest.skip(f"{', '.join(missing)} is not installed: {reason}")

    def _has(self, module: str) -> bool:
        [packages] = _environment(self.folder).glob("lib/python*/site-packages")
        return (packages / module).exists()


def install(built: Built, folder: Path) -> None:
    """Make an environment with the other packages, and install innet in it."""
    place = _environment(folder)
    python = fresh_environment(place)
    found: dict[str, Distribution | None] = {}
    if not NEWEST:
        found = closure([*_LARGE, "matplotlib", "scikit-learn", *filter(_installed, _MORE)])
    for package in found.values():
        if package:
            share(package, place)
    missing = [name for name, package in found.items() if not package]
    install_or_skip(python, "tensorboard", *(_LARGE if NEWEST else missing))
    before = versions(python)
    assert "innet" not in before
    (folder / _BEFORE).write_text(json.dumps(before))
    pip(python, "install", "--no-compile", f"{built.wheel}[{','.join(sorted(extras()))}]")


def extras() -> set[str]:
    """Return innet's extras, except for those of its developers and those that pin a version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"]) - _OF_DEVELOPERS - _PINNING


def versions(python: Path) -> dict[str, str]:
    """Return the versions of all packages in an environment."""
    folders = map(str, python.parent.parent.glob("lib/python*/site-packages"))
    found = [each.metadata for each in Distribution.discover(path=[*folders])]
    return {canonicalize_name(each["Name"]): each["Version"] for each in found}


def closure(names: Iterable[str]) -> dict[str, Distribution | None]:
    """Return packages of the tests' environments with all that they need, or None for a missing one."""
    found: dict[str, Distribution | None] = {}
    wanted = [*names]
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name not in found:
            found[name] = own = _installed(name)
            needed = map(Requirement, (own.requires if own else None) or ())
            wanted += [
                each.name
                for each in needed
                if not each.marker or each.marker.evaluate({"extra": ""})
            ]
    return found


def _installed(name: str) -> Distribution | None:
    """Return a package of the tests' environments, or None."""
    folders = [sysconfig.get_path("purelib"), *map(str, SITE)]
    return next(iter(Distribution.discover(name=name, path=folders)), None)


def _environment(folder: Path) -> Path:
    return folder / "environment"
