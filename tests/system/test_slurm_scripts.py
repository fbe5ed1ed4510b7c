"""Slurm's prolog creates a job of innet, its tasks get the token, and its epilog deletes the job."""

import getpass
import os
import shutil
import subprocess
import sys
from pathlib import Path

from commands import BIN
from paths import ROOT
from racks import Rack, rack
from secured import add_switch, secured_rack
from slurm import slurm
from waiting import WITHIN, until

from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.certificates import issue

SCRIPTS = ("prolog.sh", "task-prolog.sh", "epilog.sh")
TASK = """\
import numpy as np, innet
with innet.join() as agent:
    print(agent.info.job_name, agent.info.rank, agent.all_reduce(np.ones(3, np.float32), "sum")[0])
"""


def installed(folder: Path, controller: str, users: str = "", worker: str = "") -> list[str]:
    """Copy the scripts with settings for this machine. Return the lines for Slurm's configuration."""
    for name in SCRIPTS:
        shutil.copy(ROOT / "examples/slurm" / name, folder)
    (folder / "tokens").mkdir(mode=0o711)
    (folder / "innet.conf").write_text(
        f"INNET_CONTROLLER={controller}\nUSERS_TLS={users}\nWORKER_TLS={worker}\n"
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


def script(folder: Path, name: str, user: str, comment: str = "") -> int:
    """Run a script for a job of a user, as slurmctld does it. Return its exit status."""
    environment = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_USER": user,
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_COMMENT": comment,
    }
    words = ["sh", str(folder / name)]
    done = subprocess.run(words, env=environment, capture_output=True, timeout=WITHIN, check=False)
    return done.returncode


def test_a_job_belongs_to_the_user_of_slurm_s_job(tmp_path: Path):
    with secured_rack(tmp_path / "tls") as tor, tor.serving() as controller:
        add_switch(tor)
        installed(tmp_path, controller, users=str(tor.folder))

        def owners() -> list[tuple[str, str]]:
            with tor.client("root") as stub:
                return [(job.name, job.owner) for job in stub.ListJobs(pb.ListJobsRequest()).jobs]

        assert script(tmp_path, "prolog.sh", "nobody", "innet:2") != 0
        assert script(tmp_path, "prolog.sh", "olivia", "innet:2") != 0  # an observer
        assert owners() == []
        assert script(tmp_path, "prolog.sh", "alice", "innet:2") == 0
        assert owners() == [("slurm-7", "alice")]
        assert script(tmp_path, "epilog.sh", "bob") != 0
        assert owners() == [("slurm-7", "alice")]
        assert script(tmp_path, "epilog.sh", "alice") == 0
        assert owners() == []


def test_slurm_names_the_user_to_both_scripts(tmp_path: Path):
    with secured_rack(tmp_path / "tls") as tor, tor.serving() as controller:
        add_switch(tor)
        users, me = tor.folder, getpass.getuser()
        issue(users, me, [tls.USER])
        for path in (tls.certificate_path, tls.key_path):  # an operator's first one counts
            path(users / me, tls.ADMIN).unlink(missing_ok=True)
        lines = installed(tmp_path, controller, users=str(users), worker=str(users / "bob"))
        with slurm(tmp_path, *lines) as environment:
            environment["INNET_LINK"] = ",".join(tor.links)
            done = srun(environment, "--ntasks", "2", "--comment", "innet:2@tor")
            assert done.returncode == 0, done.stderr
            assert sorted(done.stdout.splitlines()) == ["slurm-1 0 2.0", "slurm-1 1 2.0"]
            until(lambda: not any((tmp_path / "tokens").iterdir()))


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
