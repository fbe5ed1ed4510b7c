"""A worker's exchanges, one after the other, whatever the way: the worker's half of docs/epochs.md.

An exchange is begun in the present epoch, over the epoch's path. When a new epoch comes, it is broken
off and begun again, or its result is taken from those who have it; whoever called only waits longer.
"""

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from innet.controller import innet_pb2 as pb
from innet.errors import (
    AgentClosed,
    AllReduceError,
    JobEnded,
    LeftBehind,
    LinkFailed,
    SwitchUnreachable,
    WorkersMissing,
)
from innet.host.bell import Bell, monotonic
from innet.host.fallback import Fallback
from innet.host.integers import Flags, Integers, Reduction
from innet.host.link import Link
from innet.host.scaling import Scaling
from innet.host.seat import Epoch, Path, Patience, Seat
from innet.host.transport import SwitchTransport, Traffic
from innet.wire.layout import Operation

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch

Result = TypeVar("Result")
Inspect = Callable[[Integers], None]

_SMALLEST = np.iinfo(np.int32).min
_log = logging.getLogger("innet")


class Controller(Protocol):
    """What a worker hears from its controller and says to it; it rings the bell when it has spoken.

    See :class:`innet.host.membership.Membership`.
    """

    ended: str
    recover: pb.Recover | None
    epoch: Epoch | None

    def departed(self) -> Mapping[int, str]:
        """The ranks that have left the job, and why."""

    def ready(self, epoch: int, exchange: int) -> None:
        """The worker has stopped, for this epoch to begin; `exchange` is the one not finished."""

    def trouble(self, epoch: int, reason: str) -> None:
        """Ask for another epoch."""


class _EpochOver(Exception):
    """The exchange under way is to be broken off."""


def _anything(_: Integers) -> None:
    pass


