"""LocalSGD and DiLoCo of torchft, over the switch with narrow lanes and lost packets, and over Gloo."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.replicas.settings import Learning, Training
from benchmarks.replicas.start import digits_file, replica
from innet.local.faults import Faults, faulty
from innet.local.rack import Rack

REPLICAS = 2
ALGORITHMS = (
    Learning("LocalSGD", width=64, sync_every=5),
    Learning("DiLoCo", width=64, sync_every=5),
)


@dataclass(frozen=True)
class Result:
    """The outcome of a training. `lost` is the number of packets that the cables have lost."""

    algorithm: str
    over: str
    quantizer: str
    digests: tuple[str, ...]
    loss: float
    lost: int


def trained(
    rack: Rack,
    lighthouses: Iterator[str],
    quantizer: str,
    lost: float,
    steps: int,
    overs: Sequence[str] = ("Gloo", "innet"),
) -> list[Result]:
    """Train each algorithm over Gloo, and over the switch behind cables that lose packets."""
    found = []
    with contextlib.ExitStack() as stack:
        faults = Faults(drop=lost)
        wiring = stack.enter_context(faulty(rack.links[:REPLICAS], 1, up=faults, down=faults))
        replicas = [
            stack.enter_context(
                replica({**rack.environment, "INNET_LINK": link, "INNET_QUANTIZER": quantizer})
            )
            for link in wiring.links
        ]
        digits = stack.enter_context(digits_file())
        for learning, over in product(ALGORITHMS, overs):
            before, lighthouse = wiring.total().dropped, next(lighthouses)
            for number, each in enumerate(replicas):
                each.prepare(Training(number, over, lighthouse, digits, steps, learning=learning))
            for each in replicas:
                each.until("ready")
            for each in replicas:
                each.begin()
            ends = [each.until("trained") for each in replicas]
            for each in replicas:
                each.leave()
            for each in replicas:
                each.until("left")
            found.append(
                Result(
                    learning.algorithm, over, quantizer if over == "innet" else "",
                    tuple(end["digest"] for end in ends), ends[0]["loss"],
                    wiring.total().dropped - before,
                )
            )  # fmt: skip
    return found
