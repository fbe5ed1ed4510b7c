"""Summing without the switch: by the workers among themselves.

Slower, but with the same results. An exchange may be broken off at any moment, by some workers and not
by others, while a collective operation of a process group waits for all. So every exchange begins with
a small one, in which the workers compare where they are; who has broken off leaves its part in it
behind. Whoever meets such a remnant finds that it does not fit, and compares again.
"""

import contextlib
import queue
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from innet.errors import WorkersDisagree
from innet.host.integers import Flags, Integers, Reduction
from innet.wire.layout import Operation

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

Result = TypeVar("Result")
GivenUp = Callable[[], bool]

# What is left behind may wait as long as training runs; how long innet waits is not for Gloo to say.
NO_TIMEOUT = timedelta(days=365)
_FAREWELL_WITHIN = 5.0  # seconds


@runtime_checkable
class Fallback(Protocol):
    """All workers of a job, summing without the switch. Errors of any kind mean that it has failed."""

    @property
    def workers(self) -> int:
        """How many there are."""

    def all_reduce(
        self, place: tuple[int, int], chunks: Integers, operation: Operation, flags: Flags
    ) -> "Future[Reduction]":
        """Combine (n, lanes) int32 and (n,) flags with those of all others, as the switch would.

        Where the result has the flag OVERFLOW its lanes mean nothing. `place` is epoch and exchange;
        who is elsewhere is waited for. To break off, cancel the future. Raises WorkersDisagree.
        """

    def combine(self, tensor: "torch.Tensor", *, mean: bool) -> "Future[torch.Tensor]":
        """The sum or the mean of a torch tensor in its own dtype, which has to be one with fractions.

        A new tensor on the same device. Raises WorkersDisagree.
        """


class GlooFallback:
    """Over two Gloo groups, or backends, of the job's workers, on the CPU, that nobody else uses.

    What an exchange leaves behind in one must not hold up the tensors in the other. Neither may have
    a timeout: how long innet waits is not for Gloo to say; :data:`NO_TIMEOUT` is as good as none.
    """

    def __init__(self, workers: int, exchanges: Any, tensors: Any) -> None:
        self._workers = workers
        self._exchanges, self._tensors = _Line(exchanges), _Line(tensors)

    @property
    def workers(self) -> int:
        """How many processes the group has."""
        return self._workers

    def all_reduce(
        self, place: tuple[int, int], chunks: Integers, operation: Operation, flags: Flags
    ) -> "Future[Reduction]":
        """See :class:`Fallback`."""

        def work(line: _Line, given_up: GivenUp) -> Reduction:
            line.meet([*place, operation], given_up)
            line.check_equal(len(chunks), "packets")
            lanes, ored = chunks.astype(np.int32), flags.astype(np.int32)
            line.reduce(lanes, operation)
            line.reduce(ored, Operation.MAX, bitwise=True)
            return Reduction(
                lanes,
                ored.astype(np.uint16),
                np.full(len(chunks), self.workers, np.uint8),
                np.full(len(chunks), (1 << self.workers) - 1, np.uint32),
            )

        return self._exchanges.submit(work)

    def combine(self, tensor: "torch.Tensor", *, mean: bool) -> "Future[torch.Tensor]":
        """See :class:`Fallback`."""

        def work(line: _Line, _: GivenUp) -> "torch.Tensor":
            line.check_equal(tensor.numel(), "elements")
            line.check_same(str(tensor.dtype), "dtypes")
            result = tensor.detach().cpu().clone()
            if not result.is_sparse:
                result = result.contiguous()
            line.reduce_tensor(result)
            return (result / self.workers if mean else result).to(tensor.device)

        return self._tensors.submit(work)

    def close(self) -> None:
        """Break off what is under way, and end the threads. The groups are of no use afterwards."""
        for line in (self._exchanges, self._tensors):
            line.close()


