"""innet beside other packages: installing it changes none of them, and all of them still work.

The examples of the pages run in the same environment: see test_examples.py and test_libraries.py.
"""

from pathlib import Path

import pytest
from installation import Installation, versions
from page_commands import torchrun
from wheels import pip, run_demo, run_example, succeed

_TOGETHER = """
import accelerate, lightning, transformers
from torch.utils.tensorboard import SummaryWriter
from innet.p4.artifacts import artifact
import innet.torch
SummaryWriter("logs").add_scalar("tables", len(artifact(64).p4info.tables), 0)
"""


def test_no_package_changes_its_version(installation: Installation):
    before, after = installation.before, versions(installation.python)
    assert {"accelerate", "lightning", "tensorboard", "torch", "transformers"} <= set(before)
    assert {name: after.get(name) for name in before} == before
    assert "innet" in after


def test_every_requirement_is_met(installation: Installation):
    assert pip(installation.python, "check") == "No broken requirements found.\n"


def test_all_work_in_one_process(installation: Installation, tmp_path: Path):
    succeed([str(installation.programs / "python"), "-c", _TOGETHER], tmp_path)


def test_the_demo_runs(installation: Installation, tmp_path: Path):
    assert "All 2 workers hold the same parameters" in run_demo(installation.programs, tmp_path)


@pytest.mark.parametrize("example", ["ddp_hook", "digits"])
def test_an_example_of_the_hook_runs(installation: Installation, tmp_path: Path, example: str):
    assert "loss" in run_example(installation.programs, tmp_path, torchrun(example))
