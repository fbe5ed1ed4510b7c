"""The workers that the others wait for: from the rules, and as reported."""

import logging

import pytest
from one_worker import WORKER_INFO
from told import Told, where, working

from innet.controller.cli import jobs
from innet.controller.jobs.events import Progress
from innet.controller.state.waits import Waits, waited_for
from innet.host.stopwatch import Stopwatch
from innet.host.stragglers import StragglerLog
from innet.rpc import innet_pb2 as pb


def test_the_ranks_that_are_not_ready_for_a_term_are_waited_for():
    told = working(3)
    assert not waited_for(told.job, told.now)
    told.switch_changed("no switch answers")
    told.do("ready", 100, told.job.term, 0)
    assert waited_for(told.job, told.now) == {1, 2}
    told.do("ready", 102, told.job.term, 0)
    assert waited_for(told.job, told.now) == {1}
    told.do("ready", 101, told.job.term, 0)
    assert not waited_for(told.job, told.now)  # now the switch is missing


@pytest.mark.parametrize(
    ("of_two", "names"),
    [
        ({"exchange": 6, "busy": True, "stuck_s": 9}, {2}),  # behind
        ({"exchange": 7}, {2}),  # not in an all-reduce
        ({"exchange": 7, "busy": True, "stuck_s": 0.1}, set()),
    ],
)
def test_those_behind_the_others_are_waited_for(of_two: dict, names: set[int]):
    told = working(3)
    for rank in (0, 1):
        told.do("heartbeat", 100 + rank, Progress(exchange=7, busy=True, stuck_s=6.0))
    told.do("heartbeat", 102, Progress(**of_two))
    assert waited_for(told.job, told.now) == names


def test_where_all_seem_to_be_in_it_the_switch_knows_who_is_missing():
    told = working(3)
    for rank, missing in enumerate(((2,), (2,), ())):
        progress = Progress(exchange=7, busy=True, stuck_s=6.0, missing=missing)
        told.do("heartbeat", 100 + rank, progress)
    assert waited_for(told.job, told.now) == {2}


def test_in_a_tree_those_in_a_rack_know_who_of_them_is_missing():
    told = working(4)
    for rank, missing in enumerate(((2, 3), (2, 3), (3,), ())):
        progress = Progress(exchange=7, busy=True, stuck_s=6.0, missing=missing)
        told.do("heartbeat", 100 + rank, progress)
    assert waited_for(told.job, told.now) == {3}


def test_where_nobody_knows_it_is_those_whose_processes_do_not_run():
    """A worker was stopped in the middle of an exchange on the fallback."""
    told = working(3)
    for rank in range(3):
        told.now = 10.0 if rank else 0.0
        progress = Progress(exchange=7, busy=True, stuck_s=6.0)
        told.do("heartbeat", 100 + rank, progress)
    assert waited_for(told.job, told.now) == {0}


def test_a_switch_that_does_not_answer_is_no_worker():
    told = working(2)
    for rank in range(2):
        progress = Progress(exchange=7, busy=True, stuck_s=6.0, silent_s=6.0)
        told.do("heartbeat", 100 + rank, progress)
    assert not waited_for(told.job, told.now)


def test_with_a_quorum_those_who_have_not_joined_are_waited_for():
    told = Told(3, quorum=2)
    told.switch_changed(None)
    told.join(1)
    told.do("hello", 101, where(1))
    assert waited_for(told.job, told.now) == {0, 2}


def test_a_wait_is_told_when_it_changes_and_logged_when_it_lasts(capsys):
    told, waits = working(3), Waits()
    told.do("trouble", 100, told.job.term, "silence")
    told.do("ready", 100, told.job.term, 0)
    said = [(each.nonce, [*each.event.ranks]) for each in waits.follow(told.job, told.now)]
    assert said == [(nonce, [1, 2]) for nonce in (100, 101, 102)]
    told.now = 3.0
    assert not waits.follow(told.job, told.now)
    told.do("ready", 102, told.job.term, 0)
    assert len(waits.follow(told.job, told.now)) == 3
    assert [*waits.repeat(told.job, 101)[0].event.ranks] == [1]
    assert "workers wait" not in capsys.readouterr().out
    told.now = 5.0
    assert not waits.follow(told.job, told.now)
    assert waits.of(told.job).seconds(told.now) == 5.0
    assert waits.of(told.job).logged
    told.do("ready", 101, told.job.term, 0)
    assert [*waits.follow(told.job, told.now)[0].event.ranks] == []
    assert waits.of(told.job).seconds(told.now) == 0.0


def test_a_worker_names_those_it_waits_for_after_five_seconds_and_once(caplog):
    log = StragglerLog(WORKER_INFO)
    with caplog.at_level(logging.WARNING, "innet"):
        for seconds in (1.0, 4.9):
            log.note(seconds, [0, 2])
        assert not caplog.messages
        for seconds in (5.0, 6.0):
            log.note(seconds, [0, 2])
        log.over()
        log.over()
    assert caplog.messages == [
        "job train, worker 0: has waited 5 s for worker 2",
        "job train, worker 0: goes on: worker 2 came",
    ]


def test_a_stopwatch_does_not_count_time_in_which_its_process_was_stopped():
    times = iter([0.0, 1.0, 2.0, 62.0, 63.0])
    stopwatch = Stopwatch(lambda: next(times))
    assert [stopwatch.look() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]


def test_the_command_that_shows_a_job_names_those_that_are_waited_for():
    job = pb.Job(name="train", workers=3, waiting_for=[0, 2], waiting_s=6.1)
    rows = zip(*(column.cells for column in jobs._summary(job).columns), strict=True)
    assert ("waits for", "workers 0, 2, for 6 s") in rows
