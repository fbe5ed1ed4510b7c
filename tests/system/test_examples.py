"""The examples, started by torchrun as a user would: they train over innet as they do over Gloo.

innet is the wheel, in a fresh environment.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from forked import ranks
from forked_rack import forked_rack
from installation import Installation
from paths import ROOT, SUPPORT

from innet.local.processes import spawned

FOLDER = ROOT / "examples"
DRIVER = SUPPORT / "run_examples.py"
WITHIN = 400.0

WORKERS = 2
STEPS = 5
PARAMETERS = 64 * 128 + 128 + 128 * 10 + 10  # of the network for the digits
TOGETHER = ["ddp", "cnn", "zero", "fsdp2", "hsdp", "accumulation", "amp", "transformer"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]

# The switch's sums agree with float32's to a few units in the last place. Only bfloat16 magnifies
# that, since it rounds at the third digit.
MOST_APART = dict.fromkeys(TOGETHER, 1e-5) | {"amp": 5e-3}


def torchrun(
    commands: Path, arguments: list[str], environment: Mapping[str, str], folder: Path
) -> None:
    """Run a script with torchrun, in a folder without innet's sources."""
    command = [str(commands / "python"), *TORCHRUN, str(WORKERS), *arguments]
    with spawned(command, {**environment, "OMP_NUM_THREADS": "1"}, cwd=folder) as process:
        _, errors = process.communicate(timeout=WITHIN)
        assert process.returncode == 0, errors


def said(file: Path) -> list[dict[str, Any]]:
    """Return what every rank has written about every example."""
    return [json.loads(Path(f"{file}.{rank}").read_text()) for rank in range(WORKERS)]


@pytest.fixture(scope="module")
def innet(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("innet") / "said"
    arguments = [str(DRIVER), "innet", str(STEPS), str(file), *TOGETHER]
    with forked_rack(WORKERS, cables=2) as rack:  # the mesh of HSDP has a group of its own
        torchrun(installation.programs, arguments, rack.environment, file.parent)
        assert rack.describe_job().counters.completed > 1000
    return said(file)


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run the examples for comparison, in processes that start sooner than torchrun's."""
    file = tmp_path_factory.mktemp("gloo") / "said"
    with ranks(DRIVER, ["gloo", str(STEPS), str(file), *TOGETHER], WORKERS) as running:
        for each in running:
            each.finish()
    return said(file)


def test_the_examples_train_with_the_wheel(innet, installation: Installation):
    for each in innet:
        assert Path(each["innet"]).is_relative_to(installation.folder)


@pytest.mark.parametrize("name", TOGETHER)
def test_the_losses_are_gloos_and_the_same_on_all_workers(innet, gloo, name: str):
    losses = innet[0][name]["losses"]
    assert len(losses) == STEPS
    assert losses == innet[1][name]["losses"]
    assert losses == pytest.approx(gloo[0][name]["losses"], rel=MOST_APART[name])
    assert len(set(losses)) == STEPS


@pytest.mark.parametrize("name", TOGETHER)
def test_all_its_all_reduces_go_through_the_switch(innet, name: str):
    ways = {way: number for way, number in innet[0][name]["ways"].items() if number}
    assert ways["allreduce/switch/"] >= STEPS * (1 if name == "fsdp2" else 2)
    assert not [way for way in ways if way.startswith("allreduce/gloo")]


def test_integers_are_summed_exactly(innet, gloo):
    assert innet[0]["labels"] == innet[1]["labels"] == gloo[0]["labels"]
    assert min(innet[0]["labels"]) > 1 << 40


def test_the_hook_makes_the_gradients_of_ddp(innet):
    with forked_rack(WORKERS) as rack:
        hooked = ranks(FOLDER / "ddp_hook.py", ["--steps", str(STEPS)], WORKERS, rack.environment)
        with hooked as running:
            said = "".join(each.finish()[0] for each in running)
        assert rack.describe_job().counters.completed >= STEPS * PARAMETERS // 64
    losses = re.findall(r"rank 0 step \d+: loss ([\d.]+)", said)
    assert [float(loss) for loss in losses] == pytest.approx(innet[0]["ddp"]["losses"], rel=1e-5)
    assert len(set(re.findall(r"parameters ([0-9a-f]{64})", said))) == 1


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path):
    assert len(path.read_text().splitlines()) < 100
