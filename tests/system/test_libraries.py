"""The commands of the pages about libraries: the examples train as one process alone does.

innet is the wheel, in a fresh environment beside the libraries. Only with Ray it is the checkout.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import libraries
import pytest
import torch
from installation import Installation
from page_commands import PAGES, PageCommand, page_commands
from paths import ROOT
from preforked import forked_programs
from torch.nn.functional import cross_entropy
from wheels import run_example, succeed

WITHIN = 800.0
STEPS = 4
STARTS_OF_RAY = 3  # it gives its processes 30 seconds, too few on a busy machine, without a setting
COMMANDS = page_commands()
NEEDED = {
    "with_accelerate": ["accelerate"],
    "with_deepspeed": ["deepspeed"],
    "with_fabric": ["lightning"],
    "with_lightning": ["lightning"],
    "with_ray": ["ray", "pandas", "pyarrow"],
    "with_trainer": ["accelerate", "transformers"],
}
OTHER_MODELS = {"with_trainer"}
SHARDED = {"fsdp2", "hsdp"}


def output(installation: Installation, command: PageCommand, folder: Path) -> str:
    """Run a page's command with few steps, as a user does, and return its output."""
    if command.example == "with_ray":
        return output_of_ray(command)
    installation.needs(*NEEDED.get(command.example, []))
    return run_example(installation.programs, folder, command, STEPS)


def output_of_ray(command: PageCommand) -> str:
    """Run the example of Ray, with innet from the checkout."""
    libraries.needs(*NEEDED[command.example])
    rack = [str(forked_programs() / "innet"), "rack", "--workers", str(command.workers), "--"]
    words = [*rack, *command.line(libraries.COMMANDS, ["--steps", str(STEPS)])]
    for _ in range(STARTS_OF_RAY):
        done = subprocess.run(
            words,
            env=libraries.quiet(),
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        if "The current node timed out during startup" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(said: str) -> list[float]:
    # Ray puts the worker's name before its lines, and may show a line twice.
    found = re.findall(r"step (\d+): loss ([\d.]+)$", said, re.MULTILINE)
    return [float(loss) for loss in dict(found).values()]


def through_the_switch(said: str) -> int:
    # Ray may show a line twice.
    [number] = set(re.findall(r"all-reduces through the switch: (\d+)$", said, re.MULTILINE))
    return int(number)


@cache
def alone(sharded: bool) -> list[float]:
    """Return the losses of one process that trains on whole batches."""
    sys.path.append(str(ROOT / "examples"))
    import common

    model = common.classifier()
    if sharded:
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for images, labels in torch.utils.data.DataLoader(common.dataset(STEPS), common.BATCH):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_every_page_has_a_command():
    tested_elsewhere = {"slurm"}  # in tests/torch/test_slurm.py
    pages = {page.stem for page in PAGES.glob("*.md")}
    assert {command.page for command in COMMANDS} == pages - tested_elsewhere


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_the_code_of_a_page_is_that_of_its_examples(page: Path):
    text = page.read_text()
    examples = set(re.findall(r"examples/(\w+\.py)", text))
    tested = set().union(*(uses((ROOT / "examples" / name).read_text()) for name in examples))
    shown = set().union(
        *map(uses, re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    )
    assert shown
    assert shown <= tested


def uses(code: str) -> set[str]:
    """Return what code imports, and the parameters to which it passes the backend's name."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import(names=names):
                found |= {each.name for each in names}
            case ast.ImportFrom(module=module, names=names):
                found |= {f"{module}.{each.name}" for each in names}
            case ast.Call(func=function, args=arguments, keywords=keywords):
                places = [*enumerate(arguments), *((each.arg, each.value) for each in keywords)]
                found |= {
                    f"{ast.unparse(function)}({place})"
                    for place, value in places
                    if isinstance(value, ast.Constant) and value.value == "innet"
                }
    return found


def test_the_programs_that_start_soon_are_those_of_the_wheel(
    installation: Installation, tmp_path: Path
):
    python = [str(installation.programs / "python"), "-c"]
    innet = succeed([*python, "import innet; print(innet.__file__)"], tmp_path)
    assert Path(innet).is_relative_to(installation.folder)
    # The parent is a process of the command, which was forked from the environment's Python.
    look = "import os; print(open(f'/proc/{os.getppid()}/cmdline').read().split(chr(0))[0])"
    rack = [str(installation.programs / "innet"), "rack", "--workers", "1", "--"]
    assert (
        succeed([*rack, str(installation.python), "-c", look], tmp_path)
        == f"{installation.python}\n"
    )


@pytest.mark.parametrize(
    "command", [each for each in COMMANDS if each.example not in OTHER_MODELS], ids=str
)
def test_the_losses_are_those_of_one_process(
    installation: Installation, tmp_path: Path, command: PageCommand
):
    said = output(installation, command, tmp_path)
    sharded = command.example in SHARDED
    assert losses(said) == pytest.approx(alone(sharded), abs=2e-6)
    # The losses, and the gradients, unless these are reduce-scattered.
    assert through_the_switch(said) >= STEPS * (1 if sharded else 2)


@pytest.mark.parametrize(
    "command", [each for each in COMMANDS if each.example == "with_trainer"], ids=str
)
def test_hugging_faces_trainer_keeps_the_parameters_alike(
    installation: Installation, tmp_path: Path, command: PageCommand
):
    said = output(installation, command, tmp_path)
    first, *_, last = losses(said)
    assert last < first
    assert through_the_switch(said) >= STEPS
    # Two processes write to one pipe, so a line may begin in the midst of another one's.
    digests = re.findall(r"rank \d parameters ([0-9a-f]{64})", said)
    assert len(digests) == command.workers
    assert len(set(digests)) == 1
