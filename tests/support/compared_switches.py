"""BMv2 and the embedded switch, each with the same interface for entries and packets.

BMv2's packets travel over its own gRPC service, with one call for each packet. The call ends when
the packet and all its effects have left the switch, so no waiting is needed. The embedded switch
runs in this process, on socket pairs.
"""

import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import Message
from google.protobuf.reflection import GeneratedProtocolMessageType
from p4runtime_client import Controller
from random_values import DROP_PORT, PORTS
from tiny_programs import Program
from waiting import WITHIN, until

from innet.machine.sockets import enlarge_buffers
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.constants import PortKind
from innet.switch.engine import Engine
from innet.switch.p4runtime.arbitration import Arbitration
from innet.switch.p4runtime.device import Device
from innet.switch.p4runtime.service import P4RuntimeService, bound
from innet.switch.ports import Port

BMV2 = "simple_switch_grpc"

_CPU_PORT = 510
_SOON = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 50)]

Output = tuple[int, bytes]


class Target(Protocol):
    """A switch that runs a program."""

    def write(self, update: p4rt.Update) -> bool:
        """Carry out an update. Returns whether the switch accepted it."""

    def read(self, entity: p4rt.Entity) -> list[p4rt.Entity]:
        """Return all entities that `entity` describes."""

    def send(self, port: int, frame: bytes) -> list[Output]:
        """Send a packet. Returns all of the switch's output for it, sorted."""


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

    def send(self, port: int, frame: bytes, segments: int = 1) -> list[Output]:
        self._far[port].send(frame)
        self._sent[port] += segments
        # A reader sees the count change only after all of a packet's effects have been sent.
        while self.engine.port_counts(port).received.packets < self._sent[port]:
            pass
        return sorted((port, frame) for port in PORTS for frame in _waiting(self._far[port]))

    def throw(self, port: int, frame: bytes) -> None:
        """Send a message as soon as there is room, without a look at what becomes of it."""
        while True:
            with contextlib.suppress(BlockingIOError):
                self._far[port].send(frame)
                return

    def caught(self) -> list[Output]:
        """Return what has come out so far."""
        return [(port, frame) for port in PORTS for frame in _waiting(self._far[port])]


def _waiting(sock: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        while True:
            yield sock.recv(1 << 17)


@contextlib.contextmanager
def embedded(given: Program, cores: int = 1, *, described: bool = False) -> Iterator[Target]:
    """Run the embedded switch in this process, on so many cores if the program allows it.

    Frames may be `described`, as packet sockets do it: see :mod:`superframes`.
    """
    kind = PortKind.SUPER_FRAMES if described else PortKind.FRAMES
    with contextlib.ExitStack() as stack:
        far, near = {}, []
        for number in PORTS:
            inner, outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            far[number] = stack.enter_context(outer)
            outer.setblocking(False)
            for end in (inner, outer):
                enlarge_buffers(end)
            near.append(Port(number, "pair", inner, kind, interface="lo" if described else ""))
        address = f"unix:{stack.enter_context(tempfile.TemporaryDirectory())}/control"
        make_engine = partial(Engine, drop_port=DROP_PORT, cores=cores)
        device = stack.enter_context(
            contextlib.closing(Device(near, _CPU_PORT, lambda _: None, make_engine))
        )
        server, _ = bound(P4RuntimeService(device, Arbitration(0)), address)
        server.start()
        stack.callback(lambda: server.stop(grace=None).wait())
        controller = stack.enter_context(Controller(address, 1))
        controller.configure(given)
        yield _Embedded(controller, device, far)


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
    return GeneratedProtocolMessageType("Packet", (Message,), {"DESCRIPTOR": descriptor})


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
        outputs: list[Output] = []
        until(lambda: self._sent(port, frame, outputs))
        return sorted(output for output in outputs if output[0] in PORTS)

    def _sent(self, port: int, frame: bytes, outputs: list[Output]) -> bool:
        """Send a frame, and collect what comes out. Return False if BMv2's ports do not run yet."""
        # The switch ends the stream when it has no more packets.
        answers = self._stream(iter([_Packet(port=port, packet=frame)]), timeout=WITHIN)
        try:
            outputs.extend((answer.port, answer.packet) for answer in answers)
        except grpc.RpcError as error:
            if error.details() == "not ready":
                return False
            raise
        return True


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
                grpc.channel_ready_future(channel).result(WITHIN)
        controller = stack.enter_context(Controller(control, 1))
        controller.configure(given)
        yield _Bmv2(controller, stack.enter_context(grpc.insecure_channel(data)))


def available() -> bool:
    """Return whether BMv2 is installed."""
    return shutil.which(BMV2) is not None
