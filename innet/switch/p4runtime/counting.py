"""Counters through P4Runtime: the engine's cells as CounterEntry messages."""

from collections.abc import Callable, Iterator
from functools import partial

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.engine.arrays import portions
from innet.switch.engine.counts import Count
from innet.switch.p4runtime.entities import indices
from innet.switch.p4runtime.refusals import invalid
from innet.switch.p4runtime.schema import Schema

_SIGN = 1 << 63


class Counters:
    """The indirect counters of one loaded program."""

    def __init__(self, engine: Engine, schema: Schema) -> None:
        self._engine, self._schema = engine, schema

    def write(self, message: p4rt.CounterEntry) -> None:
        """Set one cell, or without an index all of them. Raises Refusal."""
        if not message.counter_id:
            raise invalid("the counter's id is missing")
        counter = self._schema.counter(message.counter_id)
        cells = indices(counter, message)
        if message.HasField("data"):
            count = counted(message.data)
            self._engine.arrays.fill_counter(counter.name, cells.start, len(cells), count)

    def saved(self, message: p4rt.CounterEntry) -> Callable[[], None]:
        """Return a function that sets a message's cells to their present counts. Raises Refusal."""
        counter = self._schema.counter(message.counter_id)
        cells, arrays = indices(counter, message), self._engine.arrays
        counts = arrays.counts(counter.name, cells.start, len(cells))
        return partial(arrays.set_counts, counter.name, cells.start, counts)

    def read(self, wanted: p4rt.CounterEntry) -> Iterator[p4rt.CounterEntry]:
        """Yield the cells that `wanted` describes. Id 0 stands for all counters. Raises Refusal."""
        number = wanted.counter_id
        for counter in [self._schema.counter(number)] if number else self._schema.counters.values():
            cells = indices(counter, wanted)
            for first, count in portions(cells.start, len(cells)):
                counts = self._engine.arrays.counts(counter.name, first, count)
                for index, cell in enumerate(counts, first):
                    data = counter_data(cell.value())
                    entry = p4rt.CounterEntry(counter_id=counter.id, data=data)
                    entry.index.index = index
                    yield entry


def counter_data(count: Count) -> p4rt.CounterData:
    """Return a count as a P4Runtime message.

    The switch counts in 64 bits without a sign, and P4Runtime in 64 bits with one. As in BMv2 the
    bits are the same, so that 2**63 reads as -2**63.
    """
    return p4rt.CounterData(packet_count=_signed(count.packets), byte_count=_signed(count.bytes))


def counted(data: p4rt.CounterData) -> Count:
    """Return the count in a P4Runtime message."""
    return Count(data.packet_count % (2 * _SIGN), data.byte_count % (2 * _SIGN))


def _signed(count: int) -> int:
    return (count ^ _SIGN) - _SIGN
