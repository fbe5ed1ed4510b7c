"""A worker's exchanges, by the switch or the fallback: the worker's half of docs/recovery.md.

An exchange begins in the present term, over the term's path. When a new term comes, the exchange
is broken off. It is then begun again, or its result is taken from the workers that have it. The
caller only waits longer.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from innet.errors import (
    AllReduceError,
    LeftBehind,
    LinkFailed,
    UsageError,
    WorkersMissing,
)
from innet.host import shared_exchange
from innet.host.current_term import CurrentTerm
from innet.host.fallback import Fallback
from innet.host.fallback_path import FallbackPath
from innet.host.integers import Flags, Integers, Reduction
from innet.host.job import ControllerMessages, Path, Term, Timeouts, WorkerInfo
from innet.host.link import Link
from innet.host.quantizers.scaling import Scaling, integers_of
from innet.host.stopwatch import Stopwatch
from innet.host.transport import SwitchTransport, Traffic
from innet.host.wait_limits import WaitLimits
from innet.host.waker import Waker, monotonic
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import Operation

if TYPE_CHECKING:
    import torch

    from innet.host.pads import Pads  # needs `cryptography`, which few workers have

Inspect = Callable[[Integers], None]


def anything(_: Integers) -> None:
    """Accept any first chunk."""


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
        controller: ControllerMessages,
        waker: Waker,
        timeouts: Timeouts,
        fallback: Fallback | None = None,
    ) -> None:
        self._info = info
        self._controller = controller
        self._waker = waker
        self._limits = WaitLimits(info, controller, timeouts)
        self._current = CurrentTerm(controller, self._limits)
        self._fallback = FallbackPath(fallback, info, waker, self._limits, timeouts, monotonic)
        self._transport = SwitchTransport(link, info, monotonic, self._current, timeouts)
        self._number = 0
        self._last: Reduction | None = None
        self._owes_result = False
        self._chunks = 0  # of the exchange under way
        self._begun = 0.0  # when it began
        self._failure: AllReduceError | None = None
        self._pads: Pads | None = None
        self._first_covered = 0  # the number of the first exchange with pads

    @property
    def traffic(self) -> Traffic:
        """Return the packets and bytes so far."""
        return self._transport.traffic

    @property
    def fallbacks(self) -> Counter[str]:
        """Return the number of sums made without the switch so far, by reason."""
        return self._fallback.counts

    @property
    def term(self) -> Term | None:
        """Return the present term, None before the first."""
        return self._current.term

    @property
    def failure(self) -> AllReduceError | None:
        """Return the error that every later exchange raises, or None while there is none."""
        return self._failure

    def all_reduce(
        self,
        chunks: Integers | Scaling,
        operation: Operation,
        flags: Flags,
        inspect: Inspect = anything,
    ) -> Reduction:
        """Combine (n, lanes) int32 and their (n,) flags with those of the other workers.

        The result is read-only: it is kept for workers that lose it. The chunks are no longer read
        once this returns or raises. A scaling makes its chunks when they are needed.

        `inspect` is called with the first chunk's result, (lanes,), as soon as it has arrived. It
        may raise an AllReduceError to give up. Raises any AllReduceError.
        """
        if self._failure:
            raise self._failure
        if not len(chunks):
            return Reduction.empty(*chunks.shape)
        self._begun, self._chunks = monotonic(), len(chunks)
        try:
            with self._giving_up():
                while True:
                    term = self._await_term()
                    with self._current.spoilt_if_over():
                        result = self._carry_out(term, chunks, operation, flags, inspect)
                        break
        finally:
            self._chunks = 0
        result.freeze()
        self._limits.over()
        self._number, self._last = self._number + 1, result
        return result

    @property
    def private(self) -> bool:
        """Return whether the next exchange is covered by pads. Its operation can only be a sum."""
        return self._covers(self._number)

    def cover(self, pads: "Pads") -> None:
        """Cover all exchanges from the next one on. All workers have to do it at the same number."""
        self._pads, self._first_covered = pads, self._number

    def combine(self, tensor: "torch.Tensor", *, mean: bool) -> "torch.Tensor":
        """Return the sum or mean of a tensor over the fallback, on any path. No exchange is counted."""
        if self._failure:
            raise self._failure
        with self._giving_up():
            return self._fallback.combine(tensor, self._follow_meanwhile, mean=mean)

    def attend(self) -> None:
        """Follow the controller's messages between two exchanges.

        If that fails, the next exchange raises the error.
        """
        if not self._failure:
            with contextlib.suppress(AllReduceError), self._giving_up():
                self._follow()

    def stop(self) -> None:
        """End the exchange under way, and refuse all later ones. Safe from any thread."""
        self._limits.stop()
        self._waker.wake()

    def close(self) -> None:
        """Give up what the exchanges own, after the last one."""

    def give_up(self, problem: BaseException) -> None:
        """Refuse all later exchanges after an error between two of them.

        The other workers go on with exchanges that this one has skipped. Its next exchange would
        meet a different one of theirs.
        """
        if self._failure:
            return
        if isinstance(problem, AllReduceError):
            self._failure = problem
        else:
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
            progress.stuck_s = max(0.0, monotonic() - since)
        progress.fallback_exchanges = self.fallbacks.total() - self.fallbacks["dtype"]
        self._transport.fill(progress)

    # Terms.

    def _follow(self) -> Term | None:
        """Follow the controller's messages. Return the term in which to sum, if any."""
        while True:
            if (term := self._current.latest(self._number)) is None:
                return None
            if term is not self._current.term:
                self._enter(term)
            if self._current.replace_if_spoilt():
                return None
            if not self._owes_result:
                return term
            with self._current.spoilt_if_over():
                self._give_result(term)

    def _give_result(self, term: Term) -> None:
        """Give the last result to the workers that have not finished its exchange."""
        if self._last:
            contribution = shared_exchange.with_result(self._last)
            self._share(term, term.exchange, contribution, anything, has=True)
        self._owes_result = False

    def _enter(self, term: Term) -> None:
        self._current.enter(term)
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
        if term.path == Path.SWITCH:
            self._fallback.over()

    def _await_term(self) -> Term:
        """Return the term in which to sum, as soon as there is one."""
        waited, switch_missing = Stopwatch(monotonic), Stopwatch(monotonic)
        while True:
            self._limits.check_membership()
            if (term := self._follow()) and not self._transport.exhausted:
                return term
            if term:
                self._current.spoil("its sequence numbers are used up")
                continue
            self._limits.check_departures()
            if self._controller.waiting_for or not self._controller.connected:
                switch_missing.restart()
            seconds, missing = waited.look(), switch_missing.look()
            if self._current.term is None:
                self._limits.check_first_term(seconds)
            else:
                self._limits.check_next_term(seconds, missing, self._current.end)
            self._waker.wait(1.0)

    # One exchange.

    def _carry_out(
        self,
        term: Term,
        chunks: Integers | Scaling,
        operation: Operation,
        flags: Flags,
        inspect: Inspect,
    ) -> Reduction:
        if term.shared and term.exchange == self._number:
            contribution = shared_exchange.without_result(*chunks.shape)
            shared = self._share(term, self._number, contribution, inspect, has=False)
            return shared_exchange.result_in(shared, len(chunks))
        return self._reduce(term, self._number, (chunks, flags), operation, inspect)

    def _share(
        self,
        term: Term,
        number: int,
        contribution: tuple[Integers, Flags],
        inspect: Inspect,
        *,
        has: bool,
    ) -> Reduction:
        """Carry out a shared exchange. `has` tells whether this worker gives the result."""
        if not self._covers(number):
            return self._reduce(term, number, contribution, Operation.MAX, inspect)
        rank = self._info.rank
        roll = shared_exchange.roll(self._info.lanes, rank, has=has)
        rolled = self._reduce(term, number, roll, Operation.SUM, anything, part=1)
        if rank != shared_exchange.giver(rolled):
            contribution = shared_exchange.nothing(contribution)
        return self._reduce(term, number, contribution, Operation.SUM, inspect, part=2)

    def _covers(self, number: int) -> bool:
        return self._pads is not None and number >= self._first_covered

    def _reduce(
        self,
        term: Term,
        number: int,
        contribution: tuple[Integers | Scaling, Flags],
        operation: Operation,
        inspect: Inspect,
        part: int = 0,
    ) -> Reduction:
        """Carry out an exchange, or the named part of it, with pads if it is private."""
        if not self._pads or not self._covers(number):
            return self._sum(term, number, contribution, operation, inspect)
        if operation != Operation.SUM:
            raise UsageError("private sums are sums: a switch cannot compare padded lanes")
        chunks, flags = contribution
        covered = self._pads.cover(term.number, number, part, integers_of(chunks))
        result = self._sum(
            term, number, (covered.chunks, flags), Operation.WRAPPING_SUM, covered.showing(inspect)
        )
        self._check_complete(result)
        covered.uncover(result.lanes)
        return result

    def _check_complete(self, result: Reduction) -> None:
        """Raise WorkersMissing if a sum lacks a worker, because its pads have not cancelled."""
        everyone = (1 << self._info.workers) - 1
        if (result.members != everyone).any():
            raise WorkersMissing(
                "a sum came without all workers, and a private one is noise then: join the job again"
            )

    def _sum(
        self,
        term: Term,
        number: int,
        contribution: tuple[Integers | Scaling, Flags],
        operation: Operation,
        inspect: Inspect,
    ) -> Reduction:
        """Combine chunks over the term's path."""
        chunks, flags = contribution
        if term.path == Path.SWITCH:
            return self._transport.all_reduce(chunks, flags, operation, inspect)
        integers = integers_of(chunks)
        result = self._fallback.all_reduce(
            term, number, (integers, flags), operation, self._check_meanwhile
        )
        inspect(result.lanes[0])
        self._transport.progressed()
        return result

    def _check_meanwhile(self) -> None:
        self._current.check()
        self._limits.check_departures()

    def _follow_meanwhile(self) -> None:
        self._limits.check_membership()
        self._limits.check_departures(self._info.workers)
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
