"""A chunk past its deadline is repeated, and the switch's answers name the late workers."""

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from exchanging_worker import Worker
from one_worker import CHUNKS, WITHIN

from innet.host.inquiries import Inquiries
from innet.host.integers import Reduction
from innet.host.link import Link
from innet.host.window import Window
from innet.wire.layout import Kind, Operation

if TYPE_CHECKING:
    from concurrent.futures import Future

OTHERS_IN_TIME = 0b011


def inquiring(worker: Worker, inquiries: Inquiries) -> "Future[Reduction]":
    """Begin an exchange with a deadline."""

    def reduce() -> Reduction:
        none = np.zeros(len(CHUNKS), np.uint16)
        with worker.exchanges.inquiring(inquiries):
            return worker.exchanges.all_reduce(CHUNKS, none, Operation.SUM)

    return worker.pool.submit(reduce)


def finish(worker: Worker, running: "Future[Reduction]") -> None:
    for slot in range(len(CHUNKS)):
        worker.switch.answer(worker.take(slot), Kind.RESULT)
    running.result(WITHIN)


def test_answers_to_repeated_contributions_name_the_late(worker: Worker):
    inquiries = Inquiries(0.001)
    running = inquiring(worker, inquiries)
    first = worker.take(0)
    while inquiries.lateness(2) is None:
        again = worker.take(0)
        assert again["lanes"].tobytes() == first["lanes"].tobytes()
        assert again["sequence"] == first["sequence"]
        worker.switch.answer(again, Kind.PENDING, OTHERS_IN_TIME)
    finish(worker, running)
    assert [inquiries.lateness(rank) for rank in range(3)] == [0, 0, 100]


def test_a_worker_does_not_ask_while_its_own_link_is_busy(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    class Watched(Inquiries):
        looked, questions = threading.Semaphore(0), 0

        def postpone(self, now: float) -> None:
            super().postpone(now)
            self.looked.release()

        def asked(self, now: float) -> None:
            super().asked(now)
            self.questions += 1

    inquiries = Watched(0.001)
    monkeypatch.setattr(Link, "is_sending", property(lambda _: True))
    running = inquiring(worker, inquiries)
    for _ in range(5):
        assert inquiries.looked.acquire(timeout=WITHIN)
    assert not inquiries.questions
    finish(worker, running)


def test_the_time_of_an_exchange_is_known_afterwards(worker: Worker):
    inquiries = Inquiries(WITHIN)
    finish(worker, inquiring(worker, inquiries))
    once = inquiries.seconds
    finish(worker, inquiring(worker, inquiries))
    assert 0 < once < inquiries.seconds < WITHIN


def test_without_a_deadline_answers_are_not_counted_by_the_exchanges_that_follow(worker: Worker):
    inquiries = Inquiries(0.001)
    with worker.exchanges.inquiring(inquiries):
        pass
    worker.finish()
    assert inquiries.answers == 0
    assert inquiries.at == float("inf")


def test_only_the_lowest_chunk_is_repeated_and_only_if_it_is_old_enough():
    window = Window(4)
    window.start(8)
    assert not window.overdue(0.0, 1.0)[0].size  # nothing was sent
    window.transmit(2, 1.0)
    assert not window.overdue(0.5, 1.4)[0].size
    assert [each.tolist() for each in window.overdue(0.5, 1.5)] == [[0], [0]]
    assert not window.overdue(0.5, 1.9)[0].size
    window.finish(np.array([0]))
    assert [each.tolist() for each in window.overdue(0.5, 2.0)] == [[1], [1]]
