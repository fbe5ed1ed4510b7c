"""One switch over P4Runtime: any program's tables, groups, counters and packets, by name.

A thin layer over p4runtime-shell's client, which speaks the protocol: names instead of ids, and
:class:`SwitchError` instead of exits and gRPC's errors.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
import structlog
from google.rpc import status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2 as p4rt
from p4runtime_sh.p4runtime import P4RuntimeClient, P4RuntimeException

from innet.errors import SwitchError

_log = structlog.get_logger("innet.controller")
_ANSWER_WITHIN = 5.0
_RUN_WITHIN = 120.0  # a switch may have to compile the program

Match = Mapping[str, int | tuple[int, int]]
"""Match values by field name; for an lpm field (value, prefix length)."""


class Names:
    """A program's P4Info, to be asked by name."""

    def __init__(self, info: p4info_pb2.P4Info) -> None:
        self._tables = {each.preamble.alias: each for each in info.tables}
        self._actions = {each.preamble.alias: each for each in info.actions}
        self._counters = {each.preamble.alias: each for each in info.counters}
        self._headers = {each.preamble.name: each for each in info.controller_packet_metadata}

    def entry(
        self, table: str, match: Match, action: str = "", params: Mapping[str, int] | None = None
    ) -> p4rt.Entity:
        """A table entry: without an action enough to delete it."""
        layout = self._tables[table]
        entity = p4rt.Entity()
        entry = entity.table_entry
        entry.table_id = layout.preamble.id
        for field in layout.match_fields:
            if field.name in match:
                component = entry.match.add(field_id=field.id)
                _fill_match(component, field.bitwidth, match[field.name])
        if action:
            call = self._actions[action]
            entry.action.action.action_id = call.preamble.id
            for param in call.params:
                value = _bytes((params or {})[param.name])
                entry.action.action.params.add(param_id=param.id, value=value)
        return entity

    def counter(self, name: str, index: int, packets: int | None = None) -> p4rt.Entity:
        """A cell of an indirect counter."""
        entity = p4rt.Entity()
        entity.counter_entry.counter_id = self._counters[name].preamble.id
        entity.counter_entry.index.index = index
        if packets is not None:
            entity.counter_entry.data.packet_count = packets
        return entity

    def packet_out(self, payload: bytes, **metadata: int) -> p4rt.StreamMessageRequest:
        """A packet for the pipeline; metadata that are not given are zero."""
        message = p4rt.StreamMessageRequest()
        message.packet.payload = payload
        for field in self._headers["packet_out"].metadata:
            value = _bytes(metadata.get(field.name, 0))
            message.packet.metadata.add(metadata_id=field.id, value=value)
        return message

    def packet_in(self, packet: p4rt.PacketIn) -> dict[str, int]:
        """A packet-in's metadata by name."""
        names = {field.id: field.name for field in self._headers["packet_in"].metadata}
        return {
            names[each.metadata_id]: int.from_bytes(each.value, "big") for each in packet.metadata
        }


