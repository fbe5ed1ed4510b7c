"""The format of chunks that ask a rack server for parameters instead of a sum.

Such a chunk is an ordinary contribution: switches sum it, or take its maximum, and send it up. A
flag holds the request. The chunk's first eight lanes are a header, and the others its **row**: a
row of a gradient or of parameters. If there is a server (:mod:`innet.servers.rack`), the result has the
flag DONE, and float32 parameters, bit for bit, in its row. If the server refuses, the result has
the flag REFUSED, and the reason in its first lane. Without a server it has neither flag.

In a sum, all workers' headers are the same. So the server divides the sum by their number.
"""

import enum

HEADER_LANES = 8
CHUNK, STEP, NONCE, SCALE, RATE = range(5)
"""Header lanes.

The learning rate, a float64, takes four lanes from RATE on, with 16 bits each, highest first.
"""

COUNT, RULE = 1, 3
"""Header lanes of a DESCRIBE: the number of chunks, and the optimizer.

Its row begins with four float64 in two lanes each, the higher word first: `first`, `second`,
`epsilon` and `weight_decay` of :class:`innet.servers.pbox.native.OptimizerRecord`.
"""

MOST = (1 << 25) - 1
"""The largest number in a header; in a job of more than 64 workers it is smaller, see :func:`most`."""

MOST_CHUNKS = MOST + 1
"""The most chunks of a job: they have the numbers from 0 to MOST."""

SCALE_NOT_FINITE = 1000
"""The value in place of the scale's exponent if the gradient's row has a NaN or an infinity."""


class Ask(enum.IntFlag):
    """Flags that ask a rack server for something, and its answer, beside those of Flag."""

    DESCRIBE = 0x100  # maximum: a new start, with these chunks and this optimizer
    BEGIN = 0x200  # maximum: a row of the initial parameters
    STEP = 0x400  # sum: a row of the gradient
    DONE = 0x4000
    REFUSED = 0x8000


class Refusal(enum.IntEnum):
    """The reason why a server refuses a request."""

    UNKNOWN = 1
    NO_ROOM = 2
    OUT_OF_TURN = 3
    DISAGREE = 4
    MALFORMED = 5


def most(workers: int) -> int:
    """Return the largest number in a header whose sum over the workers fits a lane."""
    return min(MOST, (2**31 - 1) // workers)
