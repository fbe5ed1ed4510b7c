"""The commands ``innet capture``, ``innet doctor`` and ``innet top``."""

import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any

import typer

from innet.errors import UsageError
from innet.observe.roles import Role
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import DEFAULT_ADDRESS, connected, translated
from innet.rpc.group_ranks import in_group
from innet.terminal.console import console, say, say_json
from innet.terminal.options import AsJson, ControllerAddress, TlsFolder, finite
from innet.terminal.signals import INTERRUPTS


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
    job: Annotated[
        str,
        typer.Option(
            help="Show only the packets of this job. The command asks the controller about the job."
        ),
    ] = "",
    rank: Annotated[
        int | None, typer.Option(min=0, help="With --job: show only packets of this worker.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            help="Also write the packets to this new file, as pcapng. Frames in UDP cables are "
            "written without the cable's headers."
        ),
    ] = None,
    dissector: Annotated[
        bool,
        typer.Option(
            "--dissector", help="Print a dissector for Wireshark, in Lua, instead of packets."
        ),
    ] = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Show innet packets, one line each. Needs root, except with --read."""
    if dissector:
        from innet.wire.dissector import dissector as source

        say(source())
        return

    from innet.observe import capture

    if bool(interface) == bool(read):
        raise UsageError("name an interface, or a file with --read")
    if rank is not None and not job:
        raise UsageError("--rank needs --job: a rank belongs to a job")
    selection = capture.Selection()
    if job:
        with connected(address, tls_folder) as stub, translated("read the job"):
            found = in_group(stub.GetJob(pb.GetJobRequest(name=job)))
            selection = capture.select(found, rank)
    with ExitStack() as stack:
        store = stack.enter_context(capture.written(write)) if write else None

        def take(frame: Any) -> None:
            with INTERRUPTS.held():  # a frame that is shown is in the file
                say(frame.show(dump=True) if full else capture.describe(frame))
                if store:
                    store(frame)
            INTERRUPTS.check()

        capture.show(interface or None, read, count, take, selection)


def doctor(
    job: Annotated[
        str, typer.Argument(help="The job to diagnose; without one, check this machine.")
    ] = "",
    role: Annotated[Role, typer.Option(help="The role of this machine.")] = Role.WORKER,
    interval: Annotated[
        float,
        typer.Option(min=0.1, callback=finite, help="Seconds between the two samples of the job."),
    ] = 1.0,
    as_json: AsJson = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Find the reason why a job is stuck, or check this machine.

    The exit code is 0 if all is well, and 1 if there is a problem or a warning.
    """
    from innet.observe import checklist, diagnosis, expiry, report, sample

    if job:
        with connected(address, tls_folder) as stub:
            observation = sample.sample_twice(lambda: sample.sample_job(stub, job), interval)
        found = [*diagnosis.diagnose(observation), *expiry.of_operator(address, tls_folder)]
        if not as_json:
            report.show_diagnosis(console(soft_wrap=True), observation, found)
    else:
        folder = {"INNET_TLS": str(tls_folder)} if tls_folder else {}
        environment = {**os.environ, "INNET_CONTROLLER": address, **folder}
        found = checklist.check(role, environment)
        if not as_json:
            report.show_checklist(console(soft_wrap=True), found)
    if as_json:
        say_json([report.plain(finding) for finding in found])
    raise typer.Exit(report.exit_code(found))


def top(
    job: Annotated[
        str, typer.Option(help="Show only this job, with a line for every worker.")
    ] = "",
    interval: Annotated[
        float, typer.Option(min=0.1, callback=finite, help="Seconds between updates.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one update and end.")] = False,
    as_json: AsJson = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Watch jobs, their workers, and switches, until Ctrl-C."""
    from innet.observe import top as live
    from innet.observe.overview import Overviews

    with closing(Overviews(address, tls_folder, job)) as overviews:
        if as_json:
            live.run_as_json(overviews, interval, once=once)
        else:
            live.run(overviews, console(), interval, once=once)
