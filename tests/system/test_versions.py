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


@pytest.mark.parametrize("protobuf", _PROTOBUFS)
def test_a_rack_sums_with_any_protobuf(python: Path, built: Built, protobuf: str, tmp_path: Path):
    install_or_skip(python, f"protobuf=={protobuf}.*")
    skip_without(python, "google.protobuf.descriptor")
    pip(python, "install", "--no-compile", str(built.wheel))
    assert pip(python, "check") == "No broken requirements found.\n"
    said = sum_in_a_rack(python.parent, tmp_path)
    assert said.lines[0] == said.lines[1]
    version, _, *extremes = said.lines[0].split()
    assert f"{version}.".startswith(f"{protobuf}.")
    assert extremes == ["2.0", "2.0"]


@pytest.mark.parametrize("torch", _TORCHES)
def test_the_demo_trains_with_any_pytorch(python: Path, built: Built, torch: str, tmp_path: Path):
    install_or_skip(python, f"torch=={torch}.*")
    pip(python, "install", "--no-compile", f"{built.wheel}[demo]")
    assert pip(python, "check") == "No broken requirements found.\n"
    assert "All 2 workers hold the same parameters" in run_demo(python.parent, tmp_path)
    assert "loss" in run_example(python.parent, tmp_path, torchrun("ddp"))
