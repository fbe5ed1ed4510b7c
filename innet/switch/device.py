"""The switch itself: ports that stay, and the pipeline that is loaded at the time."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from p4.v1 import p4runtime_pb2 as p4rt

from innet.errors import CompilerError, UnsupportedProgram
from innet.switch import bmv2json
from innet.switch.codegen import generate
from innet.switch.engine import Count, Engine
from innet.switch.ports import Port, cpu_port
from innet.switch.refusal import Refusal, already_exists, invalid, not_found, unsupported
from innet.switch.schema import Counter, Field, Schema
from innet.switch.tables import Tables, encode

_LONGEST_FRAME = 1 << 16


@dataclass
class _Pipeline:
    engine: Engine
    schema: Schema
    tables: Tables
    groups: dict[int, p4rt.MulticastGroupEntry]


class Device:
    """One switch. `packet_in` is called, from a thread of its own, with what the CPU port sends."""

    def __init__(
        self,
        ports: Sequence[Port],
        cpu_port_number: int,
        drop_port: int,
        packet_in: Callable[[p4rt.PacketIn], None],
        keep: Path | None = None,
    ) -> None:
        self._drop_port, self._keep, self._packet_in = drop_port, keep, packet_in
        inner, self._cpu = cpu_port(cpu_port_number)
        self._ports = [*ports, inner]
        self._engine: Engine | None = None
        self._pipeline: _Pipeline | None = None
        self._config: p4rt.ForwardingPipelineConfig | None = None
        self._saved: p4rt.ForwardingPipelineConfig | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._reader = threading.Thread(target=self._read_cpu, name="innet-cpu", daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Stop, and give the ports back."""
        if self._engine:
            self._engine.close()
        self._closed = True
        with contextlib.suppress(OSError):
            self._cpu.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._cpu.close()
        for port in self._ports:
            port.close()

    def load(self, json: bytes) -> Engine:
        """Run a program in place of the one before it; its tables are empty."""
        engine = Engine(json, self._drop_port, self._keep)
        with self._lock:
            if self._engine:
                self._engine.close()
            self._engine = engine
            self._pipeline = None
            engine.start(self._ports)
        return engine

    def configure(
        self,
        action: p4rt.SetForwardingPipelineConfigRequest.Action,
        config: p4rt.ForwardingPipelineConfig,
    ) -> None:
        """Carry out a SetForwardingPipelineConfig. Raises Refusal."""
        request = p4rt.SetForwardingPipelineConfigRequest
        if action == request.VERIFY:
            _verify(config)
        elif action == request.VERIFY_AND_SAVE:
            _verify(config)
            self._saved = config
        elif action == request.VERIFY_AND_COMMIT:
            self._commit(config)
        elif action == request.COMMIT:
            if not self._saved:
                raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, "no configuration was saved")
            self._commit(self._saved)
            self._saved = None
        else:
            raise unsupported(f"the action {request.Action.Name(action)} is not supported")

    @property
    def config(self) -> p4rt.ForwardingPipelineConfig:
        """The configuration that is running. Raises Refusal if there is none."""
        if not self._config:
            raise _no_pipeline()
        return self._config

    def write(self, update: p4rt.Update) -> None:
        """Carry out one update. Raises Refusal, and then nothing has changed."""
        if update.type == p4rt.Update.UNSPECIFIED:
            raise invalid("the update has no type")
        with self._lock:
            pipeline = self._running()
            kind = update.entity.WhichOneof("entity")
            if kind == "table_entry":
                pipeline.tables.write(update.type, update.entity.table_entry)
            elif kind == "counter_entry":
                _only_modify(update)
                message = update.entity.counter_entry
                if not message.HasField("index"):
                    raise invalid("which cell? a counter is written one index at a time")
                new = Count(message.data.packet_count, message.data.byte_count)
                list(_counters(pipeline, message, new))
            elif kind == "direct_counter_entry":
                _only_modify(update)
                message = update.entity.direct_counter_entry
                if not list(pipeline.tables.count(message.table_entry, message.data)):
                    raise not_found("no such entry with a direct counter")
            elif kind == "packet_replication_engine_entry":
                entry = update.entity.packet_replication_engine_entry
                _write_group(pipeline, update.type, entry)
            else:
                raise unsupported(f"{kind or 'an empty entity'} cannot be written here")

    def read(self, entity: p4rt.Entity) -> Iterator[p4rt.Entity]:
        """All entities that `entity` describes. Raises Refusal."""
        with self._lock:
            pipeline = self._running()
            kind = entity.WhichOneof("entity")
            if kind == "table_entry":
                for entry in pipeline.tables.read(entity.table_entry):
                    yield p4rt.Entity(table_entry=entry)
            elif kind == "counter_entry":
                for cell in _counters(pipeline, entity.counter_entry):
                    yield p4rt.Entity(counter_entry=cell)
            elif kind == "direct_counter_entry":
                wanted = entity.direct_counter_entry.table_entry
                for count in pipeline.tables.count(wanted):
                    yield p4rt.Entity(direct_counter_entry=count)
            elif kind == "packet_replication_engine_entry":
                for group in _groups(pipeline, entity.packet_replication_engine_entry):
                    answer = p4rt.Entity()
                    answer.packet_replication_engine_entry.multicast_group_entry.CopyFrom(group)
                    yield answer
            else:
                raise unsupported(f"{kind or 'an empty entity'} cannot be read here")

    def packet_out(self, packet: p4rt.PacketOut) -> None:
        """Send a controller's packet into the pipeline, from the CPU port. Raises Refusal."""
        header = pack(self._running().schema.packet_out, packet)
        try:
            self._cpu.send(header + packet.payload)
        except OSError as problem:
            raise invalid(f"the packet cannot be sent: {problem.strerror}") from None

    def _running(self) -> _Pipeline:
        if not self._pipeline:
            raise _no_pipeline()
        return self._pipeline

    def _commit(self, config: p4rt.ForwardingPipelineConfig) -> None:
        _verify(config)
        try:
            engine = self.load(config.p4_device_config)
        except CompilerError as problem:
            raise Refusal(grpc.StatusCode.INTERNAL, str(problem)) from None
        with self._lock:
            schema = Schema(config.p4info, engine.program)
            self._pipeline = _Pipeline(engine, schema, Tables(engine, schema), {})
            self._config = config

    def _read_cpu(self) -> None:
        # Ends when `close` shuts the socket down; an empty frame alone does not mean that.
        while (frame := self._cpu.recv(_LONGEST_FRAME)) or not self._closed:
            pipeline = self._pipeline
            if pipeline:
                self._packet_in(unpack(pipeline.schema.packet_in, frame))


