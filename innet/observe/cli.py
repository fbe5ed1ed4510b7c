"""The commands ``innet capture``, ``innet doctor`` and ``innet top``."""

import os
from pathlib import Path
from typing import Annotated

import typer

from innet.errors import UsageError
from innet.observe.roles import Role
from innet.rpc.client import DEFAULT_ADDRESS, connected
from innet.terminal.console import console, say
from innet.terminal.options import ControllerAddress, TlsFolder


def capture(
    interface: Annotated[
        str, typer.Argument(help="A network interface; [b]lo[/b] for UDP cables.")
    ] = "",
    read: Annotated[
        Path | None, typer.Option(help="Read this capture file instead of an interface.")
    ] = None,
    count: Annotated[
        int, typer.Option(min=0, help="Stop after this number of packets; 0: never.")
    ] = 0,
    full: Annotated[
        bool, typer.Option("--full", help="Show all fields of each packet instead of one line.")
    ] = False,
) -> None:
    """Show innet packets, one line each. Needs root, except with --read."""
    from innet.observe import capture

    if bool(interface) == bool(read):
        raise UsageError("name an interface, or a file with --read")
    capture.show(interface or None, read, count, full=full, write=say)


def doctor(
    job: Annotated[
        str, typer.Argument(help="The job to diagnose; without one, check this machine.")
    ] = "",
    role: Annotated[Role, typer.Option(help="The role of this machine.")] = Role.WORKER,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between the two samples of the job.")
    ] = 1.0,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Find the reason why a job is stuck, or check this machine.

    The exit code is 0 if all is well, and 1 if there is a problem or a warning.
    """
    from innet.observe import checklist, diagnosis, report, sample

    if job:
        with connected(address, tls_folder) as stub:
            observation = sample.sample_twice(lambda: sample.sample_job(stub, job), interval)
        found = diagnosis.diagnose(observation)
        report.show_diagnosis(console(soft_wrap=True), observation, found)
    else:
        folder = {"INNET_TLS": str(tls_folder)} if tls_folder else {}
        environment = {**os.environ, "INNET_CONTROLLER": address, **folder}
        found = checklist.check(role, environment)
        report.show_checklist(console(soft_wrap=True), found)
    raise typer.Exit(report.exit_code(found))


def top(
    job: Annotated[
        str, typer.Option(help="Show only this job, with a line for every worker.")
    ] = "",
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one update and end.")] = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Watch jobs, their workers, and switches, until Ctrl-C."""
    from innet.observe import top as live

    with connected(address, tls_folder) as stub:
        live.run(lambda: live.read_overview(stub, job), console(), interval, once=once)
