"""The switch itself: its permanent ports and the pipeline that is loaded at the time."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import grpc

from innet.errors import CompilerError, UnsupportedProgram
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc.status import Refusal
from innet.switch import bmv2json
from innet.switch.codegen import generate
from innet.switch.constants import MAX_FRAME
from innet.switch.engine import Engine
from innet.switch.link_monitor import LinkMonitor
from innet.switch.p4runtime.batches import all_or_none, each_alone
from innet.switch.p4runtime.device_config import unwrapped
from innet.switch.p4runtime.entities import Field, encode
from innet.switch.p4runtime.notifier import Notifier
from innet.switch.p4runtime.parts import parts
from innet.switch.p4runtime.pipeline import Pipeline
from innet.switch.p4runtime.refusals import exhausted, failed_precondition, invalid, not_found
from innet.switch.p4runtime.schema import Schema
from innet.switch.ports import Port, cpu_port
from innet.switch.stats import Stats

MAX_READ = 1 << 20
"""The most entities that one request reads. They take about 1 GB."""


class Device:
    """One switch. From now on it owns the ports, and closes them with :meth:`close`.

    `make_engine` loads a program from its JSON. The switch's threads call `send` with the messages for
    controllers.
    """

    def __init__(
        self,
        ports: Sequence[Port],
        cpu_port_number: int,
        send: Callable[[p4rt.StreamMessageResponse], None],
        make_engine: Callable[[bytes], Engine] = Engine,
    ) -> None:
        self._send, self._make_engine = send, make_engine
        inner, self._cpu = cpu_port(cpu_port_number)
        self._ports = [*ports, inner]
        self._links = LinkMonitor(ports)
        self._engine: Engine | None = None
        self._pipeline: Pipeline | None = None
        self._saved: Pipeline | None = None  # verified and perhaps written to, but not running yet
        self._closed = False
        self._lock = threading.RLock()
        self._reader = threading.Thread(target=self._read_cpu, name="innet-cpu", daemon=True)
        self._reader.start()
        self._notifier = Notifier(self._notify, self._lock)

    def close(self) -> None:
        """Stop, and close the ports."""
        with self._lock:
            self._drop_saved()
            if self._engine:
                self._engine.close()
            self._engine = self._pipeline = None
        self._notifier.close()
        self._closed = True
        with contextlib.suppress(OSError):
            self._cpu.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._cpu.close()
        self._links.close()
        for port in self._ports:
            port.close()

    def load(self, json: bytes) -> Engine:
        """Run a program in place of the previous one. Its tables have only the program's own entries."""
        engine = self._make_engine(json)
        with self._lock:
            self._run(engine, None)
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
            saved = self._prepare(config)
            with self._lock:
                self._drop_saved()
                self._saved = saved
        elif action == request.VERIFY_AND_COMMIT:
            self._commit(self._prepare(config))
        elif action == request.COMMIT:
            if config.p4_device_config or config.p4info.ByteSize():
                raise invalid("COMMIT takes the saved configuration: send no other one with it")
            if not self._saved:
                raise not_found("no configuration has been saved: send VERIFY_AND_SAVE first")
            self._commit(self._saved)
        elif action == request.RECONCILE_AND_COMMIT:
            self._reconcile(self._prepare(config))
        else:
            raise invalid("the request has no action, such as VERIFY_AND_COMMIT")

    @property
    def config(self) -> p4rt.ForwardingPipelineConfig | None:
        """Return the running configuration, if P4Runtime brought one."""
        pipeline = self._pipeline
        return pipeline.config if pipeline else None

    def write(
        self, updates: Sequence[p4rt.Update], atomicity: p4rt.WriteRequest.Atomicity = 0
    ) -> list[Refusal | None]:
        """Carry out a batch. Returns None or a refusal per update. Raises Refusal without a pipeline."""
        with self._lock:
            pipeline = self._controlled()
            if atomicity == p4rt.WriteRequest.DATAPLANE_ATOMIC:
                with pipeline.engine.held():
                    results = all_or_none(updates, pipeline.write, pipeline.undo)
            elif atomicity == p4rt.WriteRequest.ROLLBACK_ON_ERROR:
                results = all_or_none(updates, pipeline.write, pipeline.undo)
            else:
                results = each_alone(updates, pipeline.write)
            self._notifier.wake()
        return results

    def read(
        self, entities: Iterable[p4rt.Entity]
    ) -> tuple[list[p4rt.Entity], list[Refusal | None]]:
        """Return all described entities, and None or a refusal for each description. Raises Refusal."""
        found: list[p4rt.Entity] = []
        results: list[Refusal | None] = []
        with self._lock:
            pipeline = self._controlled()
            for entity in entities:
                try:
                    found += list(islice(pipeline.read(entity), MAX_READ + 1 - len(found)))
                    results.append(None)
                except Refusal as refusal:
                    results.append(refusal)
                if len(found) > MAX_READ:
                    raise exhausted(f"{MAX_READ} entities are the most that one request reads")
        return found, results

    def packet_out(self, packet: p4rt.PacketOut) -> None:
        """Send a controller's packet into the pipeline from the CPU port. Raises Refusal."""
        pipeline = self._pipeline
        if not pipeline:
            raise _no_pipeline()
        header = pack(pipeline.schema.packet_out, packet)
        try:
            self._cpu.send(header + packet.payload)
        except OSError as problem:
            raise invalid(f"the packet cannot be sent: {problem.strerror}") from None

    def acknowledge(self, ack: p4rt.DigestListAck) -> None:
        """Process a controller's acknowledgement of a list of digests. Raises Refusal."""
        with self._lock:
            if not self._pipeline:
                raise _no_pipeline()
            self._pipeline.digests.acknowledge(ack)

    @property
    def port_specs(self) -> list[str]:
        """Return the specifications of all ports except the CPU port."""
        return [port.spec for port in self._ports[:-1]]

    @property
    def port_numbers(self) -> str:
        """Return the numbers of all ports except the CPU port, as in ``1,2,7``."""
        return ",".join(str(port.number) for port in self._ports[:-1])

    @property
    def ports_down(self) -> str:
        """Return the numbers of the ports whose interface is down or has disappeared, as in ``1,2,7``."""
        down = (port for port in self._ports[:-1] if not self._links.is_up(port))
        return ",".join(str(port.number) for port in down)

    def stats(self) -> Stats:
        """Return the counts of the ports and of the program's tables."""
        with self._lock:
            return Stats.of(self._engine, self._ports, self.config, self._links)

    def _controlled(self) -> Pipeline:
        """Return the pipeline for reads and writes: the saved one, or without one the running one."""
        pipeline = self._saved or self._pipeline
        if not pipeline:
            raise _no_pipeline()
        return pipeline

    def _prepare(self, config: p4rt.ForwardingPipelineConfig) -> Pipeline:
        """Return a configuration that is ready to run. Raises Refusal."""
        _check_config(config)
        try:
            engine = self._make_engine(unwrapped(config.p4_device_config))
        except UnsupportedProgram as problem:
            raise invalid(str(problem)) from None
        except CompilerError as problem:
            raise Refusal(grpc.StatusCode.INTERNAL, str(problem)) from None
        try:
            return Pipeline(engine, config)
        except UnsupportedProgram as problem:
            engine.close()
            raise invalid(str(problem)) from None

    def _commit(self, pipeline: Pipeline) -> None:
        with self._lock:
            if self._saved is pipeline:
                self._saved = None
            self._run(pipeline.engine, pipeline)

    def _reconcile(self, pipeline: Pipeline) -> None:
        """Commit a configuration with the entities and values of the previous one. Raises Refusal."""
        with self._lock:
            old = self._pipeline
            if old:
                try:
                    pipeline.adopt(old)
                except Refusal:
                    pipeline.engine.close()
                    raise
                old.engine.stop()
                pipeline.adopt_values(old)
            self._run(pipeline.engine, pipeline)

    def _run(self, engine: Engine, pipeline: Pipeline | None) -> None:
        """Run an engine in place of the previous one."""
        self._drop_saved()
        if self._engine:
            self._engine.close()
        self._engine, self._pipeline = engine, pipeline
        engine.set_wakeup(self._notifier.wakeup)
        engine.start(self._ports)
        self._notifier.wake()

    def _drop_saved(self) -> None:
        if self._saved:
            self._saved.engine.close()
        self._saved = None

    def _notify(self) -> float | None:
        """Send idle notifications and due digests. Returns the seconds until the next ones, if any."""
        if not self._pipeline:
            return None
        entries, idle_wait = self._pipeline.tables.aging.over()
        for part in parts(entries):
            message = p4rt.StreamMessageResponse()
            message.idle_timeout_notification.table_entry.extend(part)
            message.idle_timeout_notification.timestamp = time.time_ns()
            self._send(message)
        lists, digest_wait = self._pipeline.digests.collect()
        for each in lists:
            self._send(p4rt.StreamMessageResponse(digest=each))
        return min((each for each in (idle_wait, digest_wait) if each is not None), default=None)

    def _read_cpu(self) -> None:
        # The loop ends when `close` shuts the socket down. An empty frame alone does not end it.
        while (frame := self._cpu.recv(MAX_FRAME)) or not self._closed:
            pipeline = self._pipeline
            packet = unpack(pipeline.schema.packet_in, frame) if pipeline else None
            if packet:
                self._send(p4rt.StreamMessageResponse(packet=packet))


