"""What a window says about its slots: what is due, what is late, what is not its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.host.window import Window

LAST_SEQUENCE = 2**32 - 1
slot_numbers = st.integers(-(2**16), 2**16)


def slots(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@given(st.integers(1, 8), st.integers(0, 20))
def test_the_first_chunks_go_out_at_once(count: int, chunks: int):
    window = Window(count)
    first, which = window.start(chunks, 0.0)
    assert first.tolist() == which.tolist() == list(range(min(count, chunks)))
    assert window.remaining == chunks


@given(st.integers(1, 8), st.lists(slot_numbers, max_size=20))
def test_replies_for_slots_of_others_are_not_accepted(count: int, numbers: list[int]):
    window = Window(count)
    window.start(count, 0.0)
    foreign = slots(*(number for number in numbers if not 0 <= number < count))
    positions, accepted = window.accept(foreign, np.ones_like(foreign))
    assert positions.size == accepted.size == 0


def test_nothing_is_accepted_where_nothing_is_outstanding():
    window = Window(4)
    window.start(2, 0.0)
    window.finish(slots(0), 0.1)
    positions, accepted = window.accept(slots(3, 0, 1), slots(1, 2, 1))
    assert (positions.tolist(), accepted.tolist()) == ([2], [1])


@pytest.mark.parametrize("timeout", [0.25, 1.0, 7.0])
def test_every_attempt_waits_twice_as_long_up_to_a_limit(timeout: float):
    window = Window(1)
    window.start(1, 0.0)
    waits, now = [], 0.0
    for _ in range(30):
        deadline = window.next_deadline(timeout, longest=8.0)
        assert window.overdue(np.nextafter(deadline, now), timeout, longest=8.0)[0].size == 0
        assert window.overdue(deadline, timeout, longest=8.0)[0].tolist() == [0]
        waits.append(deadline - now)
        now = deadline
    assert waits == [min(timeout * 2**attempt, 8.0) for attempt in range(30)]


def test_a_new_chunk_waits_as_if_nothing_had_been_lost():
    window = Window(1)
    window.start(2, 0.0)
    for now in (1.0, 3.0, 7.0):
        assert window.overdue(now, 1.0, 60.0)[0].size == 1
    window.finish(slots(0), 8.0)
    assert window.next_deadline(1.0, 60.0) == 9.0


def test_round_trip_is_the_longest_of_the_packets_sent_once():
    window = Window(2)
    window.start(4, 0.0)
    window.finish(slots(1), 0.5)
    assert window.round_trip(slots(0, 1), 0.75) == 0.75
    window.overdue(1.0, 1.0, 8.0)  # slot 0 is sent again: whose reply it gets is unknown
    assert window.round_trip(slots(0, 1), 1.25) == 0.75
    assert window.round_trip(slots(0), 1.25) is None


def test_an_abandoned_exchange_accepts_nothing_and_is_never_late():
    window = Window(2)
    window.start(5, 0.0)
    window.abandon()
    assert window.remaining == 0
    assert window.accept(slots(0, 1), slots(1, 1))[0].size == 0
    assert window.overdue(1e9, 1.0, 8.0)[0].size == 0


@pytest.mark.parametrize("used", [0, 1000, LAST_SEQUENCE - 3, LAST_SEQUENCE - 1, LAST_SEQUENCE])
def test_no_exchange_runs_out_of_sequence_numbers(used: int):
    window = Window(1)
    window.sequence[:] = used + 1
    if not window.exhausted:
        again, _ = window.start(10, 0.0)
        while again.size:
            assert window.sequence[0] <= LAST_SEQUENCE
            _, again, _ = window.finish(slots(0), 0.0)


def test_a_fresh_window_is_not_exhausted():
    assert not Window(3).exhausted
