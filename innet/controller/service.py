"""The controller's gRPC service: it turns requests into calls of the registry."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import structlog

from innet.controller.registry import Registry
from innet.controller.stream_limit import OpenStreams
from innet.controller.streams import Stream
from innet.errors import InnetError
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc.status import code_of
from innet.system.tcp import Connection

_JOIN_WITHIN, _FAREWELL = 10.0, 0.05
_log = structlog.get_logger("innet.controller")


class ControllerService(rpc.ControllerServicer):
    """The service of one registry, for at most `most_streams` workers. Names are those of innet.proto."""

    def __init__(self, registry: Registry, most_streams: int) -> None:
        self._registry, self._streams = registry, OpenStreams(most_streams)

    def AddSwitch(self, request: pb.AddSwitchRequest, context: Any) -> pb.Switch:  # noqa: N802
        """Take charge of a switch."""
        with _answered(context):
            return self._registry.add_switch(request)

    def ListSwitches(self, request: Any, context: Any) -> pb.ListSwitchesResponse:  # noqa: ARG002, N802
        """Return all switches."""
        with _answered(context):
            return pb.ListSwitchesResponse(switches=self._registry.switches())

    def GetSwitch(self, request: pb.GetSwitchRequest, context: Any) -> pb.Switch:  # noqa: N802
        """Return one switch, with its ports' counters."""
        with _answered(context):
            return self._registry.switch(request.name)

    def SetSwitchPorts(self, request: pb.SetSwitchPortsRequest, context: Any) -> pb.Switch:  # noqa: N802
        """Give a switch other ports."""
        with _answered(context):
            return self._registry.set_switch_ports(request)

    def RemoveSwitch(  # noqa: N802
        self, request: pb.RemoveSwitchRequest, context: Any
    ) -> pb.RemoveSwitchResponse:
        """Release a switch."""
        with _answered(context):
            self._registry.remove_switch(request.name)
            return pb.RemoveSwitchResponse()

    def CreateJob(self, request: pb.CreateJobRequest, context: Any) -> pb.CreateJobResponse:  # noqa: N802
        """Reserve slots for a job."""
        with _answered(context):
            return self._registry.create_job(request)

    def ListJobs(self, request: Any, context: Any) -> pb.ListJobsResponse:  # noqa: ARG002, N802
        """Return all jobs, without counters."""
        with _answered(context):
            return pb.ListJobsResponse(jobs=self._registry.jobs())

    def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """Return one job, with counters and workers."""
        with _answered(context):
            return self._registry.job(request.name)

    def DeleteJob(self, request: pb.DeleteJobRequest, context: Any) -> pb.DeleteJobResponse:  # noqa: N802
        """End a job."""
        with _answered(context):
            self._registry.delete_job(request.name)
            return pb.DeleteJobResponse()

    def CheckJoin(self, request: pb.CheckJoinRequest, context: Any) -> pb.CheckJoinResponse:  # noqa: N802
        """Return whether a worker could join."""
        with _answered(context):
            return self._registry.check_join(request)

    def Join(self, requests: Iterator[pb.WorkerMessage], context: Any) -> Iterator[pb.JoinEvent]:  # noqa: N802
        """Make the caller a worker while the stream is open."""
        with _answered(context):
            stream, broken = Stream(Connection.of_peer(context.peer())), threading.Event()
            context.add_callback(broken.set)
            try:
                self._streams.open(stream, context.peer().rpartition(":")[0])
                arguments = (requests, stream, broken)
                threading.Thread(
                    target=self._listen, args=arguments, name="innet-worker", daemon=True
                ).start()
                yield from stream.events(_JOIN_WITHIN)
            finally:
                self._registry.disconnect(stream)
                self._streams.close(stream)
                stream.connection.close()

    def _listen(
        self, requests: Iterator[pb.WorkerMessage], stream: Stream, broken: threading.Event
    ) -> None:
        """Read a worker's messages until it has left. The other direction ends with this one."""
        try:
            with contextlib.suppress(grpc.RpcError):
                for message in requests:
                    self._streams.heard(stream)
                    self._registry.hear(stream, message)
                    self._streams.joined(stream)
            # At first, a broken connection looks like a worker that has finished sending.
            if stream.connection.broken or broken.wait(_FAREWELL):
                self._registry.disconnect(stream)
            else:
                self._registry.leave(stream, "it has left the job")
        except InnetError as problem:
            stream.end(problem)
            self._registry.leave(stream, f"the controller refused what it said: {problem}")
        except Exception:  # noqa: BLE001 - whatever it is
            # One strange message must not leave a stream half open.
            _log.exception("a worker's message was not understood")
            self._registry.leave(stream, "the controller did not understand it")


@contextlib.contextmanager
def _answered(context: Any) -> Iterator[None]:
    """Send innet's errors to the client as status codes."""
    try:
        yield
    except InnetError as problem:
        context.abort(code_of(problem), str(problem))
