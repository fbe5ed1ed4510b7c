"""P4Runtime over gRPC. This module translates requests and makes no decisions."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any, NoReturn

import grpc
import structlog

from innet.errors import UsageError
from innet.machine.descriptors import unreserved_descriptors
from innet.machine.memory import return_freed_memory
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime import p4runtime_pb2_grpc, status_pb2
from innet.rpc.channels import CALLS_PER_CONNECTION, bounded_connections
from innet.rpc.interceptors import AnsweringInterceptor
from innet.rpc.malformed import ParsingInterceptor
from innet.rpc.revocation import Revocations
from innet.rpc.status import Refusal
from innet.switch.p4runtime.admission import MAX_BYTES, AdmissionInterceptor
from innet.switch.p4runtime.arbitration import Arbitration, ControllerStream
from innet.switch.p4runtime.device import Device
from innet.switch.p4runtime.parts import parts
from innet.switch.p4runtime.refusals import exhausted, forbidden, unsupported
from innet.switch.p4runtime.revoked_clients import RevocationInterceptor

PORTS_METADATA = "switch-ports"
"""The trailing metadata of Capabilities with the numbers of the ports, as in ``1,2,7``."""

PORTS_DOWN_METADATA = "switch-ports-down"
"""The same with the ports that are down."""

_API_VERSION = "1.4.1"
_MAX_STREAMS, _CALLS = 64, 16
_MOST_CONNECTIONS = 1024
_log = structlog.get_logger("innet.switch")


class P4RuntimeService(p4runtime_pb2_grpc.P4RuntimeServicer):
    """The gRPC service of one device, for the controllers that `arbitration` admits."""

    def __init__(self, device: Device, arbitration: Arbitration) -> None:
        self.device, self.arbitration = device, arbitration
        self._streams = threading.BoundedSemaphore(_MAX_STREAMS)

    # The methods' names are P4Runtime's.
    def Capabilities(self, request: Any, context: Any) -> p4rt.CapabilitiesResponse:  # noqa: ARG002, N802
        """Answer with the version of P4Runtime, and with the ports' numbers and states as metadata."""
        ports = (PORTS_METADATA, self.device.port_numbers)
        down = (PORTS_DOWN_METADATA, self.device.ports_down)
        context.set_trailing_metadata((ports, down))
        return p4rt.CapabilitiesResponse(p4runtime_api_version=_API_VERSION)

    def SetForwardingPipelineConfig(  # noqa: N802
        self, request: p4rt.SetForwardingPipelineConfigRequest, context: Any
    ) -> p4rt.SetForwardingPipelineConfigResponse:
        """Verify, save or run a program."""
        with _answering_refusals(context), self._as_primary(request):
            self.device.configure(request.action, request.config)
        action = p4rt.SetForwardingPipelineConfigRequest.Action.Name(request.action)
        _log.info("pipeline configured", action=action)
        return p4rt.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(  # noqa: N802
        self, request: p4rt.GetForwardingPipelineConfigRequest, context: Any
    ) -> p4rt.GetForwardingPipelineConfigResponse:
        """Return the running program, or the parts of it that the request names."""
        kinds = p4rt.GetForwardingPipelineConfigRequest
        with _answering_refusals(context):
            self.arbitration.check_device(request.device_id)
        answer = p4rt.GetForwardingPipelineConfigResponse()
        if not self.device.config:
            return answer
        answer.config.CopyFrom(self.device.config)
        if request.response_type not in (kinds.ALL, kinds.P4INFO_AND_COOKIE):
            answer.config.ClearField("p4info")
        if request.response_type not in (kinds.ALL, kinds.DEVICE_CONFIG_AND_COOKIE):
            answer.config.ClearField("p4_device_config")
        return answer

    def Write(self, request: p4rt.WriteRequest, context: Any) -> p4rt.WriteResponse:  # noqa: N802
        """Carry out a batch of updates. An error has details for each of them."""
        with _answering_refusals(context), self._as_primary(request):
            results = self.device.write(request.updates, request.atomicity)
        if any(results):
            _abort_with_details(context, results)
        return p4rt.WriteResponse()

    def Read(self, request: p4rt.ReadRequest, context: Any) -> Iterator[p4rt.ReadResponse]:  # noqa: N802
        """Yield all entities that the request describes, from one moment between two writes."""
        with _answering_refusals(context):
            self.arbitration.check_device(request.device_id)
            found, results = self.device.read(request.entities)
        for part in parts(found):
            yield p4rt.ReadResponse(entities=part)
        if any(results):
            _abort_with_details(context, results)

    def StreamChannel(  # noqa: N802
        self, request_iterator: Iterator[p4rt.StreamMessageRequest], context: Any
    ) -> Iterator[p4rt.StreamMessageResponse]:
        """Exchange arbitration, packets and notifications with a controller."""
        with _answering_refusals(context):
            if not self._streams.acquire(blocking=False):
                raise exhausted(f"{_MAX_STREAMS} streams are open, and no more are served")
            try:
                yield from self._answers(request_iterator)
            finally:
                self._streams.release()

    def _as_primary(self, request: Any) -> contextlib.AbstractContextManager[None]:
        return self.arbitration.as_primary(request.device_id, request.role, request.election_id)

    def _answers(
        self, requests: Iterator[p4rt.StreamMessageRequest]
    ) -> Iterator[p4rt.StreamMessageResponse]:
        """Yield the messages to a controller, while another thread handles those from it."""
        stream = ControllerStream()
        problems: list[Exception] = []

        def listen() -> None:
            try:
                for message in requests:
                    self._handle(stream, message)
            except grpc.RpcError:
                pass  # the controller has gone
            except Exception as problem:  # noqa: BLE001 - the thread that gRPC waits for raises it
                problems.append(problem)
            finally:
                stream.outbox.put(None)

        threading.Thread(target=listen, name="innet-stream", daemon=True).start()
        try:
            while (response := stream.outbox.get()) is not None:
                yield response
        finally:
            self.arbitration.leave(stream)
        for problem in problems:
            raise problem

    def _handle(self, stream: ControllerStream, message: p4rt.StreamMessageRequest) -> None:
        """Handle one message of a controller. Raises Refusal if its stream must end."""
        kind = message.WhichOneof("update")
        if kind == "arbitration":
            self.arbitration.enter(stream, message.arbitration)
            return
        try:
            if kind not in ("packet", "digest_ack"):
                raise unsupported(f"{kind} messages are not supported")
            if stream not in self.arbitration.primaries():
                raise forbidden(f"only the primary controller may send a {kind}")
            if kind == "packet":
                self.device.packet_out(message.packet)
            else:
                self.device.acknowledge(message.digest_ack)
        except Refusal as refusal:
            stream.offer(p4rt.StreamMessageResponse(error=_stream_error(message, refusal)))


