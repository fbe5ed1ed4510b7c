"""A worker's exchange with the switch in C: one call for an I/O round of many batches of packets.

This module compiles and loads the C code. Others use it:

* :meth:`innet.host.compiled_rounds.CompiledRounds.run` does the same as
  :meth:`innet.host.numpy_rounds.NumpyRounds.run` with ``Window`` and ``Link``, several times if
  necessary. It sends due packets, waits, receives, keeps the intact packets, and moves their
  results into the window and the vector.
* :class:`innet.host.connections.Connection` sends and receives for it, and for ``Link``.
* :mod:`innet.host.quantizers.scaling` wraps the C code for floats.

The numpy code defines the correct behaviour. It also handles the rare cases: replies other than
results, timed retransmissions, probes. Without a compiler it does everything. Both work on the same
arrays, so that they can alternate (tests/host/test_fastpath.py compares them).

C trusts its arguments. So every address that it gets comes from :func:`at`, which checks dtype,
order and size. The holder of the address keeps the array alive.
"""

import ctypes
import logging
import os
import sys
from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from innet.errors import CompilerError
from innet.host import structs
from innet.host.numpy_socket import MESSAGES
from innet.host.refusals import MISUSES
from innet.host.rounds import BATCHES
from innet.host.structs import POINTER, REAL, SIZE
from innet.host.window import SlotState
from innet.machine.packaged import read
from innet.machine.sockets import (
    FRAME_MEMORY,
    LONG_QUEUE_BYTES,
    MOST_SEGMENTS,
    MOST_SENT_BYTES,
    UDP_GRO,
    UDP_SEGMENT,
)
from innet.native.compiler import compile_library
from innet.native.constants import Constants
from innet.wire import batch
from innet.wire.constants import CONSTANTS
from innet.wire.layout import TRANSPORT_FLAGS

_log = logging.getLogger("innet")

FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-Wall")
_SOURCES = {
    **dict.fromkeys(("fastpath.h", "fastpath.c", "round.h", "round.c"), "innet.host"),
    **dict.fromkeys(("scaling.h", "scaling.c", "far_stores.h", "node_sums.c"), "innet.host"),
    **dict.fromkeys(("network.h", "network.c", "udp.c", "shared_memory.c"), "innet.host"),
    **dict.fromkeys(("words.h", "weighted_sum.h", "ring.h"), "innet.wire"),
}

BATCH_PACKETS = 64
"""The most packets that are taken out of shared memory in one call: few enough for the caches."""

_CONSTANTS: Constants = {
    **CONSTANTS,
    "STATE": SlotState,
    "BATCHES": BATCHES,
    "MESSAGES": MESSAGES,
    "TRANSPORT_FLAGS": TRANSPORT_FLAGS,
    "BATCH_PACKETS": BATCH_PACKETS,
    "FRAME_MEMORY": FRAME_MEMORY,
    "LONG_QUEUE_BYTES": LONG_QUEUE_BYTES,
    "MOST_SEGMENTS": MOST_SEGMENTS,
    "MOST_SENT_BYTES": MOST_SENT_BYTES,
    "UDP_SEGMENT": UDP_SEGMENT,
    "UDP_GRO": UDP_GRO,
    "MISUSES": sorted(MISUSES),
}


@cache
def compiled() -> ctypes.CDLL | None:
    """Return the compiled C, or None where it cannot be compiled, which is logged once.

    Raises IncompleteInstallation.
    """
    try:
        return compile_with({})
    except (CompilerError, OSError) as problem:
        _log.warning(
            "numpy makes the packets, which gives the same sums but takes longer: %s", problem
        )
        return None


def compile_everything() -> None:
    """Compile all C code of a worker, so that no worker waits for that while it joins.

    Without a compiler, it does nothing. Raises IncompleteInstallation.
    """
    compiled()
    batch.compiled()


def compile_with(more: Mapping[str, bytes]) -> ctypes.CDLL:
    """Compile the C, together with `more` files by name, which may use all of its functions.

    Raises CompilerError, IncompleteInstallation, OSError.
    """
    if sys.byteorder != "little" or ctypes.sizeof(POINTER) != 8:
        raise CompilerError("the C code needs a little-endian processor with 64 bits")
    sources = {**{name: read(package, name) for name, package in _SOURCES.items()}, **more}
    path = compile_library(FLAGS, sources.values(), lambda: sources, _CONSTANTS, ["-lm"])
    return bind(ctypes.CDLL(str(path)))


def bind(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the functions' argument and result types."""
    pointer = ctypes.POINTER
    for prefix in ("innet_udp", "innet_shared"):
        send, receive, wait = (
            getattr(library, f"{prefix}_{name}") for name in ("send", "receive", "wait")
        )
        send.argtypes = (POINTER, POINTER, SIZE, SIZE)
        receive.argtypes = (POINTER, pointer(structs.Inbox))
        wait.argtypes = (POINTER, REAL)
    library.innet_udp_queued.argtypes, library.innet_udp_queued.restype = (POINTER,), ctypes.c_int64
    library.innet_shared_create.argtypes = (ctypes.c_char_p, ctypes.c_int)
    library.innet_shared_create.restype = POINTER
    library.innet_shared_connect.argtypes = library.innet_shared_destroy.argtypes = (POINTER,)
    library.innet_shared_destroy.restype = None
    library.innet_io_round.argtypes = (
        pointer(structs.Network),
        pointer(structs.Worker),
        pointer(structs.IoRound),
    )
    library.innet_largest.argtypes = (POINTER, SIZE, SIZE, POINTER)
    scaled = (POINTER, SIZE, SIZE, POINTER, POINTER, POINTER)
    library.innet_quantize.argtypes = scaled
    library.innet_dequantize.argtypes = (*scaled, SIZE)
    library.innet_pack.argtypes = (POINTER, *[SIZE] * 3, POINTER, POINTER, ctypes.c_int32, POINTER)
    library.innet_unpack.argtypes = (
        POINTER, *[SIZE] * 3, POINTER, POINTER, ctypes.c_int32, ctypes.c_int64, POINTER,
    )  # fmt: skip
    library.innet_add.argtypes = (POINTER, SIZE, SIZE, SIZE, POINTER)
    for name in ("io_round", "largest", "quantize", "dequantize", "pack", "unpack", "add"):
        getattr(library, f"innet_{name}").restype = None
    return library


def raise_errno(number: int) -> None:
    """Raise the OSError of an error number that C has returned. 0 means no error."""
    if number:
        raise OSError(number, os.strerror(number))


def at(array: npt.NDArray[np.generic], dtype: npt.DTypeLike, size: int | None = None) -> int:
    """Return the address of an array, checked to have `size` elements of `dtype` for C."""
    if array.dtype != dtype or not array.flags.c_contiguous or size not in (None, array.size):
        raise AssertionError(f"C expects {size} {dtype} in order: {array.shape} {array.dtype}")
    if array.flags.writeable and array.size:  # takes a third of the time of array.ctypes
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    return array.ctypes.data
