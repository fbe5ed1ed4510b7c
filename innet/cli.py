"""The command ``innet``."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from innet.controller import defaults
from innet.errors import InnetError, UsageError
from innet.model.cli import app as model
from innet.observe.roles import Role
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import tls
from innet.rpc.client import DEFAULT_ADDRESS, connect, translated
from innet.rpc.words import PATHS, misplaced
from innet.servers.pbox.cli import app as pbox
from innet.servers.rack.cli import parent
from innet.system.private_file import private_file
from innet.telemetry import logs
from innet.terminal import outcome as commands
from innet.terminal.console import console, say

if TYPE_CHECKING:
    from innet.controller.controller import Controller

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Sum gradients in the switch. Start with [b]innet demo[/b].",
)
switches = typer.Typer(
    no_args_is_help=True, help="Manage the switches that the controller programs."
)
jobs = typer.Typer(no_args_is_help=True, help="Manage the jobs whose gradients the switches sum.")
p4 = typer.Typer(no_args_is_help=True, help="Compile the P4 program, and look at its resources.")
app.add_typer(switches, name="switch")
app.add_typer(jobs, name="job")
app.add_typer(p4, name="p4")
app.add_typer(model, name="model")
app.add_typer(pbox, name="pbox")
pbox.command()(parent)

ControllerAddress = Annotated[
    str,
    typer.Option(
        "--controller", envvar="INNET_CONTROLLER", help="The controller's address, HOST:PORT."
    ),
]
TlsFolder = Annotated[
    Path | None,
    typer.Option(
        "--tls",
        envvar="INNET_TLS",
        help="Use TLS, with ca.pem, admin.pem and admin-key.pem from this folder.",
    ),
]
Target = Annotated[
    str, typer.Option(help="The kind of switch: bmv2, tofino, tofino2, tofino-sde or tofino2-sde.")
]
Ports = Annotated[str, typer.Option(help="The ports to use, as in [b]1-4,7[/b].")]
DeviceId = Annotated[int, typer.Option(min=0, help="The switch's P4Runtime device id.")]
Lanes = Annotated[int, typer.Option(help="Integers per packet: 64 or 256.")]
ServiceIp = Annotated[str, typer.Option(help="The IPv4 address at which workers reach the switch.")]
ServiceMac = Annotated[str, typer.Option(help="The MAC address of the service address.")]
ArtifactFolder = Annotated[
    str,
    typer.Option(
        metavar="DIR",
        help="For a Tofino: a folder with bfrt.json, "
        "pipe/context.json and pipe/tofino.bin, on the machine that sends them to the switch.",
    ),
]
_out = console(soft_wrap=True)


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training set.")] = 30,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes.")] = 4,
    lanes: Lanes = 256,
    quantizer: Annotated[
        str,
        typer.Option(
            help="The format of gradients on the wire: int32, int16, int8 or strom:TAU, "
            "with +stochastic and +feedback behind it if wanted."
        ),
    ] = "int32",
) -> None:
    """Train on handwritten digits through a P4 switch on this machine, and compare with Gloo.

    Starts a controller and an embedded switch. UDP cables join it to the workers, so no privileges are
    needed. The exit code is 1 if the two trainings differ by more than the tolerance.
    """
    import sklearn  # noqa: F401 - a missing package should fail here, not in the workers
    import torch  # noqa: F401

    from innet.demo import comparison

    comparison.run(workers=workers, epochs=epochs, lanes=lanes, quantizer=quantizer)


@app.command(context_settings={"ignore_unknown_options": True})
def rack(
    command: Annotated[
        list[str], typer.Argument(help="The command to run, after [b]--[/b]; for example torchrun.")
    ],
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes.")],
    lanes: Lanes = 256,
    slots: Annotated[int, typer.Option(min=1, help="Chunks in flight at once.")] = 128,
    cables: Annotated[
        int, typer.Option(min=1, help="Links per worker; every process group needs one.")
    ] = 4,
) -> None:
    """Run a training script in a rack on this machine, and exit with its code.

    Starts a controller and an embedded switch. UDP cables join it to the workers. The command finds both
    through its environment: [b]innet rack --workers 4 -- torchrun --nproc-per-node 4 train.py[/b]
    """
    from innet.demo import running

    raise typer.Exit(running.run(command, workers, lanes, slots, cables))


@app.command()
def controller(
    address: Annotated[
        str, typer.Option(help="The address to serve at, HOST:PORT; port 0 picks a free port.")
    ] = DEFAULT_ADDRESS,
    tls_folder: Annotated[
        Path | None,
        typer.Option(
            "--tls",
            help="Use TLS for all clients and switches, with ca.pem, workers-ca.pem, "
            "controller.pem and controller-key.pem from this folder.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Serve other machines without TLS. Anyone who connects may do everything.",
        ),
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Keep switches, jobs and workers in this file, for the next controller; "
            "without it they are only in memory."
        ),
    ] = None,
    lease: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds without an answer from a worker's machine after which the worker has left. Its "
            "process may be silent for longer.",
        ),
    ] = defaults.WORKER_LEASE_S,
    most_slots_per_job: Annotated[
        int,
        typer.Option(min=0, help="Refuse jobs that ask for more slots than this; 0: no limit."),
    ] = 0,
    most_jobs: Annotated[
        int, typer.Option(min=0, help="Refuse more jobs than this at a time; 0: no limit.")
    ] = 0,
    metrics_address: Annotated[
        str,
        typer.Option(
            "--metrics-addr",
            metavar="HOST:PORT",
            help="Serve [b]/metrics[/b] for Prometheus at this address.",
        ),
    ] = "",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")] = False,
) -> None:
    """Run the controller, until Ctrl-C.

    When it is ready, it prints [b]controller HOST:PORT[/b] to standard output. With --metrics-addr it
    also prints [b]Metrics HOST:PORT[/b].
    """
    from innet.controller.registry import Policy
    from innet.controller.server import ControllerServer

    logs.configure(verbose=verbose)
    identity = tls.load(tls_folder, tls.CONTROLLER) if tls_folder else None
    policy = Policy(lease, most_slots_per_job, most_jobs)
    with contextlib.ExitStack() as stack:
        server = ControllerServer(address, identity, insecure=insecure, state=state, policy=policy)
        stack.callback(server.close)
        metrics = metrics_address and stack.enter_context(
            _metrics(server.controller, metrics_address)
        )
        stop = commands.StopRequest()  # before the line below: a signal counts from there on
        say(f"controller {commands.served_address(address, server.port)}")
        if metrics:
            say(f"Metrics {metrics}")
        stop.wait()


@switches.command("add")
def switch_add(
    name: Annotated[
        str, typer.Argument(help="A new name: letters, digits, [b].[/b], [b]_[/b] and [b]-[/b].")
    ],
    grpc_address: Annotated[str, typer.Argument(help="The switch's P4Runtime address, HOST:PORT.")],
    ports: Ports,
    device_id: DeviceId = 0,
    lanes: Lanes = defaults.LANES,
    service_ip: ServiceIp = defaults.SERVICE.ip,
    service_mac: ServiceMac = defaults.SERVICE.mac,
    uplink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARENT:PORT:PARENT_PORT",
            help="Attach it below another switch: the parent, this switch's port, the parent's port. "
            "Give the option again for more parents, which share the slots.",
        ),
    ] = None,
    target: Target = "bmv2",
    artifact: ArtifactFolder = "",
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Connect to the switch without TLS, although the controller has --tls.",
        ),
    ] = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Add a switch: give it the aggregation program and its service address.

    The switch is BMv2's [b]simple_switch_grpc[/b] or [b]innet-switch[/b], started with --no-p4. For a
    Tofino, give --target; see docs/deploy-tofino.md.
    """
    from innet.wire.layout import UDP_PORT

    request = pb.AddSwitchRequest(
        name=name,
        grpc_address=tls.INSECURE * insecure + grpc_address,
        device_id=device_id,
        ports=parse_ports(ports),
        service=pb.Address(mac=service_mac, ip=service_ip, udp_port=UDP_PORT),
        lanes=lanes,
        uplinks=[_uplink(each) for each in uplink or ()],
        target=target,
        artifact=artifact,
    )
    with _controller(address, tls_folder) as stub, translated("add the switch"):
        added = stub.AddSwitch(request)
    _out.print(
        f"switch {added.name}: {added.slots} slots of {added.lanes} lanes, at {added.service.ip}"
    )
    if problems := _uplink_problems(added):
        raise InnetError(problems)


