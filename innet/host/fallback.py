"""The fallback: the workers sum among themselves, without the switch.

It is slower, but gives the same results. A worker may break off an exchange at any moment while
others do not. A collective of a process group, however, waits for all of its ranks. So every
exchange begins with a small collective in which the workers compare term and exchange. A worker
that has broken off leaves its part of this collective behind. A worker that meets such a remnant
sees that it does not match, and compares again.
"""

import atexit
import contextlib
import ctypes
import hashlib
import queue
import threading
import weakref
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from innet.errors import WorkersDisagree
from innet.host.integers import Flags, Integers, Reduction
from innet.machine.forks import opened_sockets_cut_in_children
from innet.wire.layout import Operation

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

Result = TypeVar("Result")
GivenUp = Callable[[], bool]

# A remnant may wait as long as training runs. innet limits its own waits; Gloo must not.
NO_TIMEOUT = timedelta(days=365)
_FAREWELL_WITHIN = 5.0  # seconds
_STEP = timedelta(milliseconds=100)  # of a wait in Gloo


@runtime_checkable
class Fallback(Protocol):
    """A way to sum over all workers of a job without the switch. Any error means that it has failed."""

    @property
    def workers(self) -> int:
        """Return the number of workers."""

    def all_reduce(
        self, position: tuple[int, int], chunks: Integers, operation: Operation, flags: Flags
    ) -> "Future[Reduction]":
        """Combine (n, lanes) int32 and (n,) flags with those of all others, as the switch would.

        The lanes are undefined where the result has the flag OVERFLOW. `position` is term and exchange.
        The call waits for workers that are at another position. To break off, cancel the future.

        The arrays may change as soon as this call has returned. Raises WorkersDisagree.
        """

    def combine(self, tensor: "torch.Tensor", *, mean: bool) -> "Future[torch.Tensor]":
        """Return the sum or mean of a floating-point or complex torch tensor, in its own dtype.

        The result is a new tensor on the same device. The given tensor may change as soon as this
        call has returned. Raises WorkersDisagree.
        """


class GlooFallback:
    """A fallback over two private Gloo groups, or backends, of the job's workers, on the CPU.

    There are two so that an exchange's remnant in one does not block the tensors in the other.
    Create both without a timeout, since innet limits its own waits: :data:`NO_TIMEOUT` is long
    enough.
    """

    def __init__(self, workers: int, exchanges: Any, tensors: Any) -> None:
        self._workers = workers
        self._exchanges, self._tensors = _Collectives(exchanges), _Collectives(tensors)

    @property
    def workers(self) -> int:
        """Return the number of processes of the group."""
        return self._workers

    def all_reduce(
        self, position: tuple[int, int], chunks: Integers, operation: Operation, flags: Flags
    ) -> "Future[Reduction]":
        """See :class:`Fallback`."""
        # Copy here, not in the thread below. Even after this worker gives the exchange up, the
        # thread may still carry it out with workers that accept its result.
        lanes, ored = chunks.astype(np.int32), flags.astype(np.int32)

        def work(collectives: _Collectives, given_up: GivenUp) -> Reduction:
            collectives.await_position([*position, operation], given_up)
            collectives.check_equal(len(lanes), "packets")
            collectives.reduce(lanes, operation)
            collectives.reduce(ored, Operation.MAX, bitwise=True)
            return Reduction(
                lanes,
                ored.astype(np.uint16),
                np.full(len(lanes), self.workers, np.uint16),
                np.zeros(len(lanes), np.uint64),
            )

        return self._exchanges.submit(work)

    def combine(self, tensor: "torch.Tensor", *, mean: bool) -> "Future[torch.Tensor]":
        """See :class:`Fallback`."""
        import torch

        device = tensor.device
        result = tensor.detach().to("cpu", copy=True)  # copied here, as in all_reduce
        if not result.is_sparse:
            result = result.contiguous()

        def work(collectives: _Collectives, _: GivenUp) -> "torch.Tensor":
            collectives.check_equal(result.numel(), "elements")
            shape = tuple(result.shape) if result.is_sparse else ""
            kind = f"{result.dtype}, {result.layout} {shape}".rstrip()
            what = "a mean" if mean else "a sum"
            collectives.check_same(f"{what} of {kind}", "dtypes or layouts, or operations")
            # The sum of float16 may leave their range although the mean does not.
            total = result.float() if mean and result.dtype == torch.float16 else result
            collectives.reduce_tensor(total)
            return (total / self.workers if mean else total).to(device, result.dtype)

        return self._tensors.submit(work)

    def close(self) -> None:
        """Break off the work under way, and end the threads. The groups cannot be used afterwards."""
        for collectives in (self._exchanges, self._tensors):
            collectives.close()


