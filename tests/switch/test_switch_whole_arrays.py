"""All cells of an array are written, restored and taken over without a step for each of them."""

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from tiny_programs import program

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.p4runtime.batches import all_or_none
from innet.switch.p4runtime.pipeline import Pipeline

CELLS = (1 << 14) + 5
FEW = 1000
PROGRAMS = {"counter": "extern_counters", "meter": "extern_meters", "register": "mix_registers"}


@contextmanager
def pipeline(kind: str, cells: int = CELLS) -> Iterator[Pipeline]:
    """Run a program with arrays of so many cells."""
    made = program(PROGRAMS[kind])
    document = json.loads(made.json)
    for each in document[f"{kind}_arrays"]:
        if not each.get("is_direct"):
            each["size"] = cells
    for each in getattr(made.p4info, f"{kind}s"):
        each.size = cells
    config = p4rt.ForwardingPipelineConfig(
        p4info=made.p4info, p4_device_config=json.dumps(document).encode()
    )
    with closing(Engine(config.p4_device_config)) as engine:
        yield Pipeline(engine, config)


def cell(loaded: Pipeline, kind: str, value: int = 0, index: int | None = None) -> p4rt.Entity:
    """Return the message that sets a cell, or all cells, of the first array."""
    entity = p4rt.Entity()
    part = getattr(entity, f"{kind}_entry")
    setattr(part, f"{kind}_id", next(iter(getattr(loaded.schema, f"{kind}s"))))
    if index is not None:
        part.index.index = index
    if kind == "counter":
        part.data.packet_count = part.data.byte_count = value
    elif kind == "register":
        part.data.bitstring = bytes([value])
    elif value:
        part.config.cir, part.config.pir = value, value + 1
    return entity


def modified(entity: p4rt.Entity) -> p4rt.Update:
    return p4rt.Update(type=p4rt.Update.MODIFY, entity=entity)


def missing(loaded: Pipeline, kind: str) -> p4rt.Update:
    """Return an update that is refused."""
    return modified(cell(loaded, kind, 1, CELLS + 1))


def calls(work: Callable[[], object]) -> int:
    """Return the number of calls of functions during some work."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", PROGRAMS)
def test_all_cells_are_written_in_few_steps(kind):
    with pipeline(kind) as loaded:
        everything = modified(cell(loaded, kind, 7))
        assert calls(lambda: loaded.write(everything)) < FEW
        for index in (0, 1, CELLS - 1):
            assert [*loaded.read(cell(loaded, kind, 7, index))] == [cell(loaded, kind, 7, index)]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_refused_batch_restores_all_cells_in_few_steps(kind):
    with pipeline(kind) as loaded:
        for value, index in ((1, None), (2, 5), (0, 6), (3, CELLS - 1)):
            loaded.write(modified(cell(loaded, kind, value, index)))
        before = [*loaded.read(cell(loaded, kind))]
        batch = [
            modified(cell(loaded, kind, 4, 7)),
            modified(cell(loaded, kind, 5)),
            modified(cell(loaded, kind, 6, 5)),
            missing(loaded, kind),
        ]
        tracemalloc.start()
        steps = calls(lambda: all_or_none(batch, loaded.write, loaded.undo))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert [*loaded.read(cell(loaded, kind))] == before
    assert steps < FEW
    assert peak < 100 * CELLS


@pytest.mark.parametrize("kind", ["counter", "register"])
def test_another_program_takes_cells_over_in_little_memory(kind):
    """If there is no memory for this, no program is left that runs."""
    cells = (1 << 18) + 5
    with pipeline(kind, cells) as old, pipeline(kind, cells) as new:
        for value, index in ((1, None), (2, 5), (3, cells - 1)):
            old.write(modified(cell(old, kind, value, index)))
        tracemalloc.start()
        new.adopt_values(old)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for value, index in ((2, 5), (1, 6), (3, cells - 1)):
            assert [*new.read(cell(new, kind, value, index))] == [cell(new, kind, value, index)]
    assert peak < cells


@pytest.mark.parametrize("cells", [CELLS, 100])
def test_another_program_takes_the_counts_over_in_few_steps(cells):
    with pipeline("counter") as old, pipeline("counter", cells) as new:
        for value, index in ((1, None), (2, 5)):
            old.write(modified(cell(old, "counter", value, index)))
        assert calls(lambda: new.adopt_values(old)) < FEW
        read = [each.counter_entry.data.packet_count for each in new.read(cell(new, "counter"))]
        assert read == [2 if index == 5 else 1 for index in range(cells)]
