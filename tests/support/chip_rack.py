"""An aggregation rack whose switch is the program compiled for a Tofino, executed in Python."""

import contextlib
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from aggregation_rack import FLOOD_GROUP, NAMES, PROGRAM, SERVICE, AggregationRack, number
from p4runtime_client import group
from tofino_switch import TofinoSwitch

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.records import packet_dtype


class ChipController:
    """The controller that a rack needs. It takes entities with the ids of v1model's program."""

    def __init__(self, model: TofinoSwitch) -> None:
        self._model = model

    def insert(self, *entities: p4rt.Entity) -> None:
        for each in entities:
            self._model.insert(each, PROGRAM)

    def count(self, *cells: p4rt.Entity) -> list[int]:
        return [self._count(each.counter_entry) for each in cells]

    def _count(self, cell: p4rt.CounterEntry) -> int:
        [name] = [
            each.preamble.alias
            for each in PROGRAM.p4info.counters
            if each.preamble.id == cell.counter_id
        ]
        return self._model.count(name, cell.index.index)


@dataclass(frozen=True)
class ChipRack(AggregationRack):
    """A rack whose outgoing frames wait in queues.

    A chip computes no checks. The rack adds them, because its tests expect them.
    """

    waiting: dict[int, deque[bytes]] = field(default_factory=lambda: defaultdict(deque))

    def send(self, port: int, frame: bytes) -> None:
        for to, made in self.switch.send(port, frame):
            self.waiting[to].append(made)

    def receive(self, port: int) -> bytes:
        frame = self.waiting[port].popleft()
        sizes = [packet_dtype(lanes, ENCAPSULATION_BYTES) for lanes in (0, PROGRAM.lanes)]
        dtype = next((each for each in sizes if each.itemsize == len(frame)), None)
        if not dtype:
            return frame
        packet = np.frombuffer(frame, dtype).copy()
        if not packet["check"][0]:
            seal(packet, number(frame[26:30]), number(frame[34:36]))
        return packet.tobytes()


@contextlib.contextmanager
def chip_rack(ports: int, chip: str) -> Iterator[ChipRack]:
    """Start the rack, as `aggregation_rack` does with a software switch."""
    model = TofinoSwitch(chip)
    controller = ChipController(model)
    service = {"address": number(SERVICE.ip_bytes)}
    controller.insert(
        group(FLOOD_GROUP, *((port, 1) for port in range(1, ports + 1))),
        NAMES.entry("service", service, "serve", mac=number(SERVICE.mac_bytes)),
        NAMES.entry("own_addresses", service, "expose"),
    )
    yield ChipRack(model, controller, strips=chip != "tofino")
