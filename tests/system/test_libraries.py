"""The examples for other libraries, each with its own launcher: they train as one process alone does."""

import os
import re
import subprocess
import sys
from functools import cache

import pytest
import torch
from commands import BIN
from paths import ROOT
from torch.nn.functional import cross_entropy

FOLDER = ROOT / "examples"
LIBRARIES = ROOT / ".venv-libs"  # made by `make libraries`
WITHIN = 800.0
WORKERS = 2
STEPS = 4
PYTHON = str(LIBRARIES / "bin/python")
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORKERS)]
ACCELERATE = [
    str(LIBRARIES / "bin/accelerate"), "launch", "--multi_gpu", "--num_processes", str(WORKERS),
    "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
    "--main_process_port", "0",
]  # fmt: skip


QUIET = {
    "OMP_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def needs(*packages: str) -> None:
    """Skip the test, unless `make libraries` has installed these packages."""
    there = {path.name for path in LIBRARIES.glob("lib/python*/site-packages/*")}
    if missing := set(packages) - there:
        pytest.skip(f"{', '.join(sorted(missing))} is not installed: see `make libraries`")


def in_a_rack(*command: str) -> str:
    """Run a command with `innet rack`, as a user does, and return its output."""
    done = subprocess.run(
        [str(BIN / "innet"), "rack", "--workers", str(WORKERS), "--", *command],
        env={**os.environ, **QUIET},
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(said: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", said, re.MULTILINE)]


def through_the_switch(said: str) -> int:
    [number] = re.findall(r"^all-reduces through the switch: (\d+)$", said, re.MULTILINE)
    return int(number)


@cache
def alone() -> list[float]:
    """Return the losses of one process that trains on whole batches."""
    sys.path.append(str(FOLDER))
    import common

    model = common.classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for images, labels in torch.utils.data.DataLoader(common.dataset(STEPS), common.BATCH):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def script(name: str) -> list[str]:
    return [str(FOLDER / f"{name}.py"), "--steps", str(STEPS)]


@pytest.mark.parametrize(
    ("package", "launcher", "name"),
    [
        ("accelerate", ACCELERATE, "with_accelerate"),
        ("lightning", [PYTHON], "with_lightning"),
        ("lightning", [PYTHON], "with_fabric"),
        ("deepspeed", TORCHRUN, "with_deepspeed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_losses_are_those_of_one_process(package: str, launcher: list[str], name: str):
    needs(package)
    said = in_a_rack(*launcher, *script(name))
    assert losses(said) == pytest.approx(alone(), abs=2e-6)
    assert through_the_switch(said) >= 2 * STEPS  # of the gradients and of the losses


def test_hugging_faces_trainer_keeps_the_parameters_alike():
    needs("accelerate", "transformers")
    said = in_a_rack(*TORCHRUN, *script("with_trainer"))
    first, *_, last = losses(said)
    assert last < first
    assert through_the_switch(said) >= STEPS
    digests = re.findall(r"^rank \d parameters ([0-9a-f]{64})$", said, re.MULTILINE)
    assert len(digests) == WORKERS
    assert len(set(digests)) == 1


def test_ray_train_starts_workers_that_train_alike():
    needs("ray", "pandas", "pyarrow")
    said = in_a_rack(PYTHON, *script("with_ray"))
    # Ray puts the worker's name before its lines, and may show a line twice.
    found = dict(re.findall(r"step (\d+): loss ([\d.]+)$", said, re.MULTILINE))
    assert [float(loss) for loss in found.values()] == pytest.approx(alone(), abs=2e-6)
    assert f"all-reduces through the switch: {2 * STEPS}" in said
