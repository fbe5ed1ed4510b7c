"""The congestion window: the causes of shrinking and growing, and the limits."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.host.congestion import CongestionWindow


@dataclass
class Path:
    """A path with these properties; it drives a window through round trips."""

    window: CongestionWindow
    loss: float = 0.0  # of every chunk, at random
    carries: int = 10**9  # chunks in flight or queued without loss
    unmarked: int = 10**9  # chunks in flight or queued that are not marked
    queueing: bool = False
    seed: int = 1
    now: float = 0.0

    def __post_init__(self) -> None:
        self.chance = np.random.default_rng(self.seed)

    def round_trips(self, count: int, *, limited: bool = True) -> list[int]:
        """Return the window's size after each of the next round trips."""
        sizes = []
        for _ in range(count):
            size = self.window.size
            sent_at, self.now = self.now, self.now + 1.0
            if limited:
                self.window.limits()
            lost = max(0, size - self.carries) + int(self.chance.binomial(size, self.loss))
            marked = min(size, max(0, size - self.unmarked))
            self.window.delivered(size, lost, sent_at, self.now, marked, queueing=self.queueing)
            sizes.append(self.window.size)
        return sizes


@pytest.mark.parametrize("slots", [1, 2, 3, 16, 100, 1024])
def test_without_a_sign_it_grows_to_all_slots_and_no_further(slots: int):
    sizes = Path(CongestionWindow(slots)).round_trips(8)
    assert sizes == sorted(sizes)
    assert sizes[-1] == slots


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.02])
@pytest.mark.parametrize("slots", [16, 128, 1024])
def test_losses_by_chance_do_not_shrink_it(loss: float, slots: int):
    sizes = Path(CongestionWindow(slots), loss).round_trips(500)
    assert min(sizes[10:]) == slots


@pytest.mark.parametrize("carries", [10, 40, 100])
def test_a_queue_that_overflows_shrinks_it_to_what_gets_through(carries: int):
    sizes = Path(CongestionWindow(128), carries=carries).round_trips(200)
    settled = sizes[20:]
    assert max(settled) <= carries * 8 / 7 + 4
    assert min(settled) >= 0.6 * carries


def test_it_grows_back_when_there_is_room_again():
    path = Path(CongestionWindow(128), carries=20)
    assert path.round_trips(50)[-1] < 30
    path.carries = 10**9
    assert path.round_trips(128)[-1] == 128


def test_a_window_that_is_not_used_up_does_not_grow():
    path = Path(CongestionWindow(128))
    assert set(path.round_trips(50, limited=False)) == {32}


def test_one_round_trip_shrinks_it_once():
    window = CongestionWindow(128)
    Path(window).round_trips(10)
    window.delivered(60, 60, 10.0, 11.0)
    once = window.size
    window.delivered(60, 60, 10.5, 12.0)  # sent before the window shrank
    assert once == window.size == int(0.7 * 128)


def test_a_few_losses_among_a_few_results_are_chance():
    window = CongestionWindow(4)
    for now in range(10):
        window.delivered(4, 3, now, now + 1)
    assert window.size == 4


def test_silence_leaves_the_least_from_which_it_grows_quickly():
    path = Path(CongestionWindow(128))
    path.round_trips(10)
    path.window.silence()
    assert path.window.size == 4
    assert path.round_trips(4)[-1] == 64


def test_marks_of_a_whole_round_trip_halve_it_at_first():
    window = CongestionWindow(128)
    Path(window).round_trips(10)
    window.delivered(128, 0, 10.0, 11.0, marked=128)
    before = 15 / 16  # RFC 8257's alpha after ten round trips without marks
    share = before**10 + (1 - before**10) / 16
    assert window.size == int(128 * (1 - share / 2))
    fresh = CongestionWindow(128)
    fresh.delivered(32, 0, 0.0, 1.0, marked=32)
    assert fresh.size == 16


def test_a_queue_that_marks_keeps_it_near_the_threshold_and_loses_nothing():
    path = Path(CongestionWindow(512), unmarked=60, carries=200, queueing=True)
    path.round_trips(100)
    settled = path.round_trips(400)
    assert min(settled) >= 40
    assert max(settled) <= 65


def test_one_marked_result_in_many_costs_little_after_a_while():
    path = Path(CongestionWindow(128))
    path.round_trips(100)
    path.window.delivered(128, 0, path.now, path.now + 1, marked=1)
    assert path.window.size >= 127


def test_marks_that_stay_however_small_it_is_do_not_starve_it():
    path = Path(CongestionWindow(128), unmarked=0)
    assert min(path.round_trips(16)) == 4
    assert path.round_trips(8)[-1] == 128
    sizes = path.round_trips(600)
    assert 0 < sizes.count(4) < 60, "it obeys again from time to time"
    path.unmarked = 20
    path.round_trips(300)
    assert max(path.round_trips(100)) < 50, "now the marks are its own packets'"


def test_marks_count_again_after_a_round_trip_without_any():
    path = Path(CongestionWindow(128), unmarked=0)
    path.round_trips(40)
    path.unmarked = 10**9
    path.round_trips(1)
    path.unmarked = 0
    assert path.round_trips(15)[-1] < 10


def test_losses_while_packets_queue_shrink_a_large_window_and_no_other():
    path = Path(CongestionWindow(512), loss=0.02)
    assert path.round_trips(100)[-1] == 512
    path.queueing = True
    assert path.round_trips(1)[-1] == int(0.7 * 512)
    assert 128 <= min(path.round_trips(100)[20:]) < 136
    small = Path(CongestionWindow(128), loss=0.02, queueing=True)
    assert min(small.round_trips(200)[10:]) == 128


def test_on_a_path_that_marks_losses_shrink_it_to_its_first_size():
    path = Path(CongestionWindow(128), unmarked=0)
    path.round_trips(30)
    path.queueing, path.loss = True, 0.02
    assert 32 <= min(path.round_trips(100)) < 40


def test_while_packets_queue_it_grows_by_one_in_two_round_trips():
    path = Path(CongestionWindow(512), carries=300)
    path.round_trips(100)
    path.carries, path.queueing = 10**9, True
    path.window.delivered(300, 10, path.now, path.now + 1, queueing=True)
    size = path.window.size
    path.now += 1
    assert path.round_trips(100)[-1] == pytest.approx(size + 53, abs=1)


@given(
    st.integers(1, 300),
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 300), st.booleans(), st.booleans()),
        max_size=60,
    ),
)
def test_it_never_leaves_its_bounds(slots: int, rounds: list[tuple[int, int, bool, bool]]):
    window = CongestionWindow(slots)
    for now, (lost, marked, silent, queueing) in enumerate(rounds):
        window.limits()
        if silent:
            window.silence()
        window.delivered(300, lost, now, now + 1, marked, queueing=queueing)
        assert min(4, slots) <= window.size <= slots
