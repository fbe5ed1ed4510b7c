"""The retransmission timer follows RFC 6298, section 2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.host.timer import RetransmissionTimer

ANY = {"shortest": 0.0, "longest": float("inf")}
round_trips = st.lists(st.floats(1e-6, 10), min_size=1, max_size=30)


def rfc6298(samples: list[float]) -> float:
    """The RTO after `samples`, with the RFC's own names and formulas."""
    srtt, rttvar = samples[0], samples[0] / 2
    for r in samples[1:]:
        rttvar = (1 - 1 / 4) * rttvar + 1 / 4 * abs(srtt - r)
        srtt = (1 - 1 / 8) * srtt + 1 / 8 * r
    return srtt + 4 * rttvar


def timer_after(samples: list[float], **bounds: float) -> RetransmissionTimer:
    timer = RetransmissionTimer(**bounds)
    for sample in samples:
        timer.sample(sample)
    return timer


def test_first_round_trip_gives_three_times_itself():
    assert timer_after([0.1], **ANY).timeout == pytest.approx(0.3)


@given(round_trips)
def test_timeout_is_that_of_rfc6298(samples: list[float]):
    assert timer_after(samples, **ANY).timeout == pytest.approx(rfc6298(samples))


@given(round_trips)
def test_timeout_stays_within_its_bounds(samples: list[float]):
    timer = timer_after(samples, shortest=0.05, longest=1.0)
    assert timer.timeout == pytest.approx(min(max(rfc6298(samples), 0.05), 1.0))


@given(st.floats(0.001, 1))
def test_timeout_of_a_steady_network_comes_down_to_the_round_trip(round_trip: float):
    assert timer_after([round_trip] * 100, **ANY).timeout == pytest.approx(round_trip)


@given(st.floats(0.001, 1), st.floats(1.5, 100))
def test_a_slower_reply_lengthens_the_timeout_beyond_it(steady: float, factor: float):
    timer = timer_after([steady] * 100, **ANY)
    timer.sample(steady * factor)
    assert timer.timeout > steady * factor


def test_before_the_first_round_trip_the_timeout_is_as_given():
    assert RetransmissionTimer(timeout=0.7).timeout == 0.7