def bound(
    service: P4RuntimeService,
    address: str,
    credentials: grpc.ServerCredentials | None = None,
    revocations: Revocations | None = None,
) -> tuple[grpc.Server, int]:
    """Return a server that is still to be started, over TLS if there are credentials, and its TCP port.

    Clients can connect from now on. Until the server is started, they wait. `revocations` need
    credentials that ask every client for a certificate. Raises UsageError if the port is in use.
    """
    server = grpc.server(
        # An open stream occupies a thread.
        futures.ThreadPoolExecutor(_MAX_STREAMS + _CALLS, thread_name_prefix="innet-p4runtime"),
        interceptors=[
            AnsweringInterceptor(),
            *([RevocationInterceptor(revocations)] if revocations else []),
            ParsingInterceptor(),
            AdmissionInterceptor(service.arbitration),
        ],
        options=[
            ("grpc.max_receive_message_length", MAX_BYTES),
            ("grpc.max_send_message_length", MAX_BYTES),
            ("grpc.so_reuseport", 0),
            *bounded_connections(min(_MOST_CONNECTIONS, unreserved_descriptors() // 2)),
        ],
        # Calls beyond it are refused. Without it, they would wait for a thread in any number.
        maximum_concurrent_rpcs=_MAX_STREAMS + CALLS_PER_CONNECTION,
    )
    p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(service, server)
    try:
        if credentials:
            port = server.add_secure_port(address, credentials)
        else:
            port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise UsageError(
            f"cannot serve P4Runtime at {address}: is the port in use, or is it an address of another "
            "machine?"
        )
    return_freed_memory()
    return server, port


@contextlib.contextmanager
def _answering_refusals(context: Any) -> Iterator[None]:
    """End the call with the status code of a refusal that is raised inside the context."""
    try:
        yield
    except Refusal as refusal:
        context.abort(refusal.code, str(refusal))


def _stream_error(message: p4rt.StreamMessageRequest, refusal: Refusal) -> p4rt.StreamError:
    """Return the error for a stream message, with the client's message in it.

    See "Stream Error Reporting" in the P4Runtime specification.
    """
    error = p4rt.StreamError(canonical_code=refusal.number, message=str(refusal))
    kind = message.WhichOneof("update")
    if kind == "packet":
        error.packet_out.packet_out.CopyFrom(message.packet)
    elif kind == "digest_ack":
        error.digest_list_ack.digest_list_ack.CopyFrom(message.digest_ack)
    elif kind == "other":
        error.other.other.CopyFrom(message.other)
    return error


def _abort_with_details(context: Any, results: Sequence[Refusal | None]) -> NoReturn:
    """End a call with one p4.v1.Error for each part of the request.

    See "Error Reporting Messages" in the P4Runtime specification.
    """
    code = grpc.StatusCode.UNKNOWN
    first = next(str(refusal) for refusal in results if refusal)
    refused = sum(refusal is not None for refusal in results)
    message = first if len(results) == 1 else f"{refused} of {len(results)} refused: {first}"
    status = status_pb2.Status(code=code.value[0], message=message)
    for refusal in results:
        error = p4rt.Error(canonical_code=refusal.number if refusal else 0)
        error.message = str(refusal) if refusal else ""
        status.details.add().Pack(error)
    context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
    context.abort(code, status.message)
    raise AssertionError  # abort raises
