"""A fuzzer that sends correct frames, damaged frames and noise out of a server above racks.

``python tests/support/parameters_fuzz.py SEED FRAMES``, with the address sanitizer's library preloaded,
runs it with C code that was compiled with sanitizers. Any error ends it.
"""

import ctypes
import random
import sys
from pathlib import Path

import damage
import numpy as np
from parameter_rows import SERVICE_NUMBER, WIDTH, begin, describe, step
from sanitizers import FLAGS, preload_no_further

from innet.servers.rack import native


def frame(chance: random.Random, numbers: np.random.Generator) -> bytes:
    """Return a frame in which some fields are right and some are not."""
    edge = (0, 1, 2, 3, -1, 1 << 26, (1 << 31) - 1, -(1 << 31))
    right = chance.random() < 0.7
    chunk, nonce, job = chance.choice((0, 1, 2) if right else edge), 5 + (not right), 7
    match chance.randrange(20):
        case 0:
            chunks, rule = chance.choice((3, 3, *edge)), chance.choice((*range(9), *edge))
            return describe(nonce, chunks, rule)
        case 1 | 2 | 3:
            return begin(numbers.standard_normal(WIDTH), chunk, nonce)
        case _:
            sums = numbers.integers(-(1 << 31), (1 << 31) - 1, WIDTH, np.int32)
            number = chance.choice((1, 1, 2, 2, 3) if right else edge)
            rate, scale = chance.choice((0.1, float("inf"))), chance.choice((0, -30, 1000, *edge))
            job += chance.random() < 0.1
            return step(sums, number, chunk, nonce, rate=rate, scale=scale, job=job)


def run(seed: int, frames: int) -> dict[str, int]:
    """Send the frames, and return the server's final counts."""
    chance, numbers = random.Random(seed), np.random.default_rng(seed)
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    good = [frame(chance, numbers) for _ in range(200)]
    with native.Parameters(10_000, silent_s=0.0) as kept, np.errstate(over="ignore"):
        kept.set_service(SERVICE_NUMBER)
        for _ in range(frames):
            left = frame(chance, numbers)
            if chance.random() < 0.3:
                left = damage.frame(chance, good)
            # The frame ends where its memory ends.
            room = libc.malloc(len(left))
            ctypes.memmove(room, left, len(left))
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)(
                kept.egress_hook.function
            )
            function(kept.egress_hook.context, room, len(left))
            libc.free(room)
        return kept.counts()


def main(seed: str, frames: str) -> None:
    """Run the fuzzer with sanitizers."""
    preload_no_further()
    native.FLAGS = (*native.FLAGS, *FLAGS)
    Path("/dev/stdout").write_text(f"clean: {run(int(seed), int(frames))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
