"""The retransmission timer follows RFC 6298, section 2; probes back off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.host.timer import ProbeTimer, RetransmissionTimer

ANY = {"shortest": 0.0, "longest": float("inf"), "granularity": 0.0}
round_trips = st.lists(st.floats(1e-6, 10), min_size=1, max_size=30)


def rfc6298(samples: list[float]) -> float:
    """Return the RTO after `samples`, with the RFC's own names and formulas."""
    srtt, rttvar = samples[0], samples[0] / 2
    for r in samples[1:]:
        rttvar = (1 - 1 / 4) * rttvar + 1 / 4 * abs(srtt - r)
        srtt = (1 - 1 / 8) * srtt + 1 / 8 * r
    return srtt + 4 * rttvar


def timer_after(samples: list[float], **bounds: float) -> RetransmissionTimer:
    timer = RetransmissionTimer(**bounds)
    for sample in samples:
        timer.learn([sample])
    return timer


def test_first_round_trip_gives_three_times_itself():
    assert timer_after([0.1], **ANY).timeout == pytest.approx(0.3)


@given(round_trips)
def test_timeout_is_that_of_rfc6298(samples: list[float]):
    assert timer_after(samples, **ANY).timeout == pytest.approx(rfc6298(samples))


def test_time_in_queues_is_what_the_usual_round_trip_takes_more_than_the_shortest():
    assert RetransmissionTimer().queueing == 0
    assert timer_after([0.002], **ANY).queueing == 0
    assert timer_after([0.002, *[0.022] * 100], **ANY).queueing == pytest.approx(0.02, rel=0.01)


@given(round_trips)
def test_timeout_stays_within_its_bounds(samples: list[float]):
    timer = timer_after(samples, shortest=0.05, longest=1.0, granularity=0.0)
    assert timer.timeout == pytest.approx(min(max(rfc6298(samples), 0.05), 1.0))


@given(round_trips)
def test_timeout_is_longer_than_the_round_trip_by_what_the_clock_can_tell(samples: list[float]):
    timer = timer_after(samples, shortest=0.0, longest=float("inf"), granularity=0.5)
    assert timer.timeout >= timer.smoothed + 0.5


@given(st.floats(0.001, 1))
def test_timeout_of_a_steady_network_comes_down_to_the_round_trip(round_trip: float):
    assert timer_after([round_trip] * 100, **ANY).timeout == pytest.approx(round_trip)


@given(st.floats(0.001, 1), st.floats(1.5, 100))
def test_a_slower_reply_lengthens_the_timeout_beyond_it(steady: float, factor: float):
    timer = timer_after([steady] * 100, **ANY)
    timer.learn([steady * factor])
    assert timer.timeout > steady * factor


def test_before_the_first_round_trip_the_timeout_is_as_given():
    assert RetransmissionTimer(timeout=0.7).timeout == 0.7


def waits(timer: ProbeTimer, times: int, *, answered: bool) -> list[float]:
    """Return the waits before each of the next probes."""
    found, now = [], timer.deadline
    for _ in range(times):
        timer.asked(now)
        if answered:
            timer.answered(now)
        found.append(timer.deadline - now)
        now = timer.deadline
    return found


def probe_timer() -> ProbeTimer:
    return ProbeTimer(RetransmissionTimer(timeout=0.125), slowest=1.0)


@pytest.mark.parametrize("answered", [True, False])
def test_questions_back_off_whether_they_are_answered_or_not(*, answered: bool):
    timer = probe_timer()
    timer.restart(3.0)
    assert timer.deadline == 3.125
    assert waits(timer, 5, answered=answered) == [0.25, 0.5, 1.0, 1.0, 1.0]
    assert timer.unanswered == (0 if answered else 5)


def test_silence_after_answers_is_asked_about_as_quickly_as_ever():
    timer = probe_timer()
    timer.restart(0.0)
    waits(timer, 5, answered=True)
    assert waits(timer, 3, answered=False) == [0.25, 0.5, 1.0]


def test_a_result_begins_anew_and_what_is_sent_puts_the_question_off():
    timer = probe_timer()
    waits(timer, 3, answered=False)
    timer.restart(7.0)
    assert (timer.deadline, timer.unanswered) == (7.125, 0)
    timer.sent(7.1)
    assert timer.deadline == 7.225


def test_however_often_nobody_answers_the_wait_stays_a_number():
    assert waits(probe_timer(), 5000, answered=False)[-1] == pytest.approx(1.0)
