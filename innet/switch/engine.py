"""A compiled program with its tables and ports: the Python interface to the C library.

Every method that changes or reads state takes the packet loop's lock in C for some microseconds.
Packets never pass through Python.
"""

import contextlib
import ctypes
import hashlib
import secrets
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.bmv2json import load
from innet.switch.build import compile_program
from innet.switch.codegen import generate, key_bytes, key_sizes
from innet.switch.constants import DROPS, MISS, NO_BUNDLE
from innet.switch.ports import Port

_WORD = (1 << 64) - 1
_LARGEST_NUMBER = 16  # bytes
_STDOUT = 1
_SAMPLE = struct.Struct("=HH")


class _Count(ctypes.Structure):
    _fields_ = (("packets", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


class _PortCounts(ctypes.Structure):
    _fields_ = (("inward", _Count), ("outward", _Count), ("send_failures", ctypes.c_uint64))


class _TableCounts(ctypes.Structure):
    _fields_ = (("hits", ctypes.c_uint64), ("misses", ctypes.c_uint64))


class _Replica(ctypes.Structure):
    _fields_ = (("port", ctypes.c_uint32), ("instance", ctypes.c_uint32))


class _MeterConfig(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("committed_rate", "committed_burst", "peak_rate", "peak_burst")
    )


@dataclass(frozen=True)
class MeterRates:
    """A meter's rates per second and bursts, in packets or bytes. Peak is never below committed."""

    committed_rate: int
    committed_burst: int
    peak_rate: int
    peak_burst: int


@dataclass(frozen=True)
class Count:
    """A number of packets and a number of bytes."""

    packets: int
    bytes: int


@dataclass(frozen=True)
class PortCounts:
    """The frames that passed a port."""

    inward: Count
    outward: Count
    send_failures: int


@dataclass(frozen=True)
class TableCounts:
    """The number of hits and misses of a table."""

    hits: int
    misses: int


@dataclass(frozen=True)
class Outward:
    """A C function that sees every frame before it leaves. It may change the frame, but not its size.

    The fields are the addresses of a ``void (*)(void *context, uint8_t *frame, uint32_t bytes)``,
    which the packet loop calls, and of its context. Both belong to the caller and must outlive the
    engine.
    """

    function: int
    context: int


class Engine:
    """A program that is loaded and runs on a set of ports until :meth:`close`.

    The sockets of the ports belong to the caller, so that the next program can use them.
    """

    def __init__(
        self,
        json: str | bytes,
        drop_port: int = 511,
        keep: Path | None = None,
        *,
        priority_queues: int = 1,
        tracing: bool = False,
        seed: int | None = None,
        outward: Outward | None = None,
    ) -> None:
        self.program = load(json)
        content = json.encode() if isinstance(json, str) else json
        self.digest = hashlib.sha256(content).hexdigest()
        self.priority_queues = priority_queues
        library = compile_program(
            content + bytes([tracing]), partial(generate, self.program, tracing=tracing), keep
        )
        self._library = _declare(ctypes.CDLL(str(library)))
        self._switch = self._library.rt_create(drop_port)
        if not self._switch:
            raise UnsupportedProgram("this machine has no memory for the program's arrays")
        self._library.rt_set_priority_queues(self._switch, priority_queues)
        if outward:
            self._library.rt_set_outward(self._switch, outward.function, outward.context)
        self._thread: threading.Thread | None = None
        self._numbers = {table.name: i for i, table in enumerate(self.program.tables)}
        self._counters = {counter.name: i for i, counter in enumerate(self.program.counters)}
        self._meters = {meter.name: i for i, meter in enumerate(self.program.meters)}
        self._value_sets: dict[str, list[int]] = {
            value_set.name: [] for value_set in self.program.value_sets
        }
        self.seed(secrets.randbits(64) if seed is None else seed)
        if tracing:
            self.log_to(_STDOUT)  # the trace goes there too
        self._params = {action.id: action.params for action in self.program.actions}
        self._registers = {register.name: i for i, register in enumerate(self.program.registers)}
        self.initial_entries: dict[str, list[int]] = {}
        for table in self.program.tables:
            if table.default_action is not None:
                self.set_action(table.name, MISS, table.default_action, table.default_args)
            self.initial_entries[table.name] = [
                self.insert(
                    table.name, entry.values, entry.masks, entry.priority, entry.action, entry.args
                )
                for entry in table.entries
            ]

    def start(self, ports: Iterable[Port]) -> None:
        """Start forwarding packets."""
        for port in ports:
            self._library.rt_add_port(self._switch, port.number, port.fileno(), port.kind)
            if port.captures:
                files = (file.fileno() for file in port.captures)
                self._library.rt_capture(self._switch, port.number, *files)
        self._thread = threading.Thread(
            target=self._library.rt_run, args=(self._switch,), name="innet-switch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop forwarding. Packets that arrive wait in the ports."""
        if self._thread:
            self._library.rt_stop(self._switch)
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Stop forwarding and release everything except the ports."""
        self.stop()
        self._library.rt_destroy(self._switch)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold all packets back, so that they see this thread's changes as a single change."""
        self._library.rt_hold(self._switch)
        try:
            yield
        finally:
            self._library.rt_release(self._switch)

    def table(self, name: str) -> ir.Table:
        """Return the program's table called `name`."""
        return self.program.tables[self._numbers[name]]

    def insert(
        self,
        table: str,
        values: Sequence[int],
        masks: Sequence[int],
        priority: int,
        action: int,
        args: Sequence[int],
        bundle: int = NO_BUNDLE,
    ) -> int:
        """Add an entry and return its id. If several entries match, the highest priority wins.

        If the program masks a key, both the packet's value and the entry's value are masked. In a
        table with an action profile, an entry has a bundle of actions instead of an action.
        """
        layout = self.table(table)
        values = [
            value if key.mask is None else value & key.mask
            for value, key in zip(values, layout.keys, strict=True)
        ]
        return int(
            self._library.rt_insert(
                self._switch,
                self._numbers[table],
                _pack_key(layout, values),
                _pack_key(layout, masks),
                priority,
                action,
                *self._pack_args(action, args),
                bundle,
            )
        )

    def remove(self, table: str, entry: int) -> None:
        """Remove the entry with this id."""
        self._library.rt_remove(self._switch, self._numbers[table], entry)

    def set_action(
        self,
        table: str,
        entry: int,
        action: int,
        args: Sequence[int],
        bundle: int = NO_BUNDLE,
    ) -> None:
        """Change the action of an entry, or with :data:`MISS` the default action of the table."""
        self._library.rt_set_action(
            self._switch,
            self._numbers[table],
            entry,
            action,
            *self._pack_args(action, args),
            bundle,
        )

    def set_values(self, name: str, members: Iterable[tuple[int, int]]) -> None:
        """Set the members of a parser's value set, as values and masks over all of its joined fields."""
        numbers = {each.name: i for i, each in enumerate(self.program.value_sets)}
        value_set = self.program.value_sets[numbers[name]]
        number = len(self.program.tables) + numbers[name]
        size, padding = value_set.key_bytes, -value_set.bits % 64
        with self.held():
            for entry in self._value_sets[name]:
                self._library.rt_remove(self._switch, number, entry)
            self._value_sets[name] = [
                int(
                    self._library.rt_insert(
                        self._switch,
                        number,
                        (value << padding).to_bytes(size, "big"),
                        (mask << padding).to_bytes(size, "big"),
                        1,
                        0,
                        *_packed([]),
                        NO_BUNDLE,
                    )
                )
                for value, mask in members
            ]

    def set_bundle(self, bundle: int, calls: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Set the actions and arguments from which an entry with this bundle chooses.

        The caller numbers bundles from 0 without gaps.
        """
        count = len(calls)
        numbers = ctypes.c_uint32 * max(1, count)
        actions = numbers(*(action for action, _ in calls))
        parts = [self._words(action, args) for action, args in calls]
        words = numbers(*map(len, parts))
        packed, _ = _packed([word for part in parts for word in part])
        self._library.rt_set_bundle(self._switch, bundle, count, actions, words, packed)

    def remove_bundle(self, bundle: int) -> None:
        """Remove a bundle that no entry uses any more."""
        self._library.rt_remove_bundle(self._switch, bundle)

    def set_meter(self, name: str, index: int, rates: MeterRates | None) -> None:
        """Configure one cell of an indirect meter. Without rates it marks every packet green."""
        number = self._meters[name]
        self._library.rt_set_meter(self._switch, number, index, _pack_rates(rates))

    def set_entry_meter(self, table: str, entry: int, rates: MeterRates | None) -> None:
        """Configure an entry's direct meter. Without rates it marks every packet green."""
        self._library.rt_set_direct_meter(
            self._switch, self._numbers[table], entry, _pack_rates(rates)
        )

    def seed(self, number: int) -> None:
        """Restart the random numbers. The same seed gives the same numbers."""
        self._library.rt_seed(self._switch, number & _WORD)

    def log_to(self, file: int) -> None:
        """Write the program's log to this file descriptor, or nowhere for -1."""
        self._library.rt_set_log(self._switch, file)

    def failed_assertions(self) -> int:
        """Return the number of the program's assertions and assumptions that failed."""
        return int(self._library.rt_failed_assertions(self._switch))

    def entry_count(self, table: str, entry: int, new: Count | None = None) -> Count:
        """Read or set an entry's direct counter."""
        raw = _raw(new)
        self._library.rt_entry_count(
            self._switch, self._numbers[table], entry, ctypes.byref(raw), new is not None
        )
        return Count(raw.packets, raw.bytes)

    def counter(self, name: str, index: int, new: Count | None = None) -> Count:
        """Read or set one cell of an indirect counter."""
        raw = _raw(new)
        number = self._counters[name]
        self._library.rt_counter(self._switch, number, index, ctypes.byref(raw), new is not None)
        return Count(raw.packets, raw.bytes)

    def idle_ns(self, table: str, entry: int) -> int:
        """Return the nanoseconds since a packet last matched an entry, or since it was inserted."""
        return int(self._library.rt_entry_idle(self._switch, self._numbers[table], entry))

    def register(self, name: str, first: int, count: int = 1) -> list[int]:
        """Return the bits of consecutive cells of a register."""
        number = self._registers[name]
        size = self._library.rt_register_bytes(number)
        raw = ctypes.create_string_buffer(size * count)
        self._library.rt_register(self._switch, number, first, count, raw, False)
        cells = memoryview(raw.raw)
        order = _byte_order(size)
        return [int.from_bytes(cells[i : i + size], order) for i in range(0, len(cells), size)]

    def set_register(self, name: str, first: int, values: Sequence[int]) -> None:
        """Set the bits of consecutive cells of a register."""
        number = self._registers[name]
        size = self._library.rt_register_bytes(number)
        raw = b"".join(value.to_bytes(size, _byte_order(size)) for value in values)
        self._library.rt_register(self._switch, number, first, len(values), raw, True)

    def table_counts(self, name: str) -> TableCounts:
        """Return the hits and misses of a table so far."""
        raw = _TableCounts()
        self._library.rt_table_counts(self._switch, self._numbers[name], ctypes.byref(raw))
        return TableCounts(raw.hits, raw.misses)

    def drops(self) -> dict[str, int]:
        """Return the number of packets dropped so far for each reason in :data:`DROPS`."""
        raw = (ctypes.c_uint64 * len(DROPS))()
        self._library.rt_drops(self._switch, raw, len(DROPS))
        return dict(zip(DROPS, raw, strict=True))

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Set the (port, instance) copies of a multicast group. No copies remove the group."""
        array = (_Replica * max(1, len(replicas)))(*(_Replica(*each) for each in replicas))
        self._library.rt_set_group(self._switch, group, array, len(replicas))

    def set_session(
        self,
        session: int,
        replicas: Sequence[tuple[int, int]],
        most_bytes: int = 0,
        class_of_service: int = 0,
    ) -> None:
        """Set the (port, instance) copies of a clone session. No copies remove the session.

        A clone is cut to `most_bytes`, unless they are 0. A class of service other than 0 becomes
        its priority.
        """
        array = (_Replica * max(1, len(replicas)))(*(_Replica(*each) for each in replicas))
        count = len(replicas)
        self._library.rt_set_session(
            self._switch, session, array, count, most_bytes, class_of_service
        )

    def set_learning(self, number: int, *, on: bool) -> None:
        """Switch the samples for one kind of digest on or off."""
        self._library.rt_set_learning(self._switch, number, on)

    def set_wakeup(self, eventfd: int) -> None:
        """Set the eventfd that is written to when there are new samples."""
        self._library.rt_set_wakeup(self._switch, eventfd)

    def learned(self) -> list[tuple[int, bytes]]:
        """Take the samples since the last call, each as the kind of digest and its bytes."""
        found: list[tuple[int, bytes]] = []
        room = ctypes.create_string_buffer(1 << 16)
        while size := self._library.rt_learned(self._switch, room, len(room)):
            data, at = room.raw[:size], 0
            while at < size:
                number, count = _SAMPLE.unpack_from(data, at)
                at += _SAMPLE.size
                found.append((number, data[at : at + count]))
                at += count
        return found

    def port_counts(self, number: int) -> PortCounts:
        """Return the counts of a port so far."""
        raw = _PortCounts()
        self._library.rt_port_counts(self._switch, number, ctypes.byref(raw))
        return PortCounts(
            Count(raw.inward.packets, raw.inward.bytes),
            Count(raw.outward.packets, raw.outward.bytes),
            raw.send_failures,
        )

    def _pack_args(self, action: int, args: Sequence[int]) -> tuple[Any, int]:
        return _packed(self._words(action, args))

    def _words(self, action: int, args: Sequence[int]) -> list[int]:
        """Return an action's arguments as words in C's layout."""
        words: list[int] = []
        params = self._params.get(action, ())
        for arg, (_, bits) in zip(args, params, strict=True):
            size = 8 * ir.argument_words(bits)
            if bits <= 128:
                packed = arg.to_bytes(size, "little")
            else:
                packed = arg.to_bytes((bits + 7) // 8, "big").ljust(size, b"\0")
            words += struct.unpack(f"={size // 8}Q", packed)
        return words

    def exercise(self, port: int, frame: bytes, times: int) -> None:
        """Run a frame through the program `times` times for a measurement, with the lock held."""
        self._library.rt_exercise(self._switch, port, frame, len(frame), times)


def _raw(count: Count | None) -> _Count:
    return _Count(count.packets, count.bytes) if count else _Count()


def _pack_key(table: ir.Table, components: Sequence[int]) -> bytes:
    parts = (
        value.to_bytes(size, _byte_order(size))
        for value, size in zip(components, key_sizes(table), strict=True)
    )
    return b"".join(parts).ljust(key_bytes(table), b"\0")


def _byte_order(size: int) -> Literal["little", "big"]:
    """Return the byte order of a C value: a native integer up to 128 bits, above that a byte array."""
    return "little" if size <= _LARGEST_NUMBER else "big"


def _pack_rates(rates: MeterRates | None) -> Any:
    if rates is None:
        return None
    numbers = (rates.committed_rate, rates.committed_burst, rates.peak_rate, rates.peak_burst)
    return ctypes.byref(_MeterConfig(*numbers))


def _packed(words: list[int]) -> tuple[Any, int]:
    return (ctypes.c_uint64 * max(1, len(words)))(*words), len(words)


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    switch, u32, u64s = ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64)
    counts, flag, text = ctypes.POINTER(_Count), ctypes.c_bool, ctypes.c_char_p
    u32s = ctypes.POINTER(u32)
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "rt_create": (switch, (u32,)),
        "rt_destroy": (None, (switch,)),
        "rt_insert": (u32, (switch, u32, text, text, u32, u32, u64s, u32, u32)),
        "rt_remove": (None, (switch, u32, u32)),
        "rt_set_action": (None, (switch, u32, u32, u32, u64s, u32, u32)),
        "rt_set_bundle": (None, (switch, u32, u32, u32s, u32s, u64s)),
        "rt_remove_bundle": (None, (switch, u32)),
        "rt_set_meter": (None, (switch, u32, u32, ctypes.POINTER(_MeterConfig))),
        "rt_set_direct_meter": (None, (switch, u32, u32, ctypes.POINTER(_MeterConfig))),
        "rt_seed": (None, (switch, ctypes.c_uint64)),
        "rt_set_log": (None, (switch, ctypes.c_int)),
        "rt_failed_assertions": (ctypes.c_uint64, (switch,)),
        "rt_entry_count": (None, (switch, u32, u32, counts, flag)),
        "rt_counter": (None, (switch, u32, u32, counts, flag)),
        "rt_set_group": (None, (switch, u32, ctypes.POINTER(_Replica), u32)),
        "rt_set_session": (None, (switch, u32, ctypes.POINTER(_Replica), u32, u32, u32)),
        "rt_set_learning": (None, (switch, u32, flag)),
        "rt_set_wakeup": (None, (switch, ctypes.c_int)),
        "rt_learned": (u32, (switch, text, u32)),
        "rt_set_priority_queues": (None, (switch, u32)),
        "rt_capture": (None, (switch, u32, ctypes.c_int, ctypes.c_int)),
        "rt_add_port": (None, (switch, u32, ctypes.c_int, ctypes.c_int)),
        "rt_set_outward": (None, (switch, ctypes.c_void_p, ctypes.c_void_p)),
        "rt_run": (None, (switch,)),
        "rt_stop": (None, (switch,)),
        "rt_hold": (None, (switch,)),
        "rt_release": (None, (switch,)),
        "rt_entry_idle": (ctypes.c_uint64, (switch, u32, u32)),
        "rt_register_bytes": (u32, (u32,)),
        "rt_register": (None, (switch, u32, u32, u32, text, flag)),
        "rt_table_counts": (None, (switch, u32, ctypes.POINTER(_TableCounts))),
        "rt_drops": (None, (switch, u64s, u32)),
        "rt_port_counts": (None, (switch, u32, ctypes.POINTER(_PortCounts))),
        "rt_exercise": (None, (switch, u32, text, u32, u32)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
