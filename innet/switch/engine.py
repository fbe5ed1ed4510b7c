"""A compiled program with its tables and ports: the C side, as Python sees it.

Every method that changes or reads state takes the packet loop's lock in C, for microseconds. Packets
themselves never pass through here.
"""

import ctypes
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.switch import ir
from innet.switch.bmv2json import load
from innet.switch.build import compile_program
from innet.switch.codegen import generate, key_bytes, key_sizes
from innet.switch.ports import Port

MISS = 0xFFFFFFFF
"""The id of a table's default action, where an entry's id could stand."""

_WORD = (1 << 64) - 1


class _Count(ctypes.Structure):
    _fields_ = (("packets", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


class _PortCounts(ctypes.Structure):
    _fields_ = (("inward", _Count), ("outward", _Count), ("send_failures", ctypes.c_uint64))


class _Replica(ctypes.Structure):
    _fields_ = (("port", ctypes.c_uint32), ("instance", ctypes.c_uint32))


@dataclass(frozen=True)
class Count:
    """Packets and bytes."""

    packets: int
    bytes: int


@dataclass(frozen=True)
class PortCounts:
    """What passed a port."""

    inward: Count
    outward: Count
    send_failures: int


class Engine:
    """One program, loaded and running on a set of ports until :meth:`close`.

    The ports' sockets stay the caller's, so that the next program can take them over.
    """

    def __init__(self, json: str | bytes, drop_port: int = 511, keep: Path | None = None) -> None:
        self.program = load(json)
        self._library = _declare(ctypes.CDLL(str(compile_program(generate(self.program), keep))))
        self._switch = self._library.rt_create(drop_port)
        self._thread: threading.Thread | None = None
        self._numbers = {table.name: i for i, table in enumerate(self.program.tables)}
        self._counters = {counter.name: i for i, counter in enumerate(self.program.counters)}
        for table in self.program.tables:
            if table.default_action is not None:
                self.set_action(table.name, MISS, table.default_action, table.default_args)
            for entry in table.entries:
                self.insert(
                    table.name, entry.values, entry.masks, entry.priority, entry.action, entry.args
                )

    def start(self, ports: Iterable[Port]) -> None:
        """Begin to forward packets."""
        for port in ports:
            self._library.rt_add_port(self._switch, port.number, port.fileno(), port.kind.value)
        self._thread = threading.Thread(
            target=self._library.rt_run, args=(self._switch,), name="innet-switch", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop forwarding and give everything back but the ports."""
        if self._thread:
            self._library.rt_stop(self._switch)
            self._thread.join()
        self._library.rt_destroy(self._switch)

    def table(self, name: str) -> ir.Table:
        """The program's table called `name`."""
        return self.program.tables[self._numbers[name]]

    def insert(
        self,
        table: str,
        values: Sequence[int],
        masks: Sequence[int],
        priority: int,
        action: int,
        args: Sequence[int],
    ) -> int:
        """Add an entry; of those that match, the highest priority wins. Returns the entry's id."""
        layout = self.table(table)
        return int(
            self._library.rt_insert(
                self._switch,
                self._numbers[table],
                _pack_key(layout, values),
                _pack_key(layout, masks),
                priority,
                action,
                *_pack_args(args),
            )
        )

    def remove(self, table: str, entry: int) -> None:
        """Remove the entry with this id."""
        self._library.rt_remove(self._switch, self._numbers[table], entry)

    def set_action(self, table: str, entry: int, action: int, args: Sequence[int]) -> None:
        """Change what an entry, or with :data:`MISS` the table without a match, does."""
        self._library.rt_set_action(
            self._switch, self._numbers[table], entry, action, *_pack_args(args)
        )

    def entry_count(self, table: str, entry: int, new: Count | None = None) -> Count:
        """Read, or set, what an entry's direct counter holds."""
        raw = _raw(new)
        self._library.rt_entry_count(
            self._switch, self._numbers[table], entry, ctypes.byref(raw), new is not None
        )
        return Count(raw.packets, raw.bytes)

    def counter(self, name: str, index: int, new: Count | None = None) -> Count:
        """Read, or set, one cell of an indirect counter."""
        raw = _raw(new)
        number = self._counters[name]
        self._library.rt_counter(self._switch, number, index, ctypes.byref(raw), new is not None)
        return Count(raw.packets, raw.bytes)

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Set a multicast group's (port, instance) copies; none removes it."""
        array = (_Replica * max(1, len(replicas)))(*(_Replica(*each) for each in replicas))
        self._library.rt_set_group(self._switch, group, array, len(replicas))

    def port_counts(self, number: int) -> PortCounts:
        """What passed a port so far."""
        raw = _PortCounts()
        self._library.rt_port_counts(self._switch, number, ctypes.byref(raw))
        return PortCounts(
            Count(raw.inward.packets, raw.inward.bytes),
            Count(raw.outward.packets, raw.outward.bytes),
            raw.send_failures,
        )

    def exercise(self, port: int, frame: bytes, times: int) -> None:
        """Run a frame through the program `times` times, for measuring; the lock is held."""
        self._library.rt_exercise(self._switch, port, frame, len(frame), times)


def _raw(count: Count | None) -> _Count:
    return _Count(count.packets, count.bytes) if count else _Count()


def _pack_key(table: ir.Table, components: Sequence[int]) -> bytes:
    parts = (
        value.to_bytes(size, "little")
        for value, size in zip(components, key_sizes(table), strict=True)
    )
    return b"".join(parts).ljust(key_bytes(table), b"\0")


def _pack_args(args: Sequence[int]) -> tuple[Any, int]:
    words = [word for arg in args for word in (arg & _WORD, arg >> 64)]
    return (ctypes.c_uint64 * max(1, len(words)))(*words), len(words)


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    switch, u32, u64s = ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64)
    counts, flag, text = ctypes.POINTER(_Count), ctypes.c_bool, ctypes.c_char_p
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "rt_create": (switch, (u32,)),
        "rt_destroy": (None, (switch,)),
        "rt_insert": (u32, (switch, u32, text, text, u32, u32, u64s, u32)),
        "rt_remove": (None, (switch, u32, u32)),
        "rt_set_action": (None, (switch, u32, u32, u32, u64s, u32)),
        "rt_entry_count": (None, (switch, u32, u32, counts, flag)),
        "rt_counter": (None, (switch, u32, u32, counts, flag)),
        "rt_set_group": (None, (switch, u32, ctypes.POINTER(_Replica), u32)),
        "rt_add_port": (None, (switch, u32, ctypes.c_int, ctypes.c_int)),
        "rt_run": (None, (switch,)),
        "rt_stop": (None, (switch,)),
        "rt_port_counts": (None, (switch, u32, ctypes.POINTER(_PortCounts))),
        "rt_exercise": (None, (switch, u32, text, u32, u32)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
