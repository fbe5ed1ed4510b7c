"""A P4Runtime controller for tests, with names instead of ids and unchanged answers."""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import grpc
import pytest
from waiting import WITHIN

from innet.p4runtime import p4info_pb2, p4runtime_pb2_grpc, status_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

COMMIT = p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT


class Controller:
    """One client of one switch, with an open stream. With an election id it arbitrates."""

    def __init__(
        self,
        address: str,
        election: int | None = None,
        device: int = 0,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self.device, self.election = device, election or 0
        self._channel = (
            grpc.secure_channel(address, credentials)
            if credentials
            else grpc.insecure_channel(address)
        )
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
        self._outbox: queue.SimpleQueue[p4rt.StreamMessageRequest | None] = queue.SimpleQueue()
        self._inbox: queue.SimpleQueue[p4rt.StreamMessageResponse | Exception] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        if election is not None:
            self.arbitrate(election)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._outbox.put(None)
        self._listener.join(WITHIN)  # afterwards the switch has forgotten this client
        self._channel.close()

    def send(self, message: p4rt.StreamMessageRequest) -> None:
        self._outbox.put(message)

    def hear(self) -> p4rt.StreamMessageResponse:
        """Return the stream's next message. Raises grpc.RpcError if the stream has ended."""
        message = self._inbox.get(timeout=WITHIN)
        if isinstance(message, Exception):
            raise message
        return message

    def arbitrate(self, election: int) -> p4rt.MasterArbitrationUpdate:
        self.election = election
        message = p4rt.StreamMessageRequest()
        message.arbitration.device_id = self.device
        message.arbitration.election_id.CopyFrom(uint128(election))
        self.send(message)
        return self.hear().arbitration

    def configure(self, program: Any, action: int = COMMIT, cookie: int = 0) -> None:
        """Send a program: anything with `json` and `p4info`."""
        request = p4rt.SetForwardingPipelineConfigRequest(device_id=self.device, action=action)
        request.election_id.CopyFrom(uint128(self.election))
        request.config.p4info.CopyFrom(program.p4info)
        request.config.p4_device_config = program.json
        request.config.cookie.cookie = cookie
        self.stub.SetForwardingPipelineConfig(request, timeout=WITHIN)

    def insert(self, *entities: p4rt.Entity) -> None:
        self.write(*(p4rt.Update(type=p4rt.Update.INSERT, entity=each) for each in entities))

    def modify(self, *entities: p4rt.Entity) -> None:
        self.write(*(p4rt.Update(type=p4rt.Update.MODIFY, entity=each) for each in entities))

    def delete(self, *entities: p4rt.Entity) -> None:
        self.write(*(p4rt.Update(type=p4rt.Update.DELETE, entity=each) for each in entities))

    def write(self, *updates: p4rt.Update) -> None:
        request = p4rt.WriteRequest(device_id=self.device, updates=updates)
        request.election_id.CopyFrom(uint128(self.election))
        self.stub.Write(request, timeout=WITHIN)

    def read(self, *entities: p4rt.Entity) -> list[p4rt.Entity]:
        request = p4rt.ReadRequest(device_id=self.device, entities=entities)
        answers = self.stub.Read(request, timeout=WITHIN)
        return [entity for answer in answers for entity in answer.entities]

    def count(self, *cells: p4rt.Entity) -> list[int]:
        """Return the packets counted in cells of counters."""
        return [each.counter_entry.data.packet_count for each in self.read(*cells)]

    def _listen(self) -> None:
        try:
            for message in self.stub.StreamChannel(iter(self._outbox.get, None)):
                self._inbox.put(message)
        except grpc.RpcError as problem:
            self._inbox.put(problem)


@dataclass(frozen=True)
class Names:
    """A program's P4Info, from which entities are made by name."""

    info: p4info_pb2.P4Info

    def table(self, name: str) -> Any:
        return next(each for each in self.info.tables if each.preamble.alias == name)

    def entry(
        self,
        table: str,
        match: Mapping[str, Any] | None = None,
        action: str = "",
        priority: int = 0,
        **params: int,
    ) -> p4rt.Entity:
        """Return an entry. Matches are lpm (value, length), ternary (value, mask), range (low, high)."""
        layout = self.table(table)
        entity = p4rt.Entity()
        entry = entity.table_entry
        entry.table_id, entry.priority = layout.preamble.id, priority
        for field in layout.match_fields:
            if field.name in (match or {}):
                _fill(entry.match.add(field_id=field.id), field, match[field.name])
        if action:
            call = next(each for each in self.info.actions if each.preamble.alias == action)
            entry.action.action.action_id = call.preamble.id
            for param in call.params:
                value = encode(params[param.name])
                entry.action.action.params.add(param_id=param.id, value=value)
        return entity

    def default(self, table: str, action: str = "", **params: int) -> p4rt.Entity:
        entity = self.entry(table, {}, action, **params)
        entity.table_entry.is_default_action = True
        return entity

    def counter(self, name: str, index: int | None = None) -> p4rt.Entity:
        """Return one cell of an indirect counter, or all of them."""
        found = next(each for each in self.info.counters if each.preamble.alias == name)
        entity = p4rt.Entity()
        entity.counter_entry.counter_id = found.preamble.id
        if index is not None:
            entity.counter_entry.index.index = index
        return entity

    def packet_out(self, payload: bytes, **metadata: int) -> p4rt.StreamMessageRequest:
        headers = {each.preamble.name: each for each in self.info.controller_packet_metadata}
        message = p4rt.StreamMessageRequest()
        message.packet.payload = payload
        for field in headers["packet_out"].metadata:
            value = encode(metadata.get(field.name, 0))
            message.packet.metadata.add(metadata_id=field.id, value=value)
        return message


def group(number: int, *replicas: tuple[int, int]) -> p4rt.Entity:
    """Return a multicast group of (port, instance) copies."""
    entity = p4rt.Entity()
    message = entity.packet_replication_engine_entry.multicast_group_entry
    message.multicast_group_id = number
    for port, instance in replicas:
        message.replicas.add(egress_port=port, instance=instance)
    return entity


def uint128(number: int) -> p4rt.Uint128:
    return p4rt.Uint128(high=number >> 64, low=number & (1 << 64) - 1)


def encode(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def refusal(call: Callable[..., Any], *arguments: Any) -> tuple[grpc.StatusCode, str]:
    """Return the status code and the message of a refused call."""
    with pytest.raises(grpc.RpcError) as problem:
        call(*arguments)
    return problem.value.code(), problem.value.details()


def update_errors(call: Callable[..., Any], *arguments: Any) -> list[tuple[int, str]]:
    """Return the code and the message for every update of a refused write."""
    with pytest.raises(grpc.RpcError) as problem:
        call(*arguments)
    assert problem.value.code() == grpc.StatusCode.UNKNOWN
    details = dict(problem.value.trailing_metadata())["grpc-status-details-bin"]
    errors = []
    for packed in status_pb2.Status.FromString(details).details:
        error = p4rt.Error()
        assert packed.Unpack(error)
        errors.append((error.canonical_code, error.message))
    return errors


def _fill(component: p4rt.FieldMatch, field: Any, value: Any) -> None:
    kind = p4info_pb2.MatchField.MatchType.Name(field.match_type)
    if kind == "EXACT":
        component.exact.value = encode(value)
    elif kind == "OPTIONAL":
        component.optional.value = encode(value)
    elif kind == "LPM":
        component.lpm.value, component.lpm.prefix_len = encode(value[0]), value[1]
    elif kind == "RANGE":
        component.range.low, component.range.high = map(encode, value)
    else:
        component.ternary.value, component.ternary.mask = map(encode, value)
