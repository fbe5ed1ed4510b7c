"""A stretch of cable that loses, duplicates, delays, damages or queues packets.

It lies in a cable between an agent and its switch, made of UDP or in shared memory, and belongs to
neither. It sees only frames.
Faults happen at random, with a seed, or by a script to the n-th packet. Every packet is treated
separately, even where many travel as one (``UDP_GRO``). A process of its own carries the packets,
so that the caller's threads and the cable do not wait for each other.

Tests and benchmarks put it between their workers and their switch::

    with faulty(links, seed=1, up=Faults(drop=0.01)) as wiring:
        ...  # agents use wiring.links

"""

from innet.local.faults.cables import Wiring, faulty
from innet.local.faults.fates import (
    AGAIN_LATE,
    DOWN,
    HELD,
    LOST,
    OVERTAKEN,
    TWICE,
    UNTIL_RELEASED,
    UP,
    Copy,
    Damage,
    Fate,
    FateCounts,
    Faults,
    Flip,
    Line,
    Overwrite,
    Resize,
    damaged,
)

__all__ = [
    "AGAIN_LATE",
    "DOWN",
    "HELD",
    "LOST",
    "OVERTAKEN",
    "TWICE",
    "UNTIL_RELEASED",
    "UP",
    "Copy",
    "Damage",
    "Fate",
    "FateCounts",
    "Faults",
    "Flip",
    "Line",
    "Overwrite",
    "Resize",
    "Wiring",
    "damaged",
    "faulty",
]
