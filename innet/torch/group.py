"""The process group. The switch carries the collectives that it can, and Gloo all others."""

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from functools import partial
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
from innet.host.agent import Agent, leave_jobs
from innet.host.tensors import ReduceOp
from innet.machine.environment import PRIVATE_KEY_FILE
from innet.machine.forks import Owner, opened_sockets_cut_in_children
from innet.torch import collectives
from innet.torch.collectives import Gather, Scatter
from innet.torch.counts import GLOO, count
from innet.torch.gathers import Gathers, joining
from innet.torch.membership import (
    GroupContext,
    debugging,
    join_job,
    limit,
)
from innet.torch.messages import all_gathered, attempted, refusal_of
from innet.torch.name import NAME
from innet.torch.options import operation_of, root_of, sets_timeout, waits_at_once
from innet.torch.rendezvous import rendezvous
from innet.torch.routes import move_reason, switch_op
from innet.torch.settings import serve_counts, with_local_rank
from innet.torch.uncompiled import uncompiled
from innet.torch.work import SwitchWork

if TYPE_CHECKING:
    from concurrent.futures import Future

# The collectives that the switch never carries. Names differ between versions of PyTorch.
_OVER_GLOO = """
    gather scatter send recv recv_anysource monitored_barrier
    alltoall alltoall_base all_to_all_single
""".split()
_MOVE_NOTHING = {"barrier", "monitored_barrier"}
_BETWEEN_TWO = {"send", "recv", "recv_anysource"}
_GATHERS_INTO_TENSORS = "_allgather_base all_gather_single".split()
_GATHERS_COALESCED = "allgather_into_tensor_coalesced all_gather_single_coalesced".split()
_SCATTERS_TENSORS = "_reduce_scatter_base reduce_scatter_single".split()
_SCATTERS_COALESCED = "reduce_scatter_tensor_coalesced reduce_scatter_single_coalesced".split()


