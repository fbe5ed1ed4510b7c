"""The compiled library of one program, with its functions and structures declared for ctypes."""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from innet.errors import UnsupportedProgram
from innet.switch.engine.counts import Count, MeterRates


class CountStruct(ctypes.Structure):
    """A number of packets and a number of bytes."""

    _fields_ = (("packets", ctypes.c_uint64), ("bytes", ctypes.c_uint64))

    def value(self) -> Count:
        """Return the count."""
        return Count(self.packets, self.bytes)


class PortCountsStruct(ctypes.Structure):
    """The counts of a port."""

    _fields_ = (
        ("received", CountStruct),
        ("sent", CountStruct),
        ("send_failures", ctypes.c_uint64),
    )


class TableCountsStruct(ctypes.Structure):
    """The counts of a table."""

    _fields_ = (("hits", ctypes.c_uint64), ("misses", ctypes.c_uint64))


class ReplicaStruct(ctypes.Structure):
    """One copy that a multicast group or a clone session makes."""

    _fields_ = (("port", ctypes.c_uint32), ("instance", ctypes.c_uint32))


class MeterStruct(ctypes.Structure):
    """The configuration of a meter."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("committed_rate", "committed_burst", "peak_rate", "peak_burst")
    )


class Library:
    """A loaded library with one switch. The C function ``rt_x`` is the method `x`.

    In the runtime, each of the switch's `cores` has a ``struct sw`` of its own. A method calls its C
    function once for every core, with the same arguments, and returns the first result. A function
    that reads counts adds those of its core to the structure that it gets. Only one thread at a time
    may change the switch.

    Raises UnsupportedProgram if there is not enough memory.
    """

    def __init__(self, path: Path, drop_port: int, cores: int = 1) -> None:
        self.functions = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.functions, f"rt_{name}")
            function.restype, function.argtypes = result, arguments
        made = [self.functions.rt_create(drop_port) for _ in range(cores)]
        self._cores = [_SWITCH(core) for core in made if core]
        all_cores = (_SWITCH * cores)(*self._cores)
        if len(self._cores) < cores or not self.functions.rt_join(all_cores, cores):
            self._on_all(self.functions.rt_destroy, ())
            raise UnsupportedProgram(
                "this machine has no memory for the program's arrays: compile it with smaller ones, or "
                "give the machine more"
            )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self.functions, f"rt_{name}")
        if len(self._cores) == 1:
            return partial(function, self._cores[0])
        return lambda *arguments: self._on_all(function, arguments)[0]

    def _on_all(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        return [function(core, *arguments) for core in self._cores]

    def on_each(self, name: str) -> list[Callable[..., Any]]:
        """Return the C function ``rt_x``, where x is `name`, once for each core and bound to it."""
        return [partial(getattr(self.functions, f"rt_{name}"), core) for core in self._cores]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold all packets back, so that they see this thread's changes as a single change."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def register_bytes(self, register: int) -> int:
        """Return the bytes of each cell of a register."""
        return int(self.functions.rt_register_bytes(register))


def count_struct(count: Count | None) -> CountStruct:
    """Return a count for C, or an empty one to read into."""
    return CountStruct(count.packets, count.bytes) if count else CountStruct()


def meter_struct(rates: MeterRates | None) -> Any:
    """Return the address of a meter's configuration, or None for a meter without one."""
    if rates is None:
        return None
    numbers = (rates.committed_rate, rates.committed_burst, rates.peak_rate, rates.peak_burst)
    return ctypes.byref(MeterStruct(*numbers))


_SWITCH, _U32, _U64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
_BOOL, _INT, _BYTES = ctypes.c_bool, ctypes.c_int, ctypes.c_char_p
_U32S, _U64S = ctypes.POINTER(_U32), ctypes.POINTER(_U64)
_COUNT, _METER = ctypes.POINTER(CountStruct), ctypes.POINTER(MeterStruct)
_REPLICAS = ctypes.POINTER(ReplicaStruct)

_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "create": (_SWITCH, (_U32,)),
    "join": (_BOOL, (ctypes.POINTER(_SWITCH), _U32)),
    "core": (_U32, (_SWITCH, _U32, _BYTES, _U32)),
    "finish": (None, (_SWITCH,)),
    "destroy": (None, (_SWITCH,)),
    "insert": (_U32, (_SWITCH, _U32, _BYTES, _BYTES, _U32, _U32, _U64S, _U32, _U32)),
    "remove": (None, (_SWITCH, _U32, _U32)),
    "set_action": (None, (_SWITCH, _U32, _U32, _U32, _U64S, _U32, _U32)),
    "set_bundle": (None, (_SWITCH, _U32, _U32, _U32S, _U32S, _U64S)),
    "remove_bundle": (None, (_SWITCH, _U32)),
    "set_meter": (None, (_SWITCH, _U32, _U32, _U32, _METER)),
    "set_direct_meter": (None, (_SWITCH, _U32, _U32, _METER)),
    "seed": (None, (_SWITCH, _U64)),
    "set_log": (None, (_SWITCH, _INT)),
    "entry_count": (None, (_SWITCH, _U32, _U32, _COUNT, _BOOL)),
    "counter": (None, (_SWITCH, _U32, _U32, _U32, _COUNT, _BOOL)),
    "set_group": (None, (_SWITCH, _U32, _REPLICAS, _U32)),
    "set_session": (None, (_SWITCH, _U32, _REPLICAS, _U32, _U32, _U32)),
    "set_learning": (None, (_SWITCH, _U32, _BOOL)),
    "set_wakeup": (None, (_SWITCH, _INT)),
    "learned": (_U32, (_SWITCH, _BYTES, _U32)),
    "set_priority_queues": (None, (_SWITCH, _U32)),
    "capture": (None, (_SWITCH, _U32, _INT, _INT)),
    "add_port": (None, (_SWITCH, _U32, _INT, _INT, _BYTES, _U32)),
    "use_xdp": (None, (_SWITCH, _U32, ctypes.c_void_p, _U32)),
    "set_egress_hook": (None, (_SWITCH, ctypes.c_void_p, ctypes.c_void_p)),
    "run": (None, (_SWITCH,)),
    "stop": (None, (_SWITCH,)),
    "hold": (None, (_SWITCH,)),
    "release": (None, (_SWITCH,)),
    "entry_idle": (_U64, (_SWITCH, _U32, _U32)),
    "register_bytes": (_U32, (_U32,)),
    "register": (None, (_SWITCH, _U32, _U32, _U32, _BYTES, _BOOL)),
    "table_counts": (None, (_SWITCH, _U32, ctypes.POINTER(TableCountsStruct))),
    "drops": (None, (_SWITCH, _U64S, _U32)),
    "port_counts": (None, (_SWITCH, _U32, ctypes.POINTER(PortCountsStruct))),
    "exercise": (None, (_SWITCH, _U32, _BYTES, _U32, _U32)),
}
