"""The C of the parameters, compiled with the parameter server's optimizers, and declared for ctypes."""

import ctypes
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Self

from innet.native import compile_library
from innet.pbox.native import FLAGS
from innet.switch.engine import Outward

_COUNTS = ("jobs", "bytes", "steps", "repeated", "refused")
_SOURCES = (
    ("innet.parent", ("parameters.c", "parameters.h")),
    ("innet.pbox", ("optimizers.c", "pbox.h")),
)


class Counts(ctypes.Structure):
    """What is kept, and what became of the rows so far; `bytes` are those of the parameters.

    A result goes to several switches, and again to who has lost it: of each row one is a step, and the
    others are `repeated`.
    """

    _fields_ = tuple((name, ctypes.c_uint64) for name in _COUNTS)


class Parameters:
    """The parameters of jobs, for one switch to turn results into. Raises CompilerError.

    They have `most_bytes` together. What nobody has asked for in `silent_s` seconds is forgotten when
    there is no room for others.
    """

    def __init__(self, most_bytes: int, silent_s: float = 60.0) -> None:
        self._library = _library()
        self._parameters = self._library.parameters_new(most_bytes, int(silent_s * 1e9))
        if not self._parameters:
            raise MemoryError

    @property
    def outward(self) -> Outward:
        """What the switch's packet loop is to call."""
        function = ctypes.cast(self._library.parameters_outward, ctypes.c_void_p).value or 0
        return Outward(function, self._parameters)

    def serve(self, address: int) -> None:
        """Say which IPv4 address the switch has, before which nothing is answered."""
        self._library.parameters_serve(self._parameters, address)

    def answer(self, frame: bytes) -> bytes:
        """What becomes of a frame on its way out."""
        room = ctypes.create_string_buffer(frame, len(frame))
        self._library.parameters_outward(self._parameters, room, len(frame))
        return room.raw

    def counts(self) -> dict[str, int]:
        """:class:`Counts`, by name."""
        raw = self._library.parameters_counts(self._parameters).contents
        return {name: getattr(raw, name) for name in _COUNTS}

    def close(self) -> None:
        """Forget everything, when no switch calls any more."""
        self._library.parameters_free(self._parameters)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def _library() -> ctypes.CDLL:
    files = dict(_files())
    path = compile_library(FLAGS, files.values(), lambda: files, ("-lm",))
    loaded = ctypes.CDLL(str(path))
    thing = ctypes.c_void_p
    loaded.parameters_new.restype = thing
    loaded.parameters_new.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
    loaded.parameters_serve.restype = None
    loaded.parameters_serve.argtypes = (thing, ctypes.c_uint32)
    loaded.parameters_free.restype, loaded.parameters_free.argtypes = None, (thing,)
    loaded.parameters_counts.restype = ctypes.POINTER(Counts)
    loaded.parameters_counts.argtypes = (thing,)
    loaded.parameters_outward.restype = None
    loaded.parameters_outward.argtypes = (thing, ctypes.c_char_p, ctypes.c_uint32)
    return loaded


def _files() -> Iterator[tuple[str, bytes]]:
    for package, names in _SOURCES:
        folder = resources.files(package) / "runtime"
        for name in names:
            yield name, (folder / name).read_bytes()
