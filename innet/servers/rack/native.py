"""The C code of the parameters, compiled with the parameter server's optimizers, for ctypes."""

import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import PurePath
from typing import Self

from innet.machine.packaged import read
from innet.native.compiler import compile_library
from innet.native.constants import Constants
from innet.servers.pbox.native import FLAGS, OPTIMIZER_CONSTANTS
from innet.switch.engine import EgressHook
from innet.wire import parameters
from innet.wire.check import weight, weights
from innet.wire.constants import CONSTANTS
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import HEADER_BYTES, LANE_BYTES, MAX_LANES, UDP_PORT

_COUNTS = ("jobs", "bytes", "steps", "repeated", "refused")
_SOURCES = {
    "innet.servers.rack": ("runtime/parameters.c", "runtime/parameters.h"),
    "innet.servers.pbox": ("runtime/optimizers.c", "runtime/optimizers.h"),
    "innet.wire": ("words.h", "weighted_sum.h"),
}
_CONSTANTS: Constants = {
    **CONSTANTS,
    **OPTIMIZER_CONSTANTS,
    "UDP_PORT": UDP_PORT,
    "MAX_LANES": MAX_LANES,
    "ENCAPSULATION_BYTES": ENCAPSULATION_BYTES,
    "SOURCE_WEIGHTS": [weight(k) for k in range(3)],
    "WORD_WEIGHTS": weights(HEADER_BYTES // LANE_BYTES + MAX_LANES).tolist(),
    "ASK": parameters.Ask,
    "REFUSAL": parameters.Refusal,
    "HEADER_LANES": parameters.HEADER_LANES,
    "LANE_CHUNK": parameters.CHUNK,
    "LANE_STEP": parameters.STEP,
    "LANE_NONCE": parameters.NONCE,
    "LANE_SCALE": parameters.SCALE,
    "LANE_RATE": parameters.RATE,
    "LANE_COUNT": parameters.COUNT,
    "LANE_RULE": parameters.RULE,
    "MOST_CHUNKS": parameters.MOST_CHUNKS,
    "SCALE_NOT_FINITE": parameters.SCALE_NOT_FINITE,
}


class Counts(ctypes.Structure):
    """Numbers of kept jobs and parameter bytes, and of the rows handled so far.

    A result is sent to several switches, and again to workers that have lost it. Only one copy of
    each row is counted in `steps`. The others are `repeated`.
    """

    _fields_ = tuple((name, ctypes.c_uint64) for name in _COUNTS)


class Parameters:
    """The parameters of all jobs at one switch, applied to its outgoing results. Raises CompilerError.

    All jobs together may use `most_bytes`. A job that has been silent for `silent_s` seconds is
    forgotten when another one needs its memory.
    """

    def __init__(self, most_bytes: int, silent_s: float = 60.0) -> None:
        self._library = _library()
        self._parameters = self._library.parameters_new(most_bytes, int(silent_s * 1e9))
        if not self._parameters:
            raise MemoryError

    @property
    def egress_hook(self) -> EgressHook:
        """Return the function that the switch's packet loop is to call."""
        function = ctypes.cast(self._library.parameters_on_egress, ctypes.c_void_p).value or 0
        return EgressHook(function, self._parameters)

    def set_service(self, address: int) -> None:
        """Set the switch's IPv4 address. Before that no frame is answered."""
        self._library.parameters_set_service(self._parameters, address)

    def answer(self, frame: bytes) -> bytes:
        """Return a frame as it leaves the switch."""
        room = ctypes.create_string_buffer(frame, len(frame))
        self._library.parameters_on_egress(self._parameters, room, len(frame))
        return room.raw

    def counts(self) -> dict[str, int]:
        """Return :class:`Counts` as a dictionary."""
        raw = self._library.parameters_counts(self._parameters).contents
        return {name: getattr(raw, name) for name in _COUNTS}

    def close(self) -> None:
        """Free everything. The switch must not call the function from then on."""
        self._library.parameters_free(self._parameters)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def _library() -> ctypes.CDLL:
    files = dict(_files())
    path = compile_library(FLAGS, files.values(), lambda: files, _CONSTANTS, ("-lm",))
    loaded = ctypes.CDLL(str(path))
    thing = ctypes.c_void_p
    loaded.parameters_new.restype = thing
    loaded.parameters_new.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
    loaded.parameters_set_service.restype = None
    loaded.parameters_set_service.argtypes = (thing, ctypes.c_uint32)
    loaded.parameters_free.restype, loaded.parameters_free.argtypes = None, (thing,)
    loaded.parameters_counts.restype = ctypes.POINTER(Counts)
    loaded.parameters_counts.argtypes = (thing,)
    loaded.parameters_on_egress.restype = None
    loaded.parameters_on_egress.argtypes = (thing, ctypes.c_char_p, ctypes.c_uint32)
    return loaded


def _files() -> Iterator[tuple[str, bytes]]:
    for package, paths in _SOURCES.items():
        for path in paths:
            yield PurePath(path).name, read(package, path)
