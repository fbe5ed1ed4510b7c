"""The command ``innet-switch``: a P4 switch in software, with simple_switch_grpc's options."""

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from innet import commands, logs
from innet.errors import UsageError
from innet.switch.pcap import capture
from innet.switch.ports import MOST_PORTS, Port, open_port

if TYPE_CHECKING:
    import grpc

    from innet.switch.p4runtime.device import Device
    from innet.switch.p4runtime.service import P4RuntimeService

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_log = structlog.get_logger("innet.switch")

# What whoever serves P4Runtime takes: the switch, and the server above racks.
Interfaces = Annotated[
    list[str],
    typer.Option(
        "-i",
        "--interface",
        metavar="N@PORT",
        help="Attach port N: a network interface, [b]1@eth0[/b], or a cable made of UDP, "
        "[b]1@udp:LOCAL_IP:PORT/REMOTE_IP:PORT[/b].",
    ),
]
GrpcAddress = Annotated[str, typer.Option("--grpc-server-addr", help="Where to serve P4Runtime.")]
GrpcTls = Annotated[bool, typer.Option("--grpc-server-ssl", help="Serve P4Runtime over TLS.")]
GrpcAuthority = Annotated[
    Path | None,
    typer.Option("--grpc-server-cacert", metavar="PEM", help="Whose clients are let in."),
]
GrpcCertificate = Annotated[
    Path | None,
    typer.Option("--grpc-server-cert", metavar="PEM", help="The server's certificate."),
]
GrpcKey = Annotated[
    Path | None, typer.Option("--grpc-server-key", metavar="PEM", help="Its private key.")
]
GrpcAsksClients = Annotated[
    bool,
    typer.Option("--grpc-server-with-client-auth", help="Let no client in without a certificate."),
]
CpuPort = Annotated[int, typer.Option(help="The port that leads to the controller.")]
MetricsAddress = Annotated[
    str | None,
    typer.Option(
        "--metrics-addr", metavar="HOST:PORT", help="Serve [b]/metrics[/b] for Prometheus here."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")]


@app.command()
def switch(
    json: Annotated[
        Path | None, typer.Argument(help="The program, as p4c-bm2-ss makes it.", metavar="[JSON]")
    ] = None,
    interface: Interfaces = [],  # noqa: B006  (typer copies it)
    grpc_address: GrpcAddress = "0.0.0.0:9559",  # simple_switch_grpc's default
    grpc_tls: GrpcTls = False,
    grpc_authority: GrpcAuthority = None,
    grpc_certificate: GrpcCertificate = None,
    grpc_key: GrpcKey = None,
    grpc_asks_clients: GrpcAsksClients = False,
    device_id: Annotated[int, typer.Option(help="P4Runtime's name of this switch.")] = 0,
    cpu_port: CpuPort = 510,
    drop_port: Annotated[int, typer.Option(help="The port that means: drop.")] = 511,
    no_p4: Annotated[
        bool, typer.Option("--no-p4", help="Start without a program: P4Runtime brings it.")
    ] = False,
    keep_generated: Annotated[
        Path | None, typer.Option(help="Write the C that the program becomes to this folder.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Begin the program's random numbers with this, for tests.")
    ] = None,
    metrics_address: MetricsAddress = None,
    priority_queues: Annotated[
        int, typer.Option(min=1, max=8, help="Queues of each port, by standard_metadata.priority.")
    ] = 1,
    log_console: Annotated[
        bool, typer.Option("--log-console", help="Say what becomes of every packet, step by step.")
    ] = False,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="[=FOLDER]", help="Capture what passes the interfaces: X_in.pcap, X_out.pcap."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Run a P4 program (v1model) on network interfaces, programmed through P4Runtime.

    The program is compiled to machine code with this machine's C compiler. When the switch is ready
    it prints one line to standard output, [b]P4Runtime HOST:PORT[/b]; port 0 picks a free one. With
    --metrics-addr a second line says [b]Metrics HOST:PORT[/b].

    Example, with two cables made of UDP and without privileges:

    [b]innet-switch --no-p4 -i 1@udp:127.0.0.1:9001/127.0.0.1:8001
    -i 2@udp:127.0.0.1:9002/127.0.0.1:8002 --grpc-server-addr 127.0.0.1:9559[/b]
    """
    from innet.switch.p4runtime.device import Device
    from innet.switch.p4runtime.service import P4RuntimeService

    logs.configure(verbose=verbose)
    if bool(json) == no_p4:
        raise UsageError("give a program's JSON, or --no-p4 to have P4Runtime bring it")
    _check_numbers(cpu_port, drop_port)
    credentials = tls_credentials(
        grpc_certificate, grpc_key, grpc_authority, tls=grpc_tls, asks_clients=grpc_asks_clients
    )
    with ExitStack() as stack:
        service = P4RuntimeService(device_id)
        ports = open_ports(interface, {cpu_port, drop_port}, stack)
        if pcap:
            capture(pcap, ports)
        device = Device(
            ports,
            cpu_port,
            drop_port,
            service.tell,
            keep_generated,
            seed=seed,
            priority_queues=priority_queues,
            tracing=log_console,
        )
        stack.pop_all()  # the device closes the ports from here on
        service.device = device
        try:
            if json:
                device.load(_read(json))
            serve_until_stopped(service, device, grpc_address, credentials, metrics_address)
        finally:
            device.close()


def serve_until_stopped(
    service: "P4RuntimeService",
    device: "Device",
    grpc_address: str,
    credentials: "grpc.ServerCredentials | None" = None,
    metrics_address: str | None = None,
) -> None:
    """Serve a device over P4Runtime, and metrics if there is an address, until SIGINT or SIGTERM.

    Says on standard output where, once it serves. Raises UsageError.
    """
    from innet.switch.metrics import serve_metrics
    from innet.switch.p4runtime.service import serve

    with ExitStack() as stack:
        metrics = metrics_address and stack.enter_context(
            serve_metrics(device.stats, metrics_address)
        )
        server, port = serve(service, grpc_address, credentials)
        stop = commands.StopRequest()  # from before the switch says that it is ready
        sys.stdout.write(f"P4Runtime {commands.served_address(grpc_address, port)}\n")
        if metrics:
            sys.stdout.write(f"Metrics {metrics}\n")
        sys.stdout.flush()
        _log.info("ready", device_id=service.device_id, ports=device.port_specs)
        stop.wait()
        service.arbitration.close()
        server.stop(grace=0.5).wait()


def tls_credentials(
    certificate: Path | None,
    key: Path | None,
    authority: Path | None,
    *,
    tls: bool,
    asks_clients: bool,
) -> "grpc.ServerCredentials | None":
    """What the options say, as simple_switch_grpc understands them. Raises UsageError."""
    from innet.switch.p4runtime.credentials import TlsFiles

    if not tls:
        if certificate or key or authority or asks_clients:
            _log.warning("without --grpc-server-ssl P4Runtime is not encrypted")
        return None
    if not certificate or not key:
        raise UsageError("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    return TlsFiles(certificate, key, authority, asks_clients).credentials()


def open_ports(specs: Iterable[str], taken: set[int], stack: ExitStack) -> list[Port]:
    """The ports that these name, which `stack` closes; adds their numbers to those taken.

    Raises UsageError.
    """
    ports: list[Port] = []
    for spec in specs:
        port = open_port(spec)
        stack.callback(port.close)
        if port.number in taken:
            raise UsageError(f"port {spec!r}: number {port.number} is taken")
        taken.add(port.number)
        ports.append(port)
    return ports


def _check_numbers(cpu_port: int, drop_port: int) -> None:
    for name, number in (("--cpu-port", cpu_port), ("--drop-port", drop_port)):
        if not 0 < number < MOST_PORTS:
            raise UsageError(f"{name} {number}: port numbers are 1 to {MOST_PORTS - 1}")
    if cpu_port == drop_port:
        raise UsageError(f"--cpu-port and --drop-port are both {cpu_port}")


def _read(json: Path) -> bytes:
    try:
        return json.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot read {json}: {problem.strerror}") from None


def main() -> None:
    """Run the command.

    A bare ``--`` is skipped: BMv2 wants one before its target's options. Without ``=FOLDER``,
    ``--pcap`` is for the working folder.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--"]
    commands.run(app, ["--pcap=." if each == "--pcap" else each for each in arguments])