class ProcessGroupFallback(GlooFallback):
    """A fallback over PyTorch's process group, with Gloo, on the CPU.

    `group` consists of exactly the workers of the job. innet makes groups of its own from it, so
    that its messages do not mix with the caller's. All workers have to make this object, in the same
    order as their other groups. The constructor returns when all workers have called it.
    """

    def __init__(self, group: "ProcessGroup") -> None:
        import torch.distributed as dist
        from torch.distributed import ProcessGroupGloo
        from torch.distributed.distributed_c10d import PrefixStore

        ranks = dist.get_process_group_ranks(group)
        rank, store = dist.get_rank(group), dist.distributed_c10d._get_default_store()  # noqa: SLF001
        # PyTorch would keep groups that it knows of until the process group is destroyed. These go with
        # this object. Their names in the store must be new ones.
        name = f"innet/fallback/{hashlib.sha256(repr(ranks).encode()).hexdigest()}"
        times = store.add(f"{name}/made by/{rank}", 1)
        with opened_sockets_cut_in_children():
            own = [
                ProcessGroupGloo(
                    PrefixStore(f"{name}/{times}/{which}", store), rank, len(ranks), NO_TIMEOUT
                )
                for which in ("exchanges", "tensors")
            ]
        super().__init__(len(ranks), *own)


class _GivenUp(Exception):
    """Nobody waits for the result any more."""


class _Collectives:
    """A group, and the thread that runs collectives on it, one task after the other."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._waiting: queue.SimpleQueue[
            tuple[Future[Any], Callable[[_Collectives, GivenUp], Any]] | None
        ] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: "Callable[[_Collectives, GivenUp], Result]") -> "Future[Result]":
        """Run `work` after all work submitted before. Call it from one thread."""
        if not self._thread:  # most jobs never need it
            # A daemon: it may still be waiting for other workers when the script ends.
            self._thread = threading.Thread(target=self._serve, name="innet-fallback", daemon=True)
            self._thread.start()
            _started.add(self)
        future: Future[Result] = Future()
        self._waiting.put((future, work))
        return future

    def close(self) -> None:
        """Break off, and end the thread."""
        self._closed = True
        self._waiting.put(None)
        # A forked child has no copy of the thread, and must leave the parent's group alone.
        if self._thread and self._thread.is_alive():
            self._thread.join(_FAREWELL_WITHIN)
        self._group = None  # its sockets and threads go with it

    def await_position(self, position: Sequence[int], given_up: GivenUp) -> None:
        """Wait until all workers are at the same position. Raises _GivenUp."""
        while True:
            lowest, highest = self.range(position)
            if lowest == highest:
                return
            if given_up():
                raise _GivenUp

    def check_equal(self, mine: int, what: str) -> None:
        """Raise WorkersDisagree unless all workers have the same number."""
        [lowest], [highest] = self.range([mine])
        if lowest != highest:
            raise WorkersDisagree(
                f"this worker reduces {mine} {what}, others between {lowest} and {highest}"
            )

    def check_same(self, mine: str, what: str) -> None:
        """Raise WorkersDisagree unless all workers have the same text."""
        [lowest], [highest] = self.range([zlib.crc32(mine.encode())])
        if lowest != highest:
            raise WorkersDisagree(f"the workers have different {what}: this one's is {mine}")

    def range(self, numbers: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the smallest and the largest of each number over all workers."""
        both = np.array([*numbers, *(-number for number in numbers)], np.int64)
        self.reduce(both, Operation.MAX)
        return (-both[len(numbers) :]).tolist(), both[: len(numbers)].tolist()

    def reduce(
        self, array: "np.ndarray[Any, Any]", operation: Operation, *, bitwise: bool = False
    ) -> None:
        """Combine an array with the other workers' arrays, in place."""
        import torch
        import torch.distributed as dist

        # Gloo adds modulo 2**32, so SUM serves for the wrapping sum, too.
        op: Any = dist.ReduceOp.MAX if operation == Operation.MAX else dist.ReduceOp.SUM
        self.reduce_tensor(torch.from_numpy(array), dist.ReduceOp.BOR if bitwise else op)

    def reduce_tensor(self, tensor: "torch.Tensor", op: Any = None) -> None:
        """Combine a tensor with the other workers' tensors, in place; by default sum them."""
        import torch.distributed as dist

        options = dist.AllreduceOptions()
        if op is not None:
            options.reduceOp = op
        self._finish(self._group.allreduce([tensor], options))

    def _finish(self, work: Any) -> None:
        """Wait for Gloo. Raises _GivenUp after :meth:`close`.

        This thread has to be out of PyTorch when the interpreter ends: a call that returns later
        aborts the process. So the thread waits in short steps and looks for `close` in between.
        """
        while not work.is_completed():
            # An error means that the step is over, or that the collective has failed.
            with contextlib.suppress(RuntimeError):
                work.wait(_STEP)
            if self._closed and not work.is_completed():
                # Gloo cannot break a collective off, and the group's destructor would wait for its end.
                # So the group is never destroyed.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))
                raise _GivenUp
        work.wait()

    def _serve(self) -> None:
        while (submitted := self._waiting.get()) is not None:
            future, work = submitted
            with contextlib.suppress(InvalidStateError):  # cancelled at the last moment
                try:
                    future.set_result(work(self, future.cancelled))
                except _GivenUp:
                    future.cancel()  # after close() it may not be cancelled yet
                except BaseException as problem:  # noqa: BLE001 - whoever waits for the result gets it
                    future.set_exception(problem)


_started: "weakref.WeakSet[_Collectives]" = weakref.WeakSet()


@atexit.register
def _end_threads() -> None:
    """End the threads of the fallbacks that a script has not closed.

    A thread may wait for other workers for ever. PyTorch aborts the process if such a wait returns
    while the interpreter ends.
    """
    for collectives in list(_started):
        collectives.close()
