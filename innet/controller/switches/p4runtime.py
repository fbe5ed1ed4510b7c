"""One switch over P4Runtime: any program's tables, groups, counters and packets.

It raises :class:`SwitchError` instead of gRPC's errors.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import structlog

from innet.controller.switches.election import Id, SwitchTaken
from innet.controller.switches.names import Names
from innet.controller.switches.transcript import OnRequest, watched
from innet.errors import NotAuthorized, SwitchError, SwitchOffline
from innet.p4runtime import code_pb2, p4info_pb2, p4runtime_pb2_grpc, status_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc import channels, tls
from innet.terminal.console import one_line

_log = structlog.get_logger("innet.controller")
_ANSWER_WITHIN, _RECONNECT_WITHIN = 5.0, 1.0
_RUN_WITHIN = 120.0  # a switch may have to compile the program
_UPDATES_AT_ONCE = 500
_MOST_WAITING = 8192
# Only innet-switch reports its ports: P4Runtime has no request for them.
_PORTS_METADATA, _PORTS_DOWN_METADATA = "switch-ports", "switch-ports-down"
_BROKEN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
# Both the controller and `innet deploy` give this advice, and each has its own options for TLS.
_SWITCH_WITHOUT_TLS = (
    "start it with --grpc-server-ssl, or do without TLS: `innet switch add` with --insecure, "
    "`innet deploy` without --tls"
)
_CONTROLLER_WITHOUT_TLS = (
    "name the certificates: `innet controller` with --tls and `innet switch add` without --insecure, "
    "or `innet deploy` with --tls"
)


class SwitchConnection:
    """A primary controller's connection to one switch.

    It uses TLS with an `identity`, unless the `address` begins with ``insecure:``. `packet_in` is called
    with metadata by name and the frame, in a thread of the connection.
    `ended` is called once from some thread when the connection ends, except by :meth:`close`.
    `election` is the election id, higher for every new connection of a controller; by default it is
    the time. A `patient` connection waits for a switch that does not listen yet. `on_request` is called
    with every request before it is sent. Raises SwitchTaken if another controller is in charge, and
    SwitchError if the switch cannot be reached.
    """

    def __init__(
        self,
        address: str,
        device_id: int,
        info: p4info_pb2.P4Info,
        packet_in: Callable[[dict[str, int], bytes], None],
        identity: tls.Identity | None = None,
        *,
        ended: Callable[[], None] = lambda: None,
        election: Id | None = None,
        patient: bool = True,
        on_request: OnRequest | None = None,
    ) -> None:
        self.names = Names(info)
        self._info, self._packet_in, self._ended = info, packet_in, ended
        self._where = f"the switch at {address}"
        self._broken: str | None = None
        self._closed = False
        if address.startswith(tls.INSECURE):
            address, identity = address.removeprefix(tls.INSECURE), None
        channel = open_channel(address, identity, patient=patient)
        if on_request:
            channel = watched(channel, on_request)
        try:
            # Of two controllers the one that started later is in charge.
            self._client = _Client(channel, device_id, election or (time.time_ns(), 0))
        except SwitchTaken as taken:
            channel.close()
            why = f"{self._where} {taken}"
            raise SwitchTaken(why, taken.highest, live=taken.live) from None
        except SwitchError as problem:
            channel.close()
            raise SwitchError(f"{self._where} {problem}") from None
        threading.Thread(target=self._listen, name="innet-packet-in", daemon=True).start()
        if not self._client.stream.add_callback(self._stream_ended):
            self._stream_ended()

    @property
    def broken(self) -> str | None:
        """Return the reason why the connection is unusable, or None."""
        return self._broken

    def ports(self) -> frozenset[int]:
        """Return the switch's ports, or none if it does not report them."""
        return self._reported(_PORTS_METADATA)

    def ports_down(self) -> frozenset[int]:
        """Return the switch's ports that are down, or none if it does not report them."""
        return self._reported(_PORTS_DOWN_METADATA)

    def _reported(self, key: str) -> frozenset[int]:
        try:
            _, call = self._client.stub.Capabilities.with_call(
                p4rt.CapabilitiesRequest(), timeout=_ANSWER_WITHIN
            )
        except grpc.RpcError:  # older servers do not know the method
            return frozenset()
        except ValueError as problem:  # raised by gRPC for a channel that was closed meanwhile
            raise SwitchError(f"{self._where}: {problem}") from None
        said = str(dict(call.trailing_metadata() or ()).get(key, ""))
        return frozenset(int(each) for each in said.split(",") if each.isdecimal())

    def cookie(self) -> int | None:
        """Return the cookie that :meth:`run` was given with the switch's program, or None without one."""
        request = p4rt.GetForwardingPipelineConfigRequest(device_id=self._client.device_id)
        request.response_type = p4rt.GetForwardingPipelineConfigRequest.COOKIE_ONLY
        try:
            with self._translated(but=grpc.StatusCode.FAILED_PRECONDITION):
                answer = self._client.stub.GetForwardingPipelineConfig(
                    request, timeout=_ANSWER_WITHIN
                )
        except grpc.RpcError:  # BMv2 without a program
            return None
        return int(answer.config.cookie.cookie) if answer.config.HasField("cookie") else None

    def run(self, device_config: bytes, cookie: int = 0) -> None:
        """Make the switch run the program, with empty tables."""
        request = p4rt.SetForwardingPipelineConfigRequest(device_id=self._client.device_id)
        self._elect(request)
        request.action = p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.config.p4info.CopyFrom(self._info)
        request.config.p4_device_config = device_config
        request.config.cookie.cookie = cookie
        with self._translated():
            self._client.stub.SetForwardingPipelineConfig(request, timeout=_RUN_WITHIN)

    def insert(self, *entities: p4rt.Entity) -> None:
        """Add entries. If some are refused, add the others and raise SwitchError."""
        self._write(p4rt.Update.INSERT, entities)

    def modify(self, *entities: p4rt.Entity) -> None:
        """Change entries that exist."""
        self._write(p4rt.Update.MODIFY, entities)

    def delete(self, *entities: p4rt.Entity) -> None:
        """Remove entries."""
        self._write(p4rt.Update.DELETE, entities)

    def read(self, *wanted: p4rt.Entity) -> list[p4rt.Entity]:
        """Return all entities that match."""
        request = p4rt.ReadRequest(device_id=self._client.device_id, entities=wanted)
        with self._translated():
            answers = self._client.stub.Read(request, timeout=_ANSWER_WITHIN)
            return [entity for answer in answers for entity in answer.entities]

    def count(self, *cells: p4rt.Entity) -> list[int]:
        """Return the packet counts of counter cells."""
        found = {
            _cell(entity): entity.counter_entry.data.packet_count for entity in self.read(*cells)
        }
        return [found[_cell(cell)] for cell in cells]

    def send(self, packets: Sequence[p4rt.StreamMessageRequest]) -> None:
        """Send packet-outs, in order. Like any packet they may get lost."""
        for packet in packets:
            self._client.outbox.put(packet)

    def close(self) -> None:
        """End the connection. The switch keeps its program and entries."""
        self._closed = True
        self._client.stream.cancel()
        self._client.outbox.put(None)
        self._client.channel.close()

    def _write(self, kind: p4rt.Update.Type, entities: Sequence[p4rt.Entity]) -> None:
        for first in range(0, len(entities), _UPDATES_AT_ONCE):
            request = p4rt.WriteRequest(device_id=self._client.device_id)
            for entity in entities[first : first + _UPDATES_AT_ONCE]:
                request.updates.add(type=kind, entity=entity)
            self._elect(request)
            with self._translated():
                self._client.stub.Write(request, timeout=_ANSWER_WITHIN)

    def _elect(self, request: Any) -> None:
        request.election_id.high, request.election_id.low = self._client.election_id

    def _listen(self) -> None:
        for message in iter(self._client.inbox.get, None):
            if not (self._closed or self._broken):  # else only make room, so that the stream ends
                self._hear(message)

    def _hear(self, message: p4rt.StreamMessageResponse) -> None:
        try:
            if message.HasField("packet"):
                metadata = self.names.packet_in(message.packet)
                self._packet_in(metadata, message.packet.payload)
            elif message.HasField("arbitration") and not _in_charge(message):
                self._end("another controller has taken charge of it")
        except Exception:  # noqa: BLE001 - whatever it is
            # One strange packet must not cost all those to come.
            _log.exception("a packet-in was not understood")

    def _stream_ended(self) -> None:
        self._end("it has closed the connection")

    def _end(self, why: str) -> None:
        if not (self._closed or self._broken):
            self._broken = f"{self._where}: {why}"
            self._ended()

    @contextlib.contextmanager
    def _translated(self, but: grpc.StatusCode | None = None) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as problem:
            if problem.code() == but:
                raise
            if problem.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                said = f"{self._where} does not answer: is it stuck?"
            else:
                texts = [problem.details() or problem.code().name, *_details(problem)]
                reasons = one_line("; ".join(texts))
                said = f"{self._where} refused: {reasons}"
            if problem.code() in _BROKEN:
                self._end("it does not answer")
            raise SwitchError(said) from None
        except ValueError as problem:  # raised by gRPC for a channel that was closed meanwhile
            raise SwitchError(f"{self._where}: {problem}") from None


