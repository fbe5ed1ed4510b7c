"""The options that several commands share."""

import math
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from innet.machine.extras import needed_for
from innet.terminal.console import say

MOST = (1 << 32) - 1
"""The largest number that a request has room for."""


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"innet {version('innet')}")
        raise typer.Exit


def _metrics_address(address: str) -> str:
    """Return an option's address. Raises UsageError if the package that serves metrics is missing."""
    if address:
        with needed_for("metrics", "metrics"):
            import prometheus_client  # noqa: F401 - a server without it must not say that it serves
    return address


def finite(number: float) -> float:
    """Return an option's number. Raises BadParameter for infinity."""
    if not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


def _lanes(number: int) -> int:
    """Return an option's number. Raises BadParameter if no program can have so many lanes."""
    if not 0 < number <= MOST:
        raise typer.BadParameter(f"{number} lanes: choose 64, 256 or 1024")
    return number


ControllerAddress = Annotated[
    str,
    typer.Option(
        "--controller",
        envvar="INNET_CONTROLLER",
        help="The controller's address, HOST:PORT. With stand-by controllers, list all addresses, "
        "separated by commas.",
    ),
]
TlsFolder = Annotated[
    Path | None,
    typer.Option(
        "--tls",
        envvar="INNET_TLS",
        help="Use TLS, with ca.pem and the certificate of an administrator (admin.pem, admin-key.pem), a "
        "user or an observer from this folder.",
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
        callback=_metrics_address,
        help="Serve [b]/metrics[/b] for Prometheus at this address.",
    ),
]


class LogFormat(StrEnum):
    """A format of the lines of a log."""

    TEXT = "text"
    JSON = "json"


LogFormatted = Annotated[
    LogFormat,
    typer.Option("--log-format", envvar="INNET_LOG_FORMAT", help="The format of lines in the log."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Lanes = Annotated[int, typer.Option(callback=_lanes, help="Integers per packet: 64, 256 or 1024.")]

Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_show_version, is_eager=True, help="Print the version and end."
    ),
]

HELP_ON = {"help_option_names": ["-h", "--help"]}
"""The settings of a command line whose commands all take ``-h`` for ``--help``."""
PASS_OPTIONS_ON = {"ignore_unknown_options": True}
"""The settings of a command that runs another command, which has options of its own."""
