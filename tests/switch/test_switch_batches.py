"""Batches of updates: carried out as a whole or not at all, also while packets flow."""

import itertools
import threading
from collections.abc import Iterator

import grpc
import pytest
from control_plane import (
    NAMES,
    PROGRAM,
    ROUTES,
    Batch,
    Type,
    entry,
    frame,
    register,
    state,
    update,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from p4runtime_client import Controller, Names, group, update_errors
from switches import Switch, receive, running_switch
from tiny_programs import program

from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.p4runtime.pipeline import Pipeline

# -- batches -------------------------------------------------------------------------------------

ALL_OR_NONE = [Batch.ROLLBACK_ON_ERROR, Batch.DATAPLANE_ATOMIC]


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(2) as running:
        yield running


@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
def test_a_batch_is_carried_out_as_a_whole(primary, atomicity):
    primary.insert(entry("destinations", 1, "set_destination", address=1), group(1, (1, 1)))
    write(
        primary, atomicity,
        update(Type.DELETE, entry("destinations", 1)),
        update(Type.INSERT, entry("sources", 1, "set_source", address=2)),
        update(Type.MODIFY, group(1, (2, 2))),
    )  # fmt: skip
    assert primary.read(NAMES.entry("destinations")) == []
    assert len(primary.read(NAMES.entry("sources"))) == 1
    assert primary.read(group(1)) == [group(1, (2, 2))]


@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
def test_a_batch_with_a_bad_update_changes_nothing_and_says_which_it_was(primary, atomicity):
    old = entry("destinations", 1, "set_destination", address=1)
    old.table_entry.metadata = b"mine"
    primary.insert(old, entry("sources", 1, "set_source", address=2), group(1, (1, 1)))
    before = state(primary)
    answers = update_errors(
        write, primary, atomicity,
        update(Type.MODIFY, entry("destinations", 1, "set_both", destination=5, source=5)),
        update(Type.DELETE, entry("sources", 1)),
        update(Type.INSERT, entry("sources", 7, "set_source", address=2)),
        update(Type.MODIFY, NAMES.default("destinations", "set_destination", address=7)),
        update(Type.MODIFY, group(1)),
        update(Type.MODIFY, register("wide", None, b"\7")),
        update(Type.DELETE, group(2)),
        update(Type.INSERT, group(3)),
    )  # fmt: skip
    codes = [code for code, _ in answers]
    assert codes == [code_pb2.ABORTED] * 6 + [code_pb2.NOT_FOUND, code_pb2.ABORTED]
    assert answers[0][1] == "not carried out: update 6 is refused"
    assert state(primary) == before


def direct(kind: str, entry: p4rt.Entity) -> p4rt.Entity:
    """Return the counter or the meter of an entry, by the kind of its message."""
    entity = p4rt.Entity()
    getattr(entity, kind).table_entry.CopyFrom(entry.table_entry)
    return entity


@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
def test_a_refused_batch_restores_the_count_of_an_entry_by_its_key_alone(primary, atomicity):
    """A read would look for an entry with these metadata, too."""
    first = primary.read(NAMES.entry("fixed"))[0]
    wanted = direct("direct_counter_entry", first)
    before = primary.read(wanted)
    wanted.direct_counter_entry.table_entry.metadata = b"mine"
    wanted.direct_counter_entry.data.packet_count = 7
    update_errors(
        write, primary, atomicity, update(Type.MODIFY, wanted), update(Type.DELETE, group(2))
    )
    assert primary.read(direct("direct_counter_entry", first)) == before


def test_only_the_count_of_the_entry_itself_is_restored():
    """The entry that matches everything has no match, and a read without a match is for all entries."""
    router = program("router")
    config = p4rt.ForwardingPipelineConfig(p4info=router.p4info, p4_device_config=router.json)
    pipeline = Pipeline(Engine(router.json), config)
    everything, other = (
        ROUTES.entry("routes", match, "forward", next_hop=1, port=1)
        for match in ({}, {"destination": (0x0A000000, 8)})
    )
    for each in (everything, other):
        pipeline.write(update(Type.INSERT, each))
    counts = [direct("direct_counter_entry", each) for each in (everything, other)]
    for each in counts:
        each.direct_counter_entry.data.packet_count = 7
    restore = pipeline.undo(update(Type.MODIFY, counts[0]))
    for each in counts:
        pipeline.write(update(Type.MODIFY, each))
    restore()
    found = [each.direct_counter_entry.data.packet_count for each in pipeline.read(counts[0])]
    pipeline.engine.close()
    assert found == [0, 7]


@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
def test_a_refused_batch_restores_the_meter_of_an_entry_by_its_key_alone(bare, atomicity):
    metered = program("extern_direct_meter")
    bare.configure(metered)
    entry = Names(metered.p4info).entry("flows", {"key": 1}, "pass", number=5)
    bare.insert(entry)
    wanted = direct("direct_meter_entry", entry)
    before = bare.read(wanted)
    wanted.direct_meter_entry.table_entry.metadata = b"mine"
    wanted.direct_meter_entry.config.cburst = wanted.direct_meter_entry.config.pburst = 1
    update_errors(
        write, bare, atomicity, update(Type.MODIFY, wanted), update(Type.DELETE, group(2))
    )
    assert bare.read(direct("direct_meter_entry", entry)) == before


UPDATES = st.builds(
    lambda table, kind, value, type_: update(
        type_, entry(table, kind, f"set_{table[:-1]}", address=value)
    ),
    st.sampled_from(["destinations", "sources"]),
    st.integers(1, 3),
    st.integers(0, (1 << 48) - 1),
    st.sampled_from([Type.INSERT, Type.MODIFY, Type.DELETE]),
)


@pytest.fixture(scope="module")
def twin() -> Iterator[Controller]:
    with running_switch(0) as other, Controller(other.address, 1) as controller:
        controller.configure(PROGRAM)
        yield controller


@settings(max_examples=50)
@given(first=st.lists(UPDATES, max_size=8), batch=st.lists(UPDATES, max_size=8))
@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
def test_whatever_a_batch_has_all_of_it_happens_or_none(twin, atomicity, first, batch):
    before, succeeded, after = outcome(twin, first, Batch.CONTINUE_ON_ERROR, batch)
    if not succeeded:
        after = before
    assert outcome(twin, first, atomicity, batch) == (before, succeeded, after)


def outcome(
    controller: Controller, first: list, atomicity: int, batch: list
) -> tuple[set[str], bool, set[str]]:
    """Return the state before a batch, whether all of it was carried out, and the state after it."""
    for table in ("destinations", "sources"):
        controller.delete(*controller.read(NAMES.entry(table)))
    attempt(controller, Batch.CONTINUE_ON_ERROR, first)
    before = state(controller)
    succeeded = attempt(controller, atomicity, batch)
    return before, succeeded, state(controller)


def attempt(controller: Controller, atomicity: int, batch: list) -> bool:
    try:
        write(controller, atomicity, *batch)
    except grpc.RpcError:
        return False
    return True


# -- changes while packets flow ------------------------------------------------------------------

BURST, BURSTS = 32, 100


def changes(controller: Controller, stop: threading.Event, *batches: list) -> None:
    for batch in itertools.cycle(batches):
        if stop.is_set():
            return
        write(controller, Batch.DATAPLANE_ATOMIC, *batch)


@pytest.mark.parametrize("tables", ["one table", "two tables"])
def test_packets_see_all_of_a_change_or_nothing_and_none_is_lost(switch, primary, tables):
    """Destination and source always get the same value, whichever entry matches."""

    def batch(value: int) -> list[p4rt.Update]:
        other = update(Type.INSERT if value % 2 else Type.DELETE, entry("aging", 9, "drop"))
        if tables == "one table":
            both = entry("destinations", 1, "set_both", destination=value, source=value)
            return [update(Type.MODIFY, both), other]
        return [
            update(Type.MODIFY, entry("destinations", 1, "set_destination", address=value)),
            update(Type.MODIFY, entry("sources", 1, "set_source", address=value)),
            other,
        ]

    primary.insert(*(each.entity for each in batch(2)[:-1]))
    stop = threading.Event()
    batches = [batch(value << 24 | value) for value in range(1, 33)]
    changing = threading.Thread(target=changes, args=(primary, stop, *batches))
    changing.start()
    try:
        host, seen = switch.hosts[0], set()
        for _ in range(BURSTS):
            for _ in range(BURST):
                host.send(frame(1))
            for _ in range(BURST):
                answer = receive(host)
                assert answer[:6] == answer[6:12]
                seen.add(answer[:6])
    finally:
        stop.set()
        changing.join()
    assert len(seen) > 1
