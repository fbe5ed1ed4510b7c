"""The window's view of its slots: due chunks, lost chunks, and replies that are not its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.host.window import Window

LAST_SEQUENCE = 2**32 - 1
EVERYTHING = 10**6
slot_numbers = st.integers(-(2**16), 2**16)


def slots(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def started(count: int, chunks: int, most: int = EVERYTHING) -> Window:
    """Return a window that has sent, at time 0, as much as it may."""
    window = Window(count)
    window.start(chunks)
    window.transmit(most, 0.0)
    return window


def result(window: Window, slot: int, now: float, reordering: float = 0.1) -> int:
    """Take a slot's result. Return how many chunks now count as lost."""
    window.deliver(slots(slot), now, too_soon=0.0)
    window.finish(slots(slot))
    return lose(window, reordering)


def lose(window: Window, reordering: float) -> int:
    """Return how many chunks now count as lost."""
    before = np.count_nonzero(window._suspect)
    window.lose(reordering)
    return np.count_nonzero(window._suspect) - before


@given(st.integers(1, 8), st.integers(1, 20), st.integers(0, 10))
def test_the_lowest_chunks_go_out_at_once_as_many_as_may(count: int, chunks: int, most: int):
    window = Window(count)
    window.start(chunks)
    first, which = window.transmit(most, 0.0)
    assert first.tolist() == which.tolist() == list(range(max(1, min(count, chunks, most))))
    assert window.remaining == chunks
    assert window.has_due == (len(first) < min(count, chunks))


def test_a_result_makes_room_for_the_lowest_chunk_that_can_be_sent():
    window = started(4, 12, most=2)
    assert result(window, 1, 1.0) == 0
    assert [each.tolist() for each in window.transmit(2, 1.0)] == [[2], [2]]
    result(window, 2, 2.0)
    result(window, 0, 2.0)
    assert [each.tolist() for each in window.transmit(3, 2.0)] == [[3, 0, 1], [3, 4, 5]]


def test_the_lowest_unfinished_chunk_is_sent_however_full_the_network_is():
    window = started(3, 9)
    result(window, 0, 1.0)
    assert window.transmit(1, 1.0)[1].tolist() == []  # 3 can wait: 1 and 2 are in flight
    window.transmit(EVERYTHING, 1.0)
    assert result(window, 0, 2.0) == 2
    assert window.transmit(0, 2.0)[1].tolist() == [1]
    assert window.transmit(0, 2.0)[1].tolist() == []


@given(st.integers(1, 8), st.lists(slot_numbers, max_size=20))
def test_replies_for_slots_of_others_are_not_accepted(count: int, numbers: list[int]):
    window = started(count, count)
    foreign = slots(*(number for number in numbers if not 0 <= number < count))
    positions, accepted = window.accept(foreign, np.ones_like(foreign))
    assert positions.size == accepted.size == 0


def test_nothing_is_accepted_where_nothing_is_outstanding():
    window = started(4, 2)
    result(window, 0, 0.1)
    positions, accepted = window.accept(slots(3, 0, 1), slots(1, 2, 1))
    assert (positions.tolist(), accepted.tolist()) == ([2], [1])


def test_what_was_not_sent_yet_is_not_accepted():
    window = started(4, 4, most=2)
    assert window.accept(slots(0, 1, 2, 3), slots(1, 1, 1, 1))[1].tolist() == [0, 1]


def test_what_was_sent_well_before_something_that_has_arrived_is_lost():
    window = started(3, 9)
    result(window, 2, 1.0)
    window.transmit(EVERYTHING, 1.0)
    assert result(window, 2, 2.0, reordering=1.0) == 0  # sent 1.0 earlier: perhaps overtaken
    assert lose(window, 0.9) == 2
    again, chunks = window.transmit(EVERYTHING, 2.0)
    assert (again.tolist(), chunks.tolist()) == ([0, 1, 2], [0, 1, 8])
    assert window.repetitions(again) == 2
    assert lose(window, 0.9) == 0


def test_a_lost_chunk_is_accepted_all_the_same():
    window = started(2, 6)
    result(window, 1, 1.0)
    window.transmit(EVERYTHING, 1.0)
    assert result(window, 1, 2.0) == 1
    assert window.accept(slots(0), slots(1))[1].tolist() == [0]
    assert window.finish(slots(0)).tolist() == [0]
    assert window.transmit(EVERYTHING, 2.0)[1].tolist() == [2, 5]


