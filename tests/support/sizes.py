"""A run of programs with odd numbers: each is refused, or runs without an error of the sanitizers.

``python tests/support/sizes.py SEED ROUNDS RUNS PROGRAM...``, with the address sanitizer's library
preloaded. It reads ROUNDS programs, and runs RUNS of those that the switch accepts.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import damage
import differential
from sanitizers import FLAGS, preload_no_further

from innet.errors import CompilerError, UnsupportedProgram
from innet.switch import bmv2json, build
from innet.switch.codegen import generate
from innet.switch.engine import Engine

ODD = (
    -1, 0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 255, 1 << 14, 1 << 15, (1 << 16) - 1, 1 << 16, 1 << 19,
    1 << 20,
    1 << 26, 1 << 27, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 40,
    (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 31), -(1 << 63), 1.5, True, "7", None, 1e400,
)  # fmt: skip
_FRAMES = 40
_NOTHING_TO_SEE = frozenset({"line", "column", "source_info"})


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all numbers of a document, also hexadecimal ones: the container and the key of each."""
    for key in node if isinstance(node, dict) else range(len(node)):
        value = node[key]
        if key in _NOTHING_TO_SEE:
            continue
        if isinstance(value, dict | list):
            yield from places(value)
        elif isinstance(value, int) or (isinstance(value, str) and value.startswith("0x")):
            yield node, key


def spoilt(text: bytes, chance: random.Random) -> str:
    """Return a program in which one or a few numbers are changed."""
    document = json.loads(text)
    found = list(places(document))
    for holder, key in chance.sample(found, chance.choice((1, 1, 2, 4))):
        value = chance.choice(ODD)
        whole = isinstance(holder[key], str) and type(value) is int
        holder[key] = hex(value) if whole else value
    return json.dumps(document)


def run(text: str, chance: random.Random) -> None:
    """Put all kinds of frames through a program."""
    engine = Engine(text)
    try:
        for _ in range(_FRAMES):
            frame = damage.frame(chance, [chance.randbytes(64), chance.randbytes(200)])
            engine.exercise(chance.randrange(1, 5), frame, 1)
    finally:
        engine.close()


def main(seed: str, rounds: str, runs: str, *names: str) -> None:
    """Spoil the programs in turn."""
    preload_no_further()
    build.FLAGS = (*build.FLAGS, *FLAGS)
    left = int(runs)
    for number in range(int(rounds)):
        name = names[number % len(names)]
        chance = random.Random(f"{seed} {number}")
        text = spoilt(differential.load(name).json, chance)
        try:
            generate(bmv2json.load(text))
            if left:
                left -= 1
                run(text, chance)
        except (UnsupportedProgram, CompilerError):
            continue
        except BaseException:
            Path("/dev/stderr").write_text(f"round {number}, {name}\n")
            raise
    Path("/dev/stdout").write_text("clean\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
