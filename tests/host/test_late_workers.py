"""Workers are late if all others say so twice, and the stride follows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.host.inquiries import Inquiries
from innet.host.late_workers import STRIDES, LateWorkers, report

WORKERS = 4
CALM = 4 * 4 + 64
"""The calm steps after which nobody is late any more: with the strides 8, 6, 4 and 3, and with 2."""


def answered(*missing: set[int], seconds: float = 0.0) -> Inquiries:
    """Return the inquiries of a worker with these answers, in exchanges that took so long."""
    inquiries = Inquiries(seconds=seconds)
    inquiries.take(map(frozenset, missing))
    return inquiries


def agreed(*workers: Inquiries) -> np.ndarray:
    """Return the maximum of the workers' reports, as the switch makes it."""
    return np.max([report(each, WORKERS) for each in workers], axis=0)


def names_3(seconds: float = 0.0) -> np.ndarray:
    return agreed(*[answered({3}, {3}, {3}, seconds=seconds)] * 3, Inquiries())


def names_nobody(seconds: float = 0.0) -> np.ndarray:
    return agreed(*[Inquiries(seconds=seconds)] * WORKERS)


NAMES_3, NAMES_NOBODY = names_3(), names_nobody()


def late_after(*steps: np.ndarray) -> LateWorkers:
    late = LateWorkers(WORKERS)
    for each in steps:
        late.learn(each)
    return late


def test_a_worker_that_all_name_in_two_steps_in_a_row_is_late():
    assert not late_after(NAMES_3).ranks
    assert not late_after(NAMES_3, NAMES_NOBODY, NAMES_3).ranks
    late = late_after(NAMES_3, NAMES_3)
    assert (late.ranks, late.stride, late.in_time) == ({3}, 8, [0, 1, 2])


@pytest.mark.parametrize(
    "other",
    [
        answered({2}, {2}, {2}),  # by which 3 was in time
        answered({3}, {3}, {2, 3}, {2}, {2}),  # by which it was in time too often
    ],
)
def test_a_worker_is_not_late_if_one_of_the_others_does_not_find_so(other: Inquiries):
    names = agreed(answered({3}, {3}, {3}), other)
    assert not late_after(*[names] * 5).ranks


def test_too_few_answers_are_no_opinion():
    assert report(answered({3}, {3}), WORKERS).tolist() == report(Inquiries(), WORKERS).tolist()
    names = agreed(answered({3}, {3}, {3}), answered(set(), set()))
    assert late_after(names, names).ranks == {3}


def test_one_worker_in_eight_is_late_the_one_that_was_missing_most_often():
    names = agreed(answered({1, 2}, {1, 2}, {2}, {1, 2}))
    late = late_after(names, names)
    assert (late.ranks, late.stride) == ({2}, 8)
    for each in (names, names, NAMES_3, NAMES_3):
        late.learn(each)
    assert (late.ranks, late.stride) == ({2}, 32)


def test_two_workers_in_sixteen_are_late():
    late = LateWorkers(16)
    names = np.max([report(answered(*[{5, 9, 12}] * 3), 16)], axis=0)
    late.learn(names)
    late.learn(names)
    assert late.ranks == {5, 9}


def test_the_stride_doubles_while_a_late_worker_is_named_and_falls_after_calm_steps():
    late = late_after(*[NAMES_3] * 3)
    assert late.stride == 16
    strides = []
    for _ in range(88):
        late.learn(NAMES_NOBODY)
        strides.append(late.stride)
    falling = [each for stride in (12, 8, 6, 4, 3) for each in [stride] * 4]
    assert strides == [16] * 3 + falling + [2] * 64 + [1]
    assert not late.ranks
    assert late_after(*[NAMES_3] * 12).stride == STRIDES[-1]


def test_a_try_that_was_too_early_is_made_later_the_next_time():
    late = late_after(*[NAMES_3] * 2)
    for calm in (4, 8, 16, 32):
        for _ in range(calm):
            assert late.stride == 8
            late.learn(NAMES_NOBODY)
        assert late.stride == 6
        late.learn(NAMES_3)
    assert late.stride == 8