class _Client:
    """A P4Runtime client over an open channel. Every message that comes in lands in `inbox`, then None.

    It sends the messages of `outbox`, until it takes None from there. Raises SwitchError unless it
    becomes primary.
    """

    def __init__(self, channel: grpc.Channel, device_id: int, election_id: Id) -> None:
        self.channel, self.device_id, self.election_id = channel, device_id, election_id
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        self.outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # The queue is bounded: a switch that sends too fast has to wait, or to drop messages.
        self.inbox: queue.Queue[Any] = queue.Queue(_MOST_WAITING)
        self.stream = self.stub.StreamChannel(iter(self.outbox.get, None))
        threading.Thread(target=self._receive, name="innet-stream", daemon=True).start()
        self._become_primary()

    def _receive(self) -> None:
        try:
            with contextlib.suppress(grpc.RpcError):  # its callback reports why it has ended
                for message in self.stream:
                    self.inbox.put(message)
        finally:
            self.inbox.put(None)

    def _become_primary(self) -> None:
        request = p4rt.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        request.arbitration.election_id.high, request.arbitration.election_id.low = self.election_id
        self.outbox.put(request)
        answer = None
        with contextlib.suppress(queue.Empty):
            answer = self.inbox.get(timeout=_ANSWER_WITHIN)
        if answer and answer.HasField("arbitration") and _in_charge(answer):
            return
        self.stream.cancel()
        self.outbox.put(None)
        if answer is None:
            raise SwitchError(
                "does not answer as a P4Runtime switch: is this the address of its P4Runtime server?"
            )
        raise _taken(answer)


