"""Meters of v1model, and meters and counters through P4Runtime."""

import struct
from collections.abc import Iterator

import pytest
from one_port import OnePort, action, running
from p4runtime_client import Names, update_errors
from switches import ask
from tiny_programs import program

from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.constants import MISS
from innet.switch.engine.counts import Count, MeterRates

# -- meters ----------------------------------------------------------------------------------------

# Without a rate, tokens never come back, so that no colour depends on time.
GREEN, YELLOW, RED = range(3)


@pytest.fixture
def meters() -> Iterator[OnePort]:
    with running("extern_meters") as port:
        yield port


def colours(port: OnePort, index: int, count: int, length: int = 3) -> list[tuple[int, int]]:
    frame = bytes([index, 9, 9]).ljust(length, b"\0")
    return [(answer[1], answer[2]) for answer in port.ask(*[frame] * count)]


def test_a_meter_is_green_up_to_the_committed_burst_then_yellow_then_red(meters):
    meters.engine.arrays.set_meter("TestIngress.by_packets", 1, MeterRates(0, 3, 0, 5))
    seen = [packets for packets, _ in colours(meters, 1, 8)]
    assert seen == [GREEN] * 3 + [YELLOW] * 2 + [RED] * 3
    assert colours(meters, 0, 8) == [(GREEN, GREEN)] * 8


def test_a_meter_of_bytes_takes_as_many_tokens_as_the_packet_is_long(meters):
    meters.engine.arrays.set_meter("TestIngress.by_bytes", 2, MeterRates(0, 100, 0, 250))
    seen = [of_bytes for _, of_bytes in colours(meters, 2, 6, length=50)]
    assert seen == [GREEN] * 2 + [YELLOW] * 3 + [RED]
    # A packet that is too large for the remaining tokens takes none of them.
    meters.engine.arrays.set_meter("TestIngress.by_bytes", 2, MeterRates(0, 60, 0, 60))
    sizes = (61, 50, 11, 10, 3)
    seen = [colours(meters, 2, 1, length=size)[0][1] for size in sizes]
    assert seen == [RED, GREEN, RED, GREEN, RED]


def test_configuring_a_meter_again_fills_its_burst_and_taking_it_away_makes_it_green(meters):
    name = "TestIngress.by_packets"
    for _ in range(2):
        meters.engine.arrays.set_meter(name, 0, MeterRates(0, 1, 0, 1))
        assert [packets for packets, _ in colours(meters, 0, 2)] == [GREEN, RED]
    meters.engine.arrays.set_meter(name, 0, None)
    assert [packets for packets, _ in colours(meters, 0, 2)] == [GREEN, GREEN]


def test_tokens_come_back_at_the_meters_rate(meters):
    # The first rate adds a token every microsecond, and an answer takes longer. The second one
    # exceeds a counter.
    for rate in (10**6, (1 << 63) - 1):
        meters.engine.arrays.set_meter("TestIngress.by_packets", 3, MeterRates(rate, 1, rate, 1))
        for _ in range(20):
            assert colours(meters, 3, 1) == [(GREEN, GREEN)]


def test_outside_of_the_meters_the_colour_is_not_written(meters):
    assert colours(meters, 4, 1) == [(9, 9)]


def test_a_direct_meter_belongs_to_its_entry_and_a_miss_has_none():
    with running("extern_direct_meter") as port:
        engine = port.engine
        entries = [
            engine.entries.insert(
                "TestIngress.flows", [key], [255], 1, action(engine, "pass"), [key + 10]
            )
            for key in (1, 2)
        ]
        engine.entries.set_meter("TestIngress.flows", entries[0], MeterRates(0, 1, 0, 2))
        answers = port.ask(*(bytes([key, 0, 0]) for key in (1, 1, 1, 2, 2, 2, 3)))
        assert [answer[1] for answer in answers] == [GREEN, YELLOW, RED, GREEN, GREEN, GREEN, 9]
        assert [answer[2] for answer in answers] == [11, 11, 11, 12, 12, 12, 0]
        counts = [engine.entries.count("TestIngress.flows", entry) for entry in (*entries, MISS)]
        assert counts == [Count(3, 9), Count(3, 9), Count(1, 3)]


# -- meters and counters through P4Runtime ---------------------------------------------------------


def config(cir: int, cburst: int, pir: int, pburst: int) -> p4rt.MeterConfig:
    return p4rt.MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst)


def meter(name: str, index: int | None = None, rates: p4rt.MeterConfig | None = None):
    info = program("extern_meters").p4info
    number = next(each.preamble.id for each in info.meters if each.preamble.alias == name)
    entity = p4rt.Entity()
    entity.meter_entry.meter_id = number
    if index is not None:
        entity.meter_entry.index.index = index
    if rates:
        entity.meter_entry.config.CopyFrom(rates)
    return entity