class SwitchConnection:
    """A primary controller's connection to one switch.

    `packet_in` is called from a thread of the connection's own with metadata by name and the frame.
    Raises SwitchError if the switch cannot be reached, or another controller is in charge.
    """

    def __init__(
        self,
        address: str,
        device_id: int,
        info: p4info_pb2.P4Info,
        packet_in: Callable[[dict[str, int], bytes], None],
    ) -> None:
        self.names = Names(info)
        self._info, self._packet_in = info, packet_in
        self._where = f"the switch at {address}"
        _await(address)
        with self._translated():
            # Of two controllers the one that started later is in charge.
            self._client = P4RuntimeClient(device_id, address, (0, time.time_ns()))
        threading.Thread(target=self._listen, name="innet-packet-in", daemon=True).start()

    def run(self, device_config: bytes) -> None:
        """Make the switch run the program, with empty tables."""
        request = p4rt.SetForwardingPipelineConfigRequest(device_id=self._client.device_id)
        request.election_id.low = self._client.election_id[1]
        request.action = p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.config.p4info.CopyFrom(self._info)
        request.config.p4_device_config = device_config
        with self._translated():
            self._client.stub.SetForwardingPipelineConfig(request, timeout=_RUN_WITHIN)

    def insert(self, *entities: p4rt.Entity) -> None:
        """Add entries, all or, with a SwitchError, those that can be."""
        self._write(p4rt.Update.INSERT, entities)

    def modify(self, *entities: p4rt.Entity) -> None:
        """Change entries that exist."""
        self._write(p4rt.Update.MODIFY, entities)

    def delete(self, *entities: p4rt.Entity) -> None:
        """Remove entries."""
        self._write(p4rt.Update.DELETE, entities)

    def count(self, *cells: p4rt.Entity) -> list[int]:
        """The packets that counter cells have counted."""
        request = p4rt.ReadRequest(device_id=self._client.device_id, entities=cells)
        with self._translated():
            found = {
                _cell(entity): entity.counter_entry.data.packet_count
                for response in self._client.stub.Read(request, timeout=_ANSWER_WITHIN)
                for entity in response.entities
            }
            return [found[_cell(cell)] for cell in cells]

    def send(self, packets: Sequence[p4rt.StreamMessageRequest]) -> None:
        """Packet-outs, in order; like any packet they may get lost."""
        for packet in packets:
            self._client.stream_out_q.put(packet)

    def close(self) -> None:
        """End the connection; the switch goes on with what it has."""
        self._client.tear_down()

    def _write(self, kind: p4rt.Update.Type, entities: Sequence[p4rt.Entity]) -> None:
        request = p4rt.WriteRequest()
        for entity in entities:
            request.updates.add(type=kind, entity=entity)
        request.device_id = self._client.device_id
        request.election_id.low = self._client.election_id[1]
        with self._translated():
            # Not the client's own `write`: its reading of the error details does not end.
            self._client.stub.Write(request, timeout=_ANSWER_WITHIN)

    def _listen(self) -> None:
        # The client puts None when the stream has ended.
        while (message := self._client.stream_in_q["packet"].get()) is not None:
            try:
                self._packet_in(self.names.packet_in(message.packet), message.packet.payload)
            except Exception:  # noqa: BLE001 - whatever it is
                # One strange packet must not cost all others that are to come.
                _log.exception("a packet-in was not understood")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except P4RuntimeException as problem:
            raise SwitchError(f"{self._where} refused: {problem}") from None
        except grpc.RpcError as problem:
            if problem.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise SwitchError(f"{self._where} does not answer: is it stuck?") from None
            reasons = "; ".join([problem.details() or problem.code().name, *_details(problem)])
            raise SwitchError(f"{self._where} refused: {reasons}") from None
        except SystemExit:  # the client's way of giving up
            raise SwitchError(f"{self._where} does not answer as a P4Runtime switch") from None


def group(number: int, replicas: Sequence[tuple[int, int]]) -> p4rt.Entity:
    """A multicast group of (port, instance) copies."""
    entity = p4rt.Entity()
    entry = entity.packet_replication_engine_entry.multicast_group_entry
    entry.multicast_group_id = number
    for port, instance in replicas:
        entry.replicas.add(egress_port=port, instance=instance)
    return entity


def _details(problem: grpc.RpcError) -> Iterator[str]:
    """What is wrong with which update of a write (P4Runtime, "Error Reporting Messages")."""
    packed = dict(problem.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    for index, detail in enumerate(status_pb2.Status.FromString(packed).details):
        error = p4rt.Error()
        if detail.Unpack(error) and error.canonical_code:
            yield f"update {index}: {error.message or 'code ' + str(error.canonical_code)}"


def _cell(entity: p4rt.Entity) -> tuple[int, int]:
    return entity.counter_entry.counter_id, entity.counter_entry.index.index


def _await(address: str) -> None:
    """Fail clearly where nobody listens, before the client is asked, which would wait for long."""
    _exempt_from_proxy(address.rpartition(":")[0])
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(_ANSWER_WITHIN)
        except grpc.FutureTimeoutError:
            raise SwitchError(
                f"no switch answers at {address}: is it running, with P4Runtime at this address?"
            ) from None


def _exempt_from_proxy(host: str) -> None:
    """p4runtime-shell's channel would obey a proxy that is set for the web, unless told so here."""
    exempt = os.environ.get("no_grpc_proxy", "").split(",")  # noqa: SIM112 - gRPC's spelling
    if host not in exempt:
        os.environ["no_grpc_proxy"] = ",".join(filter(None, [*exempt, host]))  # noqa: SIM112


def _fill_match(component: Any, bits: int, value: int | tuple[int, int]) -> None:
    if isinstance(value, tuple):
        number, length = value
        component.lpm.value, component.lpm.prefix_len = _bytes(number), length
    else:
        component.exact.value = _bytes(value)
        if value >> bits:
            raise ValueError(f"{value} does not fit {bits} bits")


def _bytes(value: int) -> bytes:
    """P4Runtime's canonical byte string: the shortest that holds the number."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
