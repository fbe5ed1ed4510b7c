"""Slurm: its variables stand in for torchrun's, and its tasks find each other."""

import subprocess
from collections.abc import Iterator

import pytest
from libraries import COMMANDS, needs, quiet
from paths import ROOT
from preforked import forked_programs
from slurm import slurm

from innet.errors import UsageError
from innet.local.ports import free_tcp_port
from innet.machine.slurm import with_ranks
from innet.torch.settings import with_local_rank
from innet.torch.slurm import rendezvous, store_address

EXAMPLES = ROOT / "examples"
TASK = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4"}


def test_a_task_has_the_ranks_of_slurm_unless_it_has_others():
    assert with_ranks(TASK) == {**TASK, "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
    assert with_ranks({**TASK, "RANK": "0"})["RANK"] == "0"
    assert with_ranks({}) == {}


def test_the_local_rank_is_the_launchers_or_slurms_or_the_rank():
    assert with_local_rank({**TASK, "LOCAL_RANK": "0"}, 3)["LOCAL_RANK"] == "0"
    assert with_local_rank(TASK, 3)["LOCAL_RANK"] == "1"
    assert with_local_rank(TASK, 2)["LOCAL_RANK"] == "2"  # a child of the task, and not the task
    assert with_local_rank({}, 2)["LOCAL_RANK"] == "2"


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[03-05,7],other", "node03"),
        ("rack[2,4]node[1-3]", "rack2node1"),
    ],
)
def test_the_store_is_on_the_first_node_at_a_port_of_the_step(nodes: str, first: str):
    step = {"SLURM_JOB_NODELIST": nodes, "SLURM_JOB_ID": "1000", "SLURM_STEP_ID": "2"}
    assert store_address(step) == (first, 21_002)
    assert store_address({**step, "SLURM_JOB_ID": "2000"})[1] != 21_002
    assert store_address({**step, "MASTER_ADDR": "a", "MASTER_PORT": "7"}) == ("a", 7)


def test_outside_of_slurm_the_error_names_srun(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UsageError, match="start the script with srun"):
        next(rendezvous("slurm://", timeout=None))
    with pytest.raises(UsageError, match="start the script with srun"):
        store_address({})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with slurm(tmp_path_factory.mktemp("slurm")) as environment:
        yield {**quiet(), **environment}


def srun(cluster: dict[str, str], *command: str) -> list[str]:
    """Run a command with srun in a rack, and return the lines that it prints."""
    rack = [str(forked_programs() / "innet"), "rack", "--workers", "2", "--"]
    done = subprocess.run(
        [*rack, "srun", *command, "--steps", "2"],
        env={**cluster, "MASTER_PORT": str(free_tcp_port())},
        capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_srun_starts_workers_that_train_through_the_switch(cluster: dict[str, str]):
    python = str(forked_programs() / "python")
    said = srun(cluster, "--ntasks", "2", python, str(EXAMPLES / "with_slurm.py"))
    assert said[-1] == "all-reduces through the switch: 4"


def test_srun_starts_one_torchrun_on_each_node(cluster: dict[str, str]):
    needs("accelerate")
    python = str(forked_programs(COMMANDS) / "python")
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = str(EXAMPLES / "with_accelerate.py")
    said = srun(cluster, "--ntasks-per-node", "1", *torchrun, script)
    assert said[-1] == "all-reduces through the switch: 4"


def test_lightning_takes_the_tasks_of_a_node_from_slurm(cluster: dict[str, str]):
    needs("lightning")
    script = str(EXAMPLES / "with_lightning.py")
    python = str(forked_programs(COMMANDS) / "python")
    said = srun(cluster, "--nodes", "1", "--ntasks-per-node", "2", python, script)
    assert sum(line.startswith("step 2: loss ") for line in said) == 1
    assert said[-1].startswith("all-reduces through the switch: ")
