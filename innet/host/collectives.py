"""The collectives that an agent offers besides the all-reduce."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from innet.errors import UnsupportedTensor, UsageError
from innet.host.agreement import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, Collective
from innet.host.exchanges import Exchanges
from innet.host.integers import Bytes
from innet.host.job import WorkerInfo
from innet.host.moves import Moves
from innet.host.reducer import Reducer
from innet.host.tensors import (
    ReduceOp,
    bytes_of,
    check_has_bytes,
    check_is_tensor,
    extent,
    from_bytes,
    is_sparse,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np
    import torch

Tensor = TypeVar("Tensor", "torch.Tensor", "np.ndarray[Any, Any]")
Done = TypeVar("Done")


class Collectives(ABC):
    """Collectives in terms of an agent's two ways to run exchanges.

    Tensors are torch tensors on any device, or numpy arrays. All workers make the same calls with
    tensors of the same shape and dtype. The errors are those of :meth:`innet.Agent.all_reduce`.
    """

    info: WorkerInfo
    _moves: Moves

    @abstractmethod
    def submit(
        self,
        tensor: Tensor,
        op: ReduceOp = "mean",
        *,
        quantizer: str | None = None,
        key: Hashable = None,
        in_place: bool = False,
        collective: Collective = ALL_REDUCE,
        part: range | None = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> "Future[Tensor]":
        """Reduce a tensor in the background."""

    @abstractmethod
    def perform(
        self,
        work: Callable[[Exchanges, Reducer], Any],
        finish: Callable[[Any], Any] | None = None,
        *,
        tensor: Any = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> "Future[Any]":
        """Run `work`, which makes exchanges of its own, in the background."""

    def reduce_scatter(
        self,
        tensor: Tensor,
        op: ReduceOp = "mean",
        *,
        quantizer: str | None = None,
        key: Hashable = None,
    ) -> Tensor:
        """Return this worker's part of the reduced tensor.

        The tensor is cut along its first dimension into equal parts, in the order of the ranks. The
        size of this dimension has to be a multiple of the number of workers. Dtypes, bounds and
        arguments are those of :meth:`innet.Agent.all_reduce`, but sparse tensors have no parts. Raises
        UsageError.
        """
        check_is_tensor(tensor)
        if is_sparse(tensor):
            raise UnsupportedTensor("a sparse tensor has no equal parts: use all_reduce")
        rows, rest = divmod(tensor.shape[0] if tensor.shape else 0, self.info.workers)
        if rest or not tensor.shape:
            raise UsageError(
                f"a tensor of shape {tuple(tensor.shape)} has no {self.info.workers} equal parts: its "
                "first dimension has to be a multiple of the number of workers"
            )
        size = math.prod(tensor.shape) // self.info.workers
        part = range(self.info.rank * size, (self.info.rank + 1) * size)
        future = self.submit(
            tensor,
            op,
            quantizer=quantizer,
            key=key,
            collective=REDUCE_SCATTER,
            part=part,
            wait=True,
        )
        return future.result().reshape(rows, *tensor.shape[1:])

    def reduce(
        self,
        tensor: Tensor,
        root: int = 0,
        op: ReduceOp = "mean",
        *,
        quantizer: str | None = None,
        key: Hashable = None,
    ) -> Tensor | None:
        """Return the reduced tensor on the worker of rank `root`, and None on the others."""
        check_is_tensor(tensor)
        collective = Collective("reduce", self._checked(root))
        is_root = self.info.rank == root
        part = None if is_sparse(tensor) else range(extent(tensor) if is_root else 0)
        future = self.submit(
            tensor, op, quantizer=quantizer, key=key, collective=collective, part=part, wait=True
        )
        reduced = future.result()
        if not is_root:
            return None
        return reduced if part is None else reduced.reshape(tensor.shape)

    def all_gather(self, tensor: Tensor) -> Tensor:
        """Return all workers' tensors, joined by rank along the first dimension, bit for bit.

        Scalars become a vector. Takes any dtype.
        """
        check_has_bytes(tensor)
        shape = (self.info.workers * tensor.shape[0], *tensor.shape[1:]) if tensor.shape else (-1,)
        joined: Future[Tensor] = self.submit_move(
            tensor, ALL_GATHER, lambda found: from_bytes(found, tensor, shape), wait=True
        )
        return joined.result()

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Return the tensor of the worker of rank `root`, bit for bit. Takes any dtype."""
        check_has_bytes(tensor)
        collective = Collective("broadcast", self._checked(root))
        future: Future[Tensor] = self.submit_move(
            tensor,
            collective,
            lambda found: from_bytes(found, tensor, tuple(tensor.shape)),
            wait=True,
        )
        return future.result()

    def barrier(self) -> None:
        """Return when all workers have called this method, and their earlier calls are done."""
        self.submit_barrier(wait=True).result()

    def submit_barrier(self, *, wait: bool = False, timeout: float | None = None) -> "Future[None]":
        """Do the same as :meth:`barrier`, in the background. The options are those of :meth:`submit`."""
        return self.perform(lambda *_: self._moves.barrier(), wait=wait, timeout=timeout)

    def submit_move(
        self,
        tensor: Tensor,
        collective: Collective,
        finish: Callable[[Bytes], Done],
        into: Bytes | None = None,
        *,
        wait: bool = False,
        timeout: float | None = None,
    ) -> "Future[Done]":
        """All-gather or broadcast a tensor's bytes in the background.

        `finish` gets the bytes and returns the result. It must not use the bytes after that. It is
        called in the thread that serves the call, before any later call begins. `into` is memory for all
        of the bytes, in which they are received. The root of a broadcast has them, and receives none. If
        the call fails, the content of `into` is undefined. `wait` and `timeout` are those of
        :meth:`submit`.
        """

        def move(*_: Any) -> Bytes:
            if collective.name == "all-gather":
                return self._moves.all_gather(bytes_of(tensor), into)
            return self._moves.broadcast(bytes_of(tensor), collective.root, into)

        return self.perform(move, finish, tensor=tensor, wait=wait, timeout=timeout)

    def _checked(self, root: int) -> int:
        if not 0 <= root < self.info.workers:
            raise UsageError(f"root {root}: the ranks are 0 to {self.info.workers - 1}")
        return root
