"""Random super-frames, and random descriptions of frames, through a switch with sanitizers.

``python tests/support/sanitized_superframes.py SEED MESSAGES``, with the address sanitizer's library
preloaded. What leaves has to be well described: the script cuts it itself.
"""

import random
import sys
from dataclasses import replace
from pathlib import Path

import damage
from compared_switches import embedded
from differential import load
from random_values import PORTS
from sanitizers import FLAGS, preload_no_further
from superframes import Described, cases, segments

from innet.switch import build

EDGES = (0, 1, 2, 3, 13, 14, 34, 42, 100, 255, 1460, 0x7FFF, 0xFFFE, 0xFFFF)


def message(chance: random.Random, good: list[Described]) -> bytes:
    """Return a message of a packet socket: right, damaged, or made up."""
    made = chance.choice(good)
    if chance.random() < 0.5:
        made = replace(made, frame=damage.frame(chance, [each.frame for each in good]))
    for name in ("kind", "size", "flags", "start", "offset", "head"):
        if chance.random() < 0.3:
            most = 255 if name in ("kind", "flags") else 65535
            near = len(made.frame), len(made.frame) - 1, getattr(made, name) + 1
            number = chance.choice((*EDGES, *near))
            made = replace(made, **{name: max(0, min(number, most))})
    text = bytes(made)
    return text[: chance.randrange(len(text) + 1)] if chance.random() < 0.05 else text


def main(seed: str, messages: str) -> None:
    """Put messages through two programs."""
    preload_no_further()
    build.FLAGS = (*build.FLAGS, *FLAGS)
    good = list(cases().values())
    for name in ("wire", "mix_nat", "innet-64"):
        chance = random.Random(f"{name} {seed}")
        with embedded(load(name), described=True) as target:
            for _ in range(int(messages)):
                port = chance.choice(PORTS)
                target.throw(port, message(chance, good) or b"\0")
                for _, found in target.caught():
                    described = Described.parse(found)
                    if described.kind:
                        segments(described)
        Path("/dev/stdout").write_text(f"{name}: clean\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
