"""The command ``innet-switch``: a P4 switch in software, with simple_switch_grpc's options."""

import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from innet.errors import UsageError
from innet.switch.constants import MAX_PORTS
from innet.switch.pcap import capture
from innet.switch.serving import (
    DEFAULT_GRPC_ADDRESS,
    Cores,
    CpuPort,
    GrpcAddress,
    GrpcAuthority,
    GrpcCertificate,
    GrpcClientAuth,
    GrpcInsecure,
    GrpcKey,
    GrpcTls,
    Interfaces,
    open_ports,
    p4runtime_endpoint,
    serve_until_stopped,
)
from innet.telemetry import logs
from innet.terminal.app import run
from innet.terminal.options import (
    HELP_ON,
    LogFormat,
    LogFormatted,
    MetricsAddress,
    Verbose,
    Version,
)
from innet.terminal.signals import INTERRUPTS

app = typer.Typer(context_settings=HELP_ON, pretty_exceptions_enable=False)


@app.command()
def switch(
    json: Annotated[
        Path | None,
        typer.Argument(help="The program, in the JSON of p4c-bm2-ss.", metavar="[JSON]"),
    ] = None,
    interface: Interfaces = [],  # noqa: B006  (typer copies it)
    grpc_address: GrpcAddress = DEFAULT_GRPC_ADDRESS,
    insecure: GrpcInsecure = False,
    grpc_tls: GrpcTls = False,
    grpc_authority: GrpcAuthority = None,
    grpc_certificate: GrpcCertificate = None,
    grpc_key: GrpcKey = None,
    grpc_client_auth: GrpcClientAuth = False,
    device_id: Annotated[int, typer.Option(help="This switch's P4Runtime device id.")] = 0,
    cpu_port: CpuPort = 510,
    drop_port: Annotated[
        int, typer.Option(help="The number of the port whose packets are dropped.")
    ] = 511,
    no_p4: Annotated[
        bool, typer.Option("--no-p4", help="Start without a program. P4Runtime loads one later.")
    ] = False,
    keep_generated: Annotated[
        Path | None, typer.Option(help="Write the generated C to this folder.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed the program's random numbers, for tests.")
    ] = None,
    metrics_address: MetricsAddress = "",
    priority_queues: Annotated[
        int,
        typer.Option(min=1, max=8, help="Queues per port, selected by standard_metadata.priority."),
    ] = 1,
    cores: Cores = 1,
    log_console: Annotated[
        bool, typer.Option("--log-console", help="Log every step of every packet.")
    ] = False,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="[=FOLDER]",
            help="Capture the packets of each interface X in X_in.pcap and X_out.pcap.",
        ),
    ] = None,
    log_format: LogFormatted = LogFormat.TEXT,
    verbose: Verbose = False,
    version: Version = False,  # noqa: ARG001 - its callback does it
) -> None:
    """Run a P4 program (v1model) on network interfaces, programmed through P4Runtime.

    The program is compiled to machine code with this machine's C compiler. When
    the switch is ready it prints one line to standard output, [b]P4Runtime
    HOST:PORT[/b]; port 0 picks a free one. With --metrics-addr a second line
    says [b]Metrics HOST:PORT[/b].

    Example, with two cables made of UDP and without privileges:

    [b]innet-switch --no-p4 -i 1@udp:127.0.0.1:9001/127.0.0.1:8001
    -i 2@udp:127.0.0.1:9002/127.0.0.1:8002 --grpc-server-addr 127.0.0.1:9559[/b]
    """
    from innet.machine.descriptors import raise_descriptor_limit
    from innet.switch.engine import Engine
    from innet.switch.p4runtime.arbitration import Arbitration
    from innet.switch.p4runtime.device import Device
    from innet.switch.p4runtime.service import P4RuntimeService

    raise_descriptor_limit()  # each worker with shared memory needs some for each core
    logs.configure(verbose=verbose, log_format=log_format)
    if bool(json) == no_p4:
        raise UsageError("give a program's JSON, or --no-p4 to have P4Runtime bring it")
    _check_numbers(cpu_port, drop_port)
    endpoint = p4runtime_endpoint(
        grpc_address, grpc_certificate, grpc_key, grpc_authority,
        tls=grpc_tls, client_auth=grpc_client_auth, insecure=insecure,
    )  # fmt: skip
    make_engine = partial(
        Engine,
        drop_port=drop_port,
        keep=keep_generated,
        seed=seed,
        priority_queues=priority_queues,
        tracing=log_console,
        cores=cores,
    )
    arbitration = Arbitration(device_id)
    with ExitStack() as stack:
        ports = open_ports(interface, {cpu_port, drop_port}, stack)
        if pcap:
            capture(pcap, ports)
        device = Device(ports, cpu_port, arbitration.send, make_engine)
        stack.pop_all()  # from here on the device closes the ports
    with closing(device):
        if json:
            device.load(_read(json))
        serve_until_stopped(P4RuntimeService(device, arbitration), endpoint, metrics_address)


def _check_numbers(cpu_port: int, drop_port: int) -> None:
    for name, number in (("--cpu-port", cpu_port), ("--drop-port", drop_port)):
        if not 0 < number < MAX_PORTS:
            raise UsageError(f"{name} {number}: it has to be from 1 to {MAX_PORTS - 1}")
    if cpu_port == drop_port:
        raise UsageError(f"--cpu-port and --drop-port are both {cpu_port}: they have to differ")


def _read(json: Path) -> bytes:
    try:
        return json.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot read {json}: {problem.strerror}") from None


def main() -> None:
    """Run the command.

    A bare ``--`` is skipped, because BMv2 wants one before its target's options. ``--pcap`` without
    ``=FOLDER`` uses the working folder.
    """
    INTERRUPTS.catch()
    arguments = [argument for argument in sys.argv[1:] if argument != "--"]
    run(app, ["--pcap=." if each == "--pcap" else each for each in arguments])
