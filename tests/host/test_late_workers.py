"""Workers are late if all others say so twice, and the stride follows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.host.inquiries import Inquiries
from innet.host.late_workers import MOST, LateWorkers, opinion

WORKERS = 4


def answered(*missing: set[int]) -> Inquiries:
    """Return the inquiries of a worker with these answers."""
    inquiries = Inquiries()
    inquiries.take(map(frozenset, missing))
    return inquiries


def agreed(*workers: Inquiries) -> np.ndarray:
    """Return the maximum of the workers' opinions, as the switch makes it."""
    return np.max([opinion(each, WORKERS) for each in workers], axis=0)


NAMES_3 = agreed(*[answered({3}, {3}, {3})] * 3, Inquiries())
NAMES_NOBODY = agreed(*[Inquiries()] * WORKERS)


def late_after(*steps: np.ndarray) -> LateWorkers:
    late = LateWorkers(WORKERS)
    for each in steps:
        late.learn(each)
    return late


def test_a_worker_that_all_name_in_two_steps_in_a_row_is_late():
    assert not late_after(NAMES_3).ranks
    assert not late_after(NAMES_3, NAMES_NOBODY, NAMES_3).ranks
    late = late_after(NAMES_3, NAMES_3)
    assert (late.ranks, late.stride, late.root) == ({3}, 8, 0)


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
    assert opinion(answered({3}, {3}), WORKERS).tolist() == opinion(Inquiries(), WORKERS).tolist()
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
    names = np.max([opinion(answered(*[{5, 9, 12}] * 3), 16)], axis=0)
    late.learn(names)
    late.learn(names)
    assert late.ranks == {5, 9}


def test_the_stride_doubles_while_a_late_worker_is_named_and_halves_after_a_calm_time():
    late = late_after(*[NAMES_3] * 3)
    assert late.stride == 16
    strides = []
    for _ in range(64):
        late.learn(NAMES_NOBODY)
        strides.append(late.stride)
    assert strides == [16] * 15 + [8] * 16 + [4] * 16 + [2] * 16 + [1]
    assert not late.ranks
    assert late_after(*[NAMES_3] * 12).stride == MOST


def test_a_try_that_was_too_early_is_made_later_the_next_time():
    late = late_after(*[NAMES_3] * 2)
    for calm in (16, 32, 64):
        for _ in range(calm):
            assert late.stride == 8
            late.learn(NAMES_NOBODY)
        assert late.stride == 4
        late.learn(NAMES_3)
    assert late.stride == 8


def test_a_worker_that_is_late_again_at_once_stays_so_for_longer():
    late = late_after(*[NAMES_3] * 2, *[NAMES_NOBODY] * 48)
    assert not late.ranks
    late.learn(NAMES_3)
    late.learn(NAMES_3)
    assert (late.ranks, late.stride) == ({3}, 8)
    for _ in range(31):
        late.learn(NAMES_NOBODY)
    assert late.stride == 8
    late.learn(NAMES_NOBODY)
    assert late.stride == 4


@given(st.lists(st.sampled_from([NAMES_3, NAMES_NOBODY]), max_size=200))
def test_the_stride_is_one_exactly_if_nobody_is_late(steps: list[np.ndarray]):
    late = LateWorkers(WORKERS)
    for each in steps:
        late.learn(each)
        assert 1 <= late.stride <= MOST
        assert (late.stride == 1) == (not late.ranks)


@given(st.integers(1, 300), st.sampled_from([1, 2, 8, 64]), st.integers(0, 1000))
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
    assert 30 < count < 80
