"""Sums with deadlines: a worker that is late sends a share of its lanes, and nobody waits for the rest.

A straggler with a slow link can neither send nor receive whole vectors at the others' pace. But it can
follow them without lanes: a contribution or a result then takes few bytes, a sixteenth with 256 lanes.
So a late worker (:mod:`innet.host.late_workers`) takes part in every chunk, but sends the lanes of every
s-th chunk only. Its contributions to the other chunks have no lanes. No sum waits for more, and no worker
is ever left behind. All results have the contributions of all workers, and every worker knows exactly
what is in them.

**Nothing is lost.** A late worker adds what it has not sent to its next vector, as error feedback does
(:mod:`innet.host.quantizers.residuals`): p = g + e; it sends the lanes of some chunks of p, and e is the
rest of p. So each element of each vector is in exactly one sum, on time or up to s steps late.

**State.** A late worker receives no sums, because it could not use some of them without the others. It
receives the *state* that follows from them, such as a model's parameters. The exchange of a sum also
carries every s-th chunk of the state, bit for bit, to the workers that are late. The other workers take
turns to send these chunks, so that no link has much more to carry than in a sum that waits. They are the
chunks of which late workers have sent lanes in the step before. So late workers see the effect of their
lanes. No part of a late worker's state is older than s steps.

The float32 of a sum are rounded as :mod:`innet.host.quantizers.fixed_point` describes. The mean is over
all workers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.errors import SumOverflow, UsageError, WorkersDisagree
from innet.host import memory
from innet.host.agent import Agent
from innet.host.agreement import EXACT, Call
from innet.host.exchanges import Exchanges
from innet.host.inquiries import Inquiries
from innet.host.integers import Flags, Integers, Reduction
from innet.host.late_workers import LateWorkers, report
from innet.host.limbs import overflow_flags
from innet.host.maxima import NO_WORDS
from innet.host.moves import Moves
from innet.host.portions import Portions
from innet.host.quantizers import fixed_point
from innet.host.quantizers.block_scale import BlockScale
from innet.host.quantizers.rounding import nearest
from innet.host.reducer import Reducer
from innet.wire.layout import Flag, Operation

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


@dataclass(frozen=True)
class _Given:
    """A vector that a worker gives: its values, float32 or integers, and the same as rows, (n, lanes).

    For float32, `own` are this worker's scales, and `agreed` those of all workers. `reports` is the
    maximum of all workers' reports of the step before.
    """

    values: Vector
    rows: Vector
    own: Integers
    agreed: Integers
    reports: Integers


class DeadlineSums:
    """The sums of one vector per step, over the workers of an agent's job.

    Every worker makes the same calls with vectors and states of the same sizes. `deadline` is the
    deadline of a chunk, in seconds; None lets it adapt (:mod:`innet.host.inquiries`).
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
        if info.has_quorum:
            raise UsageError(
                f"deadlines need all {info.workers} workers of the job, and it goes on with "
                f"{info.min_workers}: create it without --quorum and --min-workers"
            )
        self.late = LateWorkers(info.workers)
        self._agent, self._info, self._deadline = agent, info, deadline
        self._inquiries = Inquiries(deadline)
        self._quantizer = BlockScale(info.workers)
        self._rest: Vector | None = None  # of this worker's vectors, not sent so far
        self.step = 0

    @property
    def rest(self) -> Vector | None:
        """Return the values of this worker that are in no sum so far, or None if there are none."""
        return self._rest

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

        def work(exchanges: Exchanges, reducer: Reducer) -> Vector | None:
            vector = self._agreed(exchanges, reducer, values, state)
            before, [root, *_] = self.late.ranks, self.late.in_time
            self.late.learn(vector.reports)
            if before and not self.late.ranks:
                self._broadcast(exchanges, state, root)
            sum_up = self._in_part if self.late.ranks else self._whole
            try:
                return sum_up(exchanges, vector, state)
            finally:  # also after a SumOverflow, of which late workers learn nothing
                self.step += 1

        found: Vector | None = self._agent.perform(work, wait=True).result()
        return found

    def settle(self, values: Vector, state: Vector) -> Vector:
        """Bring every worker's state up to date, then sum all lanes of all workers.

        Afterwards nobody is late, and nothing that a worker has given is missing in the sums. Arguments
        and errors are those of :meth:`all_reduce`.
        """
        self._check(values, state)

        def work(exchanges: Exchanges, reducer: Reducer) -> Vector:
            if self.late.ranks:
                self._broadcast(exchanges, state, self.late.in_time[0])
            self.late.settle()
            return self._whole(exchanges, self._agreed(exchanges, reducer, values, state), state)

        found: Vector = self._agent.perform(work, wait=True).result()
        return found

    def _agreed(
        self, exchanges: Exchanges, reducer: Reducer, values: Vector, state: Vector
    ) -> "_Given":
        """Agree on scales, on the state's size, and on the reports of the last step, with all workers.

        Raises WorkersDisagree.
        """
        given = self._with_rest(values)
        rows = fixed_point.blocks(given, self._info.lanes)
        floats = values.dtype == np.float32
        call = Call(given.size, values.dtype.name, "mean" if floats else "sum", EXACT)
        own = self._quantizer.scales(rows) if floats else NO_WORDS
        reported = report(self._inquiries, self._info.workers)
        sizes = np.array([state.size, -state.size], np.int32)
        words = np.concatenate([sizes, reported, own])
        (most, least), reports, agreed = np.split(
            reducer.agree(call, words), [2, 2 + len(reported)]
        )
        if most != -least:
            problem = WorkersDisagree(
                f"this worker's state has {state.size} elements, others' have between {-least} and {most}"
            )
            exchanges.give_up(problem)
            raise problem
        self._inquiries = Inquiries(self._deadline)
        return _Given(given, rows, own, agreed, reports)

    def _with_rest(self, values: Vector) -> Vector:
        """Return the sum of the values and the unsent rest of earlier ones, and forget this rest.

        The sum of int32 is int64, because a rest may grow beyond int32.
        """
        rest, self._rest = self._rest, None
        if rest is None:
            return values
        total: Vector = (values.astype(np.int64) if values.dtype == np.int32 else values) + rest
        return total

    def _broadcast(self, exchanges: Exchanges, state: Vector, root: int) -> None:
        moved = Moves(exchanges, self._info).broadcast(state.view(np.uint8), root)
        if self._info.rank != root:
            state[:] = moved.view(state.dtype)

    def _whole(self, exchanges: Exchanges, vector: "_Given", _: Vector) -> Vector:
        """Sum all lanes of all workers."""
        contribution, flags = self._integers(vector, vector.rows)
        with exchanges.inquiring(self._inquiries):
            done = exchanges.all_reduce(contribution, flags, Operation.SUM)
        return self._result(vector, done.lanes, done.flags)

    def _in_part(self, exchanges: Exchanges, vector: "_Given", state: Vector) -> Vector | None:
        """Sum without the lanes that late workers do not send."""
        lanes, late, rows = self._info.lanes, self.is_late, vector.rows
        sends = self.late.sends(len(rows), self.step)
        if late:
            sent, rest = np.zeros_like(rows), rows.copy()
            sent[sends], rest[sends] = rows[sends], 0
            if rest.dtype == np.float32:
                rest[~np.isfinite(rest)] = 0  # the agreed scale has shown them to all workers
            self._rest, rows = rest.reshape(-1)[: vector.values.size], sent
        contribution, flags = self._integers(vector, rows)
        of_state = fixed_point.blocks(state.view(np.int32), lanes)
        carried = self.late.sends(len(of_state), self.step - 1)
        layout = _Layout.of(len(rows), len(range(*carried.indices(len(of_state)))))
        ways = np.zeros(layout.size, np.uint16)
        given = np.zeros((layout.size, lanes), np.int32)
        given[layout.vector] = contribution
        if late:
            ways[layout.vector[sends]] = Flag.CARRIED
            ways[layout.state] = Flag.WANTED
        else:
            ways[layout.vector] = Flag.CARRIED | Flag.WANTED
            givers = self.late.in_time
            own = slice(givers.index(self._info.rank), None, len(givers))
            ways[layout.state[own]] = Flag.CARRIED
            given[layout.state[own]] = of_state[carried][own]
        own_flags = np.zeros(layout.size, np.uint16)
        own_flags[layout.vector] = flags
        done = self._exchange(exchanges, given, own_flags, ways)
        if late:
            fresh = of_state.copy()
            fresh[carried] = done.lanes[layout.state]
            state[:] = fresh.reshape(-1)[: state.size].view(state.dtype)
            return None
        return self._result(vector, done.lanes[layout.vector], done.flags[layout.vector])

    def _integers(self, vector: "_Given", rows: Vector) -> tuple[Integers, Flags]:
        """Return the contribution that some rows make, and its flags.

        Integers beyond int32 become the nearest int32, which raises SumOverflow on the other workers.
        """
        if rows.dtype == np.int64:
            rows = rows.clip(-(2**31), 2**31 - 1).astype(np.int32)
        if rows.dtype == np.int32:
            return rows, overflow_flags(rows, self._info.workers)
        return self._quantizer.quantize(rows, vector.own, vector.agreed, nearest)

    def _result(self, vector: "_Given", sums: Integers, flags: Flags) -> Vector:
        """Return the mean of floats, or the sum of integers."""
        if vector.values.dtype != np.float32:
            if (flags & Flag.OVERFLOW).any():
                raise SumOverflow("a sum may not fit int32: sum smaller numbers")
            return memory.copy(sums.reshape(-1)[: vector.values.size], np.int32)
        counts = np.full((len(sums), 1), self._info.workers, np.uint16)
        means = self._quantizer.dequantize(sums, counts, vector.agreed, flags, mean=True)
        return means.reshape(-1)[: vector.values.size]

    def _exchange(
        self, exchanges: Exchanges, given: Integers, flags: Flags, ways: Flags
    ) -> Reduction:
        """Sum rows. For each row, `ways` tells whether this worker sends and wants its lanes."""
        every = range(len(given))
        with exchanges.inquiring(self._inquiries):
            return exchanges.sum_portions(given, flags, Portions(ways, every, every))

    def _check(self, values: Vector, state: Vector) -> None:
        for name, each in (("values", values), ("state", state)):
            if not isinstance(each, np.ndarray):
                raise UsageError(f"the {name} are a {type(each).__name__}: give a numpy array")
            if each.ndim != 1 or each.dtype not in (np.float32, np.int32):
                raise UsageError(
                    f"the {name} are {each.dtype} of shape {each.shape}: give a flat vector of "
                    "float32 or int32"
                )
            if not each.size:
                raise UsageError(f"the {name} have no elements: sum vectors with some")
        if not state.flags.c_contiguous:
            raise UsageError("the state is not contiguous in memory: give a copy")
        if not state.flags.writeable:
            raise UsageError("the state cannot be changed, as it is on a late worker: give a copy")
