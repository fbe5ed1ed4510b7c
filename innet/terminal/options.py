"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ControllerAddress = Annotated[
    str,
    typer.Option(
        "--controller", envvar="INNET_CONTROLLER", help="The controller's address, HOST:PORT."
    ),
]
TlsFolder = Annotated[
    Path | None,
    typer.Option(
        "--tls",
        envvar="INNET_TLS",
        help="Use TLS, with ca.pem, admin.pem and admin-key.pem from this folder.",
    ),
]
ServedAddress = Annotated[
    str, typer.Option(help="The address to serve at, HOST:PORT; port 0 picks a free port.")
]
MetricsAddress = Annotated[
    str,
    typer.Option(
        "--metrics-addr",
        metavar="HOST:PORT",
        help="Serve [b]/metrics[/b] for Prometheus at this address.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")]
Lanes = Annotated[int, typer.Option(help="Integers per packet: 64 or 256.")]

PASS_OPTIONS_ON = {"ignore_unknown_options": True}
"""The settings of a command that runs another command, which has options of its own."""
