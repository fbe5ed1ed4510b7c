"""The command ``innet pbox parent``."""

from contextlib import ExitStack
from typing import Annotated

import typer

from innet import logs
from innet.errors import UsageError
from innet.switch.cli import (
    CpuPort,
    GrpcAddress,
    GrpcAsksClients,
    GrpcAuthority,
    GrpcCertificate,
    GrpcKey,
    GrpcTls,
    Interfaces,
    MetricsAddress,
    Verbose,
    open_ports,
    serve_until_stopped,
    tls_credentials,
)

_DROP_PORT = 511
_GIB = 1 << 30


def parent(
    interface: Interfaces,
    grpc_address: GrpcAddress = "0.0.0.0:9559",
    memory: Annotated[
        float, typer.Option(min=0.001, help="GiB that the parameters of all jobs may use.")
    ] = 4.0,
    device_id: Annotated[int, typer.Option(help="P4Runtime's name of this server.")] = 0,
    cpu_port: CpuPort = 510,
    metrics_address: MetricsAddress = None,
    grpc_tls: GrpcTls = False,
    grpc_authority: GrpcAuthority = None,
    grpc_certificate: GrpcCertificate = None,
    grpc_key: GrpcKey = None,
    grpc_asks_clients: GrpcAsksClients = False,
    verbose: Verbose = False,
) -> None:
    """Sum what racks' switches send up, and keep parameters for jobs that want them, until Ctrl-C.

    To the controller it is a switch: [b]innet switch add[/b] takes it, and racks name it as their
    uplink. When it is ready it prints one line, [b]P4Runtime HOST:PORT[/b]; with --metrics-addr a
    second one says [b]Metrics HOST:PORT[/b].
    """
    from innet.parent.device import ServerDevice
    from innet.parent.native import Parameters
    from innet.switch.p4runtime.service import P4RuntimeService

    logs.configure(verbose=verbose)
    if not 0 < cpu_port < _DROP_PORT:
        raise UsageError(f"--cpu-port {cpu_port}: it has to be a number below {_DROP_PORT}")
    credentials = tls_credentials(
        grpc_certificate, grpc_key, grpc_authority, tls=grpc_tls, asks_clients=grpc_asks_clients
    )
    with Parameters(int(memory * _GIB)) as parameters:
        service = P4RuntimeService(device_id)
        with ExitStack() as stack:
            ports = open_ports(interface, {cpu_port, _DROP_PORT}, stack)
            device = ServerDevice(parameters, ports, cpu_port, _DROP_PORT, service.tell)
            stack.pop_all()  # the device closes the ports from here on
        service.device = device
        try:
            serve_until_stopped(service, device, grpc_address, credentials, metrics_address)
        finally:
            device.close()
