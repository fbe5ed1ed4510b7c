"""int32 vectors through the switch: sends chunks, takes results, repeats what got lost.

Python touches batches, never single packets: a batch is received by one system call, matched with
the window by a few numpy operations, and answered by one system call.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from innet.errors import (
    AgentClosed,
    AllReduceError,
    JobEnded,
    LinkFailed,
    SwitchUnreachable,
    WorkersMissing,
)
from innet.host.link import Link
from innet.host.quantize import Integers
from innet.host.timer import RetransmissionTimer
from innet.host.window import Indices, Window
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import Kind, Operation
from innet.wire.records import Records, blank


@dataclass(frozen=True)
class Seat:
    """A worker's place in a job, as the controller gave it."""

    job: int
    epoch: int
    rank: int
    workers: int
    lanes: int
    first_slot: int
    slots: int


@dataclass(frozen=True)
class Patience:
    """How long an all-reduce may take, in seconds, before it is given up.

    `switch`: without a sign of life from the switch, which answers every repeated packet.
    `workers`: without progress although the switch answers, because other workers are missing.
    """

    switch: float = 5.0
    workers: float = 300.0


@dataclass
class Traffic:
    """What a worker has sent and received so far; bytes are of whole frames without FCS."""

    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    retransmissions: int = 0
    chunks: int = 0


def _nobody() -> Mapping[int, str]:
    return {}


def _anything(_: Integers) -> None:
    pass


