"""The command ``innet emulate``."""

from pathlib import Path
from typing import Annotated

import typer

from innet.machine.extras import needed_for


def emulate(
    topology: Annotated[
        Path, typer.Argument(help="A topology in YAML. docs/topologies.md describes it.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="The command to run on every host, after [b]--[/b].", metavar="-- COMMAND"
        ),
    ] = None,
    prompt: Annotated[
        bool,
        typer.Option("--cli", help="Open Mininet's prompt at the end, until you type [b]exit[/b]."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the use of the links over time into a PNG, SVG or PDF file."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--json", help="Write the report to this JSON file.")
    ] = None,
) -> None:
    """Run a command on every host of a cluster that is emulated in Mininet. Needs root.

    The command's processes get the environment variables of torchrun and of
    innet. If one of them fails, the others are stopped, and the exit code is 1.
    At the end the network is removed.
    """
    with needed_for("emulations", "emulate"):
        import pydantic  # noqa: F401 - a missing package should fail here, not in the emulation
        import yaml  # noqa: F401

    from innet.emulation import run

    raise typer.Exit(run.emulate(topology, command or [], run.Options(prompt, plot, report)))
