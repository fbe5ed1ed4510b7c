"""A P4Runtime server for tests. Like a chip's, it refuses requests that do not fit its program.

It keeps the entries of its program, as Stratum does. Device ids start at 1. Packet-outs go to
`forward`, which returns the resulting packet-ins.
"""

import contextlib
import queue
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import text_format

from innet.p4runtime import p4info_pb2, p4runtime_pb2_grpc
from innet.p4runtime import p4runtime_pb2 as p4rt

DEVICE = 1
MOST_GROUP, MOST_PORT = 0xFFFF, 0x1FF

Forward = Callable[[p4rt.PacketOut], list[p4rt.PacketIn]]


class Invalid(Exception):
    """A request that no program with this P4Info would accept."""


def echo(packet: p4rt.PacketOut) -> list[p4rt.PacketIn]:
    """Return the program's answer to a CLEAR: the same packet, from the CPU port."""
    made = p4rt.PacketIn(payload=packet.payload)
    made.metadata.add(metadata_id=1, value=b"\xc0")
    made.metadata.add(metadata_id=2, value=b"\0")
    return [made]


class Chip(p4runtime_pb2_grpc.P4RuntimeServicer):
    """The server. `requests` are all requests in order, and `held` the entities that it holds."""

    def __init__(self, forward: Forward = echo, changed: Callable[[], None] = lambda: None) -> None:
        self.requests: list[Any] = []
        self.config: p4rt.ForwardingPipelineConfig | None = None
        self.held: dict[bytes, p4rt.Entity] = {}
        self.counters: dict[tuple[int, int], int] = {}
        self.errors: list[str] = []
        self._forward, self._changed = forward, changed
        self._tell: queue.SimpleQueue = queue.SimpleQueue()

    @property
    def info(self) -> p4info_pb2.P4Info:
        return self.config.p4info

    def count(self, cell: p4rt.CounterEntry) -> int:
        return self.counters.get((cell.counter_id, cell.index.index), 0)

    def set_count(self, cell: p4rt.CounterEntry, count: int) -> None:
        self.counters[cell.counter_id, cell.index.index] = count

    def packet_in(self, packet: p4rt.PacketIn) -> None:
        self._tell.put(p4rt.StreamMessageResponse(packet=packet))

    def GetForwardingPipelineConfig(self, request, context):  # noqa: N802
        self._take(request, context)
        if not self.config:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no config has been pushed")
        return p4rt.GetForwardingPipelineConfigResponse(config={"cookie": self.config.cookie})

    def SetForwardingPipelineConfig(self, request, context):  # noqa: N802
        self._take(request, context)
        self.config, self.held = request.config, {}
        self._changed()
        return p4rt.SetForwardingPipelineConfigResponse()

    def Write(self, request, context):  # noqa: N802
        self._take(request, context)
        for update in request.updates:
            with self._refusing(context):
                self._update(update)
        self._changed()
        return p4rt.WriteResponse()

    def Read(self, request, context):  # noqa: N802
        self._take(request, context)
        answer = p4rt.ReadResponse()
        for entity in request.entities:
            with self._refusing(context):
                answer.entities.extend(self._read(entity))
        yield answer

    def StreamChannel(self, requests, context):  # noqa: N802
        self._tell = responses = queue.SimpleQueue()  # this stream's client gets the messages
        with futures.ThreadPoolExecutor(1) as pool:
            context.add_callback(lambda: responses.put(None))
            pool.submit(self._listen, requests, responses)
            yield from iter(responses.get, None)

    def _listen(self, requests, responses) -> None:
        with contextlib.suppress(grpc.RpcError):
            for request in requests:
                self.requests.append(request)
                if request.HasField("arbitration"):
                    responses.put(p4rt.StreamMessageResponse(arbitration=request.arbitration))
                    continue
                try:
                    self._check_packet(request.packet)
                except Invalid as problem:
                    self.errors.append(str(problem))
                    continue
                for packet in self._forward(request.packet):
                    self.packet_in(packet)

    def _take(self, request, context) -> None:
        self.requests.append(request)
        if request.device_id != DEVICE:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Invalid device ID.")

    @contextlib.contextmanager
    def _refusing(self, context) -> Iterator[None]:
        try:
            yield
        except Invalid as problem:
            self.errors.append(str(problem))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(problem))

    # -- what is valid -------------------------------------------------------------------------------

    def _update(self, update: p4rt.Update) -> None:
        entity, key = update.entity, self._key(update.entity, whole=update.type != update.DELETE)
        if entity.HasField("counter_entry"):
            require(update.type == p4rt.Update.MODIFY, "counters can be modified, and no more")
            cell = entity.counter_entry
            self.set_count(cell, cell.data.packet_count)
            return
        require(
            (key in self.held) == (update.type != p4rt.Update.INSERT), f"{update}: is it there?"
        )
        if update.type == p4rt.Update.DELETE:
            del self.held[key]
        else:
            self.held[key] = entity

    def _key(self, entity: p4rt.Entity, whole: bool) -> bytes:
        copy = p4rt.Entity()
        copy.CopyFrom(entity)
        match entity.WhichOneof("entity"):
            case "table_entry":
                self._check_entry(entity.table_entry, whole)
                copy.table_entry.ClearField("action")
            case "packet_replication_engine_entry":
                group = entity.packet_replication_engine_entry.multicast_group_entry
                require(0 < group.multicast_group_id <= MOST_GROUP, "a group's number has 16 bits")
                for replica in group.replicas:
                    require(replica.WhichOneof("port_kind") == "egress_port", "egress_port is read")
                    require(0 < replica.egress_port <= MOST_PORT, "a port has 9 bits")
                    require(replica.instance <= MOST_GROUP, "a replication id has 16 bits")
                made = copy.packet_replication_engine_entry.multicast_group_entry
                made.ClearField("replicas")
            case "counter_entry":
                self._check_counter(entity.counter_entry)
            case kind:
                raise Invalid(f"{kind}: the program has none")
        return copy.SerializeToString(deterministic=True)

    def _check_entry(self, entry: p4rt.TableEntry, whole: bool) -> None:
        table = one(self.info.tables, entry.table_id)
        name = table.preamble.name
        require(not table.is_const_table, f"{name} is constant")
        require(not entry.priority, f"{name} has neither ternary nor range keys: no priority")
        fields = {field.id: field for field in table.match_fields}
        require({each.field_id for each in entry.match} == {*fields}, f"{name}: all its fields")
        for each in entry.match:
            field = fields[each.field_id]
            kinds = {field.EXACT: "exact", field.LPM: "lpm"}
            require(each.WhichOneof("field_match_type") == kinds[field.match_type], field.name)
            if each.HasField("lpm"):
                fits(each.lpm.value, field.bitwidth, field.name)
                length = each.lpm.prefix_len
                require(0 < length <= field.bitwidth, f"{field.name}: /{length}")
                free = field.bitwidth - length
                require(not number(each.lpm.value) & (1 << free) - 1, f"{field.name}: bits behind")
            else:
                fits(each.exact.value, field.bitwidth, field.name)
        if whole:
            self._check_action(table, entry.action.action)

    def _check_action(self, table, call: p4rt.Action) -> None:
        allowed = {
            ref.id for ref in table.action_refs if ref.scope != p4info_pb2.ActionRef.DEFAULT_ONLY
        }
        require(call.action_id in allowed, f"{table.preamble.name} has no action {call.action_id}")
        action = one(self.info.actions, call.action_id)
        params = {param.id: param for param in action.params}
        require([*params] == [each.param_id for each in call.params], action.preamble.name)
        for each in call.params:
            fits(each.value, params[each.param_id].bitwidth, params[each.param_id].name)

    def _check_counter(self, cell: p4rt.CounterEntry) -> None:
        counter = one(self.info.counters, cell.counter_id)
        require(0 <= cell.index.index < counter.size, f"{counter.preamble.name}: index")

    def _check_packet(self, packet: p4rt.PacketOut) -> None:
        [header] = [
            each
            for each in self.info.controller_packet_metadata
            if each.preamble.name == "packet_out"
        ]
        fields = {each.id: each for each in header.metadata}
        require({each.metadata_id for each in packet.metadata} == {*fields}, "packet-out metadata")
        for each in packet.metadata:
            fits(each.value, fields[each.metadata_id].bitwidth, "packet-out")

    def _read(self, entity: p4rt.Entity) -> list[p4rt.Entity]:
        match entity.WhichOneof("entity"):
            case "table_entry":
                one(self.info.tables, entity.table_entry.table_id)
                wanted = entity.table_entry.table_id
                return [e for e in self.held.values() if e.table_entry.table_id == wanted]
            case "packet_replication_engine_entry":
                return [
                    each
                    for each in self.held.values()
                    if each.HasField("packet_replication_engine_entry")
                ]
            case "counter_entry":
                cell = entity.counter_entry
                self._check_counter(cell)
                found = p4rt.Entity()
                found.CopyFrom(entity)
                found.counter_entry.data.packet_count = self.count(cell)
                return [found]
            case kind:
                raise Invalid(f"{kind}: not read here")


