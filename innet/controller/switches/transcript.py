"""A transcript of a controller's P4Runtime requests to a switch, with the program's names.

It is written where gRPC takes the requests, so it contains every request that is sent.
"""

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from innet.p4.artifacts import digest
from innet.p4runtime import p4info_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

Write = Callable[[str], object]
OnRequest = Callable[[str, Any], None]
"""A function that is given the name of a method and each request to it."""


def watched(channel: grpc.Channel, on_request: OnRequest) -> grpc.Channel:
    """Return a channel that passes every request to `on_request` before it goes out."""
    return grpc.intercept_channel(channel, _Interceptor(on_request))


class Transcript:
    """A writer of requests. `describe` returns the parts of a ``p4_device_config``."""

    def __init__(
        self,
        info: p4info_pb2.P4Info,
        describe: Callable[[bytes], list[str]],
        write: Write,
    ) -> None:
        self._describe, self._write = describe, write
        self._tables = {each.preamble.id: each for each in info.tables}
        self._actions = {each.preamble.id: each for each in info.actions}
        self._counters = {each.preamble.id: each.preamble.alias for each in info.counters}

    def __call__(self, method: str, request: Any) -> None:
        """Write one request."""
        match request:
            case p4rt.StreamMessageRequest():
                self._write(f"{method} {_message(request)}")
            case p4rt.GetForwardingPipelineConfigRequest():
                kind = p4rt.GetForwardingPipelineConfigRequest.ResponseType.Name(
                    request.response_type
                )
                self._write(f"{method} device {request.device_id}: {kind}")
            case p4rt.SetForwardingPipelineConfigRequest():
                self._configure(method, request)
            case p4rt.WriteRequest():
                self._write(f"{method} device {request.device_id}")
                for update in request.updates:
                    kind = p4rt.Update.Type.Name(update.type)
                    self._write(f"  {kind} {self._entity(update.entity)}")
            case p4rt.ReadRequest():
                self._write(f"{method} device {request.device_id}")
                for entity in request.entities:
                    self._write(f"  {self._entity(entity)}")
            case _:
                self._write(method)

    def _configure(self, method: str, request: p4rt.SetForwardingPipelineConfigRequest) -> None:
        action = p4rt.SetForwardingPipelineConfigRequest.Action.Name(request.action)
        info = request.config.p4info.SerializeToString(deterministic=True)
        config = request.config.p4_device_config
        self._write(f"{method} device {request.device_id}: {action}")
        self._write(f"  cookie {request.config.cookie.cookie:#018x}")
        self._write(f"  p4info, {len(info)} bytes, sha256 {digest(info)}")
        self._write(f"  p4_device_config, {len(config)} bytes, sha256 {digest(config)}")
        for line in self._describe(config):
            self._write(f"    {line}")

    def _entity(self, entity: p4rt.Entity) -> str:
        match entity.WhichOneof("entity"):
            case "table_entry":
                return self._entry(entity.table_entry)
            case "packet_replication_engine_entry":
                group = entity.packet_replication_engine_entry.multicast_group_entry
                if not group.multicast_group_id:
                    return "all multicast groups"
                copies = (f"port {each.egress_port} as {each.instance}" for each in group.replicas)
                return f"multicast group {group.multicast_group_id}: {', '.join(copies)}"
            case "counter_entry":
                cell = entity.counter_entry
                name = self._counters[cell.counter_id]
                count = f" = {cell.data.packet_count}" if cell.HasField("data") else ""
                return f"counter {name}[{cell.index.index}]{count}"
            case _:
                return str(entity).replace("\n", " ")

    def _entry(self, entry: p4rt.TableEntry) -> str:
        table = self._tables.get(entry.table_id)
        if not table:  # of the program that the switch ran before
            return f"all of table {entry.table_id:#010x}"
        if not entry.match:
            return f"all of table {table.preamble.alias}"
        names = {each.id: each.name for each in table.match_fields}
        keys = ", ".join(f"{names[each.field_id]}={_value(each)}" for each in entry.match)
        return f"table {table.preamble.alias}: {keys}{self._call(entry.action.action)}"

    def _call(self, call: p4rt.Action) -> str:
        if not call.action_id:
            return ""
        action = self._actions[call.action_id]
        names = {each.id: each.name for each in action.params}
        values = (f"{names[each.param_id]}={_hex(each.value)}" for each in call.params)
        return f" -> {action.preamble.alias}({', '.join(values)})"


class _Interceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """An interceptor of all P4Runtime requests."""

    def __init__(self, on_request: OnRequest) -> None:
        self._on_request = on_request

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Pass on a call with one request."""
        self._on_request(_method(details), request)
        return continuation(details, request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        """Pass on a call with one request and many answers."""
        self._on_request(_method(details), request)
        return continuation(details, request)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        """Pass on a call with many requests."""
        return continuation(details, self._each(_method(details), requests))

    def _each(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        for request in requests:
            self._on_request(method, request)
            yield request


def _method(details: Any) -> str:
    return str(details.method).rpartition("/")[2]


def _message(request: p4rt.StreamMessageRequest) -> str:
    if request.HasField("arbitration"):
        return f"device {request.arbitration.device_id}: arbitration"
    return f"packet-out, {len(request.packet.payload)} bytes"


def _value(match: p4rt.FieldMatch) -> str:
    if match.HasField("lpm"):
        return f"{_hex(match.lpm.value)}/{match.lpm.prefix_len}"
    return _hex(match.exact.value)


def _hex(value: bytes) -> str:
    return f"0x{value.hex()}"
