"""A Slurm cluster of one node, this machine."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from innet.local.ports import free_tcp_port
from innet.local.processes import spawned

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def slurm(folder: Path, *more: str) -> Iterator[dict[str, str]]:
    """Run Slurm's daemons, or skip the test. Yield the environment of srun.

    `more` are further lines of the configuration.
    """
    path = f"/usr/sbin:{os.environ['PATH']}"
    daemons = [shutil.which(name, path=path) for name in ("slurmctld", "slurmd")]
    if os.geteuid() or not all((*daemons, shutil.which("srun"))):
        pytest.skip("needs root, and Debian's slurmctld, slurmd and slurm-client")
    file = folder / "slurm.conf"
    ports = [free_tcp_port(), free_tcp_port()]
    configuration = CONFIGURATION.format(host=socket.gethostname(), ports=ports, folder=folder)
    file.write_text(configuration + "".join(f"{line}\n" for line in more))
    for name in ("state", "spool"):
        (folder / name).mkdir()
    environment = {"SLURM_CONF": str(file)}
    with contextlib.ExitStack() as stack:
        for daemon in daemons:
            log = stack.enter_context((folder / f"{Path(daemon).name}.log").open("w"))
            stack.enter_context(spawned([daemon, "-D"], environment, stdout=log, stderr=log))
        until(lambda: "idle" in nodes(environment))
        yield environment


def nodes(environment: dict[str, str]) -> str:
    """Return the states of the nodes, and nothing while the controller starts."""
    done = subprocess.run(
        ["sinfo", "--noheader", "--format", "%T"], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    return done.stdout