Step = Callable[[Agent, bool], "Future[None]"]
"""A function that begins a collective through the switch; the flag is :meth:`Agent.submit`'s `wait`."""


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
        with opened_sockets_cut_in_children():
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
        self._options = self._gloo.options
        self._gloo_is_owed = False  # whether the next barrier has to wait for Gloo
        self._open = contextlib.ExitStack()
        environment = with_local_rank(os.environ, rank if first else _default_rank())
        with contextlib.ExitStack() as stack:
            # All ranks learn of a rank that has this wrong, as they do when they join.
            _, message = attempted(partial(serve_counts, environment, stack))
            refusal_of(all_gathered(self._gloo, message))
            context = GroupContext(store, self._gloo, rank, size, timeout, first, prefix)
            self._membership = join_job(context, environment)
            # A group of one sends nothing.
            self._private = bool(environment.get(PRIVATE_KEY_FILE)) and size > 1
            stack.callback(self._membership.leave)
            self._gathers = Gathers(joining(self._membership, context, environment))
            stack.callback(self._gathers.leave)
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
        """Combine several tensors in place in one all-reduce, through the switch if it can."""
        return self._reduce("allreduce_coalesced", tensors, opts, *more)

    def broadcast(self, tensors: Any, opts: Any = None, *more: Any) -> dist.Work:
        """Give all ranks the root's tensor, through the switch if it can, and else over Gloo."""
        listed = _listed(tensors)
        root = root_of(opts)

        def step(agent: Agent, wait: bool) -> "Future[None]":
            return collectives.broadcast(agent, listed[0], root, wait=wait)

        reason = "form" if len(listed) != 1 else move_reason(listed)
        reason = reason or self._quorum_reason
        return self._carry("broadcast", reason, step, listed, (listed, opts, *more))

    def reduce(self, tensors: Any, opts: Any = None, *more: Any) -> dist.Work:
        """Reduce a tensor into the root's, through the switch if it can, and else over Gloo."""
        listed = _listed(tensors)
        op, reason = switch_op(listed, operation_of(opts))
        root = root_of(opts)

        def step(agent: Agent, wait: bool) -> "Future[None]":
            return collectives.reduce(agent, listed[0], _known(op), root, wait=wait)

        reason = "form" if len(listed) != 1 else reason
        return self._carry("reduce", reason, step, listed, (listed, opts, *more))

    def barrier(self, *arguments: Any, **more: Any) -> Any:
        """Wait for all ranks, and for the group's earlier collectives.

        If collectives went over Gloo since the last barrier, so does this one. Otherwise the switch
        carries it.
        """
        reason = "order" if self._gloo_is_owed else self._quorum_reason
        if sets_timeout(*arguments, *more.values()):
            reason = "timeout"
        if reason or self._gathers.apart:
            self._gathers.wait()
        self._gloo_is_owed = False

        def step(agent: Agent, wait: bool) -> "Future[None]":
            return agent.submit_barrier(wait=wait)

        return self._carry("barrier", reason, step, [], arguments, owed=False, **more)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any) -> dist.Work:
        """Gather tensors into lists, through the switch if it can, and else over Gloo."""
        lists = [outputs] if isinstance(outputs[0], torch.Tensor) else outputs
        call = Gather.into_lists(lists, _listed(inputs), self.size())
        return self._gather("allgather", call, (outputs, inputs, opts, *more))

    def allgather_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None, *more: Any
    ) -> dist.Work:
        """Gather several tensors into lists, one for each rank, through the switch if it can."""
        by_input = [list(each) for each in zip(*outputs, strict=True)]
        call = Gather.into_lists(by_input, inputs, self.size())
        return self._gather("allgather_coalesced", call, (outputs, inputs, opts, *more))

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any) -> dist.Work:
        """Reduce lists of tensors, of which each rank gets one, through the switch if it can."""
        lists = [inputs] if isinstance(inputs[0], torch.Tensor) else inputs
        call = Scatter.of_lists(_listed(outputs), lists, self.rank(), self.size())
        return self._scatter("reduce_scatter", call, (outputs, inputs, opts, *more))

    def reduce_scatter_with(
        self, output: torch.Tensor, given: torch.Tensor, op: Any, *, quantizer: str, key: Hashable
    ) -> dist.Work:
        """Reduce a tensor, of which each rank gets one part, with a quantizer of its own.

        Arguments are those of :meth:`Agent.reduce_scatter`.
        """
        call = Scatter.of_tensors([output], [given], self.rank(), self.size())
        options = dist.ReduceScatterOptions()
        options.reduceOp = op
        name = next(each for each in reversed(_SCATTERS_TENSORS) if hasattr(ProcessGroup, each))
        arguments = output, given, options
        return self._scatter(name, call, arguments, quantizer=quantizer, key=key)

    def split_group(self, *_: Any, **__: Any) -> ProcessGroup:
        """Refuse: a part of the group needs a job of its own. Raises UsageError."""
        raise UsageError(
            "the backend innet cannot split a group: create one with torch.distributed.new_group(ranks)"
        )

    def shutdown(self) -> None:
        """Leave the group's jobs. Unfinished work is abandoned and fails with AgentClosed.

        Does nothing in a forked child: everything belongs to the parent.
        """
        if self._owner.here:
            self._open.close()

    def abort(self) -> None:
        """Leave the group's jobs, and let unfinished work of all its processes fail, over Gloo as well.

        If the job was created for the group, it is deleted at once.
        """
        if self._owner.here:
            self._gathers.abandon()
            self._membership.abandon()
            self._open.close()
            self._gloo.abort()

    def _reduce(
        self, name: str, tensors: torch.Tensor | Sequence[torch.Tensor], opts: Any, *more: Any
    ) -> dist.Work:
        listed = _listed(tensors)
        op, reason = switch_op(listed, operation_of(opts), sparse=True)

        def step(agent: Agent, wait: bool) -> "Future[None]":
            return collectives.all_reduce(agent, listed, _known(op), wait=wait)

        return self._carry(name, reason, step, listed, (listed, opts, *more))

    def _gather(self, name: str, call: Gather | None, arguments: Sequence[Any]) -> dist.Work:
        if not call:
            return self._carry(name, "form", _nothing, [], arguments)
        reason = move_reason(call.tensors) or self._quorum_reason
        results = [part for parts in call.outputs for part in parts]
        nbytes = sum(each.numel() * each.element_size() for each in results)
        return self._carry(name, reason, call.run, results, arguments, gathered=nbytes)

    def _scatter(
        self, name: str, call: Scatter | None, arguments: Sequence[Any], **options: Any
    ) -> dist.Work:
        """Reduce and scatter. The `options` are the quantizer and the key of :meth:`Agent.submit`."""
        if not call:
            return self._carry(name, "form", _nothing, [], arguments)
        op, reason = switch_op(call.tensors, operation_of(arguments[2]))

        def step(agent: Agent, wait: bool) -> "Future[None]":
            return call.run(agent, _known(op), wait=wait, **options)

        return self._carry(name, reason, step, call.outputs, arguments)

    @property
    def _quorum_reason(self) -> str:
        """Return the reason why calls that need every worker go over Gloo, or "" if they do not."""
        agent = self._membership.agent
        return "quorum" if agent and agent.info.has_quorum else ""

    def _carry(
        self,
        name: str,
        reason: str,
        step: Step,
        results: Sequence[torch.Tensor],
        arguments: Sequence[Any],
        *,
        gathered: int = 0,
        **more: Any,
    ) -> dist.Work:
        """Take a step through the switch, or call Gloo if the group or the call has a reason to.

        `reason` is the call's, or "". `results` are the tensors that hold the result afterwards, and
        `arguments` those of PyTorch's method `name`. `gathered` is the size of an all-gather's result in
        bytes.
        """
        if reason := self._membership.reason or reason:
            if self.size() > 1:
                collectives.check_for_gloo(name, results, reason)
            work: dist.Work = self._over_gloo(name, reason, *arguments, **more)
            return work
        agent = self._membership.agent
        if agent is None:
            raise AgentClosed("the process group is destroyed: create another")
        count(name.strip("_"), self._membership.carrier)
        agent = self._gathers.agent(agent, gathered)
        limit(agent, self._options._timeout)  # noqa: SLF001 - PyTorch changes it there only
        waits = waits_at_once(*arguments, *more.values())
        future = self._gathers.submit(agent, arguments, step, wait=waits)
        return SwitchWork(future, list(results))

    def _over_gloo(
        self, name: str, reason: str, *arguments: Any, owed: bool = True, **more: Any
    ) -> Any:
        """Call Gloo. If the call is `owed`, the next barrier has to wait for Gloo, too."""
        if self._private and name not in _MOVE_NOTHING:
            raise UsageError(
                f"Gloo would carry this {name} in the clear ({reason}), and the group's sums are "
                f"private: leave it out, or unset {PRIVATE_KEY_FILE}"
            )
        count(name.strip("_"), GLOO, reason)
        self._gloo_is_owed |= owed
        while arguments and arguments[-1] is None:  # options that were left out
            arguments = arguments[:-1]
        return getattr(self._below, name)(*arguments, **more)


