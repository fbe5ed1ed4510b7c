"""The controller's gRPC service: requests in, answers out; the rules are the registry's."""

import contextlib
from collections.abc import Iterator
from typing import Any

from innet.controller import innet_pb2 as pb
from innet.controller import innet_pb2_grpc as rpc
from innet.controller.registry import Registry
from innet.controller.status import code_of
from innet.errors import InnetError


class ControllerService(rpc.ControllerServicer):
    """Serves one registry. The methods' names are those of innet.proto."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def AddSwitch(self, request: pb.AddSwitchRequest, context: Any) -> pb.Switch:  # noqa: N802
        """Take charge of a switch."""
        with _answered(context):
            return self._registry.add_switch(request)

    def ListSwitches(self, request: Any, context: Any) -> pb.ListSwitchesResponse:  # noqa: ARG002, N802
        """All switches."""
        with _answered(context):
            return pb.ListSwitchesResponse(switches=self._registry.switches())

    def CreateJob(self, request: pb.CreateJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """Reserve slots for a job."""
        with _answered(context):
            return self._registry.create_job(request)

    def ListJobs(self, request: Any, context: Any) -> pb.ListJobsResponse:  # noqa: ARG002, N802
        """All jobs, without counters."""
        with _answered(context):
            return pb.ListJobsResponse(jobs=self._registry.jobs())

    def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """One job, with counters."""
        with _answered(context):
            return self._registry.job(request.name)

    def DeleteJob(self, request: pb.DeleteJobRequest, context: Any) -> pb.DeleteJobResponse:  # noqa: N802
        """End a job."""
        with _answered(context):
            self._registry.delete_job(request.name)
            return pb.DeleteJobResponse()

    def Join(self, request: pb.JoinRequest, context: Any) -> Iterator[pb.JoinEvent]:  # noqa: N802
        """Be a worker while the stream is open."""
        registry = self._registry
        with _answered(context):
            job, worker = registry.join(request.job, request.rank, context.is_active)
            if not context.add_callback(lambda: registry.leave(job, worker, "it has left the job")):
                registry.leave(job, worker, "it has left the job")
            while (event := worker.events.get()) is not None:
                if isinstance(event, InnetError):
                    registry.leave(job, worker, str(event))
                    raise event
                yield event


@contextlib.contextmanager
def _answered(context: Any) -> Iterator[None]:
    """Send innet's errors to the client as status codes."""
    try:
        yield
    except InnetError as problem:
        context.abort(code_of(problem), str(problem))
