"""One worker of one job: float32 tensors in, their mean over all workers out."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from innet.errors import UnsupportedTensor, UsageError, WorkersDisagree
from innet.host import quantize
from innet.host.link import monotonic
from innet.host.membership import Membership
from innet.host.quantize import Floats, Integers
from innet.host.transport import Patience, SwitchTransport, Traffic
from innet.wire.layout import Operation

if TYPE_CHECKING:
    import torch

Tensor = TypeVar("Tensor", "torch.Tensor", Floats)

_MOST_ELEMENTS = 2**31 - 1


class Agent:
    """A worker's seat in a job. Use :func:`join` to get one, and close it or use it in a ``with``.

    Calls are served in the order in which they are made, by one thread of the agent's own; every
    worker of the job must make the same calls in the same order.
    """

    def __init__(self, membership: Membership, link_spec: str, patience: Patience) -> None:
        self._membership = membership
        self.seat, self._link = membership.take_seat(link_spec)
        self._transport = SwitchTransport(
            self._link, self.seat, monotonic, patience, membership.departed
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="innet-agent")

    @property
    def traffic(self) -> Traffic:
        """Packets and bytes so far."""
        return self._transport.traffic

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """The element-wise mean of `tensor` over all workers of the job.

        Takes a float32 torch tensor on any device, or a float32 numpy array, of any shape, and
        returns a new one of the same kind, shape and device; all workers get the same bits. See
        :mod:`innet.host.quantize` for how far it may be from the exact mean.

        Raises UnsupportedTensor, SwitchUnreachable, WorkersMissing or WorkersDisagree.
        """
        return self.submit(tensor).result()

    def submit(self, tensor: Tensor) -> "Future[Tensor]":
        """:meth:`all_reduce` in the background. The tensor must not change until it is done."""
        check_supported(tensor)
        return self._thread.submit(self._mean_of, tensor)

    def close(self) -> None:
        """Leave the job, after what was submitted is done."""
        self._thread.shutdown()
        self._membership.close()
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mean_of(self, tensor: Any) -> Any:
        if isinstance(tensor, np.ndarray):
            return self._mean(tensor.ravel()).reshape(tensor.shape)
        import torch

        flat = tensor.detach().reshape(-1).cpu().numpy()
        mean = torch.from_numpy(self._mean(flat))
        return mean.to(tensor.device).reshape(tensor.shape)

    def _mean(self, values: Floats) -> Floats:
        """The mean of a flat vector: agree on exponents by maximum, then sum integers."""
        blocks = quantize.blocks(values, self.seat.lanes)
        exponents = self._agree(values.size, quantize.block_exponents(blocks))
        integers = quantize.quantize(blocks, exponents, self.seat.workers)
        sums = self._transport.all_reduce(integers, Operation.SUM)
        means = quantize.dequantize(sums, exponents, self.seat.workers)
        return means.reshape(-1)[: values.size]

    def _agree(self, size: int, exponents: Integers) -> Integers:
        """The block exponents' maximum over the workers, who must agree on `size`.

        In front of the exponents travel `size` and its negative: their maxima are the largest and
        the smallest size, so a disagreement shows before anything is summed.
        """
        words = np.concatenate([np.array([size, -size], np.int32), exponents])
        chunks = np.zeros((-(-words.size // self.seat.lanes), self.seat.lanes), np.int32)
        chunks.reshape(-1)[: words.size] = words
        agreed = self._transport.all_reduce(chunks, Operation.MAX).reshape(-1)
        if agreed[0] != size or agreed[1] != -size:
            raise WorkersDisagree(
                f"this worker reduces {size} elements, others between {-agreed[1]} and {agreed[0]}"
            )
        return agreed[2 : words.size]


def join(
    controller: str | None = None,
    job: str | None = None,
    rank: int | None = None,
    link: str | None = None,
    *,
    timeout: float = 30.0,
    patience: Patience | None = None,
) -> Agent:
    """Become a worker of a job.

    What is not given comes from the environment: `controller` from ``INNET_CONTROLLER``
    (``host:port``), `job` from ``INNET_JOB``, `rank` from ``RANK`` as torchrun sets it, and `link`
    from ``INNET_LINK``, by default ``host``. ``INNET_LINK`` may name several links, separated by
    spaces, one for each ``LOCAL_RANK``. `timeout` bounds the joining, in seconds.

    Raises UsageError if something is not given, ControllerUnreachable or ControllerError.
    """
    controller = controller or _from_environment("INNET_CONTROLLER", "controller")
    job = job or _from_environment("INNET_JOB", "job")
    rank = int(_from_environment("RANK", "rank")) if rank is None else rank
    link = link or _link_from_environment()
    membership = Membership(controller, job, rank, timeout)
    try:
        return Agent(membership, link, patience or Patience())
    except BaseException:
        membership.close()
        raise


def check_supported(tensor: Any) -> None:
    """Raise UnsupportedTensor unless `tensor` is a float32 array that :class:`Agent` can reduce."""
    dtype = str(getattr(tensor, "dtype", type(tensor).__name__)).removeprefix("torch.")
    if dtype != "float32":
        raise UnsupportedTensor(f"innet sums float32 tensors, not {dtype}: convert it first")
    elements = tensor.size if isinstance(tensor, np.ndarray) else tensor.numel()
    if elements > _MOST_ELEMENTS:
        raise UnsupportedTensor(f"{elements} elements are more than {_MOST_ELEMENTS}: split it")


def _from_environment(name: str, what: str) -> str:
    if value := os.environ.get(name):
        return value
    raise UsageError(f"no {what}: give it to join(), or set {name}")


def _link_from_environment() -> str:
    links = os.environ.get("INNET_LINK", "host").split()
    if len(links) == 1:
        return links[0]
    local_rank = int(_from_environment("LOCAL_RANK", "local rank for INNET_LINK"))
    if local_rank >= len(links):
        raise UsageError(f"INNET_LINK names {len(links)} links, local rank {local_rank} has none")
    return links[local_rank]
