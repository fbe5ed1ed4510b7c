"""The arrays of state that a program declares: registers, indirect counters, and indirect meters."""

import ctypes
from collections.abc import Iterator

from innet.switch import ir
from innet.switch.engine.counts import Count, MeterRates
from innet.switch.engine.library import CountStruct, Library, count_struct, meter_struct
from innet.switch.layout import byte_order

_FILLED = 1024
"""The cells that are filled by one call of C."""


def portions(first: int, count: int, most: int = 1 << 12) -> Iterator[tuple[int, int]]:
    """Yield the first cell and the number of cells of portions, of at most so many cells each.

    By default a portion takes little memory.
    """
    for start in range(first, first + count, most):
        yield start, min(most, first + count - start)


class Arrays:
    """The arrays of one program."""

    def __init__(self, library: Library, program: ir.Program) -> None:
        self._library = library
        self._registers = {register.name: i for i, register in enumerate(program.registers)}
        self._counters = {counter.name: i for i, counter in enumerate(program.counters)}
        self._meters = {meter.name: i for i, meter in enumerate(program.meters)}

    def register(self, name: str, first: int, count: int = 1) -> list[int]:
        """Return the bits of consecutive cells of a register."""
        size = self._library.register_bytes(self._registers[name])
        cells, order = memoryview(self.raw_register(name, first, count)).cast("B"), byte_order(size)
        return [int.from_bytes(cells[i : i + size], order) for i in range(0, len(cells), size)]

    def raw_register(self, name: str, first: int, count: int) -> ctypes.Array[ctypes.c_char]:
        """Return consecutive cells of a register for :meth:`set_raw_register`."""
        number = self._registers[name]
        raw = (ctypes.c_char * (self._library.register_bytes(number) * count))()
        with self._library.held():  # every core fills in its own cells
            self._library.register(number, first, count, raw, False)
        return raw

    def set_raw_register(self, name: str, first: int, raw: ctypes.Array[ctypes.c_char]) -> None:
        """Set consecutive cells of a register."""
        number = self._registers[name]
        count = len(raw) // self._library.register_bytes(number)
        with self._library.held():
            self._library.register(number, first, count, raw, True)

    def fill_register(self, name: str, first: int, count: int, value: int) -> None:
        """Set the bits of consecutive cells of a register to the same value."""
        number = self._registers[name]
        size = self._library.register_bytes(number)
        raw = value.to_bytes(size, byte_order(size)) * min(count, _FILLED)
        with self._library.held():
            for start, cells in portions(first, count, _FILLED):
                self._library.register(number, start, cells, raw, True)

    def counts(self, name: str, first: int, count: int) -> ctypes.Array[CountStruct]:
        """Return consecutive cells of an indirect counter."""
        raw = (CountStruct * count)()
        self._library.counter(self._counters[name], first, count, raw, False)
        return raw

    def set_counts(self, name: str, first: int, raw: ctypes.Array[CountStruct]) -> None:
        """Set consecutive cells of an indirect counter. Afterwards, `raw` is zero."""
        self._library.counter(self._counters[name], first, len(raw), raw, True)

    def fill_counter(self, name: str, first: int, count: int, new: Count) -> None:
        """Set consecutive cells of an indirect counter to the same count."""
        cells = bytes(count_struct(new)) * min(count, _FILLED)
        with self._library.held():
            for start, at_once in portions(first, count, _FILLED):
                self.set_counts(name, start, (CountStruct * at_once).from_buffer_copy(cells))

    def set_meter(self, name: str, first: int, rates: MeterRates | None, count: int = 1) -> None:
        """Configure cells of an indirect meter. Without rates they mark every packet green."""
        self._library.set_meter(self._meters[name], first, count, meter_struct(rates))
