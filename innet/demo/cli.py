"""The commands ``innet demo`` and ``innet rack``."""

from importlib.util import find_spec
from typing import Annotated

import typer

from innet.terminal.options import Lanes


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training set.")] = 30,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes.")] = 4,
    lanes: Lanes = 1024,
    quantizer: Annotated[
        str,
        typer.Option(
            help="The format of gradients on the wire: int32, int16, int8 or strom:TAU, "
            "optionally followed by +stochastic and +feedback."
        ),
    ] = "int32",
) -> None:
    """Train on handwritten digits through a P4 switch on this machine, and compare with Gloo.

    Starts a controller and an embedded switch. Shared memory joins it to the workers, so no privileges
    are needed. The exit code is 1 if the two trainings differ by more than the tolerance.
    """
    from innet.demo import comparison

    # A missing package fails here, not in the workers. This process does not need the packages itself.
    for package in ("sklearn", "torch"):
        if not find_spec(package):
            raise ModuleNotFoundError(name=package)
    comparison.run(workers=workers, epochs=epochs, lanes=lanes, quantizer=quantizer)


def rack(
    command: Annotated[
        list[str], typer.Argument(help="The command to run, after [b]--[/b]; for example torchrun.")
    ],
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes.")],
    lanes: Lanes = 1024,
    slots: Annotated[int, typer.Option(min=1, help="Chunks in flight at once.")] = 128,
    cables: Annotated[
        int, typer.Option(min=1, help="Links per worker; every process group needs one.")
    ] = 4,
    udp: Annotated[
        bool, typer.Option("--udp", help="Use links of UDP, which [b]innet capture lo[/b] shows.")
    ] = False,
) -> None:
    """Run a training script in a rack on this machine, and exit with its code.

    Starts a controller and an embedded switch. Shared memory joins it to the workers. The command finds
    both through its environment: [b]innet rack --workers 4 -- torchrun --nproc-per-node 4 train.py[/b]
    """
    from innet.demo.rack import run

    raise typer.Exit(run(command, workers, lanes, slots, cables, udp=udp))
