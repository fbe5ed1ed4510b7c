"""Whatever a switch holds, it comes to hold its jobs' entries, and nothing else."""

import contextlib
import random
import threading
from collections.abc import Iterator

import pytest
from assignments import alone
from hypothesis import given
from hypothesis import strategies as st
from switches import Switch, running_switch
from waiting import until

from innet.controller.jobs.records import Assignment, Attachment, SlotRange, SwitchRecord
from innet.controller.switches import entries
from innet.controller.switches.aggregation import AggregationSwitch
from innet.controller.switches.names import Names, group
from innet.controller.switches.reconcile import by_key, difference, key
from innet.p4.artifacts import artifact
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.wire.frames import Address

PROGRAM = artifact(64)
NAMES = Names(PROGRAM.p4info)
SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254")


def attachment(port: int, worker: int) -> Attachment:
    return Attachment(port, Address(f"02:00:00:00:01:{worker:02x}", f"10.0.1.{worker}", 4000))


workers = st.dictionaries(
    st.integers(0, 31), st.builds(attachment, st.integers(1, 3), st.integers(1, 9)), max_size=4
)
jobs = st.lists(
    st.builds(
        lambda number, term, workers: alone(
            number, SlotRange(number, 32 * number, 32), term, max(1, len(workers)), workers
        ),
        st.integers(1, 5),
        st.integers(1, 3),
        workers,
    ),
    unique_by=lambda job: job.job,
    max_size=4,
)


def entities(some: list[Assignment]) -> dict:
    found = entries.own_entities(NAMES, SERVICE, [1, 2, 3])
    found += entries.Forwarding(NAMES).entities(some).values()
    for job in some:
        found += entries.inward_entities(NAMES, job) + entries.outward_entities(NAMES, job)
    return by_key(found)


@given(jobs, jobs)
def test_the_difference_makes_one_state_of_another(
    before: list[Assignment], after: list[Assignment]
):
    held, wanted = entities(before), entities(after)
    change = difference(held, wanted)
    for entity in change.delete:
        del held[key(entity)]
    for entity in change.modify:
        assert key(entity) in held
    for entity in change.insert:
        assert key(entity) not in held
    held.update(by_key([*change.modify, *change.insert]))
    assert held == wanted
    assert not difference(held, wanted)


@given(jobs, st.integers(1, 3))
def test_how_a_switch_writes_numbers_makes_no_difference(some: list[Assignment], zeros: int):
    wanted, padded = entities(some), []
    for entity in wanted.values():
        copy = p4rt.Entity()
        copy.CopyFrom(entity)
        for field in copy.table_entry.match:
            part = field.lpm if field.HasField("lpm") else field.exact
            part.value = bytes(zeros) + part.value
        for param in copy.table_entry.action.action.params:
            param.value = bytes(zeros) + param.value
        copy.table_entry.match.sort(key=lambda field: -field.field_id)
        padded.append(copy)
    assert not difference(by_key(padded), wanted)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 32)), unique=True), st.randoms())
def test_the_order_of_a_groups_copies_makes_no_difference(copies, chance: random.Random):
    shuffled = chance.sample(copies, len(copies))
    one, other = by_key([group(7, copies)]), by_key([group(7, shuffled)])
    assert not difference(one, other)
    longer = by_key([group(7, [*copies, (511, 1)])])
    assert difference(one, longer).modify


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(3) as running:
        yield running


@contextlib.contextmanager
def connected(switch: Switch) -> Iterator[AggregationSwitch]:
    record = SwitchRecord("tor", switch.address, 0, (1, 2, 3), SERVICE, 64)
    with contextlib.closing(AggregationSwitch(record, PROGRAM, lambda *_: None)) as made:
        made.start()
        yield made


def read(made: AggregationSwitch) -> dict:
    """Return the switch's entries, read again."""
    drift, anew = made.inspect()
    assert (drift, anew) == ([], False)
    return made.held


def test_a_switch_comes_to_hold_what_is_wanted_whatever_it_held(switch: Switch):
    chance = random.Random(3)
    with connected(switch) as made:
        for _ in range(30):
            some = [
                alone(
                    number,
                    SlotRange(number, 32 * number, 32),
                    chance.randint(1, 3),
                    2,
                    {
                        rank: attachment(chance.randint(1, 3), 10 * number + rank)
                        for rank in range(chance.randint(0, 4))
                    },
                )
                for number in range(1, 6)
                if chance.random() < 0.7
            ]
            assert made.hold(some) == {}
            assert not difference(read(made), entities(some))


def test_a_new_connection_takes_over_what_it_finds(switch: Switch):
    job = alone(1, SlotRange(1, 32, 32), 5, 1, {0: attachment(1, 1)})
    with connected(switch) as first:
        first.hold([job])
        with connected(switch) as second:
            assert not difference(second.held, entities([job]))
            until(lambda: first.broken)  # another one is in charge
            second.hold([])
            assert not difference(read(second), entities([]))


def test_a_switch_is_given_the_program_only_if_it_does_not_run_it(switch: Switch):
    with connected(switch) as first:
        first.hold([])
    with connected(switch) as again:
        assert again.start()
        record = SwitchRecord("tor", switch.address, 0, (1,), SERVICE, 256)
        with contextlib.closing(AggregationSwitch(record, artifact(256), lambda *_: None)) as other:
            assert not other.start()
    with connected(switch) as last:
        assert last.held == {}


def test_what_a_switch_refuses_for_one_job_does_not_stop_another(switch: Switch):
    bad = alone(
        1, SlotRange(70_000, 64, 32), 5, 1, {0: attachment(2, 2)}
    )  # no group has this number
    good = alone(2, SlotRange(2, 32, 32), 5, 1, {0: attachment(1, 1)})
    with connected(switch) as made:
        refused = made.hold([bad, good])
        assert refused.keys() == {1}
        assert "multicast group 70002" in refused[1]
        wanted = entities([good])
        assert wanted.items() <= read(made).items()
        assert made.hold([good]) == {}
        assert not difference(read(made), wanted)


def test_cells_are_cleared_in_steps(switch: Switch):
    with connected(switch) as made:
        made.hold([])
        assert len([*made.clear(SlotRange(0, 0, 32))]) == 1
        assert len([*made.clear(SlotRange(0, 0, 2048))]) == 4


def test_cells_of_a_slow_switch_are_cleared_with_patience(switch: Switch):
    way = 0.6  # seconds
    with connected(switch) as made, contextlib.ExitStack() as stack:
        made.hold([])
        send = made._connection.send

        def late(packets) -> None:
            timer = threading.Timer(way, send, [packets])
            stack.callback(timer.join)
            timer.start()

        made._connection.send = late
        assert len([*made.clear(SlotRange(0, 0, 32))]) == 1
