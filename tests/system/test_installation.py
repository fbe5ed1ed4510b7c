"""innet beside other packages: installing it changes none of them, and all of them still work.

The environment is fresh, and its packages are the registry's newest. By default, PyTorch and the
libraries on top of it are the tests' own, since they take gigabytes, and one example runs. With
INNET_NEWEST=1 (`make newest`) nothing is shared, and the examples of all these packages run.
"""

import json
import os
import shutil
import sysconfig
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from libraries import SITE
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from page_commands import PageCommand, page_commands, torchrun
from paths import ROOT
from wheels import (
    Built,
    fresh_environment,
    install_or_skip,
    pip,
    run_demo,
    run_example,
    share,
    succeed,
)

_NEWEST = os.environ.get("INNET_NEWEST") == "1"
_LARGE = ("accelerate", "lightning", "torch", "transformers")
_SHARED = () if _NEWEST else (*_LARGE, "matplotlib", "scikit-learn")
_OTHERS = ("tensorboard", *(_LARGE if _NEWEST else ()))
_TORCHS_OWN = ("accumulation", "amp", "cnn", "ddp", "ddp_hook", "digits", "transformer", "zero")
_NEED_MORE = {"deepspeed", "ray"}
_EXAMPLES = [
    *map(torchrun, _TORCHS_OWN),
    *(each for each in page_commands() if each.page not in _NEED_MORE),
]
_OF_DEVELOPERS = {"dev", "docs"}
_PINNING = {"shell"}

_TOGETHER = """
import accelerate, lightning, transformers
from torch.utils.tensorboard import SummaryWriter
from innet.p4.artifacts import artifact
import innet.torch
SummaryWriter("logs").add_scalar("tables", len(artifact(64).p4info.tables), 0)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make an environment with the other packages, and yield its Python."""
    place = tmp_path_factory.mktemp("beside") / "environment"
    made = fresh_environment(place)
    packages = closure(*_SHARED)
    for package in packages.values():
        if package:
            share(package, place)
    missing = [name for name, package in packages.items() if not package]
    install_or_skip(made, *_OTHERS, *missing)
    yield made
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def before(python: Path) -> dict[str, str]:
    """Return the versions of all packages before innet is installed."""
    return versions(python)


@pytest.fixture(scope="module")
def installed(python: Path, before: dict[str, str], built: Built) -> Path:
    """Install innet with all extras for users, and return the environment's folder of commands."""
    assert "innet" not in before
    pip(python, "install", "--no-compile", f"{built.wheel}[{','.join(sorted(extras()))}]")
    return python.parent


def test_no_package_changes_its_version(installed: Path, before: dict[str, str]):
    after = versions(installed / "python")
    assert {name: after.get(name) for name in before} == before
    assert "innet" in after


def test_every_requirement_is_met(installed: Path):
    assert pip(installed / "python", "check") == "No broken requirements found.\n"


def test_all_work_in_one_process(installed: Path, tmp_path: Path):
    succeed([str(installed / "python"), "-c", _TOGETHER], tmp_path)


def test_the_demo_runs(installed: Path, tmp_path: Path):
    assert "All 2 workers hold the same parameters" in run_demo(installed, tmp_path)


@pytest.mark.parametrize("command", _EXAMPLES if _NEWEST else [torchrun("ddp")], ids=str)
def test_an_example_runs(installed: Path, tmp_path: Path, command: PageCommand):
    assert "loss" in run_example(installed, tmp_path, command)


def extras() -> set[str]:
    """Return innet's extras, except for those of its developers and those that pin a version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"]) - _OF_DEVELOPERS - _PINNING


def versions(python: Path) -> dict[str, str]:
    listed = json.loads(pip(python, "list", "--format", "json"))
    return {each["name"]: each["version"] for each in listed}


def closure(*names: str) -> dict[str, Distribution | None]:
    """Return packages of the tests' environments with all that they need, or None for a missing one."""
    folders = [sysconfig.get_path("purelib"), *map(str, SITE)]
    found: dict[str, Distribution | None] = {}
    wanted = [*names]
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name not in found:
            found[name] = own = next(iter(Distribution.discover(name=name, path=folders)), None)
            needed = map(Requirement, (own.requires if own else None) or ())
            wanted += [
                each.name
                for each in needed
                if not each.marker or each.marker.evaluate({"extra": ""})
            ]
    return found
