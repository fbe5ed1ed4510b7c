"""A rack for tests: a switch that runs the aggregation program, and a station at each of its ports."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from p4runtime_client import Controller, Names, group
from scapy.layers.l2 import ARP, Ether
from switches import Switch, receive, running_switch

from innet.controller.switches.entries import OUTCOMES, job_counters
from innet.p4.artifacts import artifact
from innet.wire.check import intact, seal
from innet.wire.frames import ENCAPSULATION_BYTES, TYPE_OF_SERVICE, Address, encapsulation
from innet.wire.layout import HEADER_BYTES, LANE_BYTES, Ecn, Flag, Kind, Operation
from innet.wire.records import blank, get_field, packet_bytes, packet_dtype, set_field

LANES = 64
PROGRAM = artifact(LANES)
NAMES = Names(PROGRAM.p4info)
SERVICE = Address("02:00:00:00:00:fe", "10.0.0.254")
FLOOD_GROUP = 1
TERM, FIRST_SLOT, SLOT_PREFIX = 5, 4096, 4
"""The limits of every job's workers: 4096 slots, in this term."""

FIRST_OF_SWITCHES = 65
"""The first of the instance numbers of switches below."""

ETHER_TYPE, ARP_SENDER = slice(12, 14), slice(28, 32)
ARP_TYPE = b"\x08\x06"

DROPS = ("refused", "corrupted", "spoofed")
"""The counters of a port."""


def station(port: int) -> Address:
    """Return the address of the station at a port."""
    return Address(f"02:00:00:00:00:{port:02x}", f"10.0.0.{port}", 20_000 + port)


@dataclass(frozen=True)
class AggregationRack:
    """The switch and the controller in charge of it."""

    switch: Switch
    controller: Controller
    strips: bool = True
    """Whether copies for workers that do not want the result's lanes lack them."""

    def send(self, port: int, frame: bytes) -> None:
        """Put a frame on the wire at a port."""
        self.switch.hosts[port - 1].send(frame)

    def receive(self, port: int) -> bytes:
        """Return the next frame that comes out of a port."""
        return receive(self.switch.hosts[port - 1])

    def ask(self, port: int) -> bytes:
        """Ask for the service's address, and return the next frame out of the port."""
        self.send(port, _question(port))
        return self.receive(port)

    def assert_quiet(self, *ports: int) -> None:
        """Assert that nothing has come out of these ports for the first port's frames.

        The switch handles a port's frames in order, and frames that arrive later at other ports
        after them. So an answer to the first port's frames would come before the answers to this
        method's requests.
        """
        for port in ports:
            answer = self.ask(port)
            found = answer[ETHER_TYPE], answer[ARP_SENDER]
            assert found == (ARP_TYPE, SERVICE.ip_bytes), Ether(answer).summary()

    def dropped(self, port: int) -> dict[str, int]:
        """Return the counters of a port."""
        cells = [NAMES.counter(name, port) for name in DROPS]
        return dict(zip(DROPS, self.controller.count(*cells), strict=True))

    def assert_dropped(self, port: int, before: Mapping[str, int], **more: int) -> None:
        """Assert that the port's counters have grown by these numbers and no more."""
        assert self.dropped(port) == {name: before[name] + more.get(name, 0) for name in DROPS}

    def admit(self, job: int, rank: int, quorum: int, bits: int = 0) -> None:
        """Let the station at port rank + 1 contribute to a job, as worker `rank`, or as all of `bits`."""
        at = station(rank + 1)
        where = {"address": number(at.ip_bytes), "udp_port": at.udp_port}
        slots = {"job": job, "term": TERM, "slot": (FIRST_SLOT, SLOT_PREFIX)}
        params = {"quorum": quorum, "group": job, "job_index": job}
        copy = {"job": job, "instance": rank + 1 + (FIRST_OF_SWITCHES if bits else 0)}
        bits, mac = bits or 1 << rank, number(at.mac_bytes)
        self.controller.insert(
            NAMES.entry("workers", {"port": rank + 1, **where, **slots}, "admit",
                        worker=bits, **params),
            NAMES.entry("replicas", copy, "address_to", mac=mac, bits=bits, **where),
        )  # fmt: skip


