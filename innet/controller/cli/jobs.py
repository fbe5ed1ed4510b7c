"""The commands ``innet job``."""

import contextlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.table import Table

from innet.controller import defaults
from innet.errors import UsageError
from innet.machine.private_file import private_file
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import DEFAULT_ADDRESS, connected, created_job, translated, write_token
from innet.rpc.group_ranks import in_group
from innet.rpc.plain import as_plain
from innet.rpc.words import PATHS, counted, left_out, slots_text, workers_text
from innet.terminal.console import console, drop_output, say, say_json
from innet.terminal.options import MOST, AsJson, ControllerAddress, TlsFolder
from innet.terminal.tables import folding_table

app = typer.Typer(no_args_is_help=True, help="Manage the jobs whose gradients the switches sum.")
_out = console(soft_wrap=True)


@app.command("create")
def create(
    name: Annotated[
        str, typer.Argument(help="A new name: letters, digits, [b].[/b], [b]_[/b] and [b]-[/b].")
    ],
    switch: Annotated[str, typer.Option(help="The switch that sums, or the top of a tree.")],
    workers: Annotated[
        int, typer.Option(min=0, max=MOST, help="The number of workers, 1 to 4096.")
    ],
    slots: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST,
            help="Slots to reserve, a power of two: as many chunks can be in flight at once. "
            f"0: {defaults.SLOTS}.",
        ),
    ] = 0,
    quorum: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST,
            help="The number of workers whose contributions are enough for a sum; 0: all workers.",
        ),
    ] = 0,
    min_workers: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST,
            help="The smallest number of workers with which the job goes on; 0: the quorum.",
        ),
    ] = 0,
    min_slots: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST,
            help="Slots that the job keeps, a power of two. While its workers compute, it lends "
            "its other slots. 0: it lends none.",
        ),
    ] = 0,
    priority: Annotated[
        int,
        typer.Option(min=0, max=100, help="Jobs with a higher priority borrow slots first."),
    ] = 0,
    queue: Annotated[
        bool, typer.Option("--queue", help="Wait for slots if none are free.")
    ] = False,
    lease: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST,
            help="Delete the job after so many seconds without a worker; 0: an hour.",
        ),
    ] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Write the workers' token to this new file, which only you can read."),
    ] = None,
    as_json: AsJson = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Create a job: reserve slots of a switch, and print the token that its workers need."""
    request = pb.CreateJobRequest(
        name=name, switch=switch, workers=workers, slots=slots, quorum=quorum,
        min_workers=min_workers, queue=queue, lease_s=lease, min_slots=min_slots, priority=priority,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        secret = stack.enter_context(private_file(token_file)) if token_file else None
        stub = stack.enter_context(connected(address, tls_folder))
        stack.enter_context(translated("create the job"))
        answer = stack.enter_context(created_job(stub, request))
        if secret:
            write_token(secret, answer.token)
        else:
            _show_token(answer, address, as_json=as_json)
    if token_file:
        _show_new(answer, address, token_file, as_json=as_json)


def _show_token(answer: pb.CreateJobResponse, address: str, *, as_json: bool) -> None:
    """Print a new job whose token is kept nowhere else. Raises UsageError if that is not possible."""
    try:
        _show_new(answer, address, None, as_json=as_json)
    except OSError as problem:
        drop_output(sys.stdout)
        raise UsageError(
            f"cannot show the token, and so the job was not created: {problem.strerror}"
        ) from None


def _show_new(
    answer: pb.CreateJobResponse, address: str, token_file: Path | None, *, as_json: bool
) -> None:
    """Print a new job, and how its workers find it. Raises OSError."""
    if as_json:
        shown = {} if token_file else {"token": answer.token}
        say_json({"job": as_plain(answer.job), **shown})
        return
    job, token = answer.job, quote(answer.token)
    if token_file:
        token = f'"$(cat {quote(str(token_file))})"'
    say(
        f"job {job.name}: {counted(job.workers, 'worker')}, {_slots(job)}, {job.lanes} lanes\n"
        f"workers find it with INNET_CONTROLLER={quote(address)} INNET_JOB={quote(job.name)} "
        f"INNET_TOKEN={token}"
    )


@app.command("list")
def list_jobs(
    as_json: AsJson = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Show all jobs. A user sees only the user's own jobs."""
    with connected(address, tls_folder) as stub, translated("list the jobs"):
        found = stub.ListJobs(pb.ListJobsRequest())
    if as_json:
        say_json([as_plain(job) for job in found.jobs])
        return
    table = folding_table("job", "switch", "workers", "joined", "lanes", "slots", "path", "owner")
    for job in found.jobs:
        table.add_row(
            job.name, job.switch, str(job.workers), str(len(job.joined)), str(job.lanes),
            slots_text(job), _path(job), job.owner,
        )  # fmt: skip
    _out.print(table)
    if sentence := left_out(found.left_out):
        _out.print(sentence)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    as_json: AsJson = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Show a job, its counters in the switch, and the progress of its workers."""
    with connected(address, tls_folder) as stub, translated("show the job"):
        job = in_group(stub.GetJob(pb.GetJobRequest(name=name)))
    if as_json:
        say_json(as_plain(job))
        return
    _out.print(_summary(job))
    if job.tree:
        _out.print(_tree(job))
    if job.members:
        _out.print(_members(job))
    if job.departures:
        _out.print(_departures(job))


@app.command("history")
def history(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    as_json: AsJson = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Show what has happened to a job, also after its end: who left first, and why terms began."""
    with connected(address, tls_folder) as stub, translated("read the job's history"):
        events = stub.GetJobHistory(pb.GetJobHistoryRequest(name=name)).events
    if as_json:
        say_json([as_plain(each) for each in events])
        return
    table = folding_table("time (UTC)", "event", "worker", "term", "why")
    for each in events:
        at = datetime.fromtimestamp(each.at, UTC).isoformat(" ", "milliseconds")
        ranks = ", ".join(map(str, each.ranks))
        table.add_row(at.removesuffix("+00:00"), each.event, ranks, str(each.term), each.why)
    _out.print(table)


