"""The command ``innet deploy``."""

from pathlib import Path
from typing import Annotated

import typer

from innet.controller import defaults
from innet.controller.cli.options import (
    ArtifactFolder,
    DeviceId,
    Ports,
    ServiceIp,
    ServiceMac,
    Target,
    parse_ports,
)
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.terminal.console import say
from innet.terminal.options import Lanes
from innet.wire.layout import UDP_PORT


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
            help="Deploy even to a switch that a controller manages. The jobs of this switch leave it "
            "until the controller has written their entries again.",
        ),
    ] = False,
    tls_folder: Annotated[
        Path | None,
        typer.Option("--tls", help="Use TLS, with the controller's files from this folder."),
    ] = None,
) -> None:
    """Give a switch the program and an address, and show every P4Runtime request.

    This does the same as [b]innet switch add[/b], but without a controller. A
    controller that is started later takes the switch over as it is. The command
    refuses a switch that a controller manages, or that still holds entries of
    jobs.
    """
    from innet.controller.deploy import deploy as send

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
