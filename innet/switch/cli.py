"""The command ``innet-switch``: a P4 switch in software, with simple_switch_grpc's options."""

import sys
from contextlib import ExitStack, closing
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import structlog
import typer

from innet.errors import UsageError
from innet.switch.bmv2_options import translated
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
from innet.terminal.app import print_error, run
from innet.terminal.options import (
    HELP_ON,
    LogFormat,
    LogFormatted,
    MetricsAddress,
    Verbose,
    Version,
)
from innet.terminal.signals import INTERRUPTS

_log = structlog.get_logger("innet.switch")


class LogLevel(StrEnum):
    """The levels of BMv2's log."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    OFF = "off"


_WITH_STEPS = (LogLevel.TRACE, LogLevel.DEBUG)
"""The levels at which a packet's steps are logged."""

_WITH_MESSAGES = (*_WITH_STEPS, LogLevel.INFO)
"""The levels at which the program's own messages are logged to a file."""

_NOWHERE = -1

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
    log_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Log every step of every packet to this file."),
    ] = None,
    log_level: Annotated[
        LogLevel,
        typer.Option("-L", "--log-level", help="Log steps of packets only with trace or debug."),
    ] = LogLevel.TRACE,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="[FOLDER]",
            help="Capture the packets of each interface X in X_in.pcap and X_out.pcap.",
        ),
    ] = None,
    log_format: LogFormatted = LogFormat.TEXT,
    verbose: Verbose = False,
    ignored: Annotated[list[str], typer.Option("--ignored-option", hidden=True)] = [],  # noqa: B006
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
    if ignored:
        _log.warning("these options of BMv2 have no effect here", options=" ".join(ignored))
    if log_console and log_file:
        raise UsageError("--log-console and --log-file exclude each other")
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
        tracing=(log_console or bool(log_file)) and log_level in _WITH_STEPS,
        cores=cores,
    )
    arbitration = Arbitration(device_id)
    with ExitStack() as stack:
        if log_file:
            log = stack.enter_context(_opened(log_file)).fileno()
            make_engine = partial(make_engine, log=log if log_level in _WITH_MESSAGES else _NOWHERE)
        with ExitStack() as opened:
            ports = open_ports(interface, {cpu_port, drop_port}, opened)
            if pcap:
                capture(pcap, ports)
            device = stack.enter_context(
                closing(Device(ports, cpu_port, arbitration.send, make_engine))
            )
            opened.pop_all()  # from here on the device closes the ports
        service = P4RuntimeService(device, arbitration)
        program = _read(json) if json else None

        def load() -> None:
            if program is not None:
                device.load(program)

        serve_until_stopped(service, endpoint, metrics_address, load)


def _check_numbers(cpu_port: int, drop_port: int) -> None:
    for name, number in (("--cpu-port", cpu_port), ("--drop-port", drop_port)):
        if not 0 < number < MAX_PORTS:
            raise UsageError(f"{name} {number}: it has to be from 1 to {MAX_PORTS - 1}")
    if cpu_port == drop_port:
        raise UsageError(f"--cpu-port and --drop-port are both {cpu_port}: they have to differ")


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("ab", buffering=0)
    except OSError as problem:
        raise UsageError(f"cannot write {path}: {problem.strerror}") from None


def _read(json: Path) -> bytes:
    try:
        return json.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot read {json}: {problem.strerror}") from None


def main() -> None:
    """Run the command. It also takes the command lines of BMv2's simple_switch_grpc."""
    INTERRUPTS.catch()
    try:
        arguments, ignored = translated(sys.argv[1:])
    except UsageError as problem:
        print_error(problem)
        sys.exit(problem.exit_code)
    run(app, [*arguments, *(f"--ignored-option={each}" for each in dict.fromkeys(ignored))])