def one(things: Any, number: int) -> Any:
    """Return the item of a P4Info with this id."""
    found = [each for each in things if each.preamble.id == number]
    require(len(found) == 1, f"no such id: {number}")
    return found[0]


def fits(value: bytes, bits: int, name: str) -> None:
    """Raise Invalid unless `value` is a canonical byte string of at most so many bits."""
    require(value, f"{name} has no value")
    require(number(value) < 1 << bits, f"{name} has {bits} bits, not those of {value.hex()}")
    require(len(value) == 1 or value[0], f"{name}: {value.hex()} is not the shortest string")


def number(value: bytes) -> int:
    return int.from_bytes(value, "big")


def require(condition: Any, why: str) -> None:
    if not condition:
        raise Invalid(why)


@contextlib.contextmanager
def serving(chip: Chip) -> Iterator[str]:
    """Serve it at a free port of 127.0.0.1."""
    server = grpc.server(
        futures.ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", 256 << 20)]
    )
    p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(chip, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def without_election(requests: list[Any]) -> list[str]:
    """Return the requests as text, without the election id, which is the time."""
    found = []
    for each in requests:
        copy = type(each)()
        copy.CopyFrom(each)
        if hasattr(copy, "election_id"):
            copy.ClearField("election_id")
        if isinstance(copy, p4rt.StreamMessageRequest) and copy.HasField("arbitration"):
            copy.arbitration.ClearField("election_id")
        found.append(f"{type(each).__name__} {text_format.MessageToString(copy)}")
    return found
