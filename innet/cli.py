"""The command ``innet``."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from innet import commands, logs
from innet.controller import innet_pb2 as pb
from innet.controller import innet_pb2_grpc as rpc
from innet.controller.client import DEFAULT_ADDRESS, connect, translated
from innet.errors import UsageError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Sums gradients in the switch. Start with [b]innet demo[/b].",
)
switches = typer.Typer(no_args_is_help=True, help="The switches that the controller programs.")
jobs = typer.Typer(no_args_is_help=True, help="The jobs whose gradients the switches sum.")
p4 = typer.Typer(no_args_is_help=True, help="The P4 program.")
app.add_typer(switches, name="switch")
app.add_typer(jobs, name="job")
app.add_typer(p4, name="p4")

ControllerAddress = Annotated[
    str,
    typer.Option(
        "--controller", envvar="INNET_CONTROLLER", help="Where the controller serves, HOST:PORT."
    ),
]
# A pipe has no edge: what reads it gets every value in one piece.
_out = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 1000)


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training set.")] = 30,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes.")] = 4,
    lanes: Annotated[int, typer.Option(help="Integers per packet: 64 or 256.")] = 256,
) -> None:
    """Train on handwritten digits through a P4 switch on this machine, and compare with Gloo.

    Starts a controller and an embedded switch, joined to the workers by cables made of UDP: no
    privileges are needed. The exit code is 1 if the two trainings differ by more than they may.
    """
    import sklearn  # noqa: F401 - what the workers need had better be missing here
    import torch  # noqa: F401

    from innet.demo import comparison

    comparison.run(workers=workers, epochs=epochs, lanes=lanes)


@app.command()
def controller(
    address: Annotated[
        str, typer.Option(help="Where to serve, HOST:PORT; port 0 picks a free one.")
    ] = DEFAULT_ADDRESS,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run the controller, until Ctrl-C.

    When it serves it prints one line to standard output, [b]controller HOST:PORT[/b].
    """
    from innet.controller.server import ControllerServer

    logs.configure(verbose=verbose)
    server = ControllerServer(address)
    try:
        stop = commands.StopRequest()  # from before the controller says that it serves
        typer.echo(f"controller {commands.served_address(address, server.port)}")
        stop.wait()
    finally:
        server.close()


@switches.command("add")
def switch_add(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    grpc_address: Annotated[str, typer.Argument(help="Its P4Runtime service, HOST:PORT.")],
    ports: Annotated[str, typer.Option(help="Its ports, as in [b]1-4,7[/b].")],
    device_id: Annotated[int, typer.Option(min=0, help="Its P4Runtime device id.")] = 0,
    lanes: Annotated[int, typer.Option(help="Integers per packet: 64 or 256.")] = 64,
    service_ip: Annotated[
        str, typer.Option(help="The address under which workers will reach it.")
    ] = "10.255.255.254",
    service_mac: Annotated[str, typer.Option(help="Its MAC address.")] = "02:00:00:00:00:fe",
    address: ControllerAddress = DEFAULT_ADDRESS,
) -> None:
    """Take charge of a switch: give it the aggregation program and an address of its own.

    The switch is BMv2's [b]simple_switch_grpc[/b] or [b]innet-switch[/b], started with --no-p4.
    """
    from innet.wire.layout import UDP_PORT

    request = pb.AddSwitchRequest(
        name=name,
        grpc_address=grpc_address,
        device_id=device_id,
        ports=parse_ports(ports),
        service=pb.Address(mac=service_mac, ip=service_ip, udp_port=UDP_PORT),
        lanes=lanes,
    )
    with _controller(address) as stub, translated("add the switch"):
        added = stub.AddSwitch(request)
    _out.print(
        f"switch {added.name}: {added.slots} slots of {added.lanes} lanes, at {added.service.ip}"
    )


@switches.command("list")
def switch_list(address: ControllerAddress = DEFAULT_ADDRESS) -> None:
    """Show all switches."""
    with _controller(address) as stub, translated("list the switches"):
        found = stub.ListSwitches(pb.ListSwitchesRequest()).switches
    table = _table("switch", "P4Runtime", "device", "ports", "address", "lanes", "free slots")
    for each in found:
        ports = ",".join(str(port) for port in each.ports)
        free = f"{each.free_slots} of {each.slots}"
        table.add_row(
            each.name, each.grpc_address, str(each.device_id), ports, each.service.ip,
            str(each.lanes), free,
        )  # fmt: skip
    _out.print(table)


