"""A worker's exchanges, by the switch or the fallback: the worker's half of docs/recovery.md.

An exchange begins in the present term, over the term's path. When a new term comes, the exchange
is broken off. It is then begun again, or its result is taken from the workers that have it. The
caller only waits longer.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from innet.errors import AllReduceError
from innet.host import shared_exchange
from innet.host.agreement import Call
from innet.host.current_term import CurrentTerm
from innet.host.fallback import Fallback
from innet.host.fallback_path import FallbackPath
from innet.host.first_error import FirstError
from innet.host.inquiries import Inquiries
from innet.host.integers import Bytes, Flags, Integers, Reduction
from innet.host.job import ControllerMessages, Path, Term, Timeouts, WorkerInfo
from innet.host.link import Link
from innet.host.paths import Inspect, Paths
from innet.host.portioned import Attempt, Carrier, PortionedSum, SumForAll, result_of_others
from innet.host.portions import Portions
from innet.host.private_paths import PrivatePaths
from innet.host.quantizers.scaling import Scaling
from innet.host.stopwatch import Stopwatch
from innet.host.traffic import Traffic
from innet.host.transport import SwitchTransport
from innet.host.wait_limits import WaitLimits
from innet.host.waker import Waker
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import Operation

if TYPE_CHECKING:
    import torch

    from innet.host.pads import Pads  # needs `cryptography`, which few workers have


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
        self._paths: Paths = Paths(self._transport, self._fallback, self._check_meanwhile)
        self._number = 0
        self._last: Reduction | None = None
        self._owes_result = False
        self._chunks = 0  # of the exchange under way
        self._begun = 0.0  # when it began
        self._first_error = FirstError()

    @property
    def traffic(self) -> Traffic:
        """Return the counts of the packets and bytes sent and received so far."""
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
        return self._first_error.error

    def all_reduce(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        operation: Operation,
        inspect: Inspect | None = None,
    ) -> Reduction:
        """Combine (n, lanes) int32 and their flags, (n,), with those of the other workers.

        The result is read-only: it is kept for workers that lose it. The chunks are no longer read
        once this returns or raises. A scaling makes its chunks when they are needed. `inspect` is called
        with the first chunk's result, (lanes,), as soon as the result has arrived. It may raise an
        AllReduceError to give up. Raises any AllReduceError.
        """
        if not len(chunks):
            return Reduction.empty(*chunks.shape)

        def attempt(carrier: Carrier, *, shared: bool) -> Reduction:
            if shared:
                count, lanes = chunks.shape
                return result_of_others(carrier, count, lanes, self._info.workers, inspect)
            return carrier(chunks, flags, operation, inspect=inspect)

        return self._carry_out(attempt, len(chunks))

    def gather(self, call: Call, content: Bytes, ranks: range, into: Bytes) -> bool:  # noqa: ARG002
        """Gather the bytes of some ranks `into` (ranks, size), given this worker's `content`, (size,).

        Ranks that nobody wants may have no content. Unless all workers of the group share memory, do
        nothing, and return False. Raises any AllReduceError.
        """
        return False

    def sum_portions(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        portions: Portions,
        into: tuple[Integers, Integers] | None = None,
    ) -> Reduction:
        """Sum n chunks, with the lanes of this worker's portions; see :class:`portioned.SumOfPortions`.

        Raises any AllReduceError.
        """
        kind = SumForAll if self._info.has_quorum else PortionedSum
        portioned = kind(chunks, flags, portions, self._info.workers, into)
        return portioned.joined(self._carry_out(portioned.attempt, len(flags)))

    @contextlib.contextmanager
    def inquiring(self, inquiries: Inquiries) -> Iterator[None]:
        """Apply the deadline of `inquiries` to the chunks of all exchanges in this context."""
        self._transport.inquiries = inquiries
        try:
            yield
        finally:
            self._transport.inquiries = None

    @property
    def private(self) -> bool:
        """Return whether exchanges are covered by pads. All of them are sums then."""
        return self._paths.private

    def cover(self, pads: "Pads") -> None:
        """Cover all exchanges from the next one on. All workers have to do it at the same number."""
        self._paths = PrivatePaths(
            self._transport, self._fallback, self._check_meanwhile, pads, self._number, self._info
        )

    def combine(self, tensor: "torch.Tensor", *, mean: bool) -> "torch.Tensor":
        """Return the sum or mean of a tensor over the fallback, on any path. No exchange is counted."""
        self._first_error.check()
        with self._first_error:
            return self._fallback.combine(tensor, self._follow_meanwhile, mean=mean)

    def attend(self) -> None:
        """Follow the controller's messages between two exchanges.

        If that fails, the next exchange raises the error.
        """
        if not self._first_error.error:
            with contextlib.suppress(AllReduceError), self._first_error:
                self._follow()

    def stop(self, problem: BaseException | None = None) -> None:  # noqa: ARG002
        """End the exchange under way, and refuse all later ones. Safe from any thread.

        The `problem` is the reason, if there is one.
        """
        self._limits.stop()
        self._waker.wake()

    def close(self) -> None:
        """Release what the exchanges own, after the last one."""

    def give_up(self, problem: BaseException) -> None:
        """Refuse all later exchanges after an error between two of them.

        The other workers go on with exchanges that this one has skipped. So its next exchange would
        meet a different one of theirs.
        """
        self._first_error.note(problem)

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
        if self._current.goes_on and not self._owes_result:
            return self._current.term
        while True:
            if (term := self._current.latest(self._number)) is None:
                return None
            if term is not self._current.term:
                self._enter(term)
            if self._current.replace_if_spoilt():
                return None
            if not self._owes_result:
                return term
            with self._current:
                self._give_result(term)

    def _give_result(self, term: Term) -> None:
        """Give the last result to the workers that have not finished its exchange."""
        if self._last:
            contribution = shared_exchange.with_result(self._last, self._info.workers)
            self._paths.all_reduce(term, term.exchange, *contribution, Operation.MAX)
        self._owes_result = False

    def _enter(self, term: Term) -> None:
        self._current.enter(term, self._number)
        self._owes_result = self._number > term.exchange
        self._transport.begin(term)
        if term.path == Path.SWITCH:
            self._fallback.over()

    def _await_term(self) -> Term:
        """Return the term in which to sum, as soon as there is one."""
        if term := self._ready_term():
            return term
        waited, switch_missing = Stopwatch(monotonic), Stopwatch(monotonic)
        while not (term := self._ready_term()):
            self._limits.check_departures()
            if self._controller.waiting_for or not self._controller.connected:
                switch_missing.restart()
            seconds, missing = waited.look(), switch_missing.look()
            if self._current.term is None:
                self._limits.check_first_term(seconds)
            else:
                self._limits.check_next_term(seconds, missing, self._current.end)
            self._waker.wait(1.0)
        return term

    def _ready_term(self) -> Term | None:
        """Return the term in which to sum, if there is one."""
        self._limits.check_membership()
        term = self._follow()
        if term and self._transport.exhausted:
            self._current.spoil("its sequence numbers are used up")
            term = self._follow()  # asks for another
        return term

    # One exchange.

    def _carry_out(self, attempt: Attempt, chunks: int) -> Reduction:
        """Attempt the next exchange in one term after the other, and keep its result for others."""
        self._first_error.check()
        self._begun, self._chunks = monotonic(), chunks
        try:
            with self._first_error:
                while True:
                    term = self._await_term()
                    with self._current:  # if TermOver breaks off the attempt, the loop goes on
                        shared = term.shared and term.exchange == self._number
                        carrier = partial(self._paths.all_reduce, term, self._number)
                        result = attempt(carrier, shared=shared)
                        break
        finally:
            self._chunks = 0
        result.freeze()
        self._limits.over()
        self._number, self._last = self._number + 1, result
        return result

    def _check_meanwhile(self) -> None:
        self._current.check()
        self._limits.check_departures()

    def _follow_meanwhile(self) -> None:
        self._limits.check_membership()
        self._limits.check_departures(self._info.workers)
        self._follow()
