"""A switch around the model of Tofino's pipeline: parser, deparser, tables' entries and replication."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from compilers import assembly
from tofino_parser import Parser, TooShortError
from tofino_pipeline import Pipe

from innet.p4.artifacts import Artifact

CPU_PORTS = {"tofino": 192, "tofino2": 0}

FORMATS = {
    "tofino": "purpose:8 padding:7 port:9 group:16",
    "tofino2": "purpose:8 padding:7 port:9 group:16 wanted:32",
    "packet_out": "egress_port:9 padding:7",
    "packet_in": "ingress_port:9 padding:7",
    "ethernet": "destination:48 source:48 ether_type:16",
    "arp": "hardware_type:16 protocol_type:16 hardware_length:8 protocol_length:8 operation:16 "
    "sender_mac:48 sender_ip:32 target_mac:48 target_ip:32",
    "ipv4": "version:4 header_length:4 diffserv:6 ecn:2 total_length:16 identification:16 flags:3 "
    "fragment_offset:13 time_to_live:8 protocol:8 checksum:16 source:32 destination:32",
    "udp": "source:16 destination:16 length:16 checksum:16",
    "innet": "version:8 kind:4 operation:4 count:16 job:16 term:16 slot:16 flags:16 sequence:32 "
    "workers:64 check:32",
    "front": "version:8 kind:4 operation:4 count:16 job:16",
    "rest": "term:16 slot:16 flags:16 sequence:32 workers:64 check:32",
    "lanes": " ".join(f"lane_{n:02x}:32" for n in range(64)),
}
NONE, CONTRIBUTION, HELLO, CLEAR, AGAIN, QUESTION = range(6)
QUERY, RESULT, PENDING, STALE = 7, 8, 9, 10
REPLY, COPY, BARE_COPY = 2, 3, 6
WORKERS = range(1, 33)
"""The instance numbers of workers' copies."""

LANES_BYTES = 256
INGRESS = "packet_out packet_in ethernet arp ipv4 udp innet lanes".split()
EGRESS = "ethernet ipv4 udp".split()
RECIRCULATION = 68


