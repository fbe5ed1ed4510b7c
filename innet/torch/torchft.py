"""The switch under torchft: a process group that a Manager configures anew for every quorum.

::

    from innet.torch.torchft import ProcessGroupInnet

    manager = torchft.Manager(pg=ProcessGroupInnet(), ...)

Every quorum has a group of the backend ``innet`` and a job of its own, ``torchft-QUORUM-...``. Only
its replicas have tokens for the job, so no replica of an older quorum gets in. A replica that is
configured for the next quorum deletes the job of the last one (docs/torchft.md).
"""

import logging
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import GradBucket, ProcessGroup, Store, Work  # type: ignore[attr-defined]
from torchft.ddp import DistributedDataParallel
from torchft.manager import Manager
from torchft.process_group import ProcessGroupWrapper

from innet.torch.group import new_group

NAME = "torchft-innet"
_TIMEOUT = timedelta(seconds=60)  # as torchft's own groups have
_NO_TIMEOUT = timedelta(0)
_log = logging.getLogger("innet")


class _QuorumGroup(ProcessGroupWrapper):
    """The group of the present quorum."""

    _pg: ProcessGroup | None

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's
        """Return the name of the kind of group."""
        return NAME

    def shutdown(self) -> None:
        """Leave the quorum's job. Others may still need it."""
        if self._pg is not None:
            self._pg.shutdown()
        self._pg = None

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        prefix = f"torchft-{self._quorum_id}"
        return new_group(store, rank, world_size, self._timeout, prefix=prefix)


class DeferredErrors(ProcessGroupWrapper):
    """A process group whose all-reduces raise no errors. The Manager sees them at the end of the step.

    After an error, all-reduces fail until the next `configure`. The Manager then discards the step and
    asks for another quorum. `wait` of an all-reduce returns, and its future has the error. The Manager
    reads the futures of all its all-reduces, also if a wrapper hides :meth:`errored` from it.
    """

    def __init__(self, pg: ProcessGroup) -> None:
        super().__init__(pg=pg)
        self._error: Exception | None = None

    def configure(self, *arguments: Any, **more: Any) -> None:
        """Form the group of a quorum. Raises the errors of the group, and keeps them for the step."""
        self._error = None
        try:
            super().configure(*arguments, **more)
        except Exception as problem:
            _log.warning("the replicas of a quorum have not formed a group: %s", problem)
            self.report_error(problem)
            raise

    def allreduce(self, tensors: list[torch.Tensor], opts: object) -> Work:
        """Combine tensors in place. An error is in the future of the returned work."""
        if self._error is None:
            try:
                return _DeferringWork(self, super().allreduce(tensors, opts))
            except Exception as problem:  # noqa: BLE001 - the future raises it
                self.report_error(problem)
        return _DeferringWork(self, None)

    def report_error(self, problem: Exception) -> None:
        """Let all all-reduces fail until the next `configure`. The first error counts."""
        self._error = self._error or problem

    def errored(self) -> Exception | None:
        """Return an error of this quorum, or None."""
        return self._error


class _DeferringWork(Work):
    """A handle on an all-reduce, or on one that cannot be made because of the group's error."""

    def __init__(self, group: DeferredErrors, work: Work | None) -> None:
        super().__init__()
        self._group, self._work = group, work

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Wait until the all-reduce is over. Return whether it has succeeded."""
        if self._work:
            try:
                return bool(self._work.wait(timeout))
            except Exception as problem:  # noqa: BLE001 - the future raises it
                self._group.report_error(problem)
        return False

    def get_future(self) -> Any:
        """Return a future of the all-reduce, which raises its error."""
        if self._work:
            return self._work.get_future().then(self._noticed)
        nothing: torch.futures.Future[None] = torch.futures.Future()
        nothing.set_result(None)
        return nothing.then(self._refused)

    def _noticed(self, future: Any) -> Any:
        try:
            return future.value()
        except Exception as problem:
            self._group.report_error(problem)
            raise

    def _refused(self, _: Any) -> None:
        raise self._group.errored() or RuntimeError("the group has been configured again")


class ProcessGroupInnet(DeferredErrors):
    """A reconfigurable process group of torchft whose all-reduces go through the switch.

    `timeout` bounds the wait for other replicas, both in `configure` and in a collective.
    """

    def __init__(self, timeout: timedelta = _TIMEOUT) -> None:
        self._group = _QuorumGroup(timeout)
        super().__init__(self._group)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of later quorums."""
        self._group.set_timeout(timeout)

    def abort(self, errored: bool = True) -> None:
        """Delete the quorum's job. All of its replicas' collectives fail."""
        self._group.abort(errored)

    def shutdown(self) -> None:
        """Leave the quorum's job. Unfinished work is abandoned and fails with AgentClosed."""
        self._group.shutdown()


def _sum_of_bucket(manager: Manager, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients, as the communication hook of torchft's DistributedDataParallel.

    After an error, the Manager makes no more all-reduces in the step. Its answer is then a future, and
    not a future in a wrapper, which torchft 0.2's own hook expects: ``backward()`` would raise.
    """
    work = manager.allreduce(bucket.buffer())
    work.wait()
    future: Any = work.get_future()
    found: torch.futures.Future[torch.Tensor] = getattr(future, "_fut", future)
    return found


DistributedDataParallel._comm_hook = staticmethod(_sum_of_bucket)  # noqa: SLF001 - it has no other name