def pack(fields: Sequence[Field], packet: p4rt.PacketOut) -> bytes:
    """The header that a packet-out's metadata describe. Raises Refusal."""
    given = {each.metadata_id: each.value for each in packet.metadata}
    value = 0
    for field in fields:
        if field.id not in given:
            raise invalid(f"packet-out metadata {field.name!r} is missing")
        value = value << field.bits | field.parse(given.pop(field.id))
    if given:
        raise invalid(f"no packet-out metadata has id {min(given)}")
    bits = sum(field.bits for field in fields)
    return value.to_bytes(bits // 8, "big")


def unpack(fields: Sequence[Field], frame: bytes) -> p4rt.PacketIn:
    """A frame from the CPU port as a packet-in: the header becomes metadata."""
    size = sum(field.bits for field in fields) // 8
    header = int.from_bytes(frame[:size], "big")
    packet = p4rt.PacketIn(payload=frame[size:])
    left = size * 8
    for field in fields:
        left -= field.bits
        packet.metadata.add(metadata_id=field.id, value=encode(header >> left & field.full))
    return packet


def _verify(config: p4rt.ForwardingPipelineConfig) -> None:
    if not config.p4_device_config:
        raise invalid("the device configuration is empty: it has to be p4c's BMv2 JSON")
    try:
        program = bmv2json.load(config.p4_device_config)
        Schema(config.p4info, program)
        generate(program)
    except UnsupportedProgram as problem:
        raise invalid(str(problem)) from None


def _no_pipeline() -> Refusal:
    return Refusal(grpc.StatusCode.FAILED_PRECONDITION, "no pipeline configuration has been set")


def _only_modify(update: p4rt.Update) -> None:
    if update.type != p4rt.Update.MODIFY:
        raise invalid("a counter can only be modified")


def _counters(
    pipeline: _Pipeline, wanted: p4rt.CounterEntry, new: Count | None = None
) -> Iterator[p4rt.CounterEntry]:
    schema = pipeline.schema
    counters: list[Counter] = (
        [schema.counter(wanted.counter_id)] if wanted.counter_id else list(schema.counters.values())
    )
    for counter in counters:
        indices = [wanted.index.index] if wanted.HasField("index") else range(counter.size)
        for index in indices:
            if not 0 <= index < counter.size:
                message = f"{counter.name} has {counter.size} cells, no index {index}"
                raise Refusal(grpc.StatusCode.OUT_OF_RANGE, message)
            count = pipeline.engine.counter(counter.name, index, new)
            cell = p4rt.CounterEntry(counter_id=counter.id)
            cell.index.index = index
            cell.data.packet_count, cell.data.byte_count = count.packets, count.bytes
            yield cell


def _write_group(
    pipeline: _Pipeline,
    update: p4rt.Update.Type,
    entry: p4rt.PacketReplicationEngineEntry,
) -> None:
    if entry.WhichOneof("type") != "multicast_group_entry":
        raise unsupported("clone sessions are not supported")
    group = entry.multicast_group_entry
    number = group.multicast_group_id
    if not 0 < number < 1 << 16:
        raise invalid(f"multicast group {number}: ids are 1 to 65535")
    exists = number in pipeline.groups
    if update == p4rt.Update.INSERT and exists:
        raise already_exists(f"multicast group {number} exists")
    if update != p4rt.Update.INSERT and not exists:
        raise not_found(f"there is no multicast group {number}")
    if update == p4rt.Update.DELETE:
        pipeline.engine.set_group(number, [])
        del pipeline.groups[number]
        return
    pipeline.engine.set_group(number, [_replica(each) for each in group.replicas])
    pipeline.groups[number] = group


def _replica(replica: p4rt.Replica) -> tuple[int, int]:
    if replica.WhichOneof("port_kind") == "port":
        return int.from_bytes(replica.port, "big"), replica.instance
    return replica.egress_port, replica.instance


def _groups(
    pipeline: _Pipeline, wanted: p4rt.PacketReplicationEngineEntry
) -> list[p4rt.MulticastGroupEntry]:
    if wanted.WhichOneof("type") == "clone_session_entry":
        raise unsupported("clone sessions are not supported")
    number = wanted.multicast_group_entry.multicast_group_id
    if not number:
        return list(pipeline.groups.values())
    return [pipeline.groups[number]] if number in pipeline.groups else []
