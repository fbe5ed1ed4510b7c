"""The frames between a worker and a core: their numbers in Python and in C. See ``docs/pbox.md``."""

import enum
import struct
from collections.abc import Mapping

MAGIC = int.from_bytes(b"PBX1", "little")
"""The first word of every frame."""

HEADER = struct.Struct("<IB3xIIQd")
"""The header of a frame: ``struct header`` in C."""

KEY_BYTES = 16
"""The size of the key with which a worker proves to a core that it belongs to a job."""

DEAD_AFTER_MS = 30_000
"""The time after which a connection breaks if the peer's machine confirms nothing that was sent to it."""

MOST_WORKERS = 256
"""The most workers of a job."""


class Kind(enum.IntEnum):
    """The kind of a frame."""

    HELLO = 1
    PUSH = 2
    PULL = 3
    INIT = 4
    RESULT = 5
    REFUSAL = 6


class Violation(enum.IntEnum):
    """The rule of the protocol that a connection has broken: the reason of a refusal."""

    MAGIC = 0
    KIND = 1
    KEY = 2
    CHUNK = 3
    SIZE = 4
    STEP = 5
    RATE = 6
    RATES = 7
    TWICE = 8
    TIME = 9
    RANK = 10
    SLOW = 11
    CROWD = 12


VIOLATIONS: Mapping[int, str] = {
    Violation.MAGIC: "the frame does not begin with PBX1",
    Violation.KIND: "the kind of frame is unknown",
    Violation.KEY: "the job, the rank or the key is not right",
    Violation.CHUNK: "there is no such chunk",
    Violation.SIZE: "the size is not the chunk's",
    Violation.STEP: "the step is not the chunk's",
    Violation.RATE: "the learning rate is not a number from 0 on",
    Violation.RATES: "the learning rate is not the other workers'",
    Violation.TWICE: "the chunk is on its way already",
    Violation.TIME: "the frame comes at the wrong time",
    Violation.RANK: "the worker's rank is taken, or was left",
    Violation.SLOW: "nothing was said for too long",
    Violation.CROWD: "there are too many connections",
}
"""The broken rules in words."""


class CoreEvent(enum.IntEnum):
    """An event that a core reports about a job."""

    REMOVED = 0  # the job's memory is free
    MISSED = 1  # a worker has left without a push that the others need
    SILENT = 2  # a worker has kept the others waiting for too long
    BROKE = 3  # a worker has broken a rule


class Outcome(enum.IntEnum):
    """The outcome of a call to C that continues a client's exchange."""

    DONE = 0
    AGAIN = 1  # it is not done: call again
    LOST = 2  # a core has closed its connection
    REFUSED = 3  # a core has refused a frame
    CONFUSED = 4  # a core has sent something that is no answer
    TOLD = 5  # a server has said something on its control connection


class UpdateRule(enum.IntEnum):
    """The update rule of an optimizer."""

    NONE = 0
    SGD = 1
    MOMENTUM = 2
    NESTEROV = 3
    ADAGRAD = 4
    RMSPROP = 5
    ADADELTA = 6
    ADAM = 7
