"""A worker whose exchanges run in a thread, the switch and the controller played by the test."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from one_worker import CHUNKS, TERM, WITHIN, WORKER_INFO, Controller, Switch

from innet.errors import (
    AllReduceError,
)
from innet.host.exchanges import Exchanges
from innet.host.integers import Reduction
from innet.host.job import Path, Term, Timeouts, WorkerInfo
from innet.wire.layout import Kind, Operation

SMALLEST = np.iinfo(np.int32).min
NO_SWITCH = Term(12, Path.FALLBACK, TERM.first_slot, TERM.slots, reason="no switch answers")


class Others:
    """The other workers when there is no switch; the test decides the result of an exchange."""

    def __init__(self) -> None:
        self.workers = WORKER_INFO.workers
        self._asked = threading.Semaphore(0)
        self._calls: list[tuple[tuple[int, int], np.ndarray, Operation, np.ndarray, Future]] = []

    def all_reduce(self, position, chunks, operation, flags) -> "Future[Reduction]":
        future: Future[Reduction] = Future()
        self._calls.append((position, chunks, operation, flags, future))
        self._asked.release()
        return future

    def combine(self, tensor, *, mean: bool) -> Future:
        raise AssertionError((tensor, mean))

    def take(self) -> tuple[tuple[int, int], np.ndarray, Operation, np.ndarray, Future]:
        """Return the worker's next contribution to a sum with the others."""
        assert self._asked.acquire(timeout=WITHIN)
        return self._calls.pop(0)


class Worker:
    """A worker whose exchanges run in a thread of their own, as an agent's do."""

    def __init__(
        self, switch: Switch, info: WorkerInfo = WORKER_INFO, timeouts: Timeouts | None = None
    ) -> None:
        self.switch, self.others = switch, Others()
        self.controller = Controller(switch.waker)
        self.exchanges = Exchanges(
            switch.link, info, self.controller, switch.waker,
            timeouts or Timeouts(WITHIN, WITHIN), self.others,
        )  # fmt: skip
        self.pool = switch.in_the_end.enter_context(ThreadPoolExecutor(1))
        switch.in_the_end.callback(self.exchanges.stop)

    def start(
        self, chunks: np.ndarray = CHUNKS, operation: Operation = Operation.SUM, flags=None,
        **more,
    ) -> "Future[Reduction]":  # fmt: skip
        flags = np.zeros(len(chunks), np.uint16) if flags is None else flags
        return self.pool.submit(self.exchanges.all_reduce, chunks, flags, operation, **more)

    def attend(self) -> None:
        """Do the same as an agent between two exchanges."""
        self.pool.submit(self.exchanges.attend).result(WITHIN)

    def finish(self, chunks: np.ndarray = CHUNKS, **more) -> Reduction:
        """Finish an exchange in which the switch returns the worker's own chunks."""
        running = self.start(chunks, **more)
        for slot in range(len(chunks)):
            self.switch.answer(self.take(slot), Kind.RESULT)
        return running.result(WITHIN)

    def take(self, slot: int) -> np.ndarray:
        """Return the contribution to a slot in the present term; skip earlier packets."""
        term = self.controller.term
        while True:
            packet = self.switch.take_chunk(slot)
            if packet["term"] == term.number:
                return packet

    def heard(self, count: int) -> list[tuple[int, int]]:
        """Return the first `count` messages that the worker is ready."""
        while len(self.controller.readies) < count:
            self.attend()
        return self.controller.readies


def wait_for_ready(worker: Worker, count: int = 1) -> list[tuple[int, int]]:
    """Wait for `count` such messages while an exchange is under way."""
    while len(worker.controller.readies) < count:
        threading.Event().wait(0.001)
    return worker.controller.readies


def failure(future: "Future[Reduction]", kind: type[AllReduceError], why: str) -> None:
    error = future.exception(WITHIN)
    assert type(error) is kind
    assert why in str(error)
