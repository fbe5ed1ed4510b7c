"""The process group: all-reduces through the switch, everything else over Gloo underneath."""

import atexit
import concurrent.futures
import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import (  # type: ignore[attr-defined]
    PrefixStore,
    ProcessGroup,
    ProcessGroupGloo,
    Store,
)

from innet.errors import AgentClosed, UsageError
from innet.host.ddp import submit
from innet.host.join import metrics_address
from innet.host.tensors import ReduceOp
from innet.machine.forks import Owner
from innet.torch.backend import NAME
from innet.torch.counts import GLOO, SWITCH, count
from innet.torch.membership import GroupContext, debugging, join_job, limit
from innet.torch.rendezvous import rendezvous
from innet.torch.routes import switch_op
from innet.torch.settings import with_local_rank
from innet.torch.work import SwitchWork

if TYPE_CHECKING:
    from concurrent.futures import Future

# The collectives that the switch does not carry. Names differ between versions of PyTorch.
_OVER_GLOO = """
    broadcast reduce gather scatter send recv recv_anysource monitored_barrier
    allgather allgather_coalesced _allgather_base all_gather_single
    all_gather_single_coalesced allgather_into_tensor_coalesced
    reduce_scatter _reduce_scatter_base reduce_scatter_single
    reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced
    alltoall alltoall_base all_to_all_single
""".split()


class InnetGroup(ProcessGroup):
    """A process group of the backend ``innet``.

    Raises the errors of :func:`innet.torch.membership.join_job`, on every rank.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        *,
        first: bool = False,
        prefix: str = "torch",
    ) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._owner = Owner(self)
        store = rendezvous(store, rank, size, timeout)
        self._gloo = ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout)
        carrier = _checked(self._gloo, store, timeout) if debugging() else self._gloo
        # A plain group with Gloo as its backend, set up like PyTorch's own.
        self._below = ProcessGroup(store, rank, size)
        for group in (self, self._below):
            group._set_default_backend(ProcessGroup.BackendType.GLOO)  # noqa: SLF001
            for device in ("cpu", "cuda"):
                group._register_backend(  # noqa: SLF001 - as PyTorch does it
                    torch.device(device), ProcessGroup.BackendType.GLOO, carrier
                )
        self._gloo._set_sequence_number_for_group()  # noqa: SLF001
        self._last: Future[None] | None = None
        self._open = contextlib.ExitStack()
        environment = with_local_rank(os.environ, rank if first else _default_rank())
        with contextlib.ExitStack() as stack:
            if address := metrics_address(environment):
                from innet.host.metrics import exposed_too
                from innet.torch.metrics import COLLECTOR

                stack.enter_context(exposed_too(COLLECTOR, address))
            context = GroupContext(store, self._gloo, rank, size, timeout, first, prefix)
            self._membership = join_job(context, environment)
            stack.callback(self._membership.leave)
            self._open = stack.pop_all()
        _groups.add(self)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's
        """Return the name under which the backend is registered."""
        return NAME

    def allreduce(
        self, tensors: torch.Tensor | Sequence[torch.Tensor], opts: Any = None, *more: Any
    ) -> dist.Work:
        """Combine tensors in place, through the switch if it can, and else over Gloo."""
        return self._reduce("allreduce", tensors, opts, *more)

    def allreduce_coalesced(
        self, tensors: Sequence[torch.Tensor], opts: Any = None, *more: Any
    ) -> dist.Work:
        """Combine several tensors in place in one all-reduce, by the same rule."""
        return self._reduce("allreduce_coalesced", tensors, opts, *more)

    def barrier(self, *arguments: Any, **more: Any) -> dist.Work:
        """Wait for earlier all-reduces through the switch, then run a barrier over Gloo."""
        if self._last:
            concurrent.futures.wait([self._last])
        count("barrier", GLOO, "collective")
        return self._below.barrier(*arguments, **more)

    def split_group(self, *_: Any, **__: Any) -> ProcessGroup:
        """Refuse: a part of the group needs a job of its own. Raises UsageError."""
        raise UsageError(
            "the backend innet cannot split a group: create one with torch.distributed.new_group(ranks)"
        )

    def shutdown(self) -> None:
        """Give everything back. Unfinished work is abandoned and fails with AgentClosed.

        Does nothing in a forked child: everything belongs to the parent.
        """
        if self._owner.here:
            self._open.close()

    def abort(self) -> None:
        """Do the same for all processes of the group, and let collectives over Gloo fail as well.

        If the job was created for the group, it is deleted at once.
        """
        if self._owner.here:
            self._membership.abandon()
            self._open.close()
            self._gloo.abort()

    def _reduce(
        self, name: str, tensors: torch.Tensor | Sequence[torch.Tensor], opts: Any, *more: Any
    ) -> dist.Work:
        listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        op, reason = None, self._membership.reason
        if not reason:
            op, reason = switch_op(listed, _operation(opts))
        if op is None:
            count(name, GLOO, reason)
            arguments = () if opts is None else (opts, *more)
            return getattr(self._below, name)(listed, *arguments)  # type: ignore[no-any-return]
        count(name, SWITCH)
        return self._reduce_by_switch(listed, op)

    def _reduce_by_switch(self, tensors: list[torch.Tensor], op: ReduceOp) -> dist.Work:
        agent = self._membership.agent
        if agent is None:
            raise AgentClosed("the process group is destroyed: create another")
        limit(agent, self._gloo.options._timeout)  # noqa: SLF001 - PyTorch changes it there only

        def fill(result: torch.Tensor) -> None:
            parts = result.reshape(-1).split([tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                if part.data_ptr() != tensor.data_ptr():
                    # Bypass autograd's book-keeping, as all backends do for their results.
                    tensor.data.copy_(part.view(tensor.shape))

        self._last = submit(agent, tensors, op, fill)
        return SwitchWork(self._last, tensors)


def _checked(gloo: ProcessGroupGloo, store: Store, timeout: timedelta) -> Any:
    """Return Gloo with PyTorch's checks that all ranks call the same collective on the same shapes."""
    wrap = dist.distributed_c10d._create_process_group_wrapper  # noqa: SLF001 - no public function
    return wrap(gloo, "checks", store, gloo.rank(), gloo.size(), timeout)


def _over_gloo(name: str) -> Callable[..., Any]:
    def carry(self: InnetGroup, *arguments: Any, **more: Any) -> Any:
        count(name.strip("_"), GLOO, "collective")
        return getattr(self._below, name)(*arguments, **more)

    carry.__name__ = name
    carry.__doc__ = f"PyTorch's ``{name}``, over Gloo."
    return carry


for _name in _OVER_GLOO:
    if hasattr(ProcessGroup, _name):
        setattr(InnetGroup, _name, _over_gloo(_name))


def _default_rank() -> int:
    """Return the rank in the default group, which a replica of torchft need not have."""
    return dist.get_rank() if dist.is_initialized() else 0


def _operation(opts: Any) -> Any:
    """Return the operation from an all-reduce's options, or the argument itself if it is one."""
    return dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


_groups: "weakref.WeakSet[InnetGroup]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Leave the jobs of groups that a script has not destroyed."""
    for group in list(_groups):
        group.shutdown()