class Exchanges:
    """Carries out exchanges, numbered from 0 on; all methods but :meth:`stop` from one thread.

    After one has failed, every later one raises the same error: the worker has to join again.
    `fallbacks` counts what was summed without the switch, by the reason: ``switch`` (it cannot be
    reached), ``no_slots``, ``dtype``.
    """

    def __init__(
        self,
        link: Link,
        seat: Seat,
        controller: Controller,
        bell: Bell,
        patience: Patience,
        fallback: Fallback | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._seat = seat
        self._controller = controller
        self._bell = bell
        self._patience = patience
        self._fallback = fallback
        self._clock = clock
        self._transport = SwitchTransport(link, seat, clock, self, patience)
        self._number = 0
        self._last: Reduction | None = None
        self._epoch: Epoch | None = None
        self._answered: pb.Recover | None = None
        self._owes_result = False
        self._spoilt = ""  # why nothing more can be summed in the epoch
        self._asked = False  # for another epoch, because it is spoilt
        self._chunks = 0  # of the exchange under way
        self._begun = 0.0  # when it was
        self._failure: AllReduceError | None = None
        self._stopped = threading.Event()
        self.fallbacks: Counter[str] = Counter()

    @property
    def traffic(self) -> Traffic:
        """Packets and bytes so far."""
        return self._transport.traffic

    @property
    def epoch(self) -> Epoch | None:
        """The present epoch, None before the first."""
        return self._epoch

    def all_reduce(
        self,
        chunks: Integers,
        operation: Operation,
        flags: Flags,
        inspect: Inspect = _anything,
        scaling: Scaling | None = None,
    ) -> Reduction:
        """Combine (n, lanes) int32 and their (n,) flags with those of the other workers.

        `scaling` makes the chunks when they are needed.

        `inspect` is given the first chunk's result, (lanes,), as soon as it is in, and may raise an
        AllReduceError to give up. Raises any AllReduceError.
        """
        if self._failure:
            raise self._failure
        if not len(chunks):
            return Reduction.empty(*chunks.shape)
        self._begun, self._chunks = self._clock(), len(chunks)
        try:
            with self._giving_up():
                while True:
                    epoch = self._await_epoch()
                    with self._breaking_off():
                        result = self._carry_out(epoch, chunks, operation, flags, inspect, scaling)
                        break
        finally:
            self._chunks = 0
        self._number, self._last = self._number + 1, result
        return result

    def combine(self, tensor: "torch.Tensor", *, mean: bool) -> "torch.Tensor":
        """The sum or the mean of a tensor over the fallback, whatever the path. Not numbered."""
        if self._failure:
            raise self._failure
        if not self._fallback:
            raise AssertionError
        with self._giving_up():
            self._count("dtype", f"the switch cannot sum {tensor.dtype}, {tensor.layout}")
            return self._await(self._fallback.combine(tensor, mean=mean), self._follow_meanwhile)

    def attend(self) -> None:
        """Between two exchanges: go along with what the controller has said.

        What goes wrong, the next exchange raises.
        """
        if not self._failure:
            with contextlib.suppress(AllReduceError), self._giving_up():
                self._follow()

    def stop(self) -> None:
        """End the exchange under way, and refuse all later ones. From any thread."""
        self._stopped.set()
        self._bell.ring()

    def fill(self, progress: pb.Progress) -> None:
        """Say how far the exchange under way has come, from any thread."""
        progress.exchange = self._number
        progress.chunks = self._chunks
        if self._chunks:
            progress.busy = True
            since = max(self._begun, self._transport.result_at)
            progress.stuck_s = max(0.0, self._clock() - since)
        progress.fallback_exchanges = self.fallbacks.total() - self.fallbacks["dtype"]
        self._transport.fill(progress)

    # What the transport asks of a stay.

    def check(self) -> None:
        """Raise what ends an exchange from outside."""
        self._check_stay()
        if self._controller.recover is not None or self._controller.epoch is not self._epoch:
            raise _EpochOver

    def departed(self) -> Mapping[int, str]:
        """The ranks that have left the job, and why."""
        return self._controller.departed()

    def trouble(self, reason: str) -> None:
        """Ask for another epoch."""
        if self._epoch:
            self._controller.trouble(self._epoch.number, reason)

    # Epochs.

    def _follow(self) -> Epoch | None:
        """Go along with what the controller has said. Returns the epoch in which to sum, if any."""
        while True:
            if (recover := self._controller.recover) is not None:
                if recover is not self._answered:
                    self._answered = recover
                    self._controller.ready(recover.epoch, self._number)
                return None
            if (epoch := self._controller.epoch) is None:
                return None
            if epoch is not self._epoch:
                self._enter(epoch)
            if self._spoilt:
                if not self._asked:
                    self._asked = True
                    self.trouble(self._spoilt)
                return None
            if not self._owes_result:
                return epoch
            with self._breaking_off():
                self._give_result(epoch)

    def _give_result(self, epoch: Epoch) -> None:
        """To those who have not finished the exchange that this worker has."""
        if self._last:
            self._reduce(epoch, epoch.exchange, _shared(self._last), Operation.MAX, _anything)
        self._owes_result = False

    def _enter(self, epoch: Epoch) -> None:
        self._epoch, self._spoilt, self._asked = epoch, "", False
        if self._number < epoch.exchange:
            raise LeftBehind(
                f"the job goes on with exchange {epoch.exchange}, this worker has not finished "
                f"{self._number}: join the job again"
            )
        if self._number > epoch.exchange + epoch.shared:
            raise AllReduceError(
                f"the job goes back to exchange {epoch.exchange}, this worker has finished "
                f"{self._number - 1}: join the job again"
            )
        self._owes_result = self._number > epoch.exchange
        self._transport.begin(epoch)

    def _await_epoch(self) -> Epoch:
        """The epoch in which to sum, as soon as there is one."""
        since = self._clock()
        while True:
            self._check_stay()
            if (epoch := self._follow()) and not self._transport.exhausted:
                return epoch
            if epoch:
                self._spoilt = "its sequence numbers are used up"
                continue
            self._check_departures()
            self._check_waiting(self._clock() - since)
            self._bell.wait(1.0)

    @contextlib.contextmanager
    def _breaking_off(self) -> Iterator[None]:
        """In an epoch in which an exchange was broken off, there can be no other."""
        try:
            yield
        except _EpochOver:
            self._spoilt = "an exchange was broken off"

    # One exchange.

    def _carry_out(
        self,
        epoch: Epoch,
        chunks: Integers,
        operation: Operation,
        flags: Flags,
        inspect: Inspect,
        scaling: Scaling | None,
    ) -> Reduction:
        if epoch.shared and epoch.exchange == self._number:
            rows = _share_rows(*chunks.shape)
            nothing = np.full((len(chunks) + rows, chunks.shape[1]), _SMALLEST, np.int32)
            contribution = nothing, np.zeros(len(nothing), np.uint16)
            shared = self._reduce(epoch, self._number, contribution, Operation.MAX, inspect)
            return _from_shared(shared, len(chunks))
        return self._reduce(epoch, self._number, (chunks, flags), operation, inspect, scaling)

    def _reduce(
        self,
        epoch: Epoch,
        number: int,
        contribution: tuple[Integers, Flags],
        operation: Operation,
        inspect: Inspect,
        scaling: Scaling | None = None,
    ) -> Reduction:
        """By the epoch's path."""
        chunks, flags = contribution
        if epoch.path == Path.SWITCH:
            return self._transport.all_reduce(chunks, flags, operation, inspect, scaling)
        if scaling:
            scaling.make_ready()
        if not self._fallback:
            raise AllReduceError("the controller counts on a fallback, which this worker has not")
        self._count("switch" if epoch.slots else "no_slots", epoch.reason)
        place = epoch.number, number
        result = self._await(
            self._fallback.all_reduce(place, chunks, operation, flags), self._check_meanwhile
        )
        inspect(result.lanes[0])
        self._transport.progressed()
        return result

    def _await(self, future: "Future[Result]", meanwhile: Callable[[], None]) -> Result:
        """The fallback's result; `meanwhile` raises to break off."""
        since = self._clock()
        future.add_done_callback(lambda _: self._bell.ring())
        try:
            while not future.done():
                meanwhile()
                self._check_patience(self._clock() - since)
                self._bell.wait(1.0)
            if (problem := future.exception()) and not isinstance(problem, AllReduceError):
                self._explain(problem, meanwhile)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def _explain(self, problem: BaseException, meanwhile: Callable[[], None]) -> None:
        """The fallback has failed: if that is because a worker has died, it will soon be known."""
        since = self._clock()
        while self._clock() - since < self._patience.switch:
            meanwhile()
            self._bell.wait(1.0)
        raise LinkFailed(f"the fallback failed ({problem}): join the job again") from problem

    def _check_meanwhile(self) -> None:
        self.check()
        self._check_departures()

    def _follow_meanwhile(self) -> None:
        self._check_stay()
        self._check_departures(self._seat.workers)
        self._follow()

    # When to give up.

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """After a failure nothing is summed any more."""
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

    def _check_stay(self) -> None:
        if self._stopped.is_set():
            raise AgentClosed("the agent was closed before the all-reduce was done")
        if self._controller.ended:
            raise JobEnded(self._controller.ended)

    def _check_departures(self, needed: int | None = None) -> None:
        """Raise WorkersMissing if too few workers are left, or fewer than `needed`."""
        departed = self._controller.departed()
        if self._seat.workers - len(departed) < (needed or self._seat.fewest):
            reasons = "; ".join(f"worker {rank}: {why}" for rank, why in departed.items())
            raise WorkersMissing(f"the all-reduce cannot finish: {reasons}")

    def _check_waiting(self, seconds: float) -> None:
        """Give up waiting for an epoch."""
        if self._epoch is None:
            if seconds > self._patience.workers:
                raise WorkersMissing(
                    f"the job has not begun for {seconds:.0f} s: it waits for workers, or for slots "
                    "of the switch (`innet job show` tells)"
                )
        elif seconds > self._patience.switch:
            reason = self._answered.reason if self._answered else self._spoilt
            raise SwitchUnreachable(
                f"the job has not gone on for {seconds:.1f} s after an epoch was over ({reason}): "
                "is the switch running, and is every worker?"
            )

    def _check_patience(self, seconds: float) -> None:
        if seconds > self._patience.workers:
            raise WorkersMissing(
                f"not all workers have begun this all-reduce for {seconds:.0f} s: "
                "are they stuck, or do they call all-reduce less often?"
            )

    def _count(self, kind: str, reason: str) -> None:
        if kind not in self.fallbacks:
            _log.warning("summing over the fallback instead of the switch: %s", reason)
        self.fallbacks[kind] += 1


def _share_rows(chunks: int, lanes: int) -> int:
    """How many chunks it takes to share who is in each of the `chunks`."""
    return -(-2 * chunks // lanes)


def _shared(result: Reduction) -> tuple[Integers, Flags]:
    """A result as a contribution to a maximum: its lanes, and then who is in it."""
    chunks, lanes = result.lanes.shape
    members = np.zeros((_share_rows(chunks, lanes), lanes), np.int32)
    members.reshape(-1)[:chunks] = result.members.view(np.int32)
    members.reshape(-1)[chunks : 2 * chunks] = result.counts
    flags = np.concatenate([result.flags, np.zeros(len(members), np.uint16)])
    return np.concatenate([result.lanes, members]), flags


def _from_shared(shared: Reduction, chunks: int) -> Reduction:
    """The result that others have shared."""
    members = shared.lanes[chunks:].reshape(-1)
    return Reduction(
        shared.lanes[:chunks],
        shared.flags[:chunks],
        members[chunks : 2 * chunks].astype(np.uint8),
        members[:chunks].view(np.uint32),
    )