def test_a_worker_that_is_late_again_at_once_has_its_last_stride_and_keeps_it_for_longer():
    late = late_after(*[NAMES_3] * 2, *[NAMES_NOBODY] * CALM)
    assert not late.ranks
    late.learn(NAMES_3)
    late.learn(NAMES_3)
    assert (late.ranks, late.stride) == ({3}, 2)
    for _ in range(127):
        late.learn(NAMES_NOBODY)
    assert late.stride == 2
    late.learn(NAMES_NOBODY)
    assert (late.ranks, late.stride) == (frozenset(), 1)


def test_a_worker_that_is_late_again_much_later_begins_with_the_first_stride():
    late = late_after(*[NAMES_3] * 2, *[NAMES_NOBODY] * (CALM + 10), *[NAMES_3] * 2)
    assert (late.ranks, late.stride) == ({3}, 8)


# -- the times of exchanges ------------------------------------------------------------------------


def calm(late: LateWorkers, seconds: float, most: int = 2000) -> int:
    """Return after how many exchanges of this time nobody is late any more, without being named."""
    for step in range(most):
        if not late.ranks:
            return step
        late.learn(names_nobody(seconds))
    return most


def test_nobody_stays_late_if_exchanges_do_not_take_less_time():
    late = late_after(*[names_3(1.0)] * 2)
    assert calm(late, 0.95) == 16
    for _ in range(64):
        late.learn(names_3(1.0))
        assert not late.ranks
    late.learn(names_3(1.0))
    assert late.ranks == {3}, "it is tried again"
    assert calm(late, 0.95) == 16
    for _ in range(128):
        late.learn(names_3(1.0))
        assert not late.ranks, "after twice as long"


def test_workers_stay_late_while_that_saves_time():
    late = late_after(*[names_3(1.0)] * 2)
    assert calm(late, 0.5) == CALM, "until the stride is 1"


def test_a_late_worker_that_is_still_slow_with_the_largest_stride_is_given_up():
    late = late_after(*[names_3(1.0)] * 2)
    strides = []
    while late.ranks:
        strides.append(late.stride)
        late.learn(names_3(1.0))
    assert strides == [8, 16, 32, *[64] * 16]


def test_a_few_slow_exchanges_do_not_matter():
    late = late_after(*[names_3(1.0)] * 2)
    for seconds in [0.4, 3.0, 0.4] * 20:
        late.learn(names_nobody(seconds))
        assert late.ranks == {3}


def test_exchanges_before_a_worker_was_slow_are_no_measure():
    late = late_after(*[names_nobody(0.1)] * 9, *[names_3(1.0)] * 2)
    assert calm(late, 0.15) == CALM


def test_exchanges_of_unknown_time_are_no_measure():
    assert calm(late_after(*[names_3()] * 2), 0.5) == CALM
    assert calm(late_after(*[names_3(1.0)] * 2), 0.0) == CALM


@given(
    st.lists(st.sampled_from([NAMES_3, NAMES_NOBODY, names_3(1), names_nobody(1)]), max_size=200)
)
def test_the_stride_is_one_exactly_if_nobody_is_late(steps: list[np.ndarray]):
    late = LateWorkers(WORKERS)
    for each in steps:
        late.learn(each)
        assert late.stride in STRIDES
        assert (late.stride == 1) == (not late.ranks)


@given(st.integers(1, 300), st.sampled_from(STRIDES), st.integers(0, 1000))
def test_a_late_worker_sends_each_chunk_once_in_as_many_steps_as_the_stride(
    chunks: int, stride: int, first: int
):
    late = LateWorkers(WORKERS)
    late.stride = stride
    sent = [range(chunks)[late.sends(chunks, step)] for step in range(first, first + stride)]
    assert sorted(chunk for each in sent for chunk in each) == list(range(chunks))


def test_a_deadline_is_given_or_follows_the_shortest_round_trip():
    for deadline, round_trip, age in ((None, 0.01, 0.04), (None, 0.0, 0.004), (0.5, 0.01, 0.5)):
        inquiries = Inquiries(deadline)
        inquiries.begin(100.0, round_trip)
        assert (inquiries.age, inquiries.at) == (age, 100.0 + age)


def test_a_long_exchange_has_few_inquiries():
    inquiries, now, count = Inquiries(0.01), 0.0, 0
    inquiries.begin(now, 0.001)
    while (now := inquiries.at) < 10:
        inquiries.asked(now)
        count += 1
    assert 10 < count < 30