@app.command()
def deploy(
    grpc_address: Annotated[str, typer.Argument(help="The switch's P4Runtime address, HOST:PORT.")],
    ports: Ports,
    target: Target = "bmv2",
    artifact: ArtifactFolder = "",
    device_id: DeviceId = 0,
    lanes: Lanes = defaults.LANES,
    service_ip: ServiceIp = defaults.SERVICE.ip,
    service_mac: ServiceMac = defaults.SERVICE.mac,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Connect to nothing. Show the requests for a switch without a program.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Deploy to a switch that a controller manages, too. Its jobs leave the switch until the "
            "controller has put its entries back.",
        ),
    ] = False,
    tls_folder: Annotated[
        Path | None,
        typer.Option("--tls", help="Use TLS, with the controller's files from this folder."),
    ] = None,
) -> None:
    """Give a switch the program and an address, and show every P4Runtime request.

    This does the same as [b]innet switch add[/b], but without a controller. A controller that is started
    later takes the switch over as it is. A switch that a controller manages, or that still holds entries
    of jobs, is refused.
    """
    from innet.controller.deploy import deploy as send
    from innet.wire.layout import UDP_PORT

    request = pb.AddSwitchRequest(
        name="deployed",
        grpc_address=grpc_address,
        device_id=device_id,
        ports=parse_ports(ports),
        service=pb.Address(mac=service_mac, ip=service_ip, udp_port=UDP_PORT),
        lanes=lanes,
        target=target,
        artifact=artifact,
    )
    identity = tls.load(tls_folder, tls.CONTROLLER) if tls_folder else None
    send(request, identity, say, dry_run=dry_run, force=force)
    say(f"{grpc_address}: nothing was sent" if dry_run else f"{grpc_address} runs the program")


