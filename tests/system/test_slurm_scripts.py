"""Slurm's prolog creates a job of innet, its tasks get the token, and its epilog deletes the job."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from commands import BIN
from paths import ROOT
from racks import Rack, rack
from slurm import slurm
from waiting import WITHIN, until

from innet.rpc import innet_pb2 as pb

SCRIPTS = ("prolog.sh", "task-prolog.sh", "epilog.sh")
TASK = """\
import numpy as np, innet
with innet.join() as agent:
    print(agent.info.job_name, agent.info.rank, agent.all_reduce(np.ones(3, np.float32), "sum")[0])
"""


def installed(folder: Path, controller: str) -> list[str]:
    """Copy the scripts with settings for this machine. Return the lines for Slurm's configuration."""
    for name in SCRIPTS:
        shutil.copy(ROOT / "examples/slurm" / name, folder)
    (folder / "tokens").mkdir(mode=0o711)
    (folder / "innet.conf").write_text(
        f"INNET_CONTROLLER={controller}\nADMINISTRATOR_TLS=\nWORKER_TLS=\n"
        f"PATH={BIN}:/usr/bin:/bin\nSWITCH=tor\nTOKENS={folder}/tokens\n"
    )
    kinds = ("PrologSlurmctld", "TaskProlog", "EpilogSlurmctld")
    return [f"{kind}={folder}/{name}" for kind, name in zip(kinds, SCRIPTS, strict=True)]


def srun(environment: dict[str, str], *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["srun", *options, sys.executable, "-c", TASK], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip


def jobs(tor: Rack) -> list[str]:
    return [job.name for job in tor.stub.ListJobs(pb.ListJobsRequest()).jobs]


def test_the_prolog_creates_a_job_and_the_epilog_deletes_it(tmp_path: Path):
    with rack(2) as tor:
        lines = installed(tmp_path, tor.controller)
        with slurm(tmp_path, *lines) as environment:
            environment["INNET_LINK"] = ",".join(tor.links)
            done = srun(environment, "--ntasks", "2", "--comment", "innet:2@tor")
            assert done.returncode == 0, done.stderr
            assert sorted(done.stdout.splitlines()) == ["slurm-1 0 2.0", "slurm-1 1 2.0"]
            until(lambda: not jobs(tor) and not any((tmp_path / "tokens").iterdir()))
            # A job of Slurm that does not ask for it gets none.
            done = srun(environment, "--ntasks", "1")
            assert "no controller is given" in done.stderr


def test_the_token_stays_as_long_as_the_job_cannot_be_deleted(tmp_path: Path):
    with rack(1) as tor:
        installed(tmp_path, tor.controller)
    (token := tmp_path / "tokens/slurm-7").write_text("secret")
    epilog = ["sh", str(tmp_path / "epilog.sh")]
    done = subprocess.run(
        epilog,
        env={"SLURM_JOB_ID": "7"},
        check=False,
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )
    assert "no controller answers" in done.stderr
    assert done.returncode != 0
    assert token.exists()
