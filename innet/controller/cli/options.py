"""The options that describe a switch, for ``innet switch`` and ``innet deploy``."""

from typing import Annotated

import typer

from innet.errors import UsageError
from innet.machine.numbers import is_port

Target = Annotated[
    str, typer.Option(help="The kind of switch: bmv2, tofino, tofino2, tofino-sde or tofino2-sde.")
]
UplinkOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--uplink",
        metavar="PARENT:PORT:PARENT_PORT",
        help="A link to a parent switch: the parent's name, the port of this switch, and the port of "
        "the parent. Repeat the option for more parents, which share the slots.",
    ),
]
StationOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--station",
        metavar="PORT@MAC",
        help="A machine that runs no worker, such as the controller's machine: the port that leads to "
        "it, and its MAC address. Frames for other machines without workers go to all ports. Repeat the "
        "option for more machines.",
    ),
]
Ports = Annotated[str, typer.Option(help="The ports to use, as in [b]1-4,7[/b].")]
DeviceId = Annotated[
    int, typer.Option(min=0, max=(1 << 64) - 1, help="The switch's P4Runtime device id.")
]
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


def parse_ports(text: str) -> list[int]:
    """Parse a list of ports: ``1-4,7`` gives [1, 2, 3, 4, 7]. Raises UsageError."""
    ports: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers = [first, last] if dash else [first]
        if not all(map(is_port, numbers)) or int(numbers[0]) > int(numbers[-1]):
            raise UsageError(f"ports {text!r}: write them as in 1-4,7")
        ports.extend(range(int(first), int(last or first) + 1))
    return ports


def parse_uplink(text: str) -> tuple[str, int, int]:
    """Parse ``PARENT:PORT:PARENT_PORT``. Raises UsageError."""
    parent, *ports = text.rsplit(":", 2)
    if len(ports) < 2 or not all(map(is_port, ports)):
        raise UsageError(
            f"{text!r} is not an uplink: write PARENT:PORT:PARENT_PORT, as in spine:5:1"
        )
    return parent, int(ports[0]), int(ports[1])


def parse_station(text: str) -> tuple[int, str]:
    """Parse ``PORT@MAC``. Raises UsageError."""
    port, _, mac = text.partition("@")
    if not is_port(port) or not mac:
        raise UsageError(f"{text!r} is not a station: write PORT@MAC, as in 5@02:00:00:00:00:01")
    return int(port), mac
