"""The bursts of a worker, as they are reported."""

import contextlib
import queue

import pytest
from waiting import WITHIN

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
