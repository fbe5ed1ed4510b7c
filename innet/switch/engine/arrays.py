"""The arrays of state that a program declares: registers, indirect counters, and indirect meters."""

import ctypes
from collections.abc import Sequence

from innet.switch import ir
from innet.switch.engine.counts import Count, MeterRates
from innet.switch.engine.library import Library, count_struct, meter_struct
from innet.switch.layout import byte_order

_FILLED = 1024
"""The cells that are filled by one call of C."""


class Arrays:
    """The arrays of one program."""

    def __init__(self, library: Library, program: ir.Program) -> None:
        self._library = library
        self._registers = {register.name: i for i, register in enumerate(program.registers)}
        self._counters = {counter.name: i for i, counter in enumerate(program.counters)}
        self._meters = {meter.name: i for i, meter in enumerate(program.meters)}

    def register(self, name: str, first: int, count: int = 1) -> list[int]:
        """Return the bits of consecutive cells of a register."""
        number = self._registers[name]
        size = self._library.register_bytes(number)
        raw = ctypes.create_string_buffer(size * count)
        with self._library.held():  # every core fills in its own cells
            self._library.register(number, first, count, raw, False)
        cells, order = memoryview(raw.raw), byte_order(size)
        return [int.from_bytes(cells[i : i + size], order) for i in range(0, len(cells), size)]

    def set_register(self, name: str, first: int, values: Sequence[int]) -> None:
        """Set the bits of consecutive cells of a register."""
        number = self._registers[name]
        size = self._library.register_bytes(number)
        raw = b"".join(value.to_bytes(size, byte_order(size)) for value in values)
        with self._library.held():
            self._library.register(number, first, len(values), raw, True)

    def fill_register(self, name: str, first: int, count: int, value: int) -> None:
        """Set the bits of consecutive cells of a register to the same value."""
        number = self._registers[name]
        size = self._library.register_bytes(number)
        at_once = min(count, _FILLED)
        raw = value.to_bytes(size, byte_order(size)) * at_once
        with self._library.held():
            for start in range(first, first + count, at_once):
                cells = min(at_once, first + count - start)
                self._library.register(number, start, cells, raw, True)

    def counter(self, name: str, index: int, new: Count | None = None) -> Count:
        """Read or set one cell of an indirect counter."""
        raw = count_struct(new)
        self._library.counter(self._counters[name], index, ctypes.byref(raw), new is not None)
        return new or raw.value()

    def set_meter(self, name: str, index: int, rates: MeterRates | None) -> None:
        """Configure one cell of an indirect meter. Without rates it marks every packet green."""
        self._library.set_meter(self._meters[name], index, meter_struct(rates))
