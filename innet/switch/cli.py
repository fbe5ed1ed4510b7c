"""The command ``innet-switch``: a P4 switch in software, with simple_switch_grpc's options."""

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import structlog
import typer

from innet.errors import UsageError
from innet.rpc.addresses import check_address, check_plain_text, served_address
from innet.switch.constants import MAX_CORES
from innet.switch.pcap import capture
from innet.switch.ports import MAX_PORTS, Port, open_port
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
from innet.terminal.signals import INTERRUPTS, StopRequest

if TYPE_CHECKING:
    import grpc

    from innet.rpc.revocation import Revocations
    from innet.switch.p4runtime.device import Device
    from innet.switch.p4runtime.service import P4RuntimeService

app = typer.Typer(context_settings=HELP_ON, pretty_exceptions_enable=False)
_log = structlog.get_logger("innet.switch")

# The options of every command that serves P4Runtime: the switch, and the server above the racks.
Cores = Annotated[
    int,
    typer.Option(
        min=1,
        max=MAX_CORES,
        help="Run on up to N cores. A program whose state cannot be split runs on one core.",
        metavar="N",
    ),
]
Interfaces = Annotated[
    list[str],
    typer.Option(
        "-i",
        "--interface",
        metavar="N@PORT",
        help="Attach port N: a network interface, [b]1@eth0[/b], or [b]1@xdp:eth0[/b] and "
        "[b]1@packet:eth0[/b] to choose between AF_XDP and a packet socket; a cable made of UDP, "
        "[b]1@udp:LOCAL_IP:PORT/REMOTE_IP:PORT[/b]; or shared memory with a worker on this machine, "
        "[b]1@shm:PATH[/b].",
    ),
]
GrpcAddress = Annotated[
    str,
    typer.Option(
        "--grpc-server-addr", metavar="HOST:PORT", help="The address to serve P4Runtime at."
    ),
]
GrpcInsecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Serve other machines without TLS. Anyone who connects may program the switch.",
    ),
]
GrpcTls = Annotated[bool, typer.Option("--grpc-server-ssl", help="Serve P4Runtime over TLS.")]
GrpcAuthority = Annotated[
    Path | None,
    typer.Option(
        "--grpc-server-cacert", metavar="PEM", help="The authorities of the clients' certificates."
    ),
]
GrpcCertificate = Annotated[
    Path | None,
    typer.Option("--grpc-server-cert", metavar="PEM", help="The server's certificate."),
]
GrpcKey = Annotated[
    Path | None,
    typer.Option(
        "--grpc-server-key", metavar="PEM", help="The private key of the server's certificate."
    ),
]
GrpcClientAuth = Annotated[
    bool,
    typer.Option(
        "--grpc-server-with-client-auth",
        help="Require a certificate from every client, and refuse those in the [b]revoked.txt[/b] beside "
        "the server's certificate.",
    ),
]
CpuPort = Annotated[int, typer.Option(help="The port that leads to the controller.")]
DEFAULT_GRPC_ADDRESS = "127.0.0.1:9559"
"""The default address of P4Runtime."""


class Endpoint(NamedTuple):
    """The address of P4Runtime. Without credentials, P4Runtime is served in plain text.

    With `revocations`, revoked certificates of clients are refused.
    """

    address: str
    credentials: "grpc.ServerCredentials | None" = None
    revocations: "Revocations | None" = None


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
    with ExitStack() as stack:
        service = P4RuntimeService(device_id)
        ports = open_ports(interface, {cpu_port, drop_port}, stack)
        if pcap:
            capture(pcap, ports)
        device = Device(
            ports,
            cpu_port,
            drop_port,
            service.send,
            keep_generated,
            seed=seed,
            priority_queues=priority_queues,
            tracing=log_console,
            cores=cores,
        )
        stack.pop_all()  # from here on the device closes the ports
        service.device = device
        try:
            if json:
                device.load(_read(json))
            serve_until_stopped(service, device, endpoint, metrics_address)
        finally:
            device.close()


def serve_until_stopped(
    service: "P4RuntimeService",
    device: "Device",
    endpoint: Endpoint,
    metrics_address: str = "",
) -> None:
    """Serve a device over P4Runtime until SIGINT or SIGTERM, and metrics if there is an address.

    The addresses are printed to standard output as soon as clients can connect. Raises UsageError.
    """
    from innet.switch.p4runtime.service import serve

    with ExitStack() as stack:
        metrics = ""
        if metrics_address:
            from innet.switch.metrics import serve_metrics

            metrics = stack.enter_context(serve_metrics(device.stats, metrics_address))
        server, port = serve(service, *endpoint)
        stack.callback(lambda: server.stop(grace=0.5).wait())
        stack.callback(service.arbitration.close)
        stop = StopRequest()  # before the addresses are printed, so that no signal is missed
        sys.stdout.write(f"P4Runtime {served_address(endpoint.address, port)}\n")
        if metrics:
            sys.stdout.write(f"Metrics {metrics}\n")
        sys.stdout.flush()
        _log.info("ready", device_id=service.device_id, ports=device.port_specs)
        stop.wait()


def p4runtime_endpoint(
    address: str,
    certificate: Path | None,
    key: Path | None,
    authority: Path | None,
    *,
    tls: bool,
    client_auth: bool,
    insecure: bool,
) -> Endpoint:
    """Return the address and the credentials for P4Runtime.

    The TLS options are those of simple_switch_grpc. Without TLS, an address that other machines can
    reach needs `insecure`. Raises UsageError.
    """
    from innet.switch.p4runtime.credentials import TlsFiles

    check_address(address, "--grpc-server-addr")
    if not tls:
        if not insecure:
            check_plain_text(address, "serve P4Runtime over TLS with --grpc-server-ssl")
        if insecure or certificate or key or authority or client_auth:
            _log.warning("P4Runtime is not encrypted, and every client may program this switch")
        return Endpoint(address)
    if not certificate or not key:
        raise UsageError("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    if not client_auth:
        _log.warning("without --grpc-server-with-client-auth every client may program this switch")
    files = TlsFiles(certificate, key, authority, client_auth)
    return Endpoint(address, files.credentials(), files.revocations())


def open_ports(specs: Iterable[str], taken: set[int], stack: ExitStack) -> list[Port]:
    """Open the ports that the options name, and add their numbers to `taken`. `stack` closes them.

    Raises UsageError.
    """
    ports: list[Port] = []
    for spec in specs:
        port = open_port(spec)
        stack.callback(port.close)
        if port.number in taken:
            raise UsageError(
                f"port {spec!r}: the number {port.number} is in use: choose another one"
            )
        taken.add(port.number)
        ports.append(port)
    return ports


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
