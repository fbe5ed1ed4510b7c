"""innet with other versions of Python, protobuf and PyTorch. `make matrix` chooses them.

By default, it is the Python of the tests, with all protobufs.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_commands import torchrun
from wheels import (
    Built,
    fresh_environment,
    install_or_skip,
    pip,
    run_demo,
    run_example,
    skip_without,
    sum_in_a_rack,
)

_PYTHONS = os.environ.get("INNET_PYTHONS", sys.executable).split()
_TORCHES = os.environ.get("INNET_TORCHES", "").split()
_PROTOBUFS = ("3.20", "4", "5", "6", "7")


@pytest.fixture(scope="module", params=_PYTHONS)
def python(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Make an environment with pip only, and yield its Python. With PyTorch it takes gigabytes."""
    place = tmp_path_factory.mktemp("versions") / "environment"
    yield fresh_environment(place, request.param)
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def installed(python: Path, built: Built) -> Path:
    """Install innet with the newest of what it needs, and return the environment's Python."""
    pip(python, "install", "--no-compile", str(built.wheel))
    return python


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder for what innet compiles: protobuf's version does not change it."""
    return tmp_path_factory.mktemp("caches")


def change_protobuf(python: Path, protobuf: str) -> None:
    """Install a version of protobuf. Skip the test if this Python does not load it."""
    install_or_skip(python, f"protobuf=={protobuf}.*")
    skip_without(python, "google.protobuf.descriptor")
    assert pip(python, "check") == "No broken requirements found.\n"


@pytest.mark.parametrize("protobuf", _PROTOBUFS)
def test_a_rack_sums_with_any_protobuf(installed: Path, protobuf: str, caches: Path):
    change_protobuf(installed, protobuf)
    said = sum_in_a_rack(installed.parent, caches)
    assert said.lines[0] == said.lines[1]
    version, _, *extremes = said.lines[0].split()
    assert f"{version}.".startswith(f"{protobuf}.")
    assert extremes == ["2.0", "2.0"]


@pytest.fixture(scope="module", params=_TORCHES)
def with_torch(request: pytest.FixtureRequest, installed: Path, built: Built) -> Path:
    """Install a version of PyTorch, and what the demo needs. Return the environment's Python."""
    install_or_skip(installed, f"torch=={request.param}.*")
    pip(installed, "install", "--no-compile", f"{built.wheel}[demo]")
    return installed


@pytest.mark.parametrize("protobuf", _PROTOBUFS)
def test_the_demo_trains_with_any_pytorch_and_any_protobuf(
    with_torch: Path, protobuf: str, tmp_path: Path
):
    change_protobuf(with_torch, protobuf)
    assert "All 2 workers hold the same parameters" in run_demo(with_torch.parent, tmp_path)


def test_an_example_trains_with_any_pytorch(with_torch: Path, tmp_path: Path):
    assert "loss" in run_example(with_torch.parent, tmp_path, torchrun("ddp"))