@pytest.mark.parametrize(("takes", "lost"), [(0.2, 0), (0.4, 1)])
def test_a_result_too_soon_after_a_repetition_proves_nothing(takes: float, lost: int):
    window = started(3, 9)
    result(window, 2, 1.0)
    window.transmit(EVERYTHING, 1.0)
    assert result(window, 2, 2.0, reordering=0.9) == 2
    window.transmit(1, 3.0)  # chunk 0 again, alone
    window.transmit(EVERYTHING, 2.0)
    assert window.deliver(slots(0), 3.0 + takes, too_soon=0.3) == lost
    assert window.newest == (3.0 if lost else 1.0)
    window.finish(slots(0))
    assert lose(window, 0.9) == lost  # chunk 8; chunk 1 was suspect before


def test_whatever_comes_after_a_question_proves_that_it_has_arrived():
    window = started(3, 3)
    window.probe(1, 1.0)
    window.deliver(slots(0), 1.2, too_soon=0.3)
    assert lose(window, 0.1) == 2


def test_what_the_switch_has_is_not_lost_whatever_arrives():
    window = started(2, 9)
    window.probe(1, 0.5)
    assert window.had(slots(0), 0.7) == pytest.approx(0.2)
    for now in (1.0, 2.0, 3.0):
        assert result(window, 1, now) == 0
        window.transmit(EVERYTHING, now)


def test_what_the_switch_had_was_not_lost():
    window = started(2, 9)
    result(window, 1, 1.0)
    window.transmit(EVERYTHING, 1.0)
    assert result(window, 1, 2.0) == 1
    window.transmit(EVERYTHING, 2.0)
    assert window.had(slots(0), 2.5) == 0.5
    assert window.had(slots(0), 2.6) is None
    assert window.deliver(slots(0), 9.0, too_soon=0.0) == 0
    assert window.newest == 1.0


def test_what_the_switch_has_is_sent_again_ever_more_rarely_up_to_a_limit():
    window = started(1, 1)
    window.probe(1, 0.0)
    window.had(slots(0), 0.0)
    waits, now = [], 0.0
    for _ in range(30):
        deadline = window.next_reminder(0.25, longest=8.0)
        window.remind(np.nextafter(deadline, now), 0.25, longest=8.0)
        assert not window.has_due
        window.remind(deadline, 0.25, longest=8.0)
        assert window.transmit(1, deadline)[0].tolist() == [0]
        window.had(slots(0), deadline)
        waits.append(deadline - now)
        now = deadline
    assert waits == [min(0.25 * 2**attempt, 8.0) for attempt in range(2, 32)]


def test_only_what_the_switch_has_is_to_be_reminded_of():
    window = started(3, 3)
    assert window.next_reminder(1.0, 8.0) == float("inf")
    window.remind(1e9, 1.0, 8.0)
    assert not window.has_due


def test_a_probe_is_of_the_lowest_unfinished_chunks():
    window = started(3, 9)
    result(window, 0, 1.0)
    window.transmit(EVERYTHING, 1.0)
    assert [each.tolist() for each in window.probe(1, 2.0)] == [[1], [1]]
    assert [each.tolist() for each in window.probe(2, 3.0)] == [[1, 2], [1, 2]]
    assert [each.tolist() for each in window.probe(9, 4.0)] == [[1, 2, 0], [1, 2, 3]]
    assert window.oldest() == (1, 1, 1)


def test_round_trips_are_those_of_chunks_sent_once_and_not_held_up_by_others():
    window = started(3, 9)
    result(window, 1, 0.5)
    window.transmit(EVERYTHING, 0.5)
    assert window.round_trip(slots(0, 1), 0.75) == 0.75
    window.probe(1, 1.0)  # slot 0 is sent again: a reply may answer either sending
    assert window.round_trip(slots(0, 1), 1.25) == 0.75
    assert window.round_trip(slots(0), 1.25) is None
    window.had(slots(0), 1.5)  # others are late, so results of chunks sent by now will be late too
    assert window.round_trip(slots(1, 2), 2.0) is None
    result(window, 1, 2.0)
    window.transmit(EVERYTHING, 2.0)
    assert window.round_trip(slots(1), 2.25) == 0.25


@pytest.mark.parametrize("used", [0, 1000, LAST_SEQUENCE - 3, LAST_SEQUENCE - 1, LAST_SEQUENCE])
def test_no_exchange_runs_out_of_sequence_numbers(used: int):
    window = Window(1)
    window.sequence[:] = used + 1
    if not window.exhausted:
        window.start(10)
        while window.remaining:
            window.transmit(1, 0.0)
            assert window.sequence[0] <= LAST_SEQUENCE
            window.finish(slots(0))


def test_a_fresh_window_is_not_exhausted():
    assert not Window(3).exhausted
    assert not Window(0).exhausted
