"""The controller's gRPC service: it turns requests into calls of the controller."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import structlog

from innet.controller.controller import Controller
from innet.controller.state import messages
from innet.controller.state.streams import Stream
from innet.controller.stream_limit import OpenStreams
from innet.errors import InnetError, NotAuthorized
from innet.machine.tcp import Connection
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import roles, tls
from innet.rpc.revocation import REFUSAL, shown_fingerprint
from innet.rpc.status import code_of

_JOIN_WITHIN, _FAREWELL = 10.0, 0.05
_log = structlog.get_logger("innet.controller")


class ControllerService(rpc.ControllerServicer):
    """The service of one controller, for at most `most_streams` workers. Its names are innet.proto's."""

    def __init__(self, controller: Controller, most_streams: int) -> None:
        self._controller, self._streams = controller, OpenStreams(most_streams)

    def AddSwitch(self, request: pb.AddSwitchRequest, context: Any) -> pb.Switch:  # noqa: N802
        """Take charge of a switch."""
        with _answered(context):
            return self._controller.switches.add(request)

    def ListSwitches(self, request: Any, context: Any) -> pb.ListSwitchesResponse:  # noqa: ARG002, N802
        """Return all switches."""
        with _answered(context):
            return pb.ListSwitchesResponse(switches=self._controller.switches.views())

    def GetSwitch(self, request: pb.GetSwitchRequest, context: Any) -> pb.Switch:  # noqa: N802
        """Return one switch, with its ports' counters."""
        with _answered(context):
            return self._controller.switches.view(request.name)

    def SetSwitchPorts(self, request: pb.SetSwitchPortsRequest, context: Any) -> pb.Switch:  # noqa: N802
        """Give a switch other ports."""
        with _answered(context):
            return self._controller.switches.set_ports(request)

    def DrainSwitch(self, request: pb.DrainSwitchRequest, context: Any) -> pb.DrainSwitchResponse:  # noqa: N802
        """Stop using a switch."""
        with _answered(context):
            return self._controller.switches.drain(request)

    def UndrainSwitch(self, request: pb.UndrainSwitchRequest, context: Any) -> pb.Switch:  # noqa: N802
        """Use a drained switch again."""
        with _answered(context):
            return self._controller.switches.undrain(request.name)

    def RemoveSwitch(  # noqa: N802
        self, request: pb.RemoveSwitchRequest, context: Any
    ) -> pb.RemoveSwitchResponse:
        """Release a switch."""
        with _answered(context):
            self._controller.switches.remove(request.name)
            return pb.RemoveSwitchResponse()

    def CreateJob(self, request: pb.CreateJobRequest, context: Any) -> pb.CreateJobResponse:  # noqa: N802
        """Reserve slots for a job."""
        with _answered(context):
            owner = _confined(context, "CreateJob") or roles.owner(context.auth_context())
            return self._controller.jobs.create(request, owner)

    def SetQuota(self, request: pb.SetQuotaRequest, context: Any) -> pb.Quota:  # noqa: N802
        """Limit what one owner of jobs holds at once."""
        with _answered(context):
            return self._controller.quotas.set(request)

    def ListQuotas(self, request: Any, context: Any) -> pb.ListQuotasResponse:  # noqa: ARG002, N802
        """Return the quotas that the caller may see, and their use."""
        with _answered(context):
            return self._controller.quotas.listed(_confined(context, "ListQuotas"))

    def ListJobs(self, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:  # noqa: N802
        """Return the jobs that the caller may see, without counters."""
        with _answered(context):
            owner = _confined(context, "ListJobs")
            return self._controller.jobs.listed(owner, detailed=request.detailed)

    def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """Return one job, with counters and workers."""
        with _answered(context):
            return self._controller.jobs.view(request.name, _confined(context, "GetJob"))

    def GetJobHistory(  # noqa: N802
        self, request: pb.GetJobHistoryRequest, context: Any
    ) -> pb.GetJobHistoryResponse:
        """Return what has happened to a job."""
        with _answered(context):
            owner = _confined(context, "GetJobHistory")
            found = self._controller.jobs.events(request.name, owner)
            return pb.GetJobHistoryResponse(events=[messages.history_view(each) for each in found])

    def DeleteJob(self, request: pb.DeleteJobRequest, context: Any) -> pb.DeleteJobResponse:  # noqa: N802
        """End a job."""
        with _answered(context):
            self._controller.jobs.delete(request.name, _confined(context, "DeleteJob"))
            return pb.DeleteJobResponse()

    def CheckJoin(self, request: pb.CheckJoinRequest, context: Any) -> pb.CheckJoinResponse:  # noqa: N802
        """Return whether a worker could join."""
        with _answered(context):
            return self._controller.workers.check_join(request)

    def Join(self, requests: Iterator[pb.WorkerMessage], context: Any) -> Iterator[pb.JoinEvent]:  # noqa: N802
        """Make the caller a worker while the stream is open."""
        with _answered(context):
            stream = Stream(Connection.of_peer(context.peer()), _certificate(context))
            broken = threading.Event()
            context.add_callback(broken.set)
            try:
                self._streams.open(stream, context.peer().rpartition(":")[0])
                arguments = (requests, stream, broken)
                threading.Thread(
                    target=self._listen, args=arguments, name="innet-worker", daemon=True
                ).start()
                yield from stream.events(_JOIN_WITHIN)
            finally:
                self._controller.workers.disconnect(stream)
                self._streams.close(stream)
                stream.connection.close()

    def expel(self, revoked: frozenset[str]) -> None:
        """End the streams of workers whose certificates have these fingerprints."""
        for stream in self._streams.of(revoked):
            stream.end(NotAuthorized(REFUSAL))
            self._controller.workers.leave(stream, "its certificate has been revoked")

    def _listen(
        self, requests: Iterator[pb.WorkerMessage], stream: Stream, broken: threading.Event
    ) -> None:
        """Read a worker's messages until it has left. The other direction ends with this one."""
        try:
            with contextlib.suppress(grpc.RpcError):
                for message in requests:
                    self._streams.heard(stream)
                    self._controller.workers.hear(stream, message)
                    self._streams.joined(stream)
            # At first, a broken connection looks like a worker that has finished sending.
            if stream.connection.broken or broken.wait(_FAREWELL):
                self._controller.workers.disconnect(stream)
            else:
                self._controller.workers.leave(stream, "it has left the job")
        except InnetError as problem:
            stream.end(problem)
            self._controller.workers.leave(
                stream, f"the controller refused what it said: {problem}"
            )
        except Exception:  # noqa: BLE001 - whatever it is
            # One strange message must not leave a stream half open.
            _log.exception(
                "a worker's message was not understood", job=stream.job, rank=stream.rank
            )
            self._controller.workers.leave(stream, "the controller did not understand it")


def _certificate(context: Any) -> str:
    """Return the fingerprint of the client's certificate, or "" without TLS."""
    shown = context.auth_context()
    return shown_fingerprint(shown) if tls.roles(shown) else ""


def _confined(context: Any, method: str) -> str | None:
    return roles.confined_to(context.auth_context(), method)


@contextlib.contextmanager
def _answered(context: Any) -> Iterator[None]:
    """Send innet's errors to the client as status codes."""
    try:
        yield
    except InnetError as problem:
        context.abort(code_of(problem), str(problem))
