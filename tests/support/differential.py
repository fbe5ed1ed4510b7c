"""The same program, entries and packets through BMv2 and through the embedded switch.

BMv2's packets travel over its own gRPC service, with one call for each packet. The call ends when
the packet and all its effects have left the switch, so no waiting is needed. The embedded switch
runs in this process, on socket pairs.

``python tests/support/differential.py record [PROGRAM...]`` records what BMv2 does in ``vectors/``, from
which :func:`replay` can compare the embedded switch to it where there is no BMv2.
``python tests/support/differential.py compare PROGRAM SEED...`` shows where the two differ.
"""

import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc
from contributions import rack_scenario, tree_scenario
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2 as p4rt
from p4runtime_client import Controller
from scenarios import DROP_PORT, PORTS, Scenario, scenario
from tiny_programs import FOLDER, Program, program

from innet.machine.sockets import enlarge_buffers
from innet.p4.artifacts import SLOTS, artifact
from innet.switch.constants import PortKind
from innet.switch.p4runtime.device import Device
from innet.switch.p4runtime.service import P4RuntimeService, serve
from innet.switch.ports import Port

BMV2 = "simple_switch_grpc"
VECTORS = Path(__file__).parent / "vectors"
RECORDED_SCENARIOS, RECORDED_PACKETS = 3, 40

NOT_COMPARABLE = {
    "extern_assertions": "BMv2 ends when an assertion fails",
    "extern_hash_random": "random numbers differ",
    "extern_random": "random numbers differ",
    "parse_endless": "BMv2 is never done with a packet that is parsed for ever",
    "parse_index": "an index outside of a header stack ends BMv2",
    "parse_union_element": "asking whether a union of a stack is valid ends BMv2",
    "path_forever": "BMv2 is never done with a packet that is recirculated for ever",
    "path_time": "time differs",
}
"""Programs whose packets the two switches need not treat alike, and why."""

NOT_RECORDED = "aggregate-256"
"""A program that is only compared live: its vectors would be long, and it equals aggregate-64."""

WHOLE = frozenset({"parse_stack"})
"""Programs that read headers which damaged packets lack. BMv2 then reads those of an earlier packet."""

_CPU_PORT = 510
_SOON = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 50)]
_AGGREGATION = {f"aggregate-{lanes}": lanes for lanes in SLOTS}
_TREE = "tree-64"
"""The program of aggregate-64 with a parent."""

Output = tuple[int, bytes]


class Target(Protocol):
    """A switch that runs a program."""

    def write(self, update: p4rt.Update) -> bool:
        """Carry out an update. Returns whether the switch accepted it."""

    def read(self, entity: p4rt.Entity) -> list[p4rt.Entity]:
        """Return all entities that `entity` describes."""

    def send(self, port: int, frame: bytes) -> list[Output]:
        """Send a packet. Returns all of the switch's output for it, sorted."""


@dataclass(frozen=True)
class Outcome:
    """A switch's results: the accepted updates, the output for each packet, and the counters."""

    accepted: list[bool]
    outputs: list[list[Output]]
    counters: list[str]


def names() -> list[str]:
    """Return the programs that both switches should run alike, and that have vectors."""
    small = sorted(path.name.split(".")[0] for path in FOLDER.glob("*.p4info.txtpb"))
    names = [*_AGGREGATION, _TREE, *small]
    return [name for name in names if name not in {*NOT_COMPARABLE, NOT_RECORDED}]


def load(name: str) -> Program:
    """Return a compiled program by name."""
    if name in _AGGREGATION or name == _TREE:
        made = artifact(_AGGREGATION.get(name, 64))
        return Program(made.json, made.p4info)
    return program(name)


def draw(name: str, seed: int, packets: int) -> Scenario:
    """Return a random scenario of a program."""
    if name in _AGGREGATION:  # hardly any random packet is a worker's
        return rack_scenario(seed, packets, _AGGREGATION[name])
    if name == _TREE:
        return tree_scenario(seed, packets)
    return scenario(load(name), seed, packets, whole=name in WHOLE)


