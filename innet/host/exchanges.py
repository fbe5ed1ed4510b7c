"""A worker's exchanges, by the switch or the fallback: the worker's half of docs/recovery.md.

An exchange begins in the present term, over the term's path. When a new term comes, the exchange
is broken off. It is then begun again, or its result is taken from the workers that have it. The
caller only waits longer.
"""

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from innet.errors import (
    AgentClosed,
    AllReduceError,
    JobEnded,
    LeftBehind,
    LinkFailed,
    SwitchUnreachable,
    WorkersMissing,
)
from innet.host.fallback import Fallback
from innet.host.integers import Flags, Integers, Reduction
from innet.host.job import Path, Term, Timeouts, WorkerInfo
from innet.host.link import Link
from innet.host.quantizers.scaling import Scaling
from innet.host.stopwatch import Stopwatch
from innet.host.stragglers import StragglerLog, named
from innet.host.transport import SwitchTransport, Traffic
from innet.host.waker import Waker, monotonic
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import Operation

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch

Result = TypeVar("Result")
Inspect = Callable[[Integers], None]

_SMALLEST = np.iinfo(np.int32).min
_ADVICE = ": are they stuck, or do they call all-reduce less often?"
_log = logging.getLogger("innet")


class Controller(Protocol):
    """The messages from and to a worker's controller; each message wakes the agent's thread.

    See :class:`innet.host.membership.Membership`.
    """

    ended: str
    recover: pb.Recover | None
    term: Term | None
    waiting_for: frozenset[int]
    connected: bool

    def departed(self) -> Mapping[int, str]:
        """Return the ranks that have left the job, with the reasons."""

    def ready(self, term: int, exchange: int) -> None:
        """Tell the controller that this worker has stopped and `exchange` is unfinished."""

    def trouble(self, term: int, reason: str) -> None:
        """Ask for another term."""


class _TermOver(Exception):
    """The exchange under way has to be broken off."""


def _anything(_: Integers) -> None:
    pass


