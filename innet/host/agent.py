"""The agent: one worker of one job, which all-reduces tensors with the other workers."""

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from innet.errors import (
    AgentClosed,
    AllReduceError,
    InnetError,
    LeftBehind,
    LinkFailed,
    NeighbourLost,
    UsageError,
    WorkersMissing,
)
from innet.host.activity import Activity
from innet.host.agreement import ALL_REDUCE, EXACT, Collective
from innet.host.calls import CallQueue
from innet.host.collectives import Collectives
from innet.host.exchanges import Exchanges
from innet.host.fallback import Fallback
from innet.host.fallback_network import warn_of_shared_network
from innet.host.job import Term, Timeouts
from innet.host.membership import Membership
from innet.host.moves import Moves
from innet.host.node import Node
from innet.host.node_exchanges import NodeExchanges
from innet.host.privacy import Privacy
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.reducer import Reducer
from innet.host.side_streams import SideStream, SideStreams
from innet.host.tensor_calls import TensorCall
from innet.host.tensors import ReduceOp, summed_by_switch
from innet.host.traffic import Traffic
from innet.host.waker import Waker
from innet.host.worker_log import WorkerLog
from innet.machine.extras import needed_for
from innet.machine.forks import Owner
from innet.machine.interfaces import bits_per_second, interface_at
from innet.rpc import innet_pb2 as pb
from innet.rpc.words import counted

if TYPE_CHECKING:
    import numpy as np
    import torch

Tensor = TypeVar("Tensor", "torch.Tensor", "np.ndarray[Any, Any]")

_CLOSED = "the agent is closed: join the job again"
_NO_CONTEXT = contextlib.nullcontext()
_BETWEEN_LOOKS_S = 0.5


class _CallFuture(Future[Any]):
    """The future of a call. It cannot be cancelled, because the other workers rely on the call.

    Waits for it end with a signal's exception, such as that of Ctrl-C. A signal that another thread gets,
    or that comes just before a wait begins, does not wake Python. So waits look for it twice a second.
    """

    def cancel(self) -> bool:
        """Return False: the call goes on."""
        return False

    def result(self, timeout: float | None = None) -> Any:
        """Return the result. Raises the call's error, or TimeoutError after so many seconds."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the call's error, or None. Raises TimeoutError after so many seconds."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        over = float("inf") if timeout is None else time.monotonic() + timeout
        while not self.done() and (left := over - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                super().exception(min(left, _BETWEEN_LOOKS_S))


@dataclass(slots=True)
class _Call:
    """A call of :meth:`Agent.perform`, and the future of its result."""

    future: _CallFuture
    work: Callable[[Exchanges, Reducer], Any]
    finish: Callable[[Any], Any] | None
    stream: SideStream | None
    timeout: float | None

    def beside(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of work on the call's tensor."""
        return self.stream.current() if self.stream else _NO_CONTEXT

    def finished(self, result: Any) -> Callable[[], None]:
        """Finish the call, given the result of its work. Return the function that settles its future."""
        try:
            made = self.finish(result) if self.finish else result
            if self.stream:
                self.stream.hand_over(made)
        except BaseException as problem:  # noqa: BLE001 - it concerns only this worker's tensors
            return partial(self.future.set_exception, problem)
        return partial(self.future.set_result, made)


