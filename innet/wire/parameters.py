"""What is in a chunk that asks a server above racks for parameters instead of a sum.

Such a chunk is an ordinary contribution: switches sum it, or take its maximum, and send it up. A flag
says what it asks for. Its first eight lanes are a header, and the others its **row**: a row of a gradient
or of parameters. Where there is a server (:mod:`innet.parent`) the result has the flag DONE, and float32
parameters, bit for bit, in its row; or REFUSED, and why in its first lane. Where there is none it has
neither flag.

In a sum, all workers' headers are the same, so that the server finds any of them by dividing.
`innet/parent/runtime/parameters.h` has the same numbers.
"""

import enum

HEADER_LANES = 8
CHUNK, STEP, NONCE, SCALE, RATE = range(5)
"""Header lanes. The learning rate, a float64, is in four of 16 bits each, from RATE on, highest first."""

COUNT, RULE = 1, 3
"""Header lanes of a DESCRIBE: how many chunks there are, and the optimizer.

Its row begins with four float64 in two lanes each, the higher word first: `first`, `second`, `epsilon`
and `weight_decay` of :class:`innet.pbox.native.OptimizerRecord`.
"""

MOST = (1 << 26) - 1
"""The largest number in a header: the sum over 32 workers has to fit a lane."""

SCALE_NOT_FINITE = 1000
"""In place of the scale's exponent: the gradient has a NaN or an infinity in this row."""


class Ask(enum.IntFlag):
    """What a contribution asks for, and what became of it; beside :class:`innet.wire.layout.Flag`."""

    DESCRIBE = 0x100  # maximum: a new beginning, with these chunks and this optimizer
    BEGIN = 0x200  # maximum: a row of the initial parameters
    STEP = 0x400  # sum: a row of the gradient
    DONE = 0x4000
    REFUSED = 0x8000


class Refusal(enum.IntEnum):
    """Why a server does not do what it is asked for."""

    UNKNOWN = 1
    NO_ROOM = 2
    OUT_OF_TURN = 3
    DISAGREE = 4
    MALFORMED = 5
