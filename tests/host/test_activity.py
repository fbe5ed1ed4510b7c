"""The bursts of a worker, as they are reported."""

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable

import pytest
from waiting import WITHIN

from innet.host import activity as activity_module
from innet.host.activity import Activity


@pytest.fixture
def reports():
    said: queue.SimpleQueue[bool] = queue.SimpleQueue()
    with contextlib.closing(Activity(said.put)) as activity:
        yield activity, said


def test_a_burst_is_reported_when_it_begins_and_when_no_call_has_come_for_a_while(reports):
    activity, said = reports
    for _ in range(3):
        with activity:
            assert said.get_nowait()
            assert said.empty()
        assert not said.get(timeout=WITHIN)
    assert said.empty()


def test_a_long_call_is_one_burst(reports):
    activity, said = reports
    with activity:
        assert said.get_nowait()
        with pytest.raises(queue.Empty):
            said.get(timeout=0.1)  # much longer than a pause between calls
    assert not said.get(timeout=WITHIN)


def test_calls_that_follow_each_other_begin_no_second_burst(reports):
    activity, said = reports
    with activity:
        pass
    for _ in range(1000):
        with activity:
            pass
    activity.close()
    found = []
    while not said.empty():
        found.append(said.get())
    ended = found.count(False)
    # Busy and idle alternate, however long this process was held up in between.
    assert found == [True, False] * ended + [True] * (len(found) - 2 * ended)
    assert len(found) - 2 * ended in (0, 1)


def test_nothing_is_reported_after_the_end(reports):
    activity, said = reports
    with activity:
        assert said.get_nowait()
    activity.close()
    while not said.empty():
        assert not said.get()
    assert said.empty()


def test_an_end_while_a_burst_ends_is_not_missed(monkeypatch):
    said: queue.SimpleQueue[bool] = queue.SimpleQueue()
    activity, ends = Activity(said.put), threading.Event()
    times = itertools.count(1e12)  # whenever the end of the call was, it is long ago
    closer = threading.Thread(target=activity.close, daemon=True)

    def join(wait: Callable[[], None] = activity._thread.join) -> None:
        ends.set()
        wait()

    def late() -> float:
        if threading.current_thread() is activity._thread and not closer.ident:
            closer.start()
            ends.wait(WITHIN)
        return next(times)

    monkeypatch.setattr(activity._thread, "join", join)
    with activity:  # after it, the burst could end before the clock is replaced
        monkeypatch.setattr(activity_module, "monotonic", late)
    assert [said.get(timeout=WITHIN) for _ in range(2)] == [True, False]
    closer.join(WITHIN)
    assert not closer.is_alive()
