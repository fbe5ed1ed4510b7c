"""A rack around a Tofino that is executed in Python: the compiled assembly behind a P4Runtime server.

The controller and the agents are the real ones, connected by cables made of UDP.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from chip_server import Chip, one, serving
from racks import Rack
from tofino_switch import TofinoSwitch
from trees import Forest, Plan

from innet.controller.server import ControllerServer
from innet.local.ports import free_udp_ports
from innet.p4.artifacts import Artifact
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, translated


class ModelChip(Chip):
    """A chip that forwards packets: between cables, by port, and to and from the controller."""

    def __init__(self, chip: str, cables: dict[int, socket.socket]) -> None:
        super().__init__(self._packet_out, self._load)
        self._model = TofinoSwitch(chip)
        self._cables = cables
        self._lock = threading.Lock()
        tables = [table for pipe in self._pipes for table in pipe.tables.values()]
        self._constant = {id(table): list(table.entries) for table in tables}
        self._tables = tables

    @property
    def _pipes(self):
        return self._model._ingress, self._model._egress

    def receive(self, port: int, frame: bytes) -> None:
        """Take a frame from a port."""
        for packet in self._pass(port, frame):
            self.packet_in(packet)

    def _packet_out(self, packet: p4rt.PacketOut) -> list[p4rt.PacketIn]:
        values = {each.metadata_id: int.from_bytes(each.value, "big") for each in packet.metadata}
        header = (values[1] << 7 | values[2]).to_bytes(2, "big")
        return self._pass(self._model.cpu_port, header + packet.payload)

    def _pass(self, port: int, frame: bytes) -> list[p4rt.PacketIn]:
        found = []
        with self._lock:
            outputs = self._model.send(port, frame)
        for to, made in outputs:
            if to == self._model.cpu_port:
                packet, header = p4rt.PacketIn(payload=made[2:]), int.from_bytes(made[:2], "big")
                packet.metadata.add(metadata_id=1, value=(header >> 7).to_bytes(2, "big"))
                packet.metadata.add(metadata_id=2, value=bytes([header & 0x7F]))
                found.append(packet)
            elif to in self._cables:
                with contextlib.suppress(ConnectionRefusedError):  # no worker is there yet
                    self._cables[to].send(made)
        return found

    def _load(self) -> None:
        """Write the held entities to the model's tables."""
        program = Artifact(64, 8192, b"", self.info)
        with self._lock:
            for table in self._tables:
                table.entries[:] = self._constant[id(table)]
            self._model._groups.clear()
            for entity in self.held.values():
                self._model.insert(entity, program)

    def _cells(self, cell: p4rt.CounterEntry) -> dict[int, int]:
        name = one(self.info.counters, cell.counter_id).preamble.alias
        return self._model._ingress.counters[name]

    def count(self, cell: p4rt.CounterEntry) -> int:
        return self._cells(cell)[cell.index.index]

    def set_count(self, cell: p4rt.CounterEntry, count: int) -> None:
        self._cells(cell)[cell.index.index] = count


@contextlib.contextmanager
def tofino_rack(folder: Path, kind: str, ports: Sequence[int]) -> Iterator[tuple[Rack, ModelChip]]:
    """Start a chip with cables at these ports, and its controller. `folder` has the chip's binary."""
    with contextlib.ExitStack() as stack:
        chip, address, links = stack.enter_context(model_chip(kind, free_cables(ports)))
        server = ControllerServer("127.0.0.1:0")
        stack.callback(server.close)
        channel, stub = connect(f"127.0.0.1:{server.port}")
        stack.callback(channel.close)
        request = pb.AddSwitchRequest(
            name="tor", grpc_address=address, device_id=1, ports=ports, target=kind,
            artifact=str(folder),
        )  # fmt: skip
        with translated("add the switch"):
            stub.AddSwitch(request)
        yield Rack(None, f"127.0.0.1:{server.port}", stub, links), chip