@app.command("delete")
def delete(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """End a job. Its workers get an error, and its slots are free again."""
    with connected(address, tls_folder) as stub, translated("delete the job"):
        stub.DeleteJob(pb.DeleteJobRequest(name=name))
    _out.print(f"job {name} deleted")


def _slots(job: pb.Job) -> str:
    if not job.slots:
        return f"no slots of {job.switch} yet"
    found = f"slots {job.first_slot} to {job.first_slot + job.slots - 1} of {job.switch}"
    if job.min_slots == job.asked_slots:
        return found
    return f"{found}; {job.min_slots} are its own, and it borrows up to {job.asked_slots}"


def _path(job: pb.Job) -> str:
    path = PATHS[job.path]
    return f"{path}: {job.reason}" if job.reason else path


def _summary(job: pb.Job) -> Table:
    table = Table(show_header=False)
    table.add_row("job", f"{job.name} (id {job.id}, term {job.term})")
    table.add_row("owner", job.owner)
    table.add_row("switch", job.switch)
    table.add_row("workers", f"{job.workers}; joined: {', '.join(map(str, job.joined)) or 'none'}")
    table.add_row("quorum", str(job.quorum))
    table.add_row("slots", _slots(job))
    table.add_row("lanes", str(job.lanes))
    table.add_row("path", _path(job))
    if job.waiting_for:
        table.add_row("waits for", f"{workers_text(job.waiting_for)}, for {job.waiting_s:.0f} s")
    for field in pb.Counters.DESCRIPTOR.fields:
        table.add_row(field.name, str(getattr(job.counters, field.name)))
    return table


def _tree(job: pb.Job) -> Table:
    """Return the table of the job's switches."""
    table = folding_table(
        "switch", "goes up to", "workers", "completed", "raised", "answered", "pending"
    )
    for each in job.tree:
        counted = each.counters
        table.add_row(
            each.switch, ", ".join(each.parents) or "the top", ", ".join(map(str, each.workers)),
            *map(str, (counted.completed, counted.raised, counted.answered, counted.pending)),
        )  # fmt: skip
    return table


def _members(job: pb.Job) -> Table:
    """Return the table of the job's workers."""
    table = folding_table(
        "rank", "switch", "port", "address", "heard", "exchange", "chunks left", "resent"
    )
    for each in job.members:
        at, progress = each.address, each.progress
        chunks = f"{progress.remaining} of {progress.chunks}" if progress.busy else "idle"
        where = f"{at.ip}:{at.udp_port}" if each.HasField("address") else "no hello yet"
        table.add_row(
            str(each.rank), each.switch, str(each.port), where,
            f"{each.silent_s:.1f} s ago", str(progress.exchange), chunks,
            str(progress.retransmissions),
        )  # fmt: skip
    return table


def _departures(job: pb.Job) -> Table:
    table = folding_table("left", "rank", "why")
    for each in job.departures:
        table.add_row(f"{each.ago_s:.0f} s ago", str(each.rank), each.reason)
    return table
