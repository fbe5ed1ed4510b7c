"""The options that several commands of ``innet model`` have."""

from typing import Annotated

import typer

Size = Annotated[
    str, typer.Option("--model-size", help="Size of the gradients in bytes, as in 100M.")
]
LinkName = Annotated[
    str,
    typer.Option(
        "--link",
        help="Link rate in bits per second, as in 10G, or a link of EASGD's Table 2: fdr, qdr, ne020.",
    ),
]
Latency = Annotated[
    str,
    typer.Option(
        help="Latency of a link, in seconds or as in 5us. A link given by name has its own."
    ),
]
SlotCount = Annotated[int, typer.Option(min=1, max=65536, help="Chunks in flight in the switch.")]
Lanes = Annotated[int, typer.Option(min=1, help="Integers per packet.")]
RackCount = Annotated[
    int,
    typer.Option(
        "--racks", min=1, help="Rack switches. If there are several, switches are above them."
    ),
]
SpineCount = Annotated[
    int,
    typer.Option(
        "--spines",
        min=1,
        help="Switches above the racks. If there are several, a core is above them.",
    ),
]
Oversubscription = Annotated[
    float,
    typer.Option(
        help="The rate of all links below a switch, divided by that of its links upwards; 0: a link "
        "upwards has the rate of a worker's link."
    ),
]
Background = Annotated[
    float, typer.Option(help="The share of every link that other traffic takes, from 0 to below 1.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