def test_meters_are_written_and_read_one_cell_or_all_of_them(switch, controller):
    controller.configure(program("extern_meters"))
    rates = config(0, 1, 0, 2)
    controller.modify(meter("by_packets", 1, rates))
    assert controller.read(meter("by_packets", 1)) == [meter("by_packets", 1, rates)]
    cells = [meter("by_packets", index, rates if index == 1 else None) for index in range(4)]
    assert controller.read(meter("by_packets")) == cells
    everything = p4rt.Entity()
    everything.meter_entry.SetInParent()
    assert len(controller.read(everything)) == 8
    answers = ask(switch, *[bytes([1, 9, 9])] * 3)
    assert [answer[1] for answer in answers] == [GREEN, YELLOW, RED]
    controller.modify(meter("by_packets", 1))
    assert controller.read(meter("by_packets", 1)) == [meter("by_packets", 1)]
    assert ask(switch, bytes([1, 9, 9]))[0][1] == GREEN
    controller.modify(meter("by_packets", None, rates))
    assert controller.read(meter("by_packets", 3)) == [meter("by_packets", 3, rates)]


def test_meter_configurations_that_make_no_sense_are_refused(controller):
    controller.configure(program("extern_meters"))
    for rates in (config(5, 1, 4, 1), config(-2, 1, 4, 1), config(1, -1, 1, 1)):
        [(code, _)] = update_errors(controller.modify, meter("by_bytes", 0, rates))
        assert code == code_pb2.INVALID_ARGUMENT
    outside = meter("by_bytes", 4, config(1, 1, 1, 1))
    assert update_errors(controller.modify, outside)[0][0] == code_pb2.OUT_OF_RANGE
    assert update_errors(controller.read, outside)[0][0] == code_pb2.OUT_OF_RANGE
    for call in (controller.insert, controller.delete):
        [(code, _)] = update_errors(call, meter("by_bytes", 0, config(1, 1, 1, 1)))
        assert code == code_pb2.INVALID_ARGUMENT
    assert controller.read(meter("by_bytes", 0)) == [meter("by_bytes", 0)]


def test_direct_meters_are_written_with_their_entry_or_alone(switch, controller):
    controller.configure(program("extern_direct_meter"))
    names = Names(program("extern_direct_meter").p4info)
    entry = names.entry("flows", {"key": 1}, "pass", number=5)
    asked = names.entry("flows", {"key": 1})
    asked.table_entry.meter_config.SetInParent()
    with_meter = p4rt.Entity()
    with_meter.CopyFrom(entry)
    with_meter.table_entry.meter_config.CopyFrom(config(0, 1, 0, 1))
    controller.insert(with_meter)
    assert controller.read(asked) == [with_meter]
    assert controller.read(names.entry("flows", {"key": 1})) == [entry]
    assert [answer[1] for answer in ask(switch, *[bytes([1, 0, 0])] * 2)] == [GREEN, RED]

    alone = p4rt.Entity()
    alone.direct_meter_entry.table_entry.CopyFrom(entry.table_entry)
    alone.direct_meter_entry.config.CopyFrom(config(0, 1, 0, 2))
    controller.modify(alone)
    assert controller.read(alone) == [alone]
    assert [answer[1] for answer in ask(switch, *[bytes([1, 0, 0])] * 2)] == [GREEN, YELLOW]

    # Modifying an entry without a configuration removes its meter.
    controller.modify(entry)
    assert controller.read(asked) == [entry]
    assert [answer[1] for answer in ask(switch, *[bytes([1, 0, 0])] * 3)] == [GREEN] * 3
    default = names.default("flows", "pass", number=1)
    default.table_entry.meter_config.CopyFrom(config(0, 1, 0, 1))
    assert update_errors(controller.modify, default)[0][0] == code_pb2.UNIMPLEMENTED


def test_counters_of_all_kinds_count_and_outside_of_them_nothing_does(switch, controller):
    controller.configure(program("extern_counters"))
    names = Names(program("extern_counters").p4info)
    frames = [struct.pack("!I", index) + bytes(6) for index in (0, 3, 3, 4, 0xFFFFFFFF)]
    assert ask(switch, *frames) == frames
    for kind in ("packets", "bytes", "both"):
        cells = [each.counter_entry.data for each in controller.read(names.counter(kind))]
        counts = [(each.packet_count, each.byte_count) for each in cells]
        assert counts == [(1, 10), (0, 0), (0, 0), (2, 20)]
