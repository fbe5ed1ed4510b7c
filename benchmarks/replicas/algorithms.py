"""LocalSGD and DiLoCo of torchft, over the switch with narrow lanes and lost packets, and over Gloo."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.replicas.settings import Learning, Training
from benchmarks.replicas.start import digits_file, lighthouses, replica
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
    seconds: float
    lost: int


def trained(
    rack: Rack, quantizer: str, lost: float, steps: int, learnings: Sequence[Learning] = ALGORITHMS
) -> list[Result]:
    """Train each algorithm over Gloo, and over the switch behind cables that lose packets."""
    found = []
    with contextlib.ExitStack() as stack:
        wiring = stack.enter_context(faulty(rack.links, 1, up=Faults(lost), down=Faults(lost)))
        replicas = [
            stack.enter_context(
                replica({**rack.environment, "INNET_LINK": link, "INNET_QUANTIZER": quantizer})
            )
            for link in wiring.links[:REPLICAS]
        ]
        digits = stack.enter_context(digits_file())
        ways = [(learning, over) for learning in learnings for over in ("Gloo", "innet")]
        addresses = stack.enter_context(lighthouses(len(ways), REPLICAS))
        for (learning, over), address in zip(ways, addresses, strict=True):
            before = wiring.total().dropped
            for number, each in enumerate(replicas):
                each.prepare(Training(number, over, address, digits, steps, learning))
            for each in replicas:
                each.until("ready")
            for each in replicas:
                each.begin()
            ends = [each.until("trained") for each in replicas]
            for each in replicas:
                each.leave()
            for each in replicas:
                each.until("left")
            began = min(each.all("begun")[0]["at"] for each in replicas)
            found.append(
                Result(
                    learning.algorithm, over, quantizer if over == "innet" else "",
                    tuple(end["digest"] for end in ends), ends[0]["loss"],
                    max(end["at"] for end in ends) - began, wiring.total().dropped - before,
                )
            )  # fmt: skip
    return found
