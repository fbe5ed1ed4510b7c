"""The controller's gRPC service: requests in, answers out; the rules are the registry's."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import structlog

from innet.controller import innet_pb2 as pb
from innet.controller import innet_pb2_grpc as rpc
from innet.controller.registry import Registry
from innet.controller.status import code_of
from innet.controller.streams import Stream
from innet.errors import InnetError, NoCapacity

_JOIN_WITHIN, _FAREWELL = 10.0, 0.05
_log = structlog.get_logger("innet.controller")


class ControllerService(rpc.ControllerServicer):
    """Serves one registry, to so many workers at a time. The methods' names are those of innet.proto."""

    def __init__(self, registry: Registry, most_streams: int) -> None:
        self._registry, self._most_streams = registry, most_streams
        self._streams = threading.BoundedSemaphore(most_streams)

    def AddSwitch(self, request: pb.AddSwitchRequest, context: Any) -> pb.Switch:  # noqa: N802
        """Take charge of a switch."""
        with _answered(context):
            return self._registry.add_switch(request)

    def ListSwitches(self, request: Any, context: Any) -> pb.ListSwitchesResponse:  # noqa: ARG002, N802
        """All switches."""
        with _answered(context):
            return pb.ListSwitchesResponse(switches=self._registry.switches())

    def GetSwitch(self, request: pb.GetSwitchRequest, context: Any) -> pb.Switch:  # noqa: N802
        """One switch, with its ports' counters."""
        with _answered(context):
            return self._registry.switch(request.name)

    def RemoveSwitch(  # noqa: N802
        self, request: pb.RemoveSwitchRequest, context: Any
    ) -> pb.RemoveSwitchResponse:
        """Let go of a switch."""
        with _answered(context):
            self._registry.remove_switch(request.name)
            return pb.RemoveSwitchResponse()

    def CreateJob(self, request: pb.CreateJobRequest, context: Any) -> pb.CreateJobResponse:  # noqa: N802
        """Reserve slots for a job."""
        with _answered(context):
            return self._registry.create_job(request)

    def ListJobs(self, request: Any, context: Any) -> pb.ListJobsResponse:  # noqa: ARG002, N802
        """All jobs, without counters."""
        with _answered(context):
            return pb.ListJobsResponse(jobs=self._registry.jobs())

    def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """One job, with counters and workers."""
        with _answered(context):
            return self._registry.job(request.name)

    def DeleteJob(self, request: pb.DeleteJobRequest, context: Any) -> pb.DeleteJobResponse:  # noqa: N802
        """End a job."""
        with _answered(context):
            self._registry.delete_job(request.name)
            return pb.DeleteJobResponse()

    def Join(self, requests: Iterator[pb.WorkerMessage], context: Any) -> Iterator[pb.JoinEvent]:  # noqa: N802
        """Be a worker while the stream is open."""
        with _answered(context):
            if not self._streams.acquire(blocking=False):
                raise NoCapacity(f"{self._most_streams} workers have joined, no more are served")
            stream, broken = Stream(), threading.Event()
            context.add_callback(broken.set)
            try:
                arguments = (requests, stream, broken)
                threading.Thread(
                    target=self._listen, args=arguments, name="innet-worker", daemon=True
                ).start()
                yield from stream.events(_JOIN_WITHIN)
            finally:
                self._registry.leave(stream, "its stream has ended")
                self._streams.release()

    def _listen(
        self, requests: Iterator[pb.WorkerMessage], stream: Stream, broken: threading.Event
    ) -> None:
        """Take what a worker says until it has left; the other direction ends with this one."""
        try:
            with contextlib.suppress(grpc.RpcError):
                for message in requests:
                    self._registry.hear(stream, message)
            # A connection that breaks looks at first like a worker that has nothing more to say.
            left = not broken.wait(_FAREWELL)
            reason = "it has left the job" if left else "its connection has ended"
            self._registry.leave(stream, reason)
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
