"""Sums of which each worker sends and receives a portion of the lanes.

Nobody has all of the result, so nobody could give it to a worker that has lost it. Therefore a worker
sends the last chunk alone, after it has received all others, and all workers get its lanes. The result of
the last chunk shows that all workers have what they want. It is all that a worker keeps for the others.

If a scaling makes the results, nothing else has them.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Protocol

import numpy as np

from innet.errors import LeftBehind
from innet.host import memory, shared_exchange
from innet.host.integers import Flags, Integers, Reduction
from innet.host.paths import Inspect
from innet.host.portions import Portions
from innet.host.quantizers.scaling import Scaling, Target, integers_of
from innet.wire.layout import Operation


class Carrier(Protocol):
    """A way to all-reduce chunks in one term."""

    def __call__(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        operation: Operation,
        portions: Portions | None = None,
        into: Target = None,
        inspect: Inspect | None = None,
    ) -> Reduction:
        """Do the same as :meth:`innet.host.transport.SwitchTransport.all_reduce`."""


class Attempt(Protocol):
    """An attempt to carry out an exchange in one term."""

    def __call__(self, carrier: Carrier, *, shared: bool) -> Reduction:
        """Return the result. It is `shared` if other workers have finished, and give it to this one."""


def result_of_others(
    carrier: Carrier, chunks: int, lanes: int, workers: int, inspect: Inspect | None = None
) -> Reduction:
    """Return the result of `chunks` chunks that other workers have, and give to this one."""
    lacking = shared_exchange.without_result(chunks, lanes, workers)
    given = carrier(*lacking, Operation.MAX, inspect=inspect)
    return shared_exchange.result_in(given, chunks, workers)


class SumOfPortions(ABC):
    """A sum of n chunks, with the lanes of this worker's portions.

    `chunks`, (rows, lanes), are those that this worker sends. `flags`, (n,), go with all chunks. The
    result has the lanes of the chunks that this worker receives. If the chunks are a scaling, it takes
    these lanes, and the result has none.

    `into` are two arrays for the lanes: one for the received chunks without the last chunk, and one for
    the last chunk, (1, lanes). The result's lanes are then the first of them.
    """

    def __init__(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        portions: Portions,
        workers: int,
        into: tuple[Integers, Integers] | None = None,
    ) -> None:
        self._chunks, self._flags, self._portions = chunks, flags, portions
        self._workers = workers
        self._last: Integers | None = None
        if into:
            self._lanes, self._last = into
        else:
            rows = 0 if isinstance(chunks, Scaling) else len(portions.received)
            self._lanes = memory.empty((rows, chunks.shape[1]), np.int32)

    @abstractmethod
    def attempt(self, carrier: Carrier, *, shared: bool) -> Reduction:
        """Sum in one term; see :class:`Attempt`. Return what the worker keeps for the others."""

    @abstractmethod
    def joined(self, kept: Reduction) -> Reduction:
        """Return the result of all chunks, given what :meth:`attempt` has returned."""


class PortionedSum(SumOfPortions):
    """The sum in a job that needs all its workers."""

    _others: Reduction | None = None  # the result of all chunks but the last

    def attempt(self, carrier: Carrier, *, shared: bool) -> Reduction:
        """Sum, and return the result of the last chunk. Raises LeftBehind."""
        return self._taken(carrier) if shared else self._summed(carrier)

    def _summed(self, carrier: Carrier) -> Reduction:
        count = len(self._flags) - 1
        self._others = None
        before = self._portions.part(0, count)
        chunks, rows = self._chunks, self._lanes[: len(before.received)]
        into: Target = rows
        if isinstance(chunks, Scaling):
            chunks.forget()  # the results of an attempt in another term
            into = chunks
        else:
            chunks = chunks[: len(before.sent)]
        self._others = (
            carrier(chunks, self._flags[:count], Operation.SUM, before, into)
            if count
            else Reduction.into(rows, 0)
        )
        return carrier(self._final, self._flags[count:], Operation.SUM, self._finally)

    def _taken(self, carrier: Carrier) -> Reduction:
        if self._others is None:
            raise LeftBehind(
                "the other workers have gone on without this one, which lacks a part of a sum: join "
                "the job again when they have left"
            )
        return result_of_others(carrier, 1, self._lanes.shape[1], self._workers)

    def joined(self, kept: Reduction) -> Reduction:
        """Return the result of all chunks, given that of the last."""
        others, chunks = self._others, self._chunks
        if others is None:
            raise AssertionError
        if isinstance(chunks, Scaling):
            rows = np.arange(others.rows.start, others.rows.stop)
            chunks.take(rows, others.lanes, others.counts[rows])
            chunks.take(np.array([len(others.flags)]), kept.lanes, kept.counts)
        else:
            self._lanes[len(others.lanes) :] = kept.lanes  # if this worker receives it
            if self._last is not None:
                self._last[:] = kept.lanes
        return Reduction(
            self._lanes,
            np.concatenate([others.flags, kept.flags]),
            np.concatenate([others.counts, kept.counts]),
            np.concatenate([others.members, kept.members]),
            self._portions.received.start,
            kept.bits,
        )

    @property
    def _final(self) -> Integers:
        """Return the contribution to the last chunk, (1, lanes), or no row if this worker sends none."""
        count = len(self._flags) - 1
        if isinstance(self._chunks, Scaling):
            return self._chunks[np.array([count])]
        return integers_of(self._chunks)[len(self._portions.part(0, count).sent) :]

    @property
    def _finally(self) -> Portions:
        """Return the portions of the last chunk: everybody wants it."""
        carries = self._portions.part(len(self._flags) - 1, len(self._flags))
        return carries.wanting_all()


class SumForAll(SumOfPortions):
    """The sum in a job with a quorum, in which every worker receives all lanes.

    With a quorum, the last chunk's result does not show that all workers have the other results. So each
    worker keeps the whole result for the others.
    """

    def attempt(self, carrier: Carrier, *, shared: bool) -> Reduction:
        """Sum, and return the result of all chunks."""
        if shared:
            count, lanes = len(self._flags), self._lanes.shape[1]
            return result_of_others(carrier, count, lanes, self._workers)
        every = self._portions.wanting_all()
        return carrier(integers_of(self._chunks), self._flags, Operation.SUM, every)

    def joined(self, kept: Reduction) -> Reduction:
        """Return the result with this worker's lanes only."""
        first, lanes = self._portions.received.start, self._lanes
        if isinstance(self._chunks, Scaling):
            self._chunks.take(np.arange(len(kept.lanes)), kept.lanes, kept.counts)
        else:
            lanes[:] = kept.lanes[first : first + len(lanes)]
            if self._last is not None:
                self._last[:] = kept.lanes[-1:]
        return replace(kept, lanes=lanes, first=first)