def carry_out(target: Target, given: Scenario, info: p4info_pb2.P4Info) -> Outcome:
    """Carry out a scenario."""
    accepted = [target.write(update) for update in given.updates]
    outputs = [target.send(port, frame) for port, frame in given.packets]
    return Outcome(accepted, outputs, counters(target, info))


def counters(target: Target, info: p4info_pb2.P4Info) -> list[str]:
    """Return all cells of all counters that have counted something, as text."""
    wanted = []
    for each in info.counters:
        wanted.append(p4rt.Entity())
        wanted[-1].counter_entry.counter_id = each.preamble.id
    for each in info.direct_counters:
        wanted.append(p4rt.Entity())
        wanted[-1].direct_counter_entry.table_entry.table_id = each.direct_table_id
    tables = {each.preamble.id: each for each in info.tables}
    cells = [cell for entity in wanted for cell in target.read(entity)]
    for cell in cells:
        if cell.HasField("direct_counter_entry"):
            entry = cell.direct_counter_entry.table_entry
            _normalize(entry, tables[entry.table_id])
    return sorted(
        text_format.MessageToString(cell, as_one_line=True)
        for cell in cells
        if cell.counter_entry.data.packet_count or cell.direct_counter_entry.data.packet_count
    )


def _normalize(entry: p4rt.TableEntry, table: Any) -> None:
    """Keep only the fields that identify an entry, in a form that both switches share."""
    entry.ClearField("action")
    if table.has_initial_entries:
        entry.ClearField("priority")  # each switch makes other priorities of P4's
        entry.ClearField("is_const")
    full = {each.id: (1 << each.bitwidth) - 1 for each in table.match_fields}
    kept = [
        match
        for match in entry.match
        if not match.HasField("range")
        or int.from_bytes(match.range.low, "big") > 0
        or int.from_bytes(match.range.high, "big") < full[match.field_id]
    ]
    kept.sort(key=lambda match: match.field_id)
    entry.ClearField("match")
    entry.match.extend(kept)


def differences(given: Scenario, wanted: Outcome, got: Outcome) -> list[str]:
    """Return the differences of two outcomes, in words."""
    found = []
    for update, left, right in zip(given.updates, wanted.accepted, got.accepted, strict=True):
        if left != right:
            text = text_format.MessageToString(update, as_one_line=True)
            found.append(f"BMv2 {_did(left)}, innet-switch {_did(right)} the update: {text}")
    for number, (packet, left, right) in enumerate(
        zip(given.packets, wanted.outputs, got.outputs, strict=True)
    ):
        if left != right:
            port, frame = packet
            found.append(
                f"packet {number}, to port {port}: {frame.hex()}\n"
                f"    BMv2:         {_show(left)}\n    innet-switch: {_show(right)}"
            )
    found += [f"only BMv2 has: {cell}" for cell in wanted.counters if cell not in got.counters]
    found += [
        f"only innet-switch has: {cell}" for cell in got.counters if cell not in wanted.counters
    ]
    return found


def _did(accepted: bool) -> str:
    return "takes" if accepted else "refuses"


def _show(outputs: list[Output]) -> str:
    return ", ".join(f"{port}: {frame.hex()}" for port, frame in outputs) or "nothing"


