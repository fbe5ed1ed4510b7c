"""Registers through P4Runtime: the engine's cells as RegisterEntry messages."""

from collections.abc import Callable, Iterator
from functools import partial

from innet.p4runtime import p4data_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.engine.arrays import portions
from innet.switch.p4runtime.entities import Register, encode, indices
from innet.switch.p4runtime.refusals import invalid
from innet.switch.p4runtime.schema import Schema

_AT_ONCE = 1 << 20
"""The cells that are read at once. A client's request reads no more."""


class Registers:
    """The registers of one loaded program."""

    def __init__(self, engine: Engine, schema: Schema) -> None:
        self._arrays, self._schema = engine.arrays, schema

    def write(self, entry: p4rt.RegisterEntry) -> None:
        """Write one cell, or without an index all of them. Raises Refusal."""
        register = self._schema.register(entry.register_id)
        bits = _bits(register, entry.data)
        cells = indices(register, entry)
        self._arrays.fill_register(register.name, cells.start, len(cells), bits)

    def saved(self, entry: p4rt.RegisterEntry) -> Callable[[], None]:
        """Return a function that sets an entry's cells to their present values. Raises Refusal."""
        register = self._schema.register(entry.register_id)
        cells = indices(register, entry)
        raw = self._arrays.raw_register(register.name, cells.start, len(cells))
        return partial(self._arrays.set_raw_register, register.name, cells.start, raw)

    def read(self, wanted: p4rt.RegisterEntry) -> Iterator[p4rt.RegisterEntry]:
        """Yield the cells that `wanted` describes. Id 0 stands for all registers. Raises Refusal."""
        number = wanted.register_id
        for register in (
            [self._schema.register(number)] if number else self._schema.registers.values()
        ):
            cells = indices(register, wanted)
            for first, count in portions(cells.start, len(cells), _AT_ONCE):
                values = self._arrays.register(register.name, first, count)
                for index, value in enumerate(values, first):
                    entry = p4rt.RegisterEntry(register_id=register.id, data=_data(register, value))
                    entry.index.index = index
                    yield entry


def _data(register: Register, bits: int) -> p4data_pb2.P4Data:
    if register.kind == "bool":
        return p4data_pb2.P4Data(bool=bool(bits))
    if register.kind == "int":
        value = bits - (bits >> (register.bits - 1) << register.bits)
        size = ((~value if value < 0 else value).bit_length() + 8) // 8
        return p4data_pb2.P4Data(bitstring=value.to_bytes(size, "big", signed=True))
    return p4data_pb2.P4Data(bitstring=encode(bits))


def _bits(register: Register, data: p4data_pb2.P4Data) -> int:
    wanted = "bool" if register.kind == "bool" else "bitstring"
    if data.WhichOneof("data") != wanted:
        raise invalid(f"{register.name}: give the value of a cell as {wanted}")
    if register.kind == "bool":
        return int(data.bool)
    return register.parse(data.bitstring)