def _in_charge(message: p4rt.StreamMessageResponse) -> bool:
    return bool(message.arbitration.status.code == code_pb2.OK)


def _taken(message: p4rt.StreamMessageResponse) -> SwitchTaken:
    """Return the error for a client that, by an arbitration update, is not primary."""
    update = message.arbitration
    highest = update.election_id.high, update.election_id.low
    if update.status.code == code_pb2.NOT_FOUND:
        return SwitchTaken("had another controller, which has just gone", highest, live=False)
    return SwitchTaken("has another controller, which started later", highest)


def _details(problem: grpc.RpcError) -> Iterator[str]:
    """Yield the errors of a write's updates (P4Runtime, "Error Reporting Messages")."""
    packed = dict(problem.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    for index, detail in enumerate(status_pb2.Status.FromString(packed).details):
        error = p4rt.Error()
        if detail.Unpack(error) and error.canonical_code:
            yield f"update {index}: {error.message or 'code ' + str(error.canonical_code)}"


def _cell(entity: p4rt.Entity) -> tuple[int, int]:
    return entity.counter_entry.counter_id, entity.counter_entry.index.index


def open_channel(address: str, identity: tls.Identity | None, *, patient: bool) -> grpc.Channel:
    """Return a connected channel to a switch. Raises SwitchError."""
    # Its own subchannel: a shared one may wait long before it reconnects after a failure.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    channel = channels.channel(address, identity, options)
    try:
        if patient:
            advice = _SWITCH_WITHOUT_TLS if identity else _CONTROLLER_WITHOUT_TLS
            channels.await_ready({address: channel}, identity, _ANSWER_WITHIN, advice)
        else:
            _ask(channel)
        return channel
    except TimeoutError:
        channel.close()
        raise SwitchOffline(
            f"no switch answers at {address}: is it running, with P4Runtime at this address?"
        ) from None
    except NotAuthorized as problem:
        channel.close()
        raise SwitchError(f"the switch at {address} {problem}") from None


def _ask(channel: grpc.Channel) -> None:
    """Raise TimeoutError if there is no answer. Where nobody listens, raise it at once."""
    try:
        p4runtime_pb2_grpc.P4RuntimeStub(channel).Capabilities(
            p4rt.CapabilitiesRequest(), timeout=_RECONNECT_WITHIN
        )
    except grpc.RpcError as problem:
        if problem.code() in _BROKEN:
            raise TimeoutError from None