class Agent(Collectives):
    """A worker of a job. Use :func:`innet.join` to get one, and close it or use it in a ``with``.

    One thread of the agent serves the calls in the order in which they were made. Every worker of
    the job must make the same calls in the same order.
    """

    def __init__(
        self,
        membership: Membership,
        link_spec: str,
        waker: Waker,
        timeouts: Timeouts,
        fallback: Fallback | None,
        spec: QuantizerSpec,
        node: Node | None,
        secret: bytes | None,
        until_closed: contextlib.ExitStack,
    ) -> None:
        self._membership, self._waker = membership, waker
        self._fallback = fallback
        self.timeouts = timeouts
        job, self._link = membership.be_admitted(link_spec)
        if node:
            job = replace(job, group_ranks=node.place.carriers)
        self.info = node.place.info(job) if node else job
        if fallback and fallback.workers != job.workers:
            self._link.close()
            raise UsageError(
                f"the fallback has {counted(fallback.workers, 'worker')}, and the job has {job.workers}: "
                "use a process group of exactly the job's workers"
            )
        if fallback and link_spec == "host" and not self.info.rank:  # one log line is enough
            warn_of_shared_network(self._link.ip, os.environ)
        self._link_rate = bits_per_second(interface_at(self._link.ip)) if link_spec == "host" else 0
        self._privacy = Privacy(secret, self.info)
        arguments = self._link, job, membership, waker, timeouts, fallback
        self._exchanges = NodeExchanges(node, *arguments) if node else Exchanges(*arguments)
        self._in_node = node is not None
        try:
            self._reducer = Reducer(self._exchanges, self.info, spec)
            self._moves = Moves(self._exchanges, self.info)
            self._privacy.check(sealed=self._link.sealed)
        except UsageError:
            self._link.close()
            raise
        self._side_streams = SideStreams()
        self._calls = CallQueue[_Call](self._serve, self._exchanges.attend, waker)
        self._closed = False
        self._owner = Owner(self)
        self._until_closed = until_closed
        self._activity: contextlib.AbstractContextManager[object] = _NO_CONTEXT
        if self.info.lends:
            reporting = contextlib.closing(Activity(membership.report_activity))
            self._activity = until_closed.enter_context(reporting)
        membership.send_heartbeats(self.progress)
        # A daemon thread does not keep a failing script from ending. leave_jobs then ends the thread.
        self._thread = threading.Thread(target=self._calls.run, name="innet-agent", daemon=True)
        self._thread.start()
        _agents.add(self)

    @property
    def traffic(self) -> Traffic:
        """Return the counts of the packets and bytes sent and received so far."""
        return self._exchanges.traffic

    @property
    def fallbacks(self) -> Mapping[str, int]:
        """Return the number of sums made without the switch so far, by reason.

        ``switch``: the switch could not be reached. ``no_slots``: the job had no slots. Both count
        exchanges, and an all-reduce takes one or more. ``dtype``: tensors that the switch cannot
        sum.
        """
        return dict(self._exchanges.fallbacks)

    @property
    def private(self) -> bool:
        """Return whether the job's sums are private."""
        return bool(self._privacy)

    @property
    def term(self) -> Term | None:
        """Return the term on which the job's workers last agreed; None before the first exchange."""
        return self._exchanges.term

    @property
    def failure(self) -> AllReduceError | None:
        """Return the error that every later all-reduce raises, or None while there is none."""
        return self._exchanges.failure

    def progress(self) -> pb.Progress:
        """Return the worker's progress, as its heartbeats report it to the controller."""
        progress = pb.Progress(link_bits_per_s=self._link_rate)
        self.traffic.fill(progress)
        self._exchanges.fill(progress)
        return progress

    def all_reduce(
        self,
        tensor: Tensor,
        op: ReduceOp = "mean",
        *,
        quantizer: str | None = None,
        key: Hashable = None,
    ) -> Tensor:
        """Return the element-wise mean, sum, max or min of `tensor` over all workers of the job.

        Takes a torch tensor on any device, or a numpy array, of any shape. Returns a new one of the
        same kind, dtype, shape and device. All workers get the same bits.

        * float32, mean or sum: with `quantizer`, or the agent's own. docs/quantization.md gives the
          error bounds. If the job has a quorum, the mean is over the workers whose values came in
          time. With error feedback, `key` identifies the tensor.
        * int32 and int64, sum: exact. Raises SumOverflow if the dtype cannot hold a sum; the agent
          remains usable.
        * float32 and int32, max or min: exact. If any worker's value is NaN, so is the result.
        * Sparse torch tensors (COO) of float32, int32 and int64, sum or mean: like dense ones. Only rows
          that at least one worker has are sent and returned. Error feedback is not possible.
        * Other floating-point and complex dtypes, sum or mean: over the fallback, in their own dtype.
          If the job's sums are private, these dtypes raise UnsupportedTensor.

        Raises UsageError, UnsupportedTensor, or one of the AllReduceErrors: JobEnded, LeftBehind,
        LinkFailed, SwitchUnreachable, WorkersMissing, WorkersDisagree, AgentClosed. After an
        AllReduceError every later call raises it again, until the worker joins again.
        """
        done: Future[Tensor] = self.submit(tensor, op, quantizer=quantizer, key=key, wait=True)
        return done.result()

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
        finish: Callable[[Any], Any] | None = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> "Future[Any]":
        """Do the same as :meth:`all_reduce`, in the background.

        The agent reads the tensor only after finishing all-reduces that were submitted before. Do
        not change the tensor until the future is done.

        With `in_place`, the result may be in the tensor's own memory, which saves a copy. If the
        call fails, the tensor's content is undefined. `collective` names the caller's collective,
        which has to be the same on all workers. With a `part`, the result is flat and has only these
        elements. Each worker may ask for a different part. `finish` turns the reduced tensor into the
        future's result, before any later all-reduce begins. With `wait`, the future is done when this
        method returns, and this thread may carry out the call itself. From the begin of this call on,
        `timeout` limits the waits for other workers, in seconds, until another call sets another.
        """
        open_fallback = self._fallback is not None and not self.private
        by_switch = summed_by_switch(tensor, op, fallback=open_fallback)
        summed = by_switch and op in ("mean", "sum")
        spec = self._reducer.choose_for(tensor, quantizer, key) if summed else EXACT
        call = TensorCall(tensor, op, by_switch, spec, key, in_place, collective, part)
        return self.perform(call.reduced, finish, tensor=tensor, wait=wait, timeout=timeout)

    def perform(
        self,
        work: Callable[[Exchanges, Reducer], Any],
        finish: Callable[[Any], Any] | None = None,
        *,
        tensor: Any = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> "Future[Any]":
        """Run `work`, which makes exchanges of its own, in the background after all earlier calls.

        All workers have to run the same exchanges. An unexpected error of `work` ends the membership,
        because the exchanges that it has skipped are missing. An error of `finish` is only the future's.
        If both work on a `tensor` of a GPU, they follow what the caller has queued there by now.
        `finish`, `wait` and `timeout` are those of :meth:`submit`. Raises AgentClosed.
        """
        self._owner.check("the agent", AgentClosed)
        if self._closed:
            raise AgentClosed(_CLOSED)
        stream = None if tensor is None else self._side_streams.after(tensor)
        call = _Call(_CallFuture(), work, finish, stream, timeout)
        if wait:
            self._calls.serve(call, partial(self._await_end, call))
        else:
            self._calls.put(call)
            self._refuse_if_closed()
        return call.future

    def close(self, *, abandon: bool = False, problem: BaseException | None = None) -> None:
        """Finish all submitted calls, then leave the job; with `abandon`, leave at once.

        With a `problem`, the controller's log and the other workers' errors name it. Does nothing in a
        forked child: the agent belongs to the parent. In a signal handler of a thread that waits for a
        call, that call ends, too. If the thread carries it out itself, the next close does the rest.
        """
        if not self._owner.here:
            return
        self._closed = True
        if abandon or self._calls.serving_here or self._calls.waiting_here:
            self._exchanges.stop(problem)
        if self._calls.serving_here:
            return
        self._calls.end()
        self._calls.join(self._thread)
        _refuse(self._calls.left())
        if problem:
            self._exchanges.give_up(problem)
        self._exchanges.close()
        self._membership.close(problem)
        self._link.close()
        self._waker.close()
        self._until_closed.close()

    def show_metrics(self, job: str, address: str) -> None:
        """Serve Prometheus at `HOST:PORT` until the agent is closed. Raises UsageError."""
        with needed_for("metrics", "metrics"):
            from innet.host.metrics import exposed
        where = self._until_closed.enter_context(exposed(self, job, address))
        WorkerLog(self.info).info("metrics are at http://%s/metrics", where)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, problem: BaseException | None, __: object) -> None:
        self.close(abandon=problem is not None, problem=problem)

    def _serve(self, call: _Call) -> Callable[[], None]:
        """Carry out a call. Return the function that gives its result, or its error, to its future."""
        try:
            if call.timeout is not None:
                self.timeouts.limit(call.timeout)
            with call.beside():
                with self._activity:
                    self._privacy.begin_session(self._exchanges)
                    result = call.work(self._exchanges, self._reducer)
                return call.finished(result)
        except BaseException as problem:  # noqa: BLE001 - whoever waits for the result gets it
            self._note(problem)
            return partial(call.future.set_exception, problem)

    def _await_end(self, call: _Call) -> None:
        self._refuse_if_closed()
        call.future.exception()

    def _refuse_if_closed(self) -> None:
        """Refuse calls that nobody serves, because another thread has closed the agent meanwhile."""
        if self._closed and self._calls.done:
            _refuse(self._calls.left())

    def _note(self, problem: BaseException) -> None:
        """Leave the job after an error that only this worker has."""
        if unexpected := not isinstance(problem, InnetError):
            self._exchanges.give_up(problem)
        alone: tuple[type[AllReduceError], ...] = LeftBehind, LinkFailed, NeighbourLost
        if self._in_node:
            # The controller does not tell workers of other slices who is missing here.
            alone += (WorkersMissing,)
        if unexpected or isinstance(problem, alone):
            self._membership.close(problem)  # the others need not wait for this worker


def _refuse(calls: Iterable[_Call]) -> None:
    """Refuse calls that came while another thread closed the agent."""
    for call in calls:
        call.future.set_exception(AgentClosed(_CLOSED))


_agents: "weakref.WeakSet[Agent]" = weakref.WeakSet()


@atexit.register
def leave_jobs() -> None:
    """Close the agents that a script has not closed, and name the exception that has ended the script.

    A daemon thread that is inside PyTorch when the interpreter ends would abort the process.
    """
    # last_value is the exception that has ended the script, except in an interactive session.
    problem = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for agent in list(_agents):
        agent.close(abandon=True, problem=problem)
