"""Parameters that a rack server keeps: push the gradient, pull the parameters.

As with :mod:`innet.servers.pbox`, the optimizer runs at the server. Here, however, gradients go up as
integers that the switches on the way sum, so that a whole rack makes one contribution. The
parameters come down in the results, which the same switches multicast. A step is two exchanges. In
the first the workers agree on block exponents, as for any mean. In the second the integers go up
and the parameters come down (:mod:`innet.wire.parameters`).
"""

import secrets
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.errors import ParameterServerError, ServerLost, UsageError, WorkersDisagree
from innet.host.agent import Agent
from innet.host.agreement import Call
from innet.host.exchanges import Exchanges
from innet.host.integers import Integers, Reduction
from innet.host.job import WorkerInfo
from innet.host.quantizers import fixed_point
from innet.host.quantizers.interface import Floats
from innet.host.reducer import Reducer
from innet.servers.pbox.optimizers import Optimizer
from innet.wire import parameters as wire
from innet.wire.layout import Operation
from innet.wire.parameters import Ask, Refusal

_SMALLEST = np.iinfo(np.int32).min
_KEYS = ("first", "second", "epsilon", "weight_decay")


class RackedParameters:
    """float32 arrays that a rack server updates, identical on all workers.

    All workers of the job make the same calls in the same order, with the same optimizer and
    learning rates. `values` are changed in place: initially they become worker 0's, and after every
    step they are the server's parameters.

    Such a job needs all of its workers. A failure raises one of innet's errors. Afterwards the
    parameters are those before the step, and :meth:`begin` gives them to the server again.
    """

    def __init__(self, agent: Agent, values: Sequence[Floats], optimizer: Optimizer) -> None:
        """Give the server the parameters. Raises UsageError, and the errors of :meth:`begin`."""
        if agent.private:
            raise UsageError(
                "a rack server has to read the sums from which it computes parameters: join without "
                "a key of private sums"
            )
        self._agent, self._values, self._optimizer = agent, list(values), optimizer
        self.lr = optimizer.lr
        self._sizes = _checked(self._values, agent.info)
        self._nonce = self._steps = 0
        self._lost = True
        self.begin()

    @property
    def values(self) -> tuple[Floats, ...]:
        """Return the arrays."""
        return tuple(self._values)

    @property
    def steps(self) -> int:
        """Return the number of steps taken since the last :meth:`begin`."""
        return self._steps

    def begin(self) -> None:
        """Give the server worker 0's values, and reset its optimizer.

        Raises ParameterServerError if there is no server or it has no room, or any AllReduceError.
        """
        self._lost = True
        self._steps = 0
        self._put(self._agent.perform(self._begin, wait=True).result())
        self._lost = False

    def step(self, gradients: Sequence[Floats]) -> None:
        """Take one optimizer step with the mean of all workers' gradients, of the values' shapes.

        :mod:`innet.host.quantizers.fixed_point` gives the mean's error bound. With this mean the
        step equals that of :mod:`innet.servers.pbox`, bit for bit.

        Raises UsageError. Raises WorkersDisagree if the workers' calls differ; then nothing has
        happened. Raises ServerLost if the server no longer has the parameters, another
        ParameterServerError, or any AllReduceError.
        """
        if failure := self._agent.failure:
            raise failure
        if self._lost:
            raise ServerLost(
                "the last step failed: give the server the parameters again with begin()"
            )
        if self._steps == wire.most(self._agent.info.workers):
            raise ServerLost(
                f"the server has taken {self._steps} steps, the most that it can count with this number "
                "of workers: give it the parameters again with begin(), which resets its optimizer"
            )
        shapes = [each.shape for each in gradients]
        if shapes != [each.shape for each in self._values]:
            raise UsageError(
                f"the gradients have shapes {shapes}: they need the shapes of the parameters"
            )
        gradient = _flat(gradients)

        def push_pull(exchanges: Exchanges, reducer: Reducer) -> Floats:
            return self._step(exchanges, reducer, gradient)

        self._put(self._agent.perform(push_pull, wait=True).result())
        self._steps += 1

    def _begin(self, exchanges: Exchanges, reducer: Reducer) -> Floats:
        info, values = self._agent.info, _flat(self._values)
        reducer.agree(Call(values.size, "parameters", "sum"))
        rows = fixed_point.blocks(values, info.lanes - wire.HEADER_LANES)
        record = self._optimizer.record()
        described = _lanes(len(rows), info.lanes)
        described[:, wire.NONCE] = self._another_nonce()
        described[:, wire.COUNT], described[:, wire.RULE] = len(rows), record.rule
        numbers = struct.pack(">4d", *(getattr(record, key) for key in _KEYS))
        words = np.frombuffer(numbers, ">i4")
        described[:, wire.HEADER_LANES : wire.HEADER_LANES + words.size] = words
        done = _ask(exchanges, Ask.DESCRIBE, _of_first(described, info))
        self._nonce = int(done.lanes[0, wire.NONCE])
        begun = _lanes(len(rows), info.lanes)
        begun[:, wire.NONCE] = self._nonce
        begun[:, wire.HEADER_LANES :] = rows.view(np.int32)
        return _floats(_ask(exchanges, Ask.BEGIN, _of_first(begun, info)), values.size)

    def _step(self, exchanges: Exchanges, reducer: Reducer, gradient: Floats) -> Floats:
        info = self._agent.info
        rate = np.frombuffer(struct.pack(">d", self.lr), ">u2").astype(np.int32)
        rows = fixed_point.blocks(gradient, info.lanes - wire.HEADER_LANES)
        own = fixed_point.block_exponents(rows)
        same = np.array([self._steps + 1, self._nonce, *rate], np.int32)
        # Each word must be the same on all workers. The maximum of the words and of their
        # complements gives the largest and the smallest of each.
        scales = np.concatenate([same, ~same, own])
        agreed = reducer.agree(Call(gradient.size, "parameters", "mean"), scales)
        if (agreed[: same.size] != ~agreed[same.size : 2 * same.size]).any():
            raise WorkersDisagree(
                "the workers take different steps: their numbers of steps and their learning rates "
                f"have to be the same, and here they are {self._steps} and {self.lr}"
            )
        exponents = agreed[2 * same.size :]
        self._lost = True  # until the server is known to have taken the whole step
        pushed = _lanes(len(rows), info.lanes)
        pushed[:, wire.STEP], pushed[:, wire.NONCE] = self._steps + 1, self._nonce
        pushed[:, wire.RATE : wire.RATE + rate.size] = rate
        pushed[:, wire.SCALE] = np.where(
            exponents < fixed_point.NOT_FINITE,
            fixed_point.step_exponents(exponents, info.workers),
            wire.SCALE_NOT_FINITE,
        )
        pushed[:, wire.HEADER_LANES :] = fixed_point.quantize(rows, own, exponents, info.workers)
        pulled = _floats(_ask(exchanges, Ask.STEP, pushed), gradient.size)
        self._lost = False
        return pulled

    def _another_nonce(self) -> int:
        """Return a random number, which tells the server that its parameters begin anew."""
        most = wire.most(self._agent.info.workers)
        nonce = secrets.randbelow(most) + 1
        return nonce if nonce != self._nonce else nonce % most + 1

    def _put(self, flat: Floats) -> None:
        at = 0
        for array, size in zip(self._values, self._sizes, strict=True):
            array.reshape(-1)[:] = flat[at : at + size]
            at += size


