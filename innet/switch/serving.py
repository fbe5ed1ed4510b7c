"""The parts that commands have in common if they run a switch and serve P4Runtime.

These commands are ``innet-switch`` and ``innet pbox rack-server``. The parts are their options, the
ports and the address that the options name, and the time until the command is stopped.
"""

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import structlog
import typer

from innet.errors import UsageError
from innet.rpc.addresses import check_address, check_plain_text, served_address
from innet.switch.constants import MAX_CORES
from innet.switch.ports import Port, open_port
from innet.terminal.signals import StopRequest

if TYPE_CHECKING:
    import grpc

    from innet.rpc.revocation import Revocations
    from innet.switch.p4runtime.service import P4RuntimeService

_log = structlog.get_logger("innet.switch")

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


def serve_until_stopped(
    service: "P4RuntimeService",
    endpoint: Endpoint,
    metrics_address: str = "",
    load: Callable[[], None] = lambda: None,
) -> None:
    """Serve a switch over P4Runtime until SIGINT or SIGTERM, and metrics if there is an address.

    First `load` loads the switch's program, if it has one. Clients that connect meanwhile wait. Scripts
    for BMv2 give a switch a few seconds until its port listens, and a program may take longer to compile.
    The addresses are printed to standard output as soon as clients are served. Raises UsageError.
    """
    from innet.switch.p4runtime.service import bound

    with ExitStack() as stack:
        metrics = ""
        if metrics_address:
            from innet.switch.metrics import serve_metrics

            metrics = stack.enter_context(serve_metrics(service.device.stats, metrics_address))
        server, port = bound(service, *endpoint)
        stack.callback(lambda: server.stop(grace=0.5).wait())
        stack.callback(service.arbitration.close)
        load()
        server.start()
        stop = StopRequest()  # before the addresses are printed, so that no signal is missed
        sys.stdout.write(f"P4Runtime {served_address(endpoint.address, port)}\n")
        if metrics:
            sys.stdout.write(f"Metrics {metrics}\n")
        sys.stdout.flush()
        device_id, ports = service.arbitration.device_id, service.device.port_specs
        _log.info("ready", device_id=device_id, ports=ports)
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
