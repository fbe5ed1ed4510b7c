"""The command ``innet apply``."""

from pathlib import Path
from typing import Annotated

import typer

from innet.rpc import innet_pb2 as pb
from innet.rpc.client import DEFAULT_ADDRESS, connected, translated
from innet.terminal.console import say
from innet.terminal.options import ControllerAddress, TlsFolder


def apply(
    file: Annotated[Path, typer.Argument(help="A cluster file; see docs/cluster-file.md.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be changed.")
    ] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Also remove jobs, switches and quotas that are not in the file."
        ),
    ] = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Bring switches, jobs and quotas into the state that a file describes.

    Each change is one line: [b]+[/b] adds, [b]~[/b] changes, [b]-[/b] removes.
    If the cluster is already in this state, the command changes nothing. If a
    change fails, the changes before it stay in effect. Correct the cause, and
    apply the file again.
    """
    from innet.cluster.file import load
    from innet.cluster.plan import plan

    wanted = load(file)
    with connected(address, tls_folder) as stub:
        with translated("read the present state"):
            switches = stub.ListSwitches(pb.ListSwitchesRequest()).switches
            jobs = stub.ListJobs(pb.ListJobsRequest()).jobs
            quotas = stub.ListQuotas(pb.ListQuotasRequest()).quotas
        steps = plan(
            wanted,
            {each.name: each for each in switches},
            {each.name: each for each in jobs},
            {each.name: each for each in quotas if not each.by_default},
            prune=prune,
        )
        if not steps:
            say("all is as the file says")
        for step in steps:
            if not dry_run:
                with translated(f"carry out {step.line!r}"):
                    step.carry_out(stub)
            say(step.line)