class SwitchTransport:
    """All-reduce of int32 vectors by the aggregation program of one switch.

    Every worker of the job must make the same calls in the same order. `departed` tells which ranks
    have left and why. An exchange that fails leaves the slots out of step with the other workers, so
    every later call raises the same error: join the job again.
    """

    def __init__(
        self,
        link: Link,
        seat: Seat,
        clock: Callable[[], float],
        patience: Patience | None = None,
        departed: Callable[[], Mapping[int, str]] = _nobody,
    ) -> None:
        self._link = link
        self._seat = seat
        self._clock = clock
        self._patience = patience or Patience()
        self._departed = departed
        self._window = Window(seat.slots)
        self._timer = RetransmissionTimer()
        self._outgoing = blank(seat.slots, seat.lanes, Kind.CONTRIBUTION, link.encapsulation)
        self._outgoing["job"] = seat.job
        self._outgoing["epoch"] = seat.epoch
        self._failure: AllReduceError | None = None
        self._missing: list[int] = []
        self._gone: dict[int, str] = {}
        self._left_at: dict[int, float] = {}
        self._asked_at: float | None = None  # since when the switch owes an answer
        self._progress_at = 0.0
        self._stopped = threading.Event()
        self.traffic = Traffic()
        self._frame_bytes = link.dtype.itemsize + (0 if link.encapsulation else ENCAPSULATION_BYTES)

    def all_reduce(
        self,
        chunks: Integers,
        operation: Operation,
        inspect: Callable[[Integers], None] = _anything,
    ) -> Integers:
        """Combine a (chunks, lanes) int32 array with the other workers' arrays of the same shape.

        Returns a new array of the same shape. `inspect` is given the first chunk's result, (lanes,),
        as soon as it is in, and may raise an AllReduceError to give the exchange up. Raises
        JobEnded, LinkFailed, SwitchUnreachable, WorkersMissing, or AgentClosed after :meth:`stop`.
        """
        if self._failure:
            raise self._failure
        results = np.empty_like(chunks)
        if not len(chunks):
            return results
        try:
            self._exchange(chunks, results, operation, inspect)
        except AllReduceError as failure:
            raise self._give_up(failure) from failure.__cause__
        except OSError as problem:
            why = f"the link to the switch failed ({problem}): join the job again"
            raise self._give_up(LinkFailed(why)) from problem
        except BaseException:
            self._give_up(AllReduceError("an all-reduce was broken off: join the job again"))
            raise
        return results

    def stop(self) -> None:
        """End the exchange under way, and refuse all later ones. From any thread."""
        self._stopped.set()

    def _give_up(self, failure: AllReduceError) -> AllReduceError:
        self._failure = failure
        self._window.abandon()
        return failure

    def _exchange(
        self,
        chunks: Integers,
        results: Integers,
        operation: Operation,
        inspect: Callable[[Integers], None],
    ) -> None:
        window, timer = self._window, self._timer
        if window.exhausted:
            raise AllReduceError("the epoch's sequence numbers are used up: join the job again")
        self._outgoing["operation"] = operation
        self._progress_at = now = self._clock()
        self._asked_at = None
        self._missing, self._gone = list(range(self._seat.workers)), {}
        self._send(*window.start(len(chunks), now), chunks)
        while window.remaining:
            self._link.wait(window.next_deadline(timer.timeout, timer.longest) - self._clock())
            for batch in self._link.receive():
                if 0 in self._take(batch, chunks, results):
                    inspect(results[0])
            now = self._clock()
            if window.remaining:
                slots, late = window.overdue(now, timer.timeout, timer.longest)
                self.traffic.retransmissions += len(slots)
                self._send(slots, late, chunks)
                self._check_patience(now)
        self.traffic.chunks += len(chunks)

    def _take(self, batch: Records, chunks: Integers, results: Integers) -> Indices:
        """Take in a batch of replies. Returns the chunks that it has finished."""
        seat, now = self._seat, self._clock()
        self.traffic.packets_received += len(batch)
        self.traffic.bytes_received += len(batch) * self._frame_bytes
        ours = batch[(batch["job"] == seat.job) & (batch["epoch"] == seat.epoch)]
        # A slot's result first: once it is in, an older PENDING of the same slot no longer matches.
        finished = self._take_results(ours[ours["kind"] == Kind.RESULT], chunks, results, now)
        self._take_pendings(ours[ours["kind"] == Kind.PENDING], now)
        return finished

    def _take_results(
        self, batch: Records, chunks: Integers, results: Integers, now: float
    ) -> Indices:
        positions, slots = self._accepted(batch)
        if not positions.size:
            return positions
        self._asked_at, self._progress_at = None, now
        round_trip = self._window.round_trip(slots, now)
        if round_trip is not None:
            self._timer.sample(round_trip)
        finished, again, following = self._window.finish(slots, now)
        self._send(again, following, chunks)
        results[finished] = batch["lanes"][positions]
        return finished

    def _take_pendings(self, batch: Records, now: float) -> None:
        positions, _ = self._accepted(batch)
        if positions.size:
            self._asked_at = None
            arrived = int(np.bitwise_and.reduce(batch["workers"][positions]))
            self._missing = [rank for rank in range(self._seat.workers) if not arrived >> rank & 1]
            # The answer may be older than a departure, before which the worker has contributed. One
            # that comes long after the departure was known, and still lacks it, is not.
            departed = self._departures(now)
            self._gone |= {
                rank: departed[rank]
                for rank in self._missing
                if rank in departed and now - self._left_at[rank] > self._timer.longest
            }

    def _departures(self, now: float) -> Mapping[int, str]:
        departed = self._departed()
        for rank in departed:
            self._left_at.setdefault(rank, now)
        return departed

    def _accepted(self, batch: Records) -> tuple[Indices, Indices]:
        """The packets that answer something outstanding: their positions and slots."""
        slots = batch["slot"].astype(np.int64) - self._seat.first_slot
        return self._window.accept(slots, batch["sequence"].astype(np.int64))

    def _send(self, slots: Indices, which: Indices, chunks: Integers) -> None:
        if not slots.size:
            return
        packets = self._outgoing[: len(slots)]
        packets["slot"] = self._seat.first_slot + slots
        packets["sequence"] = self._window.sequence[slots]
        packets["lanes"] = chunks[which]
        self._link.send(packets)
        if self._asked_at is None:
            self._asked_at = self._clock()
        self.traffic.packets_sent += len(slots)
        self.traffic.bytes_sent += len(slots) * self._frame_bytes

    def _check_patience(self, now: float) -> None:
        silent = now - self._asked_at if self._asked_at is not None else 0.0
        stuck = now - self._progress_at
        departed = self._departures(now)
        if self._stopped.is_set():
            raise AgentClosed("the agent was closed before the all-reduce was done")
        if self._seat.rank in departed:
            raise JobEnded(departed[self._seat.rank])
        if silent > self._patience.switch:
            raise SwitchUnreachable(
                f"the switch has not answered for {silent:.1f} s: is it running, "
                "and does it still hold this job?"
            )
        if self._gone:
            reasons = "; ".join(f"worker {rank}: {why}" for rank, why in self._gone.items())
            raise WorkersMissing(f"the all-reduce cannot finish: {reasons}")
        if stuck > self._patience.workers:
            raise WorkersMissing(
                f"no contribution from workers {self._missing} for {stuck:.0f} s: "
                "are they stuck, or do they call all-reduce less often?"
            )
