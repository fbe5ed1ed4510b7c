"""The paths of private exchanges: every contribution has a pad, and all operations are sums.

Pads cancel only if every worker contributes all lanes. So where a worker has no lanes to send, it sends
zeros covered by its pad. It still receives only the lanes that it wants.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from innet.errors import WorkersMissing
from innet.host import shared_exchange
from innet.host.fallback_path import FallbackPath
from innet.host.integers import Flags, Integers, Reduction
from innet.host.job import Term, WorkerInfo
from innet.host.paths import Inspect, Paths
from innet.host.portions import Portions
from innet.host.quantizers.scaling import Scaling, Target, integers_of
from innet.host.transport import SwitchTransport
from innet.wire.layout import Operation

if TYPE_CHECKING:
    from innet.host.pads import Pads  # needs `cryptography`, which few workers have


class PrivatePaths(Paths):
    """Paths that cover all exchanges from number `first` on with pads."""

    private = True

    def __init__(
        self,
        transport: SwitchTransport,
        fallback: FallbackPath,
        meanwhile: Callable[[], None],
        pads: "Pads",
        first: int,
        info: WorkerInfo,
    ) -> None:
        super().__init__(transport, fallback, meanwhile)
        self._pads, self._first, self._info = pads, first, info
        self._position = 0, 0  # the term and the exchange of the latest part
        self._part = 0  # this part's number in them

    def all_reduce(
        self,
        term: Term,
        number: int,
        chunks: Integers | Scaling,
        flags: Flags,
        operation: Operation,
        portions: Portions | None = None,
        into: Target = None,
        inspect: Inspect | None = None,
    ) -> Reduction:
        """Do the same as :meth:`Paths.all_reduce`, with pads.

        An exchange with the operation MAX is a shared one. Raises WorkersMissing if a sum lacks a worker.
        """
        if number < self._first:
            return super().all_reduce(
                term, number, chunks, flags, operation, portions, into, inspect
            )
        integers = integers_of(chunks)
        # A scaling would make floats from padded sums. Its caller gives it the result afterwards.
        into = None if isinstance(into, Scaling) else into
        if operation == Operation.MAX:
            integers, flags = self._given(term, number, integers, flags)
        if portions:
            integers, portions = portions.spread(integers), portions.carrying_all()
        return self._sum(term, number, integers, flags, portions, into, inspect)

    def _given(
        self, term: Term, number: int, chunks: Integers, flags: Flags
    ) -> tuple[Integers, Flags]:
        """Return this worker's contribution to a shared exchange as a sum.

        A switch cannot compare padded lanes. So the workers first tell who has the result. The first
        of those contributes it, and all others contribute zeros.
        """
        has, rank = shared_exchange.has_result(chunks), self._info.rank
        roll = shared_exchange.roll(self._info.lanes, rank, has=has)
        rolled = self._sum(term, number, *roll)
        if rank == shared_exchange.giver(rolled):
            return chunks, flags
        return shared_exchange.nothing(chunks, flags)

    def _sum(
        self,
        term: Term,
        number: int,
        chunks: Integers,
        flags: Flags,
        portions: Portions | None = None,
        into: Target = None,
        inspect: Inspect | None = None,
    ) -> Reduction:
        """Carry out the next part of an exchange. Its pads depend on the part's number."""
        position = term.number, number
        self._part = self._part + 1 if position == self._position else 0
        self._position = position
        covered = self._pads.cover(*position, self._part, chunks)
        result = super().all_reduce(
            term,
            number,
            covered.chunks,
            flags,
            Operation.WRAPPING_SUM,
            portions,
            into,
            inspect and covered.showing(inspect),
        )
        if (result.counts != self._info.workers).any():
            raise WorkersMissing(
                "a private sum lacks a worker, and is noise without that worker's pad: join the job again"
            )
        covered.uncover(result.lanes, portions.received.start if portions else 0)
        return result
