"""The commands ``innet demo`` and ``innet rack``."""

from importlib.util import find_spec
from typing import Annotated

import typer

from innet.terminal.options import MOST, Lanes
from innet.wire.layout import MOST_CONTRIBUTORS


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training set.")] = 30,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes.")] = 4,
    lanes: Lanes = 1024,
    quantizer: Annotated[
        str,
        typer.Option(
            help="The format of gradients on the wire: int32, int16, int8 or strom:TAU. All but strom "
            "may have options after the name: +stochastic, +feedback, +blocks, +blocks:ELEMENTS and "
            "+topk:SHARE, as in int8+blocks:32+topk:0.1. docs/quantization.md and docs/sparse.md explain "
            "them."
        ),
    ] = "int32",
) -> None:
    """Train on handwritten digits through a P4 switch on this machine, and compare with Gloo.

    This starts a controller and a software switch, which shared memory connects
    to the workers. It needs no privileges. The exit code is 1 if the two
    trainings differ by more than the tolerance.
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
    workers: Annotated[int, typer.Option(min=1, max=MOST_CONTRIBUTORS, help="Worker processes.")],
    lanes: Lanes = 1024,
    slots: Annotated[
        int,
        typer.Option(
            min=1, max=MOST, help="Slots of the job: chunks that can be in flight at once."
        ),
    ] = 128,
    cables: Annotated[
        int,
        typer.Option(
            min=1,
            help="Cables of each worker to the switch. Every process group needs one.",
        ),
    ] = 4,
    udp: Annotated[
        bool,
        typer.Option(
            "--udp",
            help="Use cables made of UDP instead of shared memory. [b]innet capture lo[/b] shows their "
            "packets.",
        ),
    ] = False,
) -> None:
    """Run a training script in a rack on this machine, and exit with the script's code.

    This starts a controller and a software switch, which shared memory connects
    to the workers. Then it runs your command. Environment variables tell the
    command how to reach both. An example is
    [b]innet rack --workers 4 -- torchrun --nproc-per-node 4 train.py[/b]
    """
    from innet.demo.rack import run

    raise typer.Exit(run(command, workers, lanes, slots, cables, udp=udp))