class ProcessGroupFallback(GlooFallback):
    """Over PyTorch's process group, with Gloo, on the CPU.

    `group` says which processes: the workers of the job, and only they. Groups of innet's own are made
    of them, so that nothing mixes with the caller's. That takes all of them, in the same order as any
    other groups; so this call returns when all have made it.
    """

    def __init__(self, group: "ProcessGroup") -> None:
        import torch.distributed as dist

        ranks = dist.get_process_group_ranks(group)
        some = len(ranks) < dist.get_world_size()
        own = (
            dist.new_group(
                ranks, timeout=NO_TIMEOUT, backend="gloo", use_local_synchronization=some
            )
            for _ in range(2)
        )
        super().__init__(len(ranks), *own)


class _GivenUp(Exception):
    """Nobody waits for the result any more."""


class _Line:
    """A group, and the thread that works on it, one piece of work after the other."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._waiting: queue.SimpleQueue[
            tuple[Future[Any], Callable[[_Line, GivenUp], Any]] | None
        ] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: "Callable[[_Line, GivenUp], Result]") -> "Future[Result]":
        """Do this after what was submitted before. From one thread."""
        if not self._thread:  # most jobs never need it
            # A daemon: it may be left waiting for others when the script ends.
            self._thread = threading.Thread(target=self._serve, name="innet-fallback", daemon=True)
            self._thread.start()
        future: Future[Result] = Future()
        self._waiting.put((future, work))
        return future

    def close(self) -> None:
        """Break off, and end the thread."""
        self._waiting.put(None)
        if self._thread:
            self._group.abort()
            self._thread.join(_FAREWELL_WITHIN)
        self._group = None  # its sockets and threads go with it

    def meet(self, place: Sequence[int], given_up: GivenUp) -> None:
        """Wait until all are at the same place. Raises _GivenUp."""
        while True:
            lowest, highest = self.range(place)
            if lowest == highest:
                return
            if given_up():
                raise _GivenUp

    def check_equal(self, mine: int, what: str) -> None:
        """Raise WorkersDisagree unless all have the same number."""
        [lowest], [highest] = self.range([mine])
        if lowest != highest:
            raise WorkersDisagree(
                f"this worker reduces {mine} {what}, others between {lowest} and {highest}"
            )

    def check_same(self, mine: str, what: str) -> None:
        """Raise WorkersDisagree unless all have the same text."""
        [lowest], [highest] = self.range([zlib.crc32(mine.encode())])
        if lowest != highest:
            raise WorkersDisagree(f"the workers have different {what}: this one's is {mine}")

    def range(self, numbers: Sequence[int]) -> tuple[list[int], list[int]]:
        """The smallest and the largest that any has of each number."""
        both = np.array([*numbers, *(-number for number in numbers)], np.int64)
        self.reduce(both, Operation.MAX)
        return (-both[len(numbers) :]).tolist(), both[: len(numbers)].tolist()

    def reduce(
        self, array: "np.ndarray[Any, Any]", operation: Operation, *, bitwise: bool = False
    ) -> None:
        """Combine an array with all others', in place."""
        import torch
        import torch.distributed as dist

        how: Any = {Operation.SUM: dist.ReduceOp.SUM, Operation.MAX: dist.ReduceOp.MAX}[operation]
        self.reduce_tensor(torch.from_numpy(array), dist.ReduceOp.BOR if bitwise else how)

    def reduce_tensor(self, tensor: "torch.Tensor", how: Any = None) -> None:
        """Combine a tensor with all others', in place; by default their sum."""
        import torch.distributed as dist

        options = dist.AllreduceOptions()
        if how is not None:
            options.reduceOp = how
        self._group.allreduce([tensor], options).wait()

    def _serve(self) -> None:
        while (submitted := self._waiting.get()) is not None:
            future, work = submitted
            with contextlib.suppress(InvalidStateError):  # cancelled at the last moment
                try:
                    future.set_result(work(self, future.cancelled))
                except _GivenUp:
                    pass
                except BaseException as problem:  # noqa: BLE001 - handed to who waits
                    future.set_exception(problem)
