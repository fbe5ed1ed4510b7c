"""Meters through P4Runtime: the engine's cells as MeterEntry messages."""

import copy
from collections.abc import Callable, Iterator

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.engine.counts import MeterRates
from innet.switch.p4runtime.entities import indices
from innet.switch.p4runtime.refusals import invalid, unsupported
from innet.switch.p4runtime.schema import Schema


class Meters:
    """The indirect meters of one loaded program, and their configurations."""

    def __init__(self, engine: Engine, schema: Schema) -> None:
        self._engine, self._schema = engine, schema
        # By meter and index. The index None stands for all cells that have no key of their own.
        self._configs: dict[int, dict[int | None, p4rt.MeterConfig | None]] = {
            number: {} for number in schema.meters
        }

    def write(self, message: p4rt.MeterEntry) -> None:
        """Configure one cell, or without an index all of them. Raises Refusal."""
        meter = self._schema.meter(message.meter_id)
        if message.HasField("counter_data"):
            raise unsupported(f"{meter.name}: counts of colours are not supported")
        rates = meter_rates(message.config) if message.HasField("config") else None
        cells = indices(meter, message)
        self._engine.arrays.set_meter(meter.name, cells.start, rates, len(cells))
        config = copy.deepcopy(message.config) if rates else None
        if message.HasField("index"):
            self._configs[meter.id][message.index.index] = config
        else:
            self._configs[meter.id] = {None: config}

    def saved(self, message: p4rt.MeterEntry) -> Callable[[], None]:
        """Return a function that configures a message's cells as they are now. Raises Refusal."""
        meter = self._schema.meter(message.meter_id)
        if message.HasField("index"):
            entries = list(self.read(message))
        else:
            configs = {None: None, **self._configs[meter.id]}  # all cells come first
            entries = [p4rt.MeterEntry(meter_id=meter.id, config=each) for each in configs.values()]
            for index, entry in zip(configs, entries, strict=True):
                if index is not None:
                    entry.index.index = index

        def restore() -> None:
            for entry in entries:
                self.write(entry)

        return restore

    def read(self, wanted: p4rt.MeterEntry) -> Iterator[p4rt.MeterEntry]:
        """Yield the cells that `wanted` describes. Id 0 stands for all meters. Raises Refusal."""
        number = wanted.meter_id
        for meter in [self._schema.meter(number)] if number else self._schema.meters.values():
            for index in indices(meter, wanted):
                configs = self._configs[meter.id]
                config = configs.get(index, configs.get(None))
                entry = p4rt.MeterEntry(meter_id=meter.id, config=config)
                entry.index.index = index
                yield entry


def meter_rates(config: p4rt.MeterConfig) -> MeterRates | None:
    """Return the rates of a configuration, or None for always green. Raises Refusal if it is invalid."""
    rates = (config.cir, config.cburst, config.pir, config.pburst)
    if config.eburst:
        raise invalid("the meter has two rates: its eburst has to be 0")
    if {*rates} == {-1}:  # BMv2 marks everything green then
        return None
    if min(rates) < 0:
        raise invalid("a rate or a burst of the meter is negative")
    if config.cir > config.pir:
        raise invalid(f"the peak rate {config.pir} is below the committed rate {config.cir}")
    return MeterRates(*rates)