class Job:
    """A job of the switch, with a slot for each test."""

    def __init__(self, rack: AggregationRack, job: int, quorum: int, slot: int) -> None:
        self.rack, self.job, self.quorum, self.slot = rack, job, quorum, slot

    def send(self, worker: int, sequence: int, value, operation=Operation.SUM, **changes) -> None:
        """Send a worker's contribution: `value` is one number, one for every lane, or None.

        Without a value it has no lanes. `wants` tells whether the worker wants those of the result.
        """
        self.rack.send(worker + 1, self.contribution(worker, sequence, value, operation, **changes))

    def contribution(
        self, worker: int, sequence: int, value, operation=Operation.SUM, **changes
    ) -> bytes:
        """Return the frame that :meth:`send` sends."""
        source, lanes = changes.pop("source", station(worker + 1)), LANES * (value is not None)
        ecn, flags = changes.pop("ecn", Ecn.CAPABLE), changes.pop("flags", 0)
        flags |= told(carried=value is not None, wanted=changes.pop("wants", True))
        prefix = encapsulation(source, SERVICE, packet_bytes(lanes), ecn)
        packet = blank(1, lanes, Kind.CONTRIBUTION, prefix)
        fields = {"job": self.job, "term": TERM, "slot": self.slot, "sequence": sequence}
        fields |= {"operation": operation, "flags": flags}
        for name, content in {**fields, **changes}.items():
            set_field(packet, name, content)
        if lanes:
            packet["lanes"] = value
        seal(packet, source.ip_number, source.udp_port)
        return packet.tobytes()

    def receive(self, worker: int) -> np.void:
        """Return the next packet from the switch to the worker."""
        frame = self.rack.receive(worker + 1)
        assert frame[TYPE_OF_SERVICE] == Ecn.CAPABLE
        return packet_in(frame, SERVICE)

    def assert_result(
        self,
        worker: int,
        sequence: int,
        value,
        workers: int,
        flags: int = 0,
        *,
        carried: bool | None = None,
        wanted: bool = True,
        count: int | None = None,
    ) -> None:
        """Assert that the worker's next packet is the result; `workers` is the contributors' bitmap.

        If `value` is None, it has no lanes. Some may have been `carried` all the same, and `wanted`
        by others. A switch that does not strip its copies sends them to everybody. The result is of
        `count` workers, by default of a quorum.
        """
        answer = self.receive(worker)
        assert get_field(answer, "kind") == Kind.RESULT
        assert (answer["slot"], answer["sequence"]) == (self.slot, sequence)
        assert (answer["workers"], answer["count"]) == (workers, count or self.quorum)
        carried = value is not None if carried is None else carried
        assert answer["flags"] == flags | told(carried=carried, wanted=wanted)
        if self.rack.strips or not carried:
            assert has_lanes(answer) == (value is not None)
        if value is not None:
            np.testing.assert_array_equal(answer["lanes"], np.broadcast_to(value, LANES))

    def assert_pending(self, worker: int, sequence: int, workers: int) -> None:
        """Assert that the worker's next packet says PENDING with this bitmap of contributors."""
        answer = self.receive(worker)
        assert not has_lanes(answer)
        assert (get_field(answer, "kind"), answer["sequence"]) == (Kind.PENDING, sequence)
        assert answer["workers"] == workers

    def assert_stale(self, worker: int, sequence: int) -> None:
        """Assert that the worker's next packet says that the slot has moved on."""
        answer = self.receive(worker)
        assert not has_lanes(answer)
        assert (get_field(answer, "kind"), answer["sequence"]) == (Kind.STALE, sequence)
        assert answer["slot"] == self.slot

    def assert_counted(self, before: Mapping[str, int], **more: int) -> None:
        """Assert that the job's counters have grown by these numbers and no more."""
        assert self.counts() == {name: before[name] + more.get(name, 0) for name in OUTCOMES}

    def counts(self) -> dict[str, int]:
        cells = job_counters(NAMES, self.job)
        return dict(zip(cells, self.rack.controller.count(*cells.values()), strict=True))


def told(*, carried: bool, wanted: bool) -> Flag:
    """Return the flags that tell of lanes."""
    return (Flag.CARRIED if carried else Flag(0)) | (Flag.WANTED if wanted else Flag(0))


def packet_in(frame: bytes, source: Address) -> np.void:
    """Return the packet in a frame of this source, whose lengths and check have to be right."""
    lanes = (len(frame) - ENCAPSULATION_BYTES - HEADER_BYTES) // LANE_BYTES
    assert lanes in {0, LANES}
    lengths = int.from_bytes(frame[16:18]), int.from_bytes(frame[38:40])
    assert lengths == (len(frame) - 14, len(frame) - 34)
    packet = np.frombuffer(frame, packet_dtype(lanes, ENCAPSULATION_BYTES))
    assert intact(packet, source.ip_number, source.udp_port)
    return packet[0]


def has_lanes(packet: np.void) -> bool:
    """Return whether a packet is more than a header."""
    return "lanes" in (packet.dtype.names or ())


def arp_request(port: int, target: str) -> Ether:
    """Return a broadcast ARP request for an IP address, from a port's station."""
    asking = station(port)
    arp = ARP(op="who-has", hwsrc=asking.mac, psrc=asking.ip, pdst=target)
    return Ether(src=asking.mac, dst="ff:ff:ff:ff:ff:ff") / arp


@cache
def _question(port: int) -> bytes:
    """Return the frame that asks for the service's address. Scapy takes long to make it."""
    return bytes(arp_request(port, SERVICE.ip))


@contextlib.contextmanager
def aggregation_rack(ports: int) -> Iterator[AggregationRack]:
    """Start the switch, with its service address and all of its ports in the flood group."""
    with running_switch(ports) as switch, Controller(switch.address, 1) as controller:
        controller.configure(PROGRAM)
        controller.insert(
            group(FLOOD_GROUP, *((port, 1) for port in range(1, ports + 1))),
            NAMES.entry("service", {"address": number(SERVICE.ip_bytes)}, "serve",
                        mac=number(SERVICE.mac_bytes)),
            NAMES.entry("own_addresses", {"address": number(SERVICE.ip_bytes)}, "expose"),
        )  # fmt: skip
        yield AggregationRack(switch, controller)


def number(raw: bytes) -> int:
    """Return the number in these bytes, most significant first."""
    return int.from_bytes(raw, "big")
