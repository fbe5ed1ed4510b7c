"""The C code of the cores, the client and the optimizers, compiled and declared for ctypes."""

import ctypes
from functools import cache

import numpy as np

from innet.machine.packaged import read_folder
from innet.native.compiler import compile_library
from innet.native.constants import Constants
from innet.servers.pbox.protocol import (
    DEAD_AFTER_MS,
    HEADER,
    KEY_BYTES,
    MAGIC,
    MOST_WORKERS,
    CoreEvent,
    Kind,
    Outcome,
    UpdateRule,
    Violation,
)

FLAGS = (
    *("-std=gnu11", "-D_GNU_SOURCE", "-O3", "-march=native", "-fPIC", "-pthread"),
    # These options let square roots be vectorized. They change no rounding; only -ffast-math would,
    # and it is not used.
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)

OPTIMIZER_CONSTANTS: Constants = {"RULE": UpdateRule, "RULES": len(UpdateRule)}
_CONSTANTS: Constants = {
    **OPTIMIZER_CONSTANTS,
    "MAGIC": MAGIC,
    "HEADER_BYTES": HEADER.size,
    "KEY_BYTES": KEY_BYTES,
    "MOST_WORKERS": MOST_WORKERS,
    "DEAD_AFTER_MS": DEAD_AFTER_MS,
    "KIND": Kind,
    "BAD": Violation,
    "EVENT": CoreEvent,
    "OUTCOME": Outcome,
}

PIECE = np.dtype([("offset", "<u8"), ("key", "<u4"), ("bytes", "<u4")])
"""The position of a chunk: its key, and its byte offset and size in that key's array."""

JOB_COUNTS = np.dtype([(name, "<u8") for name in ("updates", "late", "stale", "most_stale")])
CORE_COUNTS = np.dtype(
    [
        (name, "<u8")
        for name in (
            "connections", "bytes_in", "bytes_out", "chunks", "updates", "refused", "orders", "busy_ns"
        )
    ]
)  # fmt: skip
EVENT = np.dtype(
    [("job", "<u8"), *((name, "<u4") for name in ("kind", "rank", "rule", "reserved"))]
)


class OptimizerRecord(ctypes.Structure):
    """``struct optimizer``."""

    _fields_ = (
        ("rule", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("first", ctypes.c_double),
        ("second", ctypes.c_double),
        ("epsilon", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
    )


@cache
def library() -> ctypes.CDLL:
    """Return the compiled runtime. Raises CompilerError and IncompleteInstallation."""
    files = read_folder("innet.servers.pbox", "runtime", (".h", ".c"))
    path = compile_library(FLAGS, files.values(), lambda: files, _CONSTANTS, ("-lm",))
    return _declare(ctypes.CDLL(str(path)))


def address(array: np.ndarray) -> int:
    """Return the address of an array's data."""
    return array.ctypes.data


def _declare(loaded: ctypes.CDLL) -> ctypes.CDLL:
    thing, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    number, real, flag, u8 = ctypes.c_int, ctypes.c_double, ctypes.c_bool, ctypes.c_uint8
    optimizer = ctypes.POINTER(OptimizerRecord)
    signatures: dict[str, tuple[type | None, tuple[type, ...]]] = {
        "state_count": (u32, (u32,)),
        "update": (
            None,
            (optimizer, thing, thing, thing, thing, u32, u32, u32, u64, real),
        ),
        "job_new": (
            thing,
            (u64, u32, u32, flag, flag, optimizer, real, u32, thing, ctypes.c_char_p, thing),
        ),
        "job_bytes": (u64, (u32, u32, u32, thing)),
        "job_free": (None, (thing,)),
        "core_new": (thing, (number, number)),
        "core_add": (flag, (thing, thing)),
        "core_remove": (flag, (thing, u64)),
        "core_stop": (flag, (thing,)),
        "core_counts": (thing, (thing,)),
        "core_run": (None, (thing,)),
        "core_free": (None, (thing,)),
        "client_new": (thing, (u32, u32, thing)),
        "client_set_core": (flag, (thing, u32, number, u32, thing)),
        "client_begin": (None, (thing, u8, thing, thing, thing, real)),
        "client_exchange": (number, (thing, number)),
        "client_bytes": (u64, (thing,)),
        "client_which": (u32, (thing,)),
        "client_why": (u32, (thing,)),
        "client_free": (None, (thing,)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded
