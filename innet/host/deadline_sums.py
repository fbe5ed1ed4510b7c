"""Sums with deadlines: a worker that is late sends a share of its lanes, and nobody waits for the rest.

A straggler with a slow link can neither send nor receive whole vectors at the others' pace. But it can
follow them without lanes: a contribution without lanes takes 66 bytes, and so does a result without them.
So a late worker (:mod:`innet.host.late_workers`) takes part in every chunk, and sends the lanes of every
s-th chunk only. All others it announces without lanes. No sum waits for more, and no worker is ever left
behind. All results have the contributions of all workers, and every worker knows exactly what is in them.

**Nothing is lost.** A late worker adds what it has not sent to its next vector, as error feedback does
(:mod:`innet.host.quantizers.residuals`): p = g + e; it sends the lanes of some chunks of p, and e is the
rest of p. So each element of each vector is in exactly one sum, on time or up to s steps late.

**State.** A late worker receives no sums, because it could not use some without the others. It receives
the *state* that follows from them, such as a model's parameters. The exchange of a sum also carries
every s-th chunk of the state, bit by bit, from a worker that is not late to those that are. So no part
of a late worker's state is older than s steps.

The float32 of a sum are rounded as :mod:`innet.host.quantizers.fixed_point` describes. The mean is over
all workers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.errors import SumOverflow, UsageError
from innet.host import memory
from innet.host.agent import Agent
from innet.host.agreement import Call
from innet.host.exchanges import Exchanges
from innet.host.inquiries import Inquiries
from innet.host.integers import Flags, Integers, Reduction
from innet.host.late_workers import LateWorkers, opinion
from innet.host.limbs import overflow_flags
from innet.host.moves import Moves
from innet.host.portions import Portions
from innet.host.quantizers import fixed_point
from innet.host.quantizers.block_scale import BlockScale
from innet.host.quantizers.rounding import nearest
from innet.host.reducer import EXACT, Reducer
from innet.host.sums import checked
from innet.wire.layout import Flag

Vector = npt.NDArray[Any]
"""A flat array of float32 or int32."""


@dataclass(frozen=True)
class _Layout:
    """The rows of an exchange: those of the vector, with every s-th of the state among them."""

    vector: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]

    @classmethod
    def of(cls, chunks: int, carried: int) -> "_Layout":
        """Return a layout that spreads so many rows of the state evenly."""
        total = chunks + carried
        state = np.arange(carried, dtype=np.int64) * total // max(1, carried)
        return cls(np.setdiff1d(np.arange(total), state, assume_unique=True), state)

    @property
    def size(self) -> int:
        return len(self.vector) + len(self.state)


class DeadlineSums:
    """The sums of one vector per step, over the workers of an agent's job.

    Every worker makes the same calls with vectors of the same size. `deadline` is that of a chunk, in
    seconds; None lets it adapt (:mod:`innet.host.inquiries`).
    """

    def __init__(self, agent: Agent, deadline: float | None = None) -> None:
        """Raise UsageError for a job whose sums are private, or may lack workers."""
        if deadline is not None and not deadline > 0:
            raise UsageError(
                f"the deadline is {deadline} s: it has to be above 0, or None to adapt"
            )
        info = agent.info
        if agent.private:
            raise UsageError(
                "private sums have no deadlines, because pads cancel only in a sum with the lanes of all "
                "workers: join without a key, or sum with Agent.all_reduce"
            )
        if info.min_workers < info.workers:
            raise UsageError(
                f"deadlines need all {info.workers} workers of the job, and it goes on with "
                f"{info.min_workers}: create it without --quorum and --min-workers"
            )
        self.late = LateWorkers(info.workers)
        self._agent, self._info, self._deadline = agent, info, deadline
        self._inquiries = Inquiries(deadline)
        self._rest: Vector | None = None  # of this worker's vectors, not sent so far
        self.step = 0

    @property
    def is_late(self) -> bool:
        """Return whether this worker is late, and gets no sums."""
        return self._info.rank in self.late.ranks

    def all_reduce(self, values: Vector, state: Vector) -> Vector | None:
        """Return the mean of flat float32, or the sum of flat int32; or None on a late worker.

        `state`, flat float32 or int32, is the result of all sums before this one. On a late worker a part
        of it is brought up to date, in place. Raises SumOverflow, and the errors of
        :meth:`innet.host.agent.Agent.all_reduce`.
        """
        self._check(values, state)
        return self._agent.perform(
            lambda exchanges, reducer: self._step(exchanges, reducer, values, state), wait=True
        ).result()

    def settle(self, values: Vector, state: Vector) -> Vector:
        """Do the same, with everybody's state brought up to date before, and all lanes of all workers.

        Afterwards nobody is late, and nothing that a worker has given is missing in the sums.
        """
        self._check(values, state)

        def work(exchanges: Exchanges, reducer: Reducer) -> Vector:
            self._bring_up_to_date(exchanges, state)
            self.late.settle()
            self._inquiries = Inquiries(self._deadline)
            return self._whole(exchanges, reducer, self._given(values))

        return self._agent.perform(work, wait=True).result()

    def _step(
        self, exchanges: Exchanges, reducer: Reducer, values: Vector, state: Vector
    ) -> Vector | None:
        self._learn(exchanges, reducer, state)
        self._inquiries = Inquiries(self._deadline)
        given = self._given(values)
        if self.late.ranks:
            found = self._in_part(exchanges, reducer, given, state)
        else:
            found = self._whole(exchanges, reducer, given)
        self.step += 1
        return found

    def _learn(self, exchanges: Exchanges, reducer: Reducer, state: Vector) -> None:
        """Agree on who is late. Workers that are late no longer get all of the state."""
        before, root = self.late.ranks, self.late.root
        self.late.learn(reducer.extremes(opinion(self._inquiries, self._info.workers), "max"))
        if before and not self.late.ranks:
            self._broadcast(exchanges, state, root)

    def _bring_up_to_date(self, exchanges: Exchanges, state: Vector) -> None:
        if self.late.ranks:
            self._broadcast(exchanges, state, self.late.root)

    def _broadcast(self, exchanges: Exchanges, state: Vector, root: int) -> None:
        moved = Moves(exchanges, self._info).broadcast(state.view(np.uint8), root)
        if self._info.rank != root:
            state[:] = moved.view(state.dtype)

    def _given(self, values: Vector) -> Vector:
        """Return the values and what was not sent of those before, and forget the latter."""
        rest, self._rest = self._rest, None
        if rest is None:
            return values
        if values.dtype == np.int32:
            wide = values.astype(np.int64) + rest
            return checked(wide, values.dtype).astype(values.dtype)
        total: Vector = values + rest
        return total

    def _whole(self, exchanges: Exchanges, reducer: Reducer, given: Vector) -> Vector:
        with exchanges.inquiring(self._inquiries):
            if given.dtype == np.float32:
                return reducer.floats(given, EXACT, mean=True)
            return reducer.integers(given)

    def _in_part(
        self, exchanges: Exchanges, reducer: Reducer, given: Vector, state: Vector
    ) -> Vector | None:
        """Sum without the lanes that late workers do not send."""
        lanes, late = self._info.lanes, self.is_late
        rows = fixed_point.blocks(given, lanes)
        sends = self.late.sends(len(rows), self.step)
        if late:
            sent, rest = np.zeros_like(rows), rows.copy()
            sent[sends], rest[sends] = rows[sends], 0
            self._rest, rows = rest.reshape(-1)[: given.size], sent
        own, agreed, contribution, flags = self._integers(reducer, rows, given)
        of_state = fixed_point.blocks(state.view(np.int32), lanes)
        carried = self.late.sends(len(of_state), self.step)
        layout = _Layout.of(len(rows), len(range(*carried.indices(len(of_state)))))
        sums = np.zeros((layout.size, lanes), np.int32)
        sums[layout.vector] = contribution
        if self._info.rank == self.late.root:
            sums[layout.state] = of_state[carried]
        done = self._exchange(exchanges, sums, flags, layout, sends)
        if late:
            fresh = of_state.copy()
            fresh[carried] = done.lanes[layout.state]
            state[:] = fresh.reshape(-1)[: state.size].view(state.dtype)
            return None
        found = done.lanes[layout.vector]
        if given.dtype == np.int32:
            if (done.flags[layout.vector] & Flag.OVERFLOW).any():
                raise SumOverflow("a sum may not fit int32: sum smaller numbers")
            return found.reshape(-1)[: given.size]
        counts = np.full((len(found), 1), self._info.workers, np.uint16)
        means = own.dequantize(found, counts, agreed, done.flags[layout.vector], mean=True)
        return means.reshape(-1)[: given.size]

    def _integers(
        self, reducer: Reducer, rows: Vector, given: Vector
    ) -> tuple[BlockScale, Integers, Integers, Flags]:
        quantizer = BlockScale(self._info.workers)
        if given.dtype == np.int32:
            none = reducer.agree(Call(given.size, "int32"))
            return quantizer, none, rows, overflow_flags(rows, self._info.workers)
        own = quantizer.scales(rows)
        agreed = reducer.agree(Call(given.size, "float32", "mean", EXACT), own)
        return quantizer, agreed, *quantizer.quantize(rows, own, agreed, nearest)

    def _exchange(
        self, exchanges: Exchanges, given: Integers, flags: Flags, layout: _Layout, sends: slice
    ) -> Reduction:
        """Sum the rows of a layout. Late workers send some of the vector's, and get the state's."""
        ways = np.zeros(layout.size, np.uint16)
        if self.is_late:
            ways[layout.vector[sends]] = Flag.CARRIED
            ways[layout.state] = Flag.WANTED
        else:
            ways[layout.vector] = Flag.CARRIED | Flag.WANTED
            if self._info.rank == self.late.root:
                ways[layout.state] = Flag.CARRIED
        every = range(layout.size)
        own_flags = np.zeros(layout.size, np.uint16)
        own_flags[layout.vector] = flags
        sums = memory.empty(given.shape, np.int32)
        with exchanges.inquiring(self._inquiries):
            done = exchanges.sum_portions(
                given, own_flags, Portions(ways, every, every), sums[:-1], sums[-1:]
            )
        return Reduction(sums, done.flags, done.counts, done.members)

    def _check(self, values: Vector, state: Vector) -> None:
        for name, each in (("values", values), ("state", state)):
            if each.ndim != 1 or each.dtype not in (np.float32, np.int32):
                raise UsageError(
                    f"the {name} are {each.dtype} of shape {each.shape}: give a flat vector of "
                    "float32 or int32"
                )
            if not each.size:
                raise UsageError(f"the {name} have no elements: sum vectors with some")
        if not state.flags.c_contiguous:
            raise UsageError("the state is not contiguous in memory: give a copy")