@jobs.command("create")
def job_create(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    switch: Annotated[str, typer.Option(help="The switch that sums.")],
    workers: Annotated[int, typer.Option(min=0, help="How many workers, 1 to 32.")],
    slots: Annotated[
        int, typer.Option(min=0, help="Chunks under way at once, a power of two.")
    ] = 128,
    address: ControllerAddress = DEFAULT_ADDRESS,
) -> None:
    """Reserve slots on a switch for a job."""
    with _controller(address) as stub, translated("create the job"):
        request = pb.CreateJobRequest(name=name, switch=switch, workers=workers, slots=slots)
        job = stub.CreateJob(request)
    _out.print(
        f"job {job.name}: {job.workers} workers, slots {job.first_slot} to "
        f"{job.first_slot + job.slots - 1} of {job.switch}, {job.lanes} lanes"
    )
    _out.print(f"workers find it with INNET_CONTROLLER={address} INNET_JOB={job.name}")


@jobs.command("list")
def job_list(address: ControllerAddress = DEFAULT_ADDRESS) -> None:
    """Show all jobs."""
    with _controller(address) as stub, translated("list the jobs"):
        found = stub.ListJobs(pb.ListJobsRequest()).jobs
    table = _table("job", "switch", "workers", "joined", "lanes", "slots")
    for job in found:
        table.add_row(
            job.name, job.switch, str(job.workers), str(len(job.joined)), str(job.lanes),
            str(job.slots),
        )  # fmt: skip
    _out.print(table)


@jobs.command("show")
def job_show(
    name: Annotated[str, typer.Argument(help="The job.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
) -> None:
    """Show a job, with what the switch has counted for it."""
    with _controller(address) as stub, translated("show the job"):
        job = stub.GetJob(pb.GetJobRequest(name=name))
    table = Table(show_header=False)
    table.add_row("job", f"{job.name} (id {job.id}, epoch {job.epoch})")
    table.add_row("switch", job.switch)
    table.add_row("workers", f"{job.workers}; joined: {', '.join(map(str, job.joined)) or 'none'}")
    table.add_row("slots", f"{job.first_slot} to {job.first_slot + job.slots - 1}")
    table.add_row("lanes", str(job.lanes))
    for field in pb.Counters.DESCRIPTOR.fields:
        table.add_row(field.name, str(getattr(job.counters, field.name)))
    _out.print(table)


@jobs.command("delete")
def job_delete(
    name: Annotated[str, typer.Argument(help="The job.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
) -> None:
    """End a job: its workers get an error, its slots are free again."""
    with _controller(address) as stub, translated("delete the job"):
        stub.DeleteJob(pb.DeleteJobRequest(name=name))
    _out.print(f"job {name} deleted")


@p4.command("compile")
def p4_compile(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for JSON and P4Info.")
    ] = None,
    lanes: Annotated[int, typer.Option(help="Integers per packet: 64 or 256.")] = 64,
    slots: Annotated[int, typer.Option(min=1, max=65536, help="Slots of the switch.")] = 8192,
) -> None:
    """Compile the P4 program with p4c-bm2-ss, which has to be on the PATH.

    Without --output, remake the programs that innet comes with, and their manifest.
    """
    from innet.p4.artifacts import SLOTS
    from innet.p4.compile import SOURCES, compile_artifacts, compile_program

    if output:
        if lanes not in SLOTS:
            raise UsageError(f"{lanes} lanes: the program can have 64 or 256")
        for path in compile_program(lanes, slots, output):
            _out.print(str(path))
    else:
        compile_artifacts(SOURCES / "compiled")
        _out.print(f"compiled to {SOURCES / 'compiled'}")


@app.command()
def capture(
    interface: Annotated[
        str, typer.Argument(help="A network interface; [b]lo[/b] for cables made of UDP.")
    ] = "",
    read: Annotated[
        Path | None, typer.Option(help="Read this capture file instead of an interface.")
    ] = None,
    count: Annotated[int, typer.Option(min=0, help="Stop after so many packets; 0: never.")] = 0,
    full: Annotated[bool, typer.Option("--full", help="All fields, not one line each.")] = False,
) -> None:
    """Show innet packets as they pass, one line each. Needs root, except with --read."""
    from innet import watch

    if bool(interface) == bool(read):
        raise UsageError("name an interface, or a file with --read")
    watch.show(interface or None, read, count, full=full, write=typer.echo)


def parse_ports(text: str) -> list[int]:
    """``1-4,7`` as [1, 2, 3, 4, 7]. Raises UsageError."""
    ports: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers = [first, last] if dash else [first]
        if not all(map(str.isdecimal, numbers)) or int(numbers[0]) > int(numbers[-1]):
            raise UsageError(f"ports {text!r}: write them as in 1-4,7")
        ports.extend(range(int(first), int(last or first) + 1))
    return ports


def _table(*names: str) -> Table:
    """A table with these columns, in which nothing is cut off."""
    return Table(*(Column(name, overflow="fold") for name in names))


@contextlib.contextmanager
def _controller(address: str) -> Iterator[rpc.ControllerStub]:
    channel, stub = connect(address)
    try:
        yield stub
    finally:
        channel.close()


def main() -> None:
    """Run the command."""
    commands.run(app)
