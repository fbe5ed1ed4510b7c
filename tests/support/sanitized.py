"""A test run of programs with sanitizers, on entries and packets of all kinds: any error ends it.

``python tests/support/sanitized.py SEED PACKETS PROGRAM...``, with the address sanitizer's library
preloaded.
"""

import random
import sys
from pathlib import Path

import damage
import differential
from compared_switches import embedded
from random_values import PORTS
from sanitizers import FLAGS, preload_no_further

from innet.switch import build


def run(name: str, seed: int, packets: int) -> None:
    """Put random scenarios, and then damaged packets, through one program."""
    running = differential.load(name)
    given = differential.draw(name, seed, packets)
    with embedded(running) as target:
        differential.carry_out(target, given, running.p4info)
        chance = random.Random(seed)
        good = [frame for _, frame in given.packets]
        for _ in range(packets):
            target.send(chance.choice(PORTS), damage.frame(chance, good) or b"\0")
        # The memory of these frames ends with the frame, or a byte earlier.
        for frame in (damage.frame(chance, good) for _ in range(packets)):
            for size in {len(frame), chance.randrange(len(frame) + 1)}:
                target.engine.exercise(chance.choice(PORTS), frame[:size], 1)


def main(seed: str, packets: str, *names: str) -> None:
    """Run the programs one after the other."""
    preload_no_further()
    build.FLAGS = (*build.FLAGS, *FLAGS)
    for name in names:
        run(name, int(seed), int(packets))
        Path("/dev/stdout").write_text(f"{name}: clean\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