def _checked(gloo: ProcessGroupGloo, store: Store, timeout: timedelta) -> Any:
    """Return Gloo with PyTorch's checks that all ranks call the same collective on the same shapes."""
    wrap = dist.distributed_c10d._create_process_group_wrapper  # noqa: SLF001 - no public function
    return wrap(gloo, "checks", store, gloo.rank(), gloo.size(), timeout)


def _by_gloo(name: str) -> Callable[..., Any]:
    def carry(self: InnetGroup, *arguments: Any, **more: Any) -> Any:
        return self._over_gloo(
            name, "collective", *arguments, owed=name not in _BETWEEN_TWO, **more
        )

    return _named(carry, name, "over Gloo")


def _gather_into_tensors(name: str) -> Callable[..., Any]:
    def gather(self: InnetGroup, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        call = Gather.into_tensors(_listed(outputs), _listed(inputs), self.size())
        return self._gather(name, call, (outputs, inputs, opts))

    return _named(gather, name, "through the switch if it can")


def _scatter_tensors(name: str) -> Callable[..., Any]:
    def scatter(self: InnetGroup, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        call = Scatter.of_tensors(_listed(outputs), _listed(inputs), self.rank(), self.size())
        return self._scatter(name, call, (outputs, inputs, opts))

    return _named(scatter, name, "through the switch if it can")


def _named(function: Callable[..., Any], name: str, how: str) -> Callable[..., Any]:
    function.__name__ = name
    function.__doc__ = f"PyTorch's ``{name}``, {how}."
    return function


_MADE = {
    **{name: _by_gloo(name) for name in _OVER_GLOO},
    **{name: _gather_into_tensors(name) for name in (*_GATHERS_INTO_TENSORS, *_GATHERS_COALESCED)},
    **{name: _scatter_tensors(name) for name in (*_SCATTERS_TENSORS, *_SCATTERS_COALESCED)},
}
for _name, _function in _MADE.items():
    if hasattr(ProcessGroup, _name):
        setattr(InnetGroup, _name, _function)
uncompiled(InnetGroup)
uncompiled(SwitchWork)


def _default_rank() -> int:
    """Return the rank in the default group, which a replica of torchft need not have."""
    return dist.get_rank() if dist.is_initialized() else 0


def _listed(tensors: torch.Tensor | Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _known(op: ReduceOp | None) -> ReduceOp:
    """Return the operation of a call that :meth:`InnetGroup._carry` takes to the switch: it has one."""
    if op is None:
        raise AssertionError
    return op


def _nothing(_: Agent, __: bool) -> "Future[None]":
    """Stand for the step of a call that has a reason to go over Gloo: nobody takes it."""
    raise AssertionError


_groups: "weakref.WeakSet[InnetGroup]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Leave the jobs of groups that a script has not destroyed."""
    leave_jobs()  # before the groups close their agents, which know nothing of the script's exception
    for group in list(_groups):
        group.shutdown()