@switches.command("list")
def switch_list(address: ControllerAddress = DEFAULT_ADDRESS, tls_folder: TlsFolder = None) -> None:
    """Show all switches."""
    with _controller(address, tls_folder) as stub, translated("list the switches"):
        found = stub.ListSwitches(pb.ListSwitchesRequest()).switches
    table = _table(
        "switch", "P4Runtime", "device", "ports", "address", "lanes", "free slots", "reachable"
    )
    for each in found:
        ports = ",".join(str(port) for port in each.ports)
        free = f"{each.free_slots} of {each.slots}"
        table.add_row(
            each.name, each.grpc_address, str(each.device_id), ports, each.service.ip,
            str(each.lanes), free, "yes" if each.reachable else "no",
        )  # fmt: skip
    _out.print(table)


@switches.command("show")
def switch_show(
    name: Annotated[str, typer.Argument(help="The switch's name.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Show a switch, and the packets that it refused, by ingress port."""
    with _controller(address, tls_folder) as stub, translated("show the switch"):
        switch = stub.GetSwitch(pb.GetSwitchRequest(name=name))
    table = Table(show_header=False)
    table.add_row("switch", f"{switch.name} at {switch.grpc_address}, device {switch.device_id}")
    table.add_row("reachable", "yes" if switch.reachable else "no")
    table.add_row("address", f"{switch.service.ip}, {switch.service.mac}")
    table.add_row("target", switch.target)
    table.add_row("lanes", str(switch.lanes))
    table.add_row("slots", f"{switch.free_slots} of {switch.slots} are free")
    for link in switch.uplinks:
        found = f"; a probe came out at {link.found}" if link.found else ""
        table.add_row(
            "uplink", f"from port {link.port} to port {link.parent_port} of {link.parent}{found}"
        )
    _out.print(table)
    counters = _table("port", "refused", "corrupted", "spoofed")
    for each in switch.port_counters:
        counters.add_row(str(each.port), str(each.refused), str(each.corrupted), str(each.spoofed))
    _out.print(counters)


@switches.command("set")
def switch_set(
    name: Annotated[str, typer.Argument(help="The switch's name.")],
    ports: Ports,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Replace the list of a switch's ports. Its jobs go on.

    Ports that a worker or another switch uses must stay in the list.
    """
    request = pb.SetSwitchPortsRequest(name=name, ports=parse_ports(ports))
    with _controller(address, tls_folder) as stub, translated("change the switch"):
        switch = stub.SetSwitchPorts(request)
    _out.print(f"switch {switch.name}: ports {', '.join(map(str, switch.ports))}")


@switches.command("remove")
def switch_remove(
    name: Annotated[str, typer.Argument(help="The switch's name.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Remove a switch that no job uses. It goes on as a bridge."""
    with _controller(address, tls_folder) as stub, translated("remove the switch"):
        stub.RemoveSwitch(pb.RemoveSwitchRequest(name=name))
    _out.print(f"switch {name} removed")


@jobs.command("create")
def job_create(
    name: Annotated[
        str, typer.Argument(help="A new name: letters, digits, [b].[/b], [b]_[/b] and [b]-[/b].")
    ],
    switch: Annotated[str, typer.Option(help="The switch that sums, or the top of a tree.")],
    workers: Annotated[int, typer.Option(min=0, help="The number of workers, 1 to 32.")],
    slots: Annotated[
        int,
        typer.Option(min=0, help=f"Chunks in flight at once, a power of two; 0: {defaults.SLOTS}."),
    ] = 0,
    quorum: Annotated[
        int, typer.Option(min=0, help="Contributions that make a sum; 0: those of all workers.")
    ] = 0,
    min_workers: Annotated[
        int,
        typer.Option(min=0, help="Workers that must be left for the job to go on; 0: the quorum."),
    ] = 0,
    queue: Annotated[
        bool, typer.Option("--queue", help="Wait for slots if none are free.")
    ] = False,
    lease: Annotated[
        int,
        typer.Option(
            min=0, help="Delete the job after so many seconds without a worker; 0: an hour."
        ),
    ] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Write the workers' token to this new file, which only you can read."),
    ] = None,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Create a job: reserve slots of a switch, and print the token that its workers need."""
    request = pb.CreateJobRequest(
        name=name, switch=switch, workers=workers, slots=slots, quorum=quorum,
        min_workers=min_workers, queue=queue, lease_s=lease,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        secret = stack.enter_context(private_file(token_file)) if token_file else None
        stub = stack.enter_context(_controller(address, tls_folder))
        stack.enter_context(translated("create the job"))
        answer = stub.CreateJob(request)
        if secret:
            secret.write(answer.token + "\n")
    job, token = answer.job, quote(answer.token)
    if token_file:
        token = f'"$(cat {quote(str(token_file))})"'
    _out.print(f"job {job.name}: {job.workers} workers, {_slots(job)}, {job.lanes} lanes")
    _out.print(
        f"workers find it with INNET_CONTROLLER={quote(address)} INNET_JOB={quote(job.name)} "
        f"INNET_TOKEN={token}"
    )


@jobs.command("list")
def job_list(address: ControllerAddress = DEFAULT_ADDRESS, tls_folder: TlsFolder = None) -> None:
    """Show all jobs."""
    with _controller(address, tls_folder) as stub, translated("list the jobs"):
        found = stub.ListJobs(pb.ListJobsRequest()).jobs
    table = _table("job", "switch", "workers", "joined", "lanes", "slots", "path")
    for job in found:
        table.add_row(
            job.name, job.switch, str(job.workers), str(len(job.joined)), str(job.lanes),
            str(job.slots), _path(job),
        )  # fmt: skip
    _out.print(table)


@jobs.command("show")
def job_show(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Show a job, its counters in the switch, and the progress of its workers."""
    with _controller(address, tls_folder) as stub, translated("show the job"):
        job = stub.GetJob(pb.GetJobRequest(name=name))
    table = Table(show_header=False)
    table.add_row("job", f"{job.name} (id {job.id}, term {job.term})")
    table.add_row("switch", job.switch)
    table.add_row("workers", f"{job.workers}; joined: {', '.join(map(str, job.joined)) or 'none'}")
    table.add_row("quorum", str(job.quorum))
    table.add_row("slots", _slots(job))
    table.add_row("lanes", str(job.lanes))
    table.add_row("path", _path(job))
    for field in pb.Counters.DESCRIPTOR.fields:
        table.add_row(field.name, str(getattr(job.counters, field.name)))
    _out.print(table)
    if job.tree:
        tree = _table(
            "switch", "goes up to", "workers", "completed", "raised", "answered", "pending"
        )
        for each in job.tree:
            counted = each.counters
            tree.add_row(
                each.switch, ", ".join(each.parents) or "the top", ", ".join(map(str, each.workers)),
                *map(str, (counted.completed, counted.raised, counted.answered, counted.pending)),
            )  # fmt: skip
        _out.print(tree)
    if job.members:
        members = _table(
            "rank", "switch", "port", "address", "heard", "exchange", "chunks left", "resent"
        )
        for each in job.members:
            at, progress = each.address, each.progress
            chunks = f"{progress.remaining} of {progress.chunks}" if progress.busy else "idle"
            where = f"{at.ip}:{at.udp_port}" if each.HasField("address") else "no hello yet"
            members.add_row(
                str(each.rank), each.switch, str(each.port), where,
                f"{each.silent_s:.1f} s ago", str(progress.exchange), chunks,
                str(progress.retransmissions),
            )  # fmt: skip
        _out.print(members)
    if job.departures:
        left = _table("left", "rank", "why")
        for each in job.departures:
            left.add_row(f"{each.ago_s:.0f} s ago", str(each.rank), each.reason)
        _out.print(left)


@jobs.command("delete")
def job_delete(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """End a job. Its workers get an error, and its slots are free again."""
    with _controller(address, tls_folder) as stub, translated("delete the job"):
        stub.DeleteJob(pb.DeleteJobRequest(name=name))
    _out.print(f"job {name} deleted")


@app.command()
def certificates(
    folder: Annotated[Path, typer.Argument(help="The folder for the certificates.")],
    host: Annotated[
        list[str],
        typer.Option(
            help="A name or IP address of the controller or a switch. Give one option for each."
        ),
    ] = [],  # noqa: B006  (typer copies it)
    days: Annotated[
        int, typer.Option(min=1, help="Days for which the certificates are valid.")
    ] = 365,
    force: Annotated[
        bool,
        typer.Option("--force", help="Make new authorities. Every machine then needs new files."),
    ] = False,
) -> None:
    """Make two authorities and certificates for TLS on all links, or renew the certificates.

    This is for a rack of your own. An organization's authority can make them as well: SECURITY.md says
    what they have to contain.
    """
    from innet.rpc.certificates import make

    made = make(folder, host, timedelta(days=days), force=force)
    _out.print(f"{'new authorities' if made.new else 'the same authorities as before'} in {folder}")
    _out.print(f"certificates for {days} days; the servers' are for {', '.join(made.hosts)}")
    table = _table("role", "needs", "and is started with")
    started = {
        tls.CONTROLLER: "innet controller --tls FOLDER",
        tls.SWITCH: "--grpc-server-ssl --grpc-server-with-client-auth --grpc-server-cacert ca.pem "
        "--grpc-server-cert switch.pem --grpc-server-key switch-key.pem",
        tls.ADMIN: "INNET_TLS=FOLDER",
        tls.WORKER: "INNET_TLS=FOLDER",
    }
    for role, options in started.items():
        table.add_row(role, " ".join(path.name for path in tls.files(folder, role)), options)
    _out.print(table)
    _out.print("copy the rest, the keys of the authorities, nowhere: who has them can be anybody")


@p4.command("compile")
def p4_compile(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder for the compiled program.")
    ] = None,
    lanes: Lanes = 64,
    slots: Annotated[
        int, typer.Option(min=1, max=65536, help="The number of slots in the switch.")
    ] = 8192,
    target: Annotated[
        str, typer.Option(help="The architecture: v1model, tofino or tofino2.")
    ] = "v1model",
) -> None:
    """Compile the P4 program with p4c-bm2-ss, or p4c-barefoot, which must be on the PATH.

    Without --output, compile the programs that are installed with innet again, and their manifest.
    """
    from innet.p4 import compile as bmv2
    from innet.p4 import tofino
    from innet.p4.artifacts import SLOTS

    if target != "v1model" and target not in tofino.CHIPS:
        raise UsageError(f"target {target!r}: there are v1model, tofino and tofino2")
    allowed = [tofino.LANES] if target in tofino.CHIPS else [*SLOTS]
    if lanes not in allowed:
        can = " or ".join(map(str, allowed))
        raise UsageError(f"{lanes} lanes: the program can have {can}")
    if not output:
        folder = bmv2.SOURCES / "compiled"
        if target in tofino.CHIPS:
            folder /= "tofino"
            tofino.compile_artifacts(folder)
        else:
            bmv2.compile_artifacts(folder)
        _out.print(f"compiled to {folder}")
    else:
        made: Sequence[Path] = (
            tofino.compile_program(target, slots, output)
            if target in tofino.CHIPS
            else bmv2.compile_program(lanes, slots, output)
        )
        for path in made:
            _out.print(str(path))


@p4.command("report")
def p4_report(
    source: Annotated[
        Path | None, typer.Option("--from", help="An assembly file (.bfa) from p4c-barefoot.")
    ] = None,
) -> None:
    """Show the resources that the program uses on Tofino 1 and 2, as p4c-barefoot placed it."""
    from innet.p4 import report, tofino

    if source:
        found = [report.Report.of(source.read_text())]
    else:
        found = [tofino.report(chip) for chip in tofino.CHIPS]
    for each in found:
        for line in report.lines(each):
            say(line)
        say()


@app.command(context_settings={"ignore_unknown_options": True})
def emulate(
    topology: Annotated[
        Path, typer.Argument(help="A topology in YAML. docs/topologies.md describes it.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="The command to run on every host, after [b]--[/b].", metavar="-- COMMAND"
        ),
    ] = None,
    prompt: Annotated[
        bool,
        typer.Option("--cli", help="Open Mininet's prompt at the end, until you type [b]exit[/b]."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the use of the links over time into a PNG, SVG or PDF file."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--json", help="Write the report to this JSON file.")
    ] = None,
) -> None:
    """Run a command on every host of a cluster that is emulated in Mininet. Needs root.

    The command's processes get the environment variables of torchrun and of innet. If one of them fails,
    the others are stopped, and the exit code is 1. At the end the network is removed.
    """
    import pydantic  # noqa: F401 - a missing package should fail here, not in the emulation
    import yaml  # noqa: F401

    from innet.emulation import run

    raise typer.Exit(run.emulate(topology, command or [], run.Wishes(prompt, plot, report)))


@app.command()
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


@app.command()
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
        with _controller(address, tls_folder) as stub:
            view = sample.watch(lambda: sample.take(stub, job), interval)
        found = diagnosis.diagnose(view)
        report.show_diagnosis(_out, view, found)
    else:
        folder = {"INNET_TLS": str(tls_folder)} if tls_folder else {}
        environment = {**os.environ, "INNET_CONTROLLER": address, **folder}
        found = checklist.check(role, environment)
        report.show_checklist(_out, found)
    raise typer.Exit(report.exit_code(found))


@app.command()
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

    with _controller(address, tls_folder) as stub:
        live.run(lambda: live.look(stub, job), console(), interval, once=once)


def _metrics(controller: "Controller", address: str) -> contextlib.AbstractContextManager[str]:
    from innet.controller.metrics import ControllerCollector
    from innet.telemetry.prometheus import serve

    return serve(ControllerCollector(controller), address, "--metrics-addr")


def parse_ports(text: str) -> list[int]:
    """Parse a list of ports: ``1-4,7`` gives [1, 2, 3, 4, 7]. Raises UsageError."""
    ports: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers = [first, last] if dash else [first]
        if not all(map(str.isdecimal, numbers)) or int(numbers[0]) > int(numbers[-1]):
            raise UsageError(f"ports {text!r}: write them as in 1-4,7")
        ports.extend(range(int(first), int(last or first) + 1))
    return ports


def _uplink(text: str) -> pb.Uplink:
    """Parse ``PARENT:PORT:PARENT_PORT``. Raises UsageError."""
    parent, *ports = text.rsplit(":", 2)
    if len(ports) < 2 or not all(port.isdecimal() for port in ports):
        raise UsageError(f"{text!r} is no uplink: write PARENT:PORT:PARENT_PORT, as in spine:5:1")
    return pb.Uplink(parent=parent, port=int(ports[0]), parent_port=int(ports[1]))


def _uplink_problems(switch: pb.Switch) -> str:
    """Return an error text for misplaced uplinks, and warn of uplinks whose probe has not arrived."""
    for link in switch.uplinks:
        if not link.probed:
            _out.print(
                f"warning: what was sent out of port {link.port} has not come out at port "
                f"{link.parent_port} of {link.parent} yet: is the cable there?"
            )
    wrong = [said for link in switch.uplinks if (said := misplaced(switch.name, link))]
    if not wrong:
        return ""
    remedy = (
        "the switch was added; move the cables, or remove the switch and add it with other ports"
    )
    return f"{'; '.join(wrong)}: {remedy}"


def _slots(job: pb.Job) -> str:
    if not job.slots:
        return f"no slots of {job.switch} yet"
    return f"slots {job.first_slot} to {job.first_slot + job.slots - 1} of {job.switch}"


def _path(job: pb.Job) -> str:
    path = PATHS[job.path]
    return f"{path}: {job.reason}" if job.reason else path


def _table(*names: str) -> Table:
    """Return a table with these columns that folds long values instead of cutting them."""
    return Table(*(Column(name, overflow="fold") for name in names))


@contextlib.contextmanager
def _controller(address: str, folder: Path | None) -> Iterator[rpc.ControllerStub]:
    identity = tls.load(folder, tls.ADMIN) if folder else None
    channel, stub = connect(address, identity=identity)
    try:
        yield stub
    finally:
        channel.close()


def main() -> None:
    """Run the command."""
    commands.run(app)