def pack(fields: Sequence[Field], packet: p4rt.PacketOut) -> bytes:
    """Return the header that a packet-out's metadata describe. Raises Refusal."""
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


def unpack(fields: Sequence[Field], frame: bytes) -> p4rt.PacketIn | None:
    """Return a frame from the CPU port as a packet-in, with its header as metadata.

    Return None if the frame is shorter than the header. BMv2 does not send such a frame either.
    """
    size = sum(field.bits for field in fields) // 8
    if len(frame) < size:
        return None
    header = int.from_bytes(frame[:size], "big")
    packet = p4rt.PacketIn(payload=frame[size:])
    left = size * 8
    for field in fields:
        left -= field.bits
        packet.metadata.add(metadata_id=field.id, value=encode(header >> left & field.full))
    return packet


def _check_config(config: p4rt.ForwardingPipelineConfig) -> None:
    if not config.p4_device_config:
        raise invalid("the device configuration is empty: it has to be p4c's BMv2 JSON")


def _verify(config: p4rt.ForwardingPipelineConfig) -> None:
    _check_config(config)
    try:
        program = bmv2json.load(unwrapped(config.p4_device_config))
        Schema(config.p4info, program)
        generate(program)
    except UnsupportedProgram as problem:
        raise invalid(str(problem)) from None


def _no_pipeline() -> Refusal:
    return failed_precondition("no pipeline configuration has been set: set one first")