@contextlib.contextmanager
def tofino_tree(
    folder: Path,
    kinds: tuple[str, str],
    racks: Mapping[str, Sequence[int]],
    up: int,
    down: Mapping[str, int],
) -> Iterator[Forest]:
    """Start chips below another one, ``top``, and a controller that has added them all.

    `kinds` are the kind of ``top`` and the kind of the others. Their binaries are in `folder`.
    `racks` has each lower chip's ports for workers. `down` has the port of ``top`` that the cable
    from each lower chip's port `up` leads to.
    """
    plan, cables = Plan(links={}), {"top": {}, **{name: free_cables(racks[name]) for name in racks}}
    for name, port in down.items():
        plan.links[name] = [_link(ends) for ends in cables[name].values()]
        plan.uplinks[name] = [pb.Uplink(parent="top", port=up, parent_port=port)]
        [(near, far)] = free_cables([up]).values()
        cables[name][up], cables["top"][port] = (near, far), (far, near)
    with contextlib.ExitStack() as stack:
        kind = {name: kinds[name != "top"] for name in cables}
        chips = {
            name: stack.enter_context(model_chip(kind[name], each)) for name, each in cables.items()
        }
        server = ControllerServer("127.0.0.1:0")
        stack.callback(server.close)
        channel, stub = connect(f"127.0.0.1:{server.port}")
        stack.callback(channel.close)
        for name, (_, address, _) in chips.items():
            request = pb.AddSwitchRequest(
                name=name, grpc_address=address, device_id=1, ports=cables[name],
                target=kind[name], artifact=str(folder / kind[name]),
                uplinks=plan.uplinks.get(name, ()),
            )  # fmt: skip
            with translated("add the switch"):
                stub.AddSwitch(request)
        yield Forest(f"127.0.0.1:{server.port}", stub, plan, {}, None, [server])
        assert [error for chip, *_ in chips.values() for error in chip.errors] == []


def free_cables(ports: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Return a cable at each of these ports: the UDP ports of its two ends."""
    ends = iter(free_udp_ports(2 * len(numbers := [*ports])))
    return {port: (next(ends), next(ends)) for port in numbers}


def _link(ends: tuple[int, int]) -> str:
    """Return the cable in the form that an agent takes."""
    near, far = ends
    return f"udp:127.0.0.1:{far}/127.0.0.1:{near}"


@contextlib.contextmanager
def model_chip(
    kind: str, ends: Mapping[int, tuple[int, int]]
) -> Iterator[tuple[ModelChip, str, list[str]]]:
    """Start a chip with these cables. Yields it, its address, and the cables' other ends as links."""
    with contextlib.ExitStack() as stack:
        cables = {}
        for port, (here, there) in ends.items():
            near = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            # The model takes milliseconds per packet. A small buffer drops packets that would wait long.
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            near.bind(("127.0.0.1", here))
            near.connect(("127.0.0.1", there))
            cables[port] = near
        chip = ModelChip(kind, cables)
        address = stack.enter_context(serving(chip))
        stack.enter_context(_forwarding(chip, cables))
        yield chip, address, [_link(each) for each in ends.values()]


@contextlib.contextmanager
def _forwarding(chip: ModelChip, cables: dict[int, socket.socket]) -> Iterator[None]:
    """Forward frames from the cables, until the context ends."""
    wake, woken = socket.socketpair()
    with wake, woken, selectors.DefaultSelector() as selector:
        selector.register(woken, selectors.EVENT_READ, None)
        for port, cable in cables.items():
            cable.setblocking(False)
            selector.register(cable, selectors.EVENT_READ, port)

        def forward() -> None:
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        return
                    with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                        chip.receive(key.data, key.fileobj.recv(1 << 12))

        thread = threading.Thread(target=forward)
        thread.start()
        try:
            yield
        finally:
            wake.send(b"x")
            thread.join()
