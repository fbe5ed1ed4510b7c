"""An imitation of a switch: a P4Runtime server that accepts and remembers everything.

With it in place of a switch, you can see the requests that the switch would get. It has no program
and no entries at first, and forwards no packets.
"""

import contextlib
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc

from innet.controller.switches.reconcile import Held, key
from innet.machine.scratch import scratch_folder
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime import p4runtime_pb2_grpc

_MOST_BYTES = 256 << 20
_THREADS = 4


@contextlib.contextmanager
def rehearsal() -> Iterator[str]:
    """Serve an imitation of a switch to this process, and yield its address."""
    server = grpc.server(
        futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="innet-rehearsal"),
        options=[("grpc.max_receive_message_length", _MOST_BYTES)],
    )
    p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(_Nobody(), server)
    with scratch_folder() as folder:
        server.add_insecure_port(f"unix:{folder}/switch")
        server.start()
        try:
            yield f"unix:{folder}/switch"
        finally:
            server.stop(grace=None).wait()


class _Nobody(p4runtime_pb2_grpc.P4RuntimeServicer):
    """The imitated switch. The methods' names are P4Runtime's."""

    def __init__(self) -> None:
        self._config: p4rt.ForwardingPipelineConfig | None = None
        self._held: Held = {}

    def Capabilities(self, request: Any, context: Any) -> p4rt.CapabilitiesResponse:  # noqa: ARG002, N802
        """Return the API version that it speaks."""
        return p4rt.CapabilitiesResponse(p4runtime_api_version="1.4.1")

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return the program, or abort while there is none."""
        if not self._config:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no program")
        return p4rt.GetForwardingPipelineConfigResponse(config=self._config)

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Take a program, and forget all entries."""
        self._config, self._held = request.config, {}
        return p4rt.SetForwardingPipelineConfigResponse()

    def Write(self, request: p4rt.WriteRequest, context: Any) -> p4rt.WriteResponse:  # noqa: ARG002, N802
        """Remember the updates."""
        for update in request.updates:
            if update.type == p4rt.Update.DELETE:
                self._held.pop(key(update.entity), None)
            else:
                self._held[key(update.entity)] = update.entity
        return p4rt.WriteResponse()

    def Read(self, request: p4rt.ReadRequest, context: Any) -> Iterator[p4rt.ReadResponse]:  # noqa: ARG002, N802
        """Yield the entries of the requested tables, and the groups."""
        tables = {each.table_entry.table_id for each in request.entities}
        yield p4rt.ReadResponse(
            entities=[each for each in self._held.values() if each.table_entry.table_id in tables]
        )

    def StreamChannel(self, requests: Any, context: Any) -> Iterator[p4rt.StreamMessageResponse]:  # noqa: ARG002, N802
        """Make every client that arbitrates primary."""
        for request in requests:
            if request.HasField("arbitration"):
                yield p4rt.StreamMessageResponse(arbitration=request.arbitration)
