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

from torch.distributed import ProcessGroup, Store  # type: ignore[attr-defined]
from torchft.process_group import ErrorSwallowingProcessGroupWrapper, ProcessGroupWrapper

from innet.torch.group import new_group

NAME = "torchft-innet"
_TIMEOUT = timedelta(seconds=60)  # as torchft's own groups have
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


class DeferredErrors(ErrorSwallowingProcessGroupWrapper):
    """A process group whose errors the Manager sees at the end of a step, and not earlier.

    After an error, all-reduces do nothing until the next `configure`. The Manager then discards the
    step and asks for another quorum. An error within the step would make ``backward()`` of torchft
    0.2's DistributedDataParallel raise.
    """

    def configure(self, *arguments: Any, **more: Any) -> None:
        """Form the group of a quorum. An error is reported to the Manager and not raised."""
        try:
            super().configure(*arguments, **more)
        except Exception as problem:  # noqa: BLE001 - the Manager gets it
            _log.warning("the replicas of a quorum have not formed a group: %s", problem)
            self.report_error(problem)

    def errored(self) -> Exception | None:
        """Return an error of this quorum, or None."""
        error: Exception | None = self.error()
        return error


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