class _P4Runtime:
    """The common part of both switches: entries are written and read through P4Runtime."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def write(self, update: p4rt.Update) -> bool:
        with contextlib.suppress(grpc.RpcError):
            self._controller.write(update)
            return True
        return False

    def read(self, entity: p4rt.Entity) -> list[p4rt.Entity]:
        return self._controller.read(entity)


# -- the embedded switch -------------------------------------------------------------------------


class _Embedded(_P4Runtime):
    def __init__(
        self, controller: Controller, device: Device, far: dict[int, socket.socket]
    ) -> None:
        super().__init__(controller)
        self.engine, self._far = device._engine, far
        self._sent = dict.fromkeys(PORTS, 0)

    def send(self, port: int, frame: bytes) -> list[Output]:
        self._far[port].send(frame)
        self._sent[port] += 1
        # A reader sees the count change only after all of a packet's effects have been sent.
        while self.engine.port_counts(port).received.packets < self._sent[port]:
            pass
        return sorted((port, frame) for port in PORTS for frame in _waiting(self._far[port]))


def _waiting(sock: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        while True:
            yield sock.recv(1 << 17)


@contextlib.contextmanager
def embedded(given: Program) -> Iterator[Target]:
    """Run the embedded switch in this process."""
    with contextlib.ExitStack() as stack:
        far, near = {}, []
        for number in PORTS:
            inner, outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            far[number] = stack.enter_context(outer)
            outer.setblocking(False)
            for end in (inner, outer):
                enlarge_buffers(end)
            near.append(Port(number, "pair", inner, PortKind.FRAMES))
        address = f"unix:{stack.enter_context(tempfile.TemporaryDirectory())}/control"
        service = P4RuntimeService(0)
        service.device = Device(near, _CPU_PORT, DROP_PORT, lambda _: None)
        stack.callback(service.device.close)
        server, _ = serve(service, address)
        stack.callback(lambda: server.stop(grace=None).wait())
        controller = stack.enter_context(Controller(address, 1))
        controller.configure(given)
        yield _Embedded(controller, service.device, far)


# -- BMv2 ----------------------------------------------------------------------------------------


def _packet_message() -> Any:
    """Return BMv2's message type for a packet, which both directions use."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bmv2_packet.proto", package="bmv2_packet")
    fields = file.message_type.add(name="Packet").field
    fields.add(name="id", number=1, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    fields.add(name="device_id", number=2, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    fields.add(name="port", number=3, type=kinds.TYPE_UINT32, label=kinds.LABEL_OPTIONAL)
    fields.add(name="packet", number=4, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName("bmv2_packet.Packet")
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


_Packet = _packet_message()


class _Bmv2(_P4Runtime):
    def __init__(self, controller: Controller, data_plane: grpc.Channel) -> None:
        super().__init__(controller)
        self._stream = data_plane.stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream",
            request_serializer=_Packet.SerializeToString,
            response_deserializer=_Packet.FromString,
        )

    def send(self, port: int, frame: bytes) -> list[Output]:
        # The switch ends the stream when it has no more packets.
        answers = self._stream(iter([_Packet(port=port, packet=frame)]), timeout=20)
        outputs = [(answer.port, answer.packet) for answer in answers]
        return sorted(output for output in outputs if output[0] in PORTS)


@contextlib.contextmanager
def bmv2(given: Program) -> Iterator[Target]:
    """Run BMv2 as a process of its own."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        control, data = f"unix:{folder}/control", f"unix:{folder}/data"
        command = [BMV2, "--no-p4", "--device-id", "0", "--", "--grpc-server-addr", control]
        command += ["--dp-grpc-server-addr", data, "--cpu-port", str(_CPU_PORT)]
        process = stack.enter_context(
            subprocess.Popen([*command, "--drop-port", str(DROP_PORT)], stdout=subprocess.DEVNULL)
        )
        stack.callback(process.kill)
        for address in (control, data):
            with grpc.insecure_channel(address, _SOON) as channel:
                grpc.channel_ready_future(channel).result(30)
        controller = stack.enter_context(Controller(control, 1))
        controller.configure(given)
        yield _Bmv2(controller, stack.enter_context(grpc.insecure_channel(data)))


def available() -> bool:
    """Return whether BMv2 is installed."""
    return shutil.which(BMV2) is not None


def compare(name: str, seed: int, packets: int) -> list[str]:
    """Put one random scenario through both switches. Returns their differences, in words."""
    running = load(name)
    given = draw(name, seed, packets)
    with bmv2(running) as left, embedded(running) as right:
        wanted = carry_out(left, given, running.p4info)
        return differences(given, wanted, carry_out(right, given, running.p4info))


# -- recorded vectors ----------------------------------------------------------------------------

_FORMAT = (
    "of each scenario: updates, with whether BMv2 takes them; packets as [port, frame, outputs], an "
    "output as [port, new bytes, how many bytes of the frame's end follow them]; counters"
)


def record(name: str) -> None:
    """Record BMv2's behaviour in some random scenarios."""
    running = load(name)
    texts = []
    for given in telling_scenarios(name):
        with bmv2(running) as target:
            outcome = carry_out(target, given, running.p4info)
        lines = (json.dumps(line, separators=(",", ":")) for line in _lines(given, outcome))
        texts.append("[" + ",\n".join(lines) + "]")
    head = {"program": hashlib.sha256(running.json).hexdigest(), "format": _FORMAT}
    VECTORS.mkdir(exist_ok=True)
    body = ",\n".join([json.dumps(head), *texts])
    (VECTORS / f"{name}.json").write_text(f"[{body}]\n")


def telling_scenarios(name: str) -> list[Scenario]:
    """Return the few scenarios with the most answers, because in others hardly a packet survives."""
    running = load(name)
    answers = []
    for seed in range(1, 13):
        given = draw(name, seed, RECORDED_PACKETS)
        with embedded(running) as target:
            outcome = carry_out(target, given, running.p4info)
        answers.append((len({tuple(outputs) for outputs in outcome.outputs}), -seed, given))
    return [given for *_, given in sorted(answers, reverse=True)[:RECORDED_SCENARIOS]]


def _lines(given: Scenario, outcome: Outcome) -> Iterator[Any]:
    for update, accepted in zip(given.updates, outcome.accepted, strict=True):
        yield [text_format.MessageToString(update, as_one_line=True), accepted]
    for (port, frame), outputs in zip(given.packets, outcome.outputs, strict=True):
        yield [port, frame.hex(), [_pack(frame, *output) for output in outputs]]
    yield from outcome.counters


def recorded(name: str) -> tuple[str, list[tuple[Scenario, Outcome]]]:
    """Return a recorded vector: the digest of the program's JSON, and each scenario with its outcome."""
    head, *scenarios = json.loads((VECTORS / f"{name}.json").read_text())
    return head["program"], [_parse(lines) for lines in scenarios]


def _parse(lines: list[Any]) -> tuple[Scenario, Outcome]:
    given, outcome = Scenario(), Outcome([], [], [])
    for line in lines:
        match line:
            case str():
                outcome.counters.append(line)
            case [str(text), accepted]:
                given.updates.append(text_format.Parse(text, p4rt.Update()))
                outcome.accepted.append(accepted)
            case [port, text, outputs]:
                frame = bytes.fromhex(text)
                given.packets.append((port, frame))
                outcome.outputs.append([_unpack(frame, *output) for output in outputs])
    return given, outcome


def replay(name: str) -> list[str]:
    """Repeat the scenarios of a recorded vector. Returns the differences, in words."""
    running = load(name)
    digest, scenarios = recorded(name)
    if digest != hashlib.sha256(running.json).hexdigest():
        return [f"{name} was compiled anew: python tests/support/differential.py record {name}"]
    found = []
    for given, wanted in scenarios:
        with embedded(running) as target:
            found += differences(given, wanted, carry_out(target, given, running.p4info))
    return found


def _pack(frame: bytes, port: int, output: bytes) -> list[Any]:
    same = 0
    while same < min(len(frame), len(output)) and frame[-same - 1] == output[-same - 1]:
        same += 1
    return [port, output[: len(output) - same].hex(), same]


def _unpack(frame: bytes, port: int, new: str, same: int) -> Output:
    return port, bytes.fromhex(new) + frame[len(frame) - same :]


def _main(command: str, *arguments: str) -> None:
    if command == "record":
        for name in arguments or names():
            record(name)
        return
    name, *seeds = arguments
    for seed in seeds:
        sys.stdout.write("\n".join([f"{name}, seed {seed}:", *compare(name, int(seed), 300), ""]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
