"""The command ``innet pbox rack-server``."""

from contextlib import ExitStack, closing
from typing import Annotated

import typer

from innet.errors import UsageError
from innet.servers.memory import bytes_of
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
from innet.terminal.options import LogFormat, LogFormatted, MetricsAddress, Verbose


def rack_server(
    interface: Interfaces,
    grpc_address: GrpcAddress = DEFAULT_GRPC_ADDRESS,
    insecure: GrpcInsecure = False,
    memory: Annotated[
        float, typer.Option(min=0.001, help="Memory for the parameters of all jobs, in GiB.")
    ] = 4.0,
    cores: Cores = 1,
    device_id: Annotated[int, typer.Option(help="This server's P4Runtime device id.")] = 0,
    cpu_port: CpuPort = 510,
    metrics_address: MetricsAddress = "",
    grpc_tls: GrpcTls = False,
    grpc_authority: GrpcAuthority = None,
    grpc_certificate: GrpcCertificate = None,
    grpc_key: GrpcKey = None,
    grpc_client_auth: GrpcClientAuth = False,
    log_format: LogFormatted = LogFormat.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run a parameter server in the place of a parent switch, until Ctrl-C.

    It sums the contributions of the racks' switches, and keeps parameters
    for jobs that ask for them. The controller treats it as a switch: add it
    with [b]innet switch add[/b], and name it as the parent of the racks'
    switches, with their option --uplink.

    When it is ready it prints one line, [b]P4Runtime HOST:PORT[/b]. With
    --metrics-addr it prints a second line, [b]Metrics HOST:PORT[/b].
    """
    from innet.servers.rack.device import ServerDevice
    from innet.servers.rack.native import Parameters
    from innet.switch.engine import DROP_PORT
    from innet.switch.p4runtime.arbitration import Arbitration
    from innet.switch.p4runtime.service import P4RuntimeService

    logs.configure(verbose=verbose, log_format=log_format)
    memory_bytes = bytes_of(memory)
    if not 0 < cpu_port < DROP_PORT:
        raise UsageError(f"--cpu-port {cpu_port}: it has to be a number below {DROP_PORT}")
    endpoint = p4runtime_endpoint(
        grpc_address, grpc_certificate, grpc_key, grpc_authority,
        tls=grpc_tls, client_auth=grpc_client_auth, insecure=insecure,
    )  # fmt: skip
    arbitration = Arbitration(device_id)
    with Parameters(memory_bytes) as parameters:
        with ExitStack() as stack:
            ports = open_ports(interface, {cpu_port, DROP_PORT}, stack)
            device = ServerDevice(parameters, ports, cpu_port, arbitration.send, cores)
            stack.pop_all()  # from here on the device closes the ports
        with closing(device):
            service = P4RuntimeService(device, arbitration)
            serve_until_stopped(service, endpoint, metrics_address)