class Exchanges:
    """A worker's exchanges, numbered from 0. Call all methods but :meth:`stop` from one thread.

    After one has failed, every later one raises the same error: the worker has to join again.
    `fallbacks` counts the sums made without the switch, by reason: ``switch`` (it cannot be
    reached), ``no_slots``, ``dtype``.
    """

    def __init__(
        self,
        link: Link,
        info: WorkerInfo,
        controller: Controller,
        waker: Waker,
        timeouts: Timeouts,
        fallback: Fallback | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._info = info
        self._controller = controller
        self._waker = waker
        self._timeouts = timeouts
        self._fallback = fallback
        self._clock = clock
        self._transport = SwitchTransport(link, info, clock, self, timeouts)
        self._stragglers = StragglerLog(info.rank)
        self._number = 0
        self._last: Reduction | None = None
        self._term: Term | None = None
        self._answered: pb.Recover | None = None
        self._owes_result = False
        self._spoilt = ""  # why nothing more can be summed in this term
        self._asked = False  # whether another term was requested, because this one is spoilt
        self._chunks = 0  # of the exchange under way
        self._begun = 0.0  # when it began
        self._failure: AllReduceError | None = None
        self._stopped = threading.Event()
        self.fallbacks: Counter[str] = Counter()

    @property
    def traffic(self) -> Traffic:
        """Return the packets and bytes so far."""
        return self._transport.traffic

    @property
    def term(self) -> Term | None:
        """Return the present term, None before the first."""
        return self._term

    def all_reduce(
        self,
        chunks: Integers,
        operation: Operation,
        flags: Flags,
        inspect: Inspect = _anything,
        scaling: Scaling | None = None,
    ) -> Reduction:
        """Combine (n, lanes) int32 and their (n,) flags with those of the other workers.

        The result is read-only: it is kept for workers that lose it. The chunks are no longer read
        once this returns or raises. `scaling` makes the chunks when they are needed.

        `inspect` is called with the first chunk's result, (lanes,), as soon as it has arrived. It
        may raise an AllReduceError to give up. Raises any AllReduceError.
        """
        if self._failure:
            raise self._failure
        if not len(chunks):
            return Reduction.empty(*chunks.shape)
        self._begun, self._chunks = self._clock(), len(chunks)
        try:
            with self._giving_up():
                while True:
                    term = self._await_term()
                    with self._breaking_off():
                        result = self._carry_out(term, chunks, operation, flags, inspect, scaling)
                        break
        finally:
            self._chunks = 0
        result.freeze()
        self._stragglers.over()
        self._number, self._last = self._number + 1, result
        return result

    def combine(self, tensor: "torch.Tensor", *, mean: bool) -> "torch.Tensor":
        """Return the sum or mean of a tensor over the fallback, whatever the path. It has no number."""
        if self._failure:
            raise self._failure
        if not self._fallback:
            raise AssertionError
        with self._giving_up():
            self._count("dtype", f"the switch cannot sum {tensor.dtype}, {tensor.layout}")
            return self._await(self._fallback.combine(tensor, mean=mean), self._follow_meanwhile)

    def attend(self) -> None:
        """Follow the controller's messages between two exchanges.

        If that fails, the next exchange raises the error.
        """
        if not self._failure:
            with contextlib.suppress(AllReduceError), self._giving_up():
                self._follow()

    def stop(self) -> None:
        """End the exchange under way, and refuse all later ones. Safe from any thread."""
        self._stopped.set()
        self._waker.wake()

    def give_up(self, problem: BaseException) -> None:
        """Refuse all later exchanges after an error between two of them.

        The other workers go on with exchanges that this one has skipped. Its next exchange would
        meet a different one of theirs.
        """
        if not self._failure:
            self._failure = AllReduceError(
                f"an all-reduce was broken off ({problem!r}): join the job again"
            )

    def fill(self, progress: pb.Progress) -> None:
        """Fill in the progress of the exchange under way. Safe from any thread."""
        progress.exchange = self._number
        progress.chunks = self._chunks
        if self._chunks:
            progress.busy = True
            since = max(self._begun, self._transport.result_at)
            progress.stuck_s = max(0.0, self._clock() - since)
        progress.fallback_exchanges = self.fallbacks.total() - self.fallbacks["dtype"]
        self._transport.fill(progress)

    # The transport's view of the job.

    def check(self) -> None:
        """Raise if something outside ends the exchange."""
        self._check_membership()
        if self._controller.recover is not None or self._controller.term is not self._term:
            raise _TermOver

    def departed(self) -> Mapping[int, str]:
        """Return the ranks that have left the job, with the reasons."""
        return self._controller.departed()

    def trouble(self, reason: str) -> None:
        """Ask for another term."""
        if self._term:
            self._controller.trouble(self._term.number, reason)

    def in_touch(self) -> bool:
        """Return whether the controller can be reached."""
        return self._controller.connected

    def waits(self, seconds: float, ranks: Iterable[int]) -> None:
        """Note how long the exchange has waited, and for which ranks as far as known."""
        self._stragglers.note(seconds, ranks)

    # Terms.

    def _follow(self) -> Term | None:
        """Follow the controller's messages. Return the term in which to sum, if any."""
        while True:
            if (recover := self._controller.recover) is not None:
                if recover is not self._answered:
                    self._answered = recover
                    self._controller.ready(recover.term, self._number)
                return None
            if (term := self._controller.term) is None:
                return None
            if term is not self._term:
                self._enter(term)
            if self._spoilt:
                if not self._asked:
                    self._asked = True
                    self.trouble(self._spoilt)
                return None
            if not self._owes_result:
                return term
            with self._breaking_off():
                self._give_result(term)

    def _give_result(self, term: Term) -> None:
        """Give the last result to the workers that have not finished its exchange."""
        if self._last:
            self._reduce(term, term.exchange, _shared(self._last), Operation.MAX, _anything)
        self._owes_result = False

    def _enter(self, term: Term) -> None:
        self._term, self._spoilt, self._asked = term, "", False
        if self._number < term.exchange:
            raise LeftBehind(
                f"the job goes on with exchange {term.exchange}, this worker has not finished "
                f"{self._number}: join the job again"
            )
        if self._number > term.exchange + term.shared:
            raise AllReduceError(
                f"the job goes back to exchange {term.exchange}, this worker has finished "
                f"{self._number - 1}: join the job again"
            )
        self._owes_result = self._number > term.exchange
        self._transport.begin(term)

    def _await_term(self) -> Term:
        """Return the term in which to sum, as soon as there is one."""
        waited, switch_missing = Stopwatch(self._clock), Stopwatch(self._clock)
        while True:
            self._check_membership()
            if (term := self._follow()) and not self._transport.exhausted:
                return term
            if term:
                self._spoilt = "its sequence numbers are used up"
                continue
            self._check_departures()
            if self._controller.waiting_for or not self._controller.connected:
                switch_missing.restart()
            self._check_waiting(waited.look(), switch_missing.look())
            self._waker.wait(1.0)

    @contextlib.contextmanager
    def _breaking_off(self) -> Iterator[None]:
        """Mark the term as spoilt if an exchange in it is broken off: it can have no other."""
        try:
            yield
        except _TermOver:
            self._spoilt = "an exchange was broken off"

    # One exchange.

    def _carry_out(
        self,
        term: Term,
        chunks: Integers,
        operation: Operation,
        flags: Flags,
        inspect: Inspect,
        scaling: Scaling | None,
    ) -> Reduction:
        if term.shared and term.exchange == self._number:
            rows = _share_rows(*chunks.shape)
            nothing = np.full((len(chunks) + rows, chunks.shape[1]), _SMALLEST, np.int32)
            contribution = nothing, np.zeros(len(nothing), np.uint16)
            shared = self._reduce(term, self._number, contribution, Operation.MAX, inspect)
            return _from_shared(shared, len(chunks))
        return self._reduce(term, self._number, (chunks, flags), operation, inspect, scaling)

    def _reduce(
        self,
        term: Term,
        number: int,
        contribution: tuple[Integers, Flags],
        operation: Operation,
        inspect: Inspect,
        scaling: Scaling | None = None,
    ) -> Reduction:
        """Carry out an exchange over the term's path."""
        chunks, flags = contribution
        if term.path == Path.SWITCH:
            return self._transport.all_reduce(chunks, flags, operation, inspect, scaling)
        if scaling:
            scaling.make_ready()
        if not self._fallback:
            raise AllReduceError("the controller counts on a fallback, which this worker has not")
        self._count("switch" if term.slots else "no_slots", term.reason)
        position = term.number, number
        result = self._await(
            self._fallback.all_reduce(position, chunks, operation, flags), self._check_meanwhile
        )
        inspect(result.lanes[0])
        self._transport.progressed()
        return result

    def _await(self, future: "Future[Result]", meanwhile: Callable[[], None]) -> Result:
        """Return the fallback's result; `meanwhile` raises to break off."""
        waited = Stopwatch(self._clock)
        future.add_done_callback(lambda _: self._waker.wake())
        try:
            while not future.done():
                meanwhile()
                self._check_fallback_wait(waited.look())
                self._waker.wait(1.0)
            if (problem := future.exception()) and not isinstance(problem, AllReduceError):
                self._explain(problem, meanwhile)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def _explain(self, problem: BaseException, meanwhile: Callable[[], None]) -> None:
        """Raise the cause of the fallback's failure: a worker's death takes a moment to be known."""
        waited = Stopwatch(self._clock)
        while waited.look() < self._timeouts.switch:
            meanwhile()
            self._waker.wait(1.0)
        raise LinkFailed(f"the fallback failed ({problem}): join the job again") from problem

    def _check_meanwhile(self) -> None:
        self.check()
        self._check_departures()

    def _follow_meanwhile(self) -> None:
        self._check_membership()
        self._check_departures(self._info.workers)
        self._follow()

    # When to give up.

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Refuse all later exchanges once this one has failed."""
        try:
            yield
        except AllReduceError as failure:
            self._failure = failure
            raise
        except OSError as problem:
            self._failure = LinkFailed(
                f"the link to the switch failed ({problem}): join the job again"
            )
            raise self._failure from problem
        except BaseException:
            self._failure = AllReduceError("an all-reduce was broken off: join the job again")
            raise

    def _check_membership(self) -> None:
        if self._stopped.is_set():
            raise AgentClosed("the agent was closed before the all-reduce was done")
        if self._controller.ended:
            raise JobEnded(self._controller.ended)

    def _check_departures(self, needed: int | None = None) -> None:
        """Raise WorkersMissing if too few workers are left, or fewer than `needed`."""
        departed = self._controller.departed()
        if self._info.workers - len(departed) < (needed or self._info.min_workers):
            reasons = "; ".join(f"worker {rank}: {why}" for rank, why in departed.items())
            raise WorkersMissing(f"the all-reduce cannot finish: {reasons}")

    def _check_waiting(self, seconds: float, switch_missing: float) -> None:
        """Raise if this worker has waited too long for a term."""
        others = self._controller.waiting_for - {self._info.rank}
        self._stragglers.note(seconds, others)
        patient = seconds <= self._timeouts.workers
        if self._term is None:
            if not patient:
                raise WorkersMissing(
                    f"the job has not begun for {seconds:.0f} s: it waits for "
                    f"{named(others) if others else 'workers, or for slots of the switch'} "
                    "(`innet job show` tells)"
                )
        elif others and not patient:
            raise WorkersMissing(f"the job has waited {seconds:.0f} s for {named(others)}{_ADVICE}")
        elif switch_missing > self._timeouts.switch or not patient:
            reason = self._answered.reason if self._answered else self._spoilt
            raise SwitchUnreachable(
                f"the job has not gone on for {seconds:.1f} s after a term was over ({reason}): "
                "is the switch running, and is every worker?"
            )

    def _check_fallback_wait(self, seconds: float) -> None:
        others = self._controller.waiting_for - {self._info.rank}
        self._stragglers.note(seconds, others)
        if seconds > self._timeouts.workers:
            late = f"; {named(others)} did not" if others else ""
            raise WorkersMissing(
                f"not all workers have begun this all-reduce for {seconds:.0f} s{late}{_ADVICE}"
            )

    def _count(self, kind: str, reason: str) -> None:
        if kind not in self.fallbacks:
            _log.warning("summing over the fallback instead of the switch: %s", reason)
        self.fallbacks[kind] += 1


def _share_rows(chunks: int, lanes: int) -> int:
    """Return the number of extra chunks that carry the members and counts of `chunks` chunks."""
    return -(-2 * chunks // lanes)


def _shared(result: Reduction) -> tuple[Integers, Flags]:
    """Return a result as a contribution to a maximum: its lanes, then members and counts."""
    chunks, lanes = result.lanes.shape
    members = np.zeros((_share_rows(chunks, lanes), lanes), np.int32)
    members.reshape(-1)[:chunks] = result.members.view(np.int32)
    members.reshape(-1)[chunks : 2 * chunks] = result.counts
    flags = np.concatenate([result.flags, np.zeros(len(members), np.uint16)])
    return np.concatenate([result.lanes, members]), flags


def _from_shared(shared: Reduction, chunks: int) -> Reduction:
    """Return the result that other workers have shared."""
    members = shared.lanes[chunks:].reshape(-1)
    return Reduction(
        shared.lanes[:chunks],
        shared.flags[:chunks],
        members[chunks : 2 * chunks].astype(np.uint8),
        members[:chunks].view(np.uint32),
    )
