"""The controller's gRPC service: it turns requests into calls of the controller.

A worker's stream is a coroutine, so that thousands of workers need no threads of their own. A message
from a worker is handled on the event loop: the registry's lock is never held for long. Requests
may wait for a switch, so each runs in a thread of the server's pool. The methods get a
:class:`~innet.rpc.callers.Caller` where gRPC's own services get a context.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import structlog

from innet.controller.controller import Controller
from innet.controller.state import messages
from innet.controller.state.streams import Stream
from innet.controller.stream_limit import OpenStreams
from innet.errors import InnetError, NotAuthorized
from innet.machine.tcp import TcpConnection
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import roles
from innet.rpc.callers import Caller
from innet.rpc.revocation import REFUSAL, shown_names

_JOIN_WITHIN, _FAREWELL = 10.0, 0.05
_log = structlog.get_logger("innet.controller")


class ControllerService(rpc.ControllerServicer):
    """The service of one controller, for at most `most_streams` workers. innet.proto has the methods."""

    def __init__(self, controller: Controller, most_streams: int) -> None:
        self._controller, self._streams = controller, OpenStreams(most_streams)

    def AddSwitch(self, request: pb.AddSwitchRequest, caller: Caller) -> pb.Switch:  # noqa: ARG002, N802
        """Take charge of a switch."""
        return self._controller.switches.add(request)

    def ListSwitches(self, request: Any, caller: Caller) -> pb.ListSwitchesResponse:  # noqa: ARG002, N802
        """Return all switches."""
        return pb.ListSwitchesResponse(switches=self._controller.switches.views())

    def GetSwitch(self, request: pb.GetSwitchRequest, caller: Caller) -> pb.Switch:  # noqa: ARG002, N802
        """Return one switch, with its ports' counters."""
        return self._controller.switches.view(request.name)

    def SetSwitchPorts(self, request: pb.SetSwitchPortsRequest, caller: Caller) -> pb.Switch:  # noqa: ARG002, N802
        """Give a switch other ports and uplinks."""
        return self._controller.switches.set_ports(request)

    def DrainSwitch(self, request: pb.DrainSwitchRequest, caller: Caller) -> pb.DrainSwitchResponse:  # noqa: ARG002, N802
        """Stop using a switch."""
        return self._controller.switches.drain(request)

    def UndrainSwitch(self, request: pb.UndrainSwitchRequest, caller: Caller) -> pb.Switch:  # noqa: ARG002, N802
        """Use a drained switch again."""
        return self._controller.switches.undrain(request.name)

    def RemoveSwitch(  # noqa: N802
        self,
        request: pb.RemoveSwitchRequest,
        caller: Caller,  # noqa: ARG002
    ) -> pb.RemoveSwitchResponse:
        """Release a switch."""
        self._controller.switches.remove(request.name)
        return pb.RemoveSwitchResponse()

    def CreateJob(self, request: pb.CreateJobRequest, caller: Caller) -> pb.CreateJobResponse:  # noqa: N802
        """Reserve slots for a job."""
        owner = _confined(caller, "CreateJob") or roles.owner(caller.shown)
        return self._controller.jobs.create(request, owner)

    def SetQuota(self, request: pb.SetQuotaRequest, caller: Caller) -> pb.Quota:  # noqa: ARG002, N802
        """Limit what one owner of jobs holds at once."""
        return self._controller.quotas.set(request)

    def ListQuotas(self, request: Any, caller: Caller) -> pb.ListQuotasResponse:  # noqa: ARG002, N802
        """Return the quotas that the caller may see, and their use."""
        return self._controller.quotas.listed(_confined(caller, "ListQuotas"))

    def ListJobs(self, request: pb.ListJobsRequest, caller: Caller) -> pb.ListJobsResponse:  # noqa: N802
        """Return the jobs that the caller may see, without counters."""
        owner = _confined(caller, "ListJobs")
        return self._controller.jobs.listed(owner, detailed=request.detailed)

    def GetJob(self, request: pb.GetJobRequest, caller: Caller) -> pb.Job:  # noqa: N802
        """Return one job, with counters and workers."""
        return self._controller.jobs.view(request.name, _confined(caller, "GetJob"))

    def GetJobHistory(  # noqa: N802
        self, request: pb.GetJobHistoryRequest, caller: Caller
    ) -> pb.GetJobHistoryResponse:
        """Return what has happened to a job."""
        owner = _confined(caller, "GetJobHistory")
        found = self._controller.jobs.events(request.name, owner)
        return pb.GetJobHistoryResponse(events=[messages.history_view(each) for each in found])

    def DeleteJob(self, request: pb.DeleteJobRequest, caller: Caller) -> pb.DeleteJobResponse:  # noqa: N802
        """End a job."""
        self._controller.jobs.delete(request.name, _confined(caller, "DeleteJob"))
        return pb.DeleteJobResponse()

    def CheckJoin(self, request: pb.CheckJoinRequest, caller: Caller) -> pb.CheckJoinResponse:  # noqa: ARG002, N802
        """Return what a worker needs to join, or raise the error that joining would raise."""
        return self._controller.workers.check_join(request)

    async def Join(  # noqa: N802
        self, requests: AsyncIterator[pb.WorkerMessage], caller: Caller
    ) -> AsyncIterator[pb.JoinEvent]:
        """Make the caller a worker while the stream is open."""
        stream = Stream(TcpConnection.of_peer(caller.peer), _certificate(caller))
        listener = asyncio.create_task(self._listen(requests, stream))
        try:
            self._streams.open(stream, caller.host)
            async for event in stream.events(_JOIN_WITHIN):
                yield event
        finally:
            listener.cancel()
            self._controller.workers.disconnect(stream)
            self._streams.close(stream)
            stream.connection.close()

    def expel(self, revoked: frozenset[str]) -> None:
        """End the streams of workers whose certificates have these names in the list of revoked ones."""
        for stream in self._streams.of(revoked):
            why = "its certificate has been revoked"
            self._controller.workers.leave(stream, why, NotAuthorized(REFUSAL))

    async def _listen(self, requests: AsyncIterator[pb.WorkerMessage], stream: Stream) -> None:
        """Read a worker's messages until it has left. The other direction ends with this one."""
        try:
            async for message in requests:
                self._streams.heard(stream)
                if message.HasField("join"):
                    await self._controller.joins.take(stream, message)
                else:
                    self._controller.workers.hear(stream, message)
                self._streams.joined(stream)
            # At first, a broken connection looks like a worker that has finished sending. Then the
            # call is cancelled, and with it this task.
            if not stream.connection.broken:
                await asyncio.sleep(_FAREWELL)
                self._controller.workers.leave(stream, "it has left the job")
            else:
                self._controller.workers.disconnect(stream)
        except InnetError as problem:
            why = f"the controller refused what it said: {problem}"
            self._controller.workers.leave(stream, why, problem)
        except Exception:  # noqa: BLE001 - whatever it is
            # One strange message must not leave a stream half open.
            _log.exception(
                "a worker's message was not understood", job=stream.job, rank=stream.rank
            )
            self._controller.workers.leave(stream, "the controller did not understand it")


def _certificate(caller: Caller) -> frozenset[str]:
    """Return the names that the client's certificate may have in the list of revoked ones."""
    return shown_names(caller.shown) if caller.shown.get("x509_pem_cert") else frozenset()


def _confined(caller: Caller, method: str) -> str | None:
    return roles.confined_to(caller.shown, method)