@dataclass
class Vector:
    """A packet on its way through one direction of the pipeline."""

    pipe: Pipe
    payload: bytes
    phv: dict[str, int] = field(default_factory=dict)
    asides: dict[str, int] = field(default_factory=dict)
    """Fields as they came. The compiler keeps fields that never change outside of the containers."""

    def extract(self, header: str, name: str = "") -> dict[str, int]:
        """Move a header from the payload into the containers."""
        widths = _widths(header)
        length = sum(width for _, width in widths) // 8
        if len(self.payload) < length:
            raise TooShortError
        left = int.from_bytes(self.payload[:length], "big")
        values = {}
        for each, width in reversed(widths):
            values[each] = left & (1 << width) - 1
            left >>= width
        for full, value in zip(_full_names(header, name or header), values.values(), strict=True):
            self[full] = value
        self[f"hdr.{name or header}.$valid"] = 1
        self.payload = self.payload[length:]
        return values

    def emit(self, header: str, name: str, stage: int) -> bytes:
        """Return a header's bytes, from the containers as the deparser finds them."""
        number = length = 0
        for full, (_, width) in zip(_full_names(header, name)[::-1], _widths(header), strict=True):
            value = self.asides.get(full, 0) & ~self.pipe.covered(full, stage)
            value |= self.pipe.get(self.phv, full, stage)
            number, length = number << width | value, length + width
        return number.to_bytes(length // 8, "big")

    def __setitem__(self, name: str, value: int) -> None:
        self.pipe.put(self.phv, name, value)
        self.asides[name] = value


@cache
def _widths(header: str) -> list[tuple[str, int]]:
    """Return the fields of a header, with their widths in bits."""
    fields = (each.split(":") for each in FORMATS[header].split())
    return [(name, int(width)) for name, width in fields]


@cache
def _full_names(header: str, name: str) -> list[str]:
    """Return the names of a header's fields in the assembly, the last field first."""
    return [f"hdr.{name}.{each}" for each, _ in reversed(_widths(header))]


class TofinoSwitch:
    """The running program: `insert` entries in P4Runtime's form, and `send` frames.

    The queue of every port holds `queued_cells`.
    """

    def __init__(self, chip: str) -> None:
        text, self._chip = assembly(chip), chip
        self._ingress, self._egress = Pipe(text, "ingress"), Pipe(text, "egress")
        self._parser = Parser(text, "ingress")
        self._end, self._metadata = (12, 16) if chip == "tofino" else (20, 32)
        self.cpu_port = CPU_PORTS[chip]
        self._groups: dict[int, list[tuple[int, int]]] = {}
        self.queued_cells = 0

    def insert(self, entity: Any, program: Artifact) -> None:
        """Insert an entry of a table, or a multicast group. `program` defines the ids in it."""
        if entity.HasField("packet_replication_engine_entry"):
            group = entity.packet_replication_engine_entry.multicast_group_entry
            self._groups[group.multicast_group_id] = [
                (each.egress_port, each.instance) for each in group.replicas
            ]
            return
        entry = entity.table_entry
        described = next(t for t in program.p4info.tables if t.preamble.id == entry.table_id)
        action = entry.action.action
        called = next(a for a in program.p4info.actions if a.preamble.id == action.action_id)
        names = {each.id: each for each in described.match_fields}
        wanted = {}
        for match in entry.match:
            named = names[match.field_id]
            if match.HasField("lpm"):
                free = named.bitwidth - match.lpm.prefix_len
                mask = (1 << named.bitwidth) - (1 << free)
                wanted[named.name] = (int.from_bytes(match.lpm.value, "big"), mask)
            else:
                wanted[named.name] = (int.from_bytes(match.exact.value, "big"), -1)
        parameters = {each.id: each.name for each in called.params}
        values = {
            parameters[each.param_id]: int.from_bytes(each.value, "big") for each in action.params
        }
        last = described.preamble.alias
        table = next(
            each
            for pipe in (self._ingress, self._egress)
            for each in pipe.tables.values()
            if each.p4_name.rpartition(".")[2] == last
        )
        name = next(n for n in table.actions if n.rpartition(".")[2] == called.preamble.alias)
        table.add(wanted, table.actions[name].handle, values)

    def count(self, counter: str, index: int) -> int:
        """Return the count of a counter's cell."""
        return self._ingress.counters[counter][index]

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Send a frame in at a port. Returns the frames that come out, as (port, frame), sorted."""
        packet = Vector(self._ingress, frame)
        self._parse(packet, port)
        # The chip's own header is in front of a frame and begins with the port. The rest is unused.
        front = port.to_bytes(2, "big").ljust(self._metadata, b"\0")
        packet.phv, parsed = self._parser.run(front + frame)
        assert parsed - len(front) == len(frame) - len(packet.payload)
        before = dict(packet.phv)
        self._ingress.run(packet.phv)
        if self._told(packet, before, "ig_intr_md_for_dprsr.drop_ctl"):
            return []
        inside = b"".join(
            packet.emit(header, name, self._end)
            for header, name in ((self._chip, "bridge"), *((each, each) for each in INGRESS))
            if self._ingress.get(packet.phv, f"hdr.{name}.$valid", self._end)
        )
        copies = self._groups.get(
            self._told(packet, before, "ig_intr_md_for_tm.mcast_grp_a") or 0, []
        )
        unicast = self._told(packet, before, "ig_intr_md_for_tm.ucast_egress_port")
        if unicast is not None:
            copies = [*copies, (unicast, 0)]
        outputs: list[tuple[int, bytes]] = []
        for to, instance in copies:
            outputs += self._leave(to, instance, inside + packet.payload)
        return sorted(outputs)

    def _leave(self, port: int, instance: int, frame: bytes) -> list[tuple[int, bytes]]:
        packet = Vector(self._egress, frame)
        packet["eg_intr_md.egress_port"] = port
        packet["eg_intr_md.egress_rid"] = instance
        packet["eg_intr_md.enq_qdepth"] = self.queued_cells
        bridge = packet.extract(self._chip, "bridge")
        parsed = bridge["purpose"] in {REPLY, COPY, BARE_COPY}
        if parsed:
            for header in EGRESS:
                packet.extract(header)
            packet.extract("front", "innet")
        stripped = bridge["purpose"] == COPY and instance in WORKERS and "wanted" in bridge
        if stripped := stripped and not bridge["wanted"] >> instance - 1 & 1:
            packet.extract("rest")
            packet.payload = packet.payload[LANES_BYTES:]
        if "wanted" in bridge:
            packet["meta.stripped"] = int(stripped)
        before = dict(packet.phv)
        self._egress.run(packet.phv)
        if self._told(packet, before, "eg_intr_md_for_dprsr.drop_ctl"):
            return []
        made = b""
        if self._egress.get(packet.phv, "hdr.bridge.$valid", self._end):
            made = packet.emit(self._chip, "bridge", self._end)
        if parsed:
            parts = [packet.emit(header, header, self._end) for header in EGRESS]
            parts[1] = _with_checksum(parts[1])
            made += b"".join(parts) + packet.emit("front", "innet", self._end)
        if stripped:
            made += packet.emit("rest", "rest", self._end)
        made += packet.payload
        return self.send(port, made) if port & 127 == RECIRCULATION else [(port, made)]

    @staticmethod
    def _told(packet: Vector, before: dict[str, int], name: str) -> int | None:
        """Return the pipeline's value for the traffic manager, or None without one.

        On Tofino 2 a bit marks a value as valid. On Tofino 1 a container is valid once it is
        written.
        """
        container, low, high = packet.pipe.place(name, 99)
        if f"{name}.$valid" in packet.pipe.places:
            if not packet.pipe.get(packet.phv, f"{name}.$valid", 99):
                return None
        elif container in before or container not in packet.phv:
            return None
        return packet.phv[container] >> low & (1 << high - low + 1) - 1

    def _parse(self, packet: Vector, port: int) -> None:
        """Parse the fields that are in no container, as parser.p4 does."""
        if port & 127 == RECIRCULATION:
            packet.extract(self._chip, "bridge")
            for header in "ethernet ipv4 udp innet lanes".split():
                packet.extract(header)
            packet["meta.form"] = AGAIN
            return
        if port == self.cpu_port:
            packet.extract("packet_out")
        kind = packet.extract("ethernet")["ether_type"]
        if kind == 0x0806:
            ask = packet.payload[:4] == bytes.fromhex("00010800")
            if ask and packet.payload[6:8] == b"\0\1":
                packet["meta.form"] = QUESTION
            arp = packet.extract("arp")
            packet["meta.sender"], packet["meta.target"] = arp["sender_ip"], arp["target_ip"]
        elif kind == 0x0800:
            self._parse_ipv4(packet)
        elif kind in {0x8100, 0x88A8}:
            self._parse_tags(packet)

    @staticmethod
    def _parse_tags(packet: Vector) -> None:
        for tags in (1, 2):
            kind, inner = packet.payload[4 * tags - 2 : 4 * tags], packet.payload[4 * tags :]
            if kind in {b"\x08\x00", b"\x08\x06"}:
                at = 12 if kind == b"\x08\x00" else 14
                if len(inner) < at + 4:
                    raise TooShortError
                packet["meta.sender"] = int.from_bytes(inner[at : at + 4], "big")
                return
            if kind not in {b"\x81\x00", b"\x88\xa8"}:
                return
        raise TooShortError

    @staticmethod
    def _parse_ipv4(packet: Vector) -> None:
        header = packet.payload[:20]
        ipv4 = packet.extract("ipv4")
        packet["meta.corrupted"] = _with_checksum(header) != header
        packet["meta.sender"], packet["meta.target"] = ipv4["source"], ipv4["destination"]
        shape = [ipv4[each] for each in ("version", "header_length", "fragment_offset", "protocol")]
        if shape != [4, 5, 0, 17] or ipv4["flags"] & 1:
            return
        udp = packet.extract("udp")
        if udp["destination"] != 19790:
            return
        innet = packet.extract("innet")
        kind, operation, carried = innet["kind"], innet["operation"], innet["flags"] >> 3 & 1
        lengths = ipv4["total_length"], udp["length"]
        if innet["version"] != 4:
            return
        if lengths == (312, 292) and kind in {1, 2} and operation in {1, 2} and carried:
            packet.extract("lanes")
            packet["meta.form"] = CONTRIBUTION if kind == 1 else RESULT
        elif lengths == (56, 36):
            forms = {
                1: (CONTRIBUTION, operation == 1 and not carried),
                2: (RESULT, operation == 1 and not carried),
                3: (PENDING, True),
                4: (HELLO, not operation),
                5: (CLEAR, not operation),
                6: (STALE, True),
                7: (QUERY, operation in {1, 2}),
            }
            form, fits = forms.get(kind, (NONE, False))
            packet["meta.form"] = form if fits else NONE


def _with_checksum(header: bytes) -> bytes:
    words = header[:10] + b"\0\0" + header[12:]
    total = sum(int.from_bytes(words[at : at + 2], "big") for at in range(0, 20, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + (total ^ 0xFFFF).to_bytes(2, "big") + header[12:]
