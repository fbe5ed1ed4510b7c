"""One worker of one job: float32 tensors in, their mean over all workers out."""

import os
import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from innet.errors import AgentClosed, UnsupportedTensor, UsageError, WorkersDisagree
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
        self._calls: queue.SimpleQueue[tuple[Future[Any], Any, Any] | None] = queue.SimpleQueue()
        self._closed = False
        # A daemon, so that a script that fails ends, and with it the worker's stay in the job.
        self._thread = threading.Thread(target=self._serve, name="innet-agent", daemon=True)
        self._thread.start()

    @property
    def traffic(self) -> Traffic:
        """Packets and bytes so far."""
        return self._transport.traffic

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """The element-wise mean of `tensor` over all workers of the job.

        Takes a float32 torch tensor on any device, or a float32 numpy array, of any shape, and
        returns a new one of the same kind, shape and device; all workers get the same bits. See
        :mod:`innet.host.quantize` for how far it may be from the exact mean.

        Raises UnsupportedTensor, or one of the AllReduceErrors: JobEnded, LinkFailed,
        SwitchUnreachable, WorkersMissing, WorkersDisagree, AgentClosed. After one of those every
        later call raises it again: the workers are out of step, and have to join again.
        """
        return self.submit(tensor).result()

    def submit(self, tensor: Tensor) -> "Future[Tensor]":
        """:meth:`all_reduce` in the background. The tensor must not change until it is done."""
        check_supported(tensor)
        if self._closed:
            raise AgentClosed("the agent is closed: join the job again")
        future: Future[Tensor] = Future()
        future.set_running_or_notify_cancel()  # not to be cancelled: the others rely on it
        self._calls.put((future, tensor, _written(tensor)))
        return future

    def close(self, *, abandon: bool = False) -> None:
        """Leave the job, after what was submitted is done; with `abandon`, without waiting for it."""
        self._closed = True
        if abandon:
            self._transport.stop()
        self._calls.put(None)
        self._thread.join()
        self._membership.close()
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(abandon=kind is not None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            future, tensor, written = call
            try:
                future.set_result(self._mean_of(tensor, written))
            except BaseException as problem:  # noqa: BLE001 - handed to who waits for the result
                future.set_exception(problem)

    def _mean_of(self, tensor: Any, written: Any) -> Any:
        if isinstance(tensor, np.ndarray):
            return self._mean(tensor.ravel()).reshape(tensor.shape)
        import torch

        if written:
            written.synchronize()
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

        def check_size(first: Integers) -> None:
            largest, smallest = first[0], -first[1]
            if largest != size or smallest != size:
                raise WorkersDisagree(
                    f"this worker reduces {size} elements, others between {smallest} and {largest}"
                )

        agreed = self._transport.all_reduce(chunks, Operation.MAX, check_size)
        return agreed.reshape(-1)[2 : words.size]


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
    spaces, one for each ``LOCAL_RANK``. `timeout` bounds each step of the joining, in seconds, and
    `patience` how long an all-reduce may take before it is given up.

    Raises UsageError if something is not given, ControllerUnreachable or ControllerError.
    """
    controller = controller or _from_environment("INNET_CONTROLLER", "controller")
    job = job or _from_environment("INNET_JOB", "job")
    rank = _integer_from_environment("RANK", "rank") if rank is None else rank
    if rank < 0:
        raise UsageError(f"rank {rank}: ranks count from 0 on")
    link = link or _link_from_environment()
    membership = Membership(controller, job, rank, timeout)
    try:
        return Agent(membership, link, patience or Patience())
    except BaseException:
        membership.close()
        raise


def check_supported(tensor: Any) -> None:
    """Raise UnsupportedTensor unless `tensor` is a float32 array that :class:`Agent` can reduce."""
    if not isinstance(tensor, np.ndarray) and not hasattr(tensor, "detach"):
        kind = type(tensor).__name__
        raise UnsupportedTensor(f"innet sums torch tensors and numpy arrays, not {kind}")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != "float32":
        raise UnsupportedTensor(f"innet sums float32 tensors, not {dtype}: convert it first")
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise UnsupportedTensor(f"innet sums dense tensors, not {layout}: make it dense first")
    elements = tensor.size if isinstance(tensor, np.ndarray) else tensor.numel()
    if elements > _MOST_ELEMENTS:
        raise UnsupportedTensor(f"{elements} elements are more than {_MOST_ELEMENTS}: split it")


def _written(tensor: Any) -> Any:
    """What to wait for before a GPU's tensor is read: the work that the caller has queued there."""
    if isinstance(tensor, np.ndarray) or tensor.device.type != "cuda":
        return None
    import torch

    return torch.cuda.current_stream(tensor.device).record_event()


def _from_environment(name: str, what: str) -> str:
    if value := os.environ.get(name):
        return value
    raise UsageError(f"no {what}: give it to join(), or set {name}")


def _integer_from_environment(name: str, what: str) -> int:
    value = _from_environment(name, what)
    if not value.isdecimal():
        raise UsageError(f"{name} is {value!r}: it has to be a number")
    return int(value)


def _link_from_environment() -> str:
    links = os.environ.get("INNET_LINK", "host").split()
    if len(links) == 1:
        return links[0]
    local_rank = _integer_from_environment("LOCAL_RANK", "local rank for INNET_LINK")
    if local_rank >= len(links):
        raise UsageError(f"INNET_LINK names {len(links)} links, local rank {local_rank} has none")
    return links[local_rank]