def _checked(values: list[Floats], info: WorkerInfo) -> list[int]:
    """Return the sizes of the values. Raises UsageError if a server cannot keep them for this job."""
    if info.has_quorum:
        raise UsageError(
            "a rack server needs all workers of its job: create it without --quorum and "
            "--min-workers"
        )
    for each in values:
        if each.dtype != np.float32 or not each.flags.c_contiguous or not each.flags.writeable:
            raise UsageError("parameters are float32 arrays, C-contiguous and writeable")
    sizes = [each.size for each in values]
    rows = -(-sum(sizes) // (info.lanes - wire.HEADER_LANES))
    most = wire.most(info.workers)
    if not 0 < rows <= most:
        raise UsageError(
            f"{sum(sizes)} parameters: for {info.workers} workers, a rack server keeps 1 to "
            f"{most * (info.lanes - wire.HEADER_LANES)} of them"
        )
    return sizes


def _flat(arrays: Sequence[npt.NDArray[Any]]) -> Floats:
    flat: Floats = np.concatenate([each.reshape(-1) for each in arrays]).astype(
        np.float32, copy=False
    )
    return flat


def _lanes(rows: int, lanes: int) -> Integers:
    """Return `rows` chunks that contain only their numbers."""
    made = np.zeros((rows, lanes), np.int32)
    made[:, wire.CHUNK] = np.arange(rows)
    return made


def _of_first(chunks: Integers, info: WorkerInfo) -> Integers:
    """Return worker 0's words as a contribution to a maximum; other workers give the minimum."""
    return chunks if info.rank == 0 else np.full_like(chunks, _SMALLEST)


def _ask(exchanges: Exchanges, ask: Ask, chunks: Integers) -> Reduction:
    """Carry out an exchange, and return the server's answers. Raises ParameterServerError."""
    operation = Operation.SUM if ask == Ask.STEP else Operation.MAX
    flags = np.full(len(chunks), ask, np.uint16)
    done = exchanges.all_reduce(chunks, flags, operation)
    refused = np.flatnonzero(done.flags & Ask.REFUSED)
    if refused.size:
        raise _refusal(int(done.lanes[refused[0], 0]))
    if not (done.flags & Ask.DONE).all():
        raise ParameterServerError(
            "no rack server keeps the parameters: switches or the fallback make this job's sums; "
            "let its topmost switch be an `innet pbox rack-server` with workers in at least two "
            "racks, and join without a fallback"
        )
    return done


def _refusal(reason: int) -> ParameterServerError:
    if reason == Refusal.UNKNOWN:
        return ServerLost(
            "the rack server does not have the parameters: it was started anew, or another "
            "one has taken its slots; call begin() to give them again"
        )
    if reason == Refusal.NO_ROOM:
        return ParameterServerError(
            "the rack server has no room for the parameters: start it with more --memory"
        )
    said = next((each.name for each in Refusal if each == reason), str(reason))
    return ParameterServerError(f"the rack server refused a chunk: {said}")


def _floats(done: Reduction, size: int) -> Floats:
    rows = np.ascontiguousarray(done.lanes[:, wire.HEADER_LANES :])
    floats: Floats = rows.view(np.float32).reshape(-1)[:size]
    return floats
