"""Packets of workers to the switch that runs the aggregation program, drawn at random.

Three jobs share four slots. Their packets come in any order, repeated, late and damaged. Some have
lanes that overflow, and some have another worker's addresses.
"""

import random
from collections.abc import Sequence

import damage
import numpy as np
from aggregation_rack import (
    FIRST_OF_SWITCHES,
    FIRST_SLOT,
    FLOOD_GROUP,
    LANES,
    SERVICE,
    SLOT_PREFIX,
    TERM,
    arp_request,
    number,
    station,
)
from compared_switches import embedded
from p4runtime_client import Names, group
from random_values import PORTS
from scenarios import Scenario, scenario
from tiny_programs import Program

from innet.p4.artifacts import Artifact, artifact
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation
from innet.wire.layout import (
    HEADER_BYTES,
    LANE_BYTES,
    OPERATION_BITS,
    WITH_LANES,
    Ecn,
    Flag,
    Kind,
    Operation,
)
from innet.wire.records import Records, bare, blank, packet_bytes, packet_dtype, set_field

WORKERS = {2: PORTS[:3], 3: PORTS[2:], 4: PORTS}
"""The jobs, and the ports of their workers."""

QUORUM = {2: 3, 3: 2, 4: 2}
"""The number of contributions in a job's results."""

UPLINK, UPLINK_JOB, TOP_JOB = PORTS[-1], 5, 6
"""The parent's port, a job with a parent, and a job in which two ports stand for many workers."""

BELOW = Address("02:00:00:01:00:07", "10.255.252.7")
"""The address under which the parent knows this switch."""

_BARE = ENCAPSULATION_BYTES + HEADER_BYTES

_OPERATIONS = 12 * (Operation.SUM,) + 6 * (Operation.MAX,) + 1 * (Operation.WRAPPING_SUM,)

EXTREMES = (0, 1, -1, (1 << 31) - 1, -(1 << 31))


def rack_scenario(seed: int, packets: int, lanes: int = LANES) -> Scenario:
    """Return a scenario of the jobs, with ordinary, forged and damaged traffic in between."""
    chance, program = random.Random(seed), artifact(lanes)
    updates = [p4rt.Update(type=p4rt.Update.INSERT, entity=each) for each in _entities(program)]
    others = scenario(program, seed, 50).packets
    made = Scenario(updates)
    for sent in range(packets):
        about = 1 + sent // 40  # the workers' present sequence number
        port = chance.choice(PORTS)
        kind = chance.random()
        if kind < 0.75:
            frame = contribution(chance, port, about, lanes)
        elif kind < 0.8:
            frame = bytes(arp_request(port, SERVICE.ip))
        elif kind < 0.83:
            frame = _forged(chance, port, about, lanes)
        elif kind < 0.9:
            frame = damage.frame(chance, [contribution(chance, port, about, lanes)]) or b"\0"
        else:
            port, frame = chance.choice(others)
        made.packets.append((port, frame))
    return made


def tree_scenario(seed: int, packets: int, lanes: int = LANES) -> Scenario:
    """Return a scenario of a job below a parent, with right and wrong answers, and of a parent's job.

    The parent only answers what has gone up, as where results take all contributions.
    """
    chance, program = random.Random(seed), artifact(lanes)
    made = Scenario(_tree_updates(program))
    raised: dict[tuple[int, int], int] = {}  # the last sequence number, by slot and copy
    with embedded(Program(program.json, program.p4info)) as switch:
        for update in made.updates:
            switch.write(update)
        while len(made.packets) < packets:
            port, frame = _of_tree(chance, 1 + len(made.packets) // 25, lanes)
            kind, cell, sequence = _about(frame)
            if kind == Kind.QUERY or (
                kind in {Kind.RESULT, Kind.STALE} and sequence > raised.get(cell, 0)
            ):
                continue
            for to, _ in switch.send(port, frame):
                if to == UPLINK and kind == Kind.CONTRIBUTION:
                    raised[cell] = sequence
            made.packets.append((port, frame))
    return made


def quorum_scenario(seed: int, packets: int, lanes: int = LANES) -> Scenario:
    """Return a scenario of the same jobs, in which results come at any time, and workers query them."""
    chance, program = random.Random(seed), artifact(lanes)
    made = Scenario(_tree_updates(program))
    for sent in range(packets):
        port, frame = _of_tree(chance, 1 + sent // 25, lanes)
        if chance.random() < 0.3:
            port = chance.choice(PORTS[:2])
            frame = _query(chance, port, 1 + sent // 25)
        made.packets.append((port, frame))
    return made


def _tree_updates(program: Artifact) -> list[p4rt.Update]:
    entities = [*_entities(program), *_tree_entities(program)]
    return [p4rt.Update(type=p4rt.Update.INSERT, entity=each) for each in entities]


def _of_tree(chance: random.Random, about: int, lanes: int) -> tuple[int, bytes]:
    """Return a packet of a job of several switches, with its port."""
    kind, port = chance.random(), chance.choice(PORTS)
    if kind < 0.6:
        jobs = UPLINK_JOB, UPLINK_JOB, TOP_JOB
        return port, contribution(chance, port, about, lanes, jobs=jobs)
    if kind < 0.95:
        frame = _answer(chance, about, lanes)
        return UPLINK if chance.random() < 0.95 else port, frame
    return port, damage.frame(chance, [_answer(chance, about, lanes)]) or b"\0"


def _about(frame: bytes) -> tuple[int, tuple[int, int], int]:
    """Return a frame's kind, slot and copy, and sequence number, whatever it really is."""
    header = frame[ENCAPSULATION_BYTES:].ljust(HEADER_BYTES, b"\0")
    sequence = int.from_bytes(header[12:16])
    return header[1] >> OPERATION_BITS, (int.from_bytes(header[8:10]), sequence % 2), sequence


def _query(chance: random.Random, port: int, about: int) -> bytes:
    """Return a query of the worker at a port."""
    source = station(port)
    front = encapsulation(source, SERVICE, packet_bytes(0), Ecn.CAPABLE)
    packet = blank(1, 0, Kind.QUERY, front)
    packet["job"], packet["term"] = chance.choice((UPLINK_JOB, UPLINK_JOB, TOP_JOB)), TERM
    slot = chance.randrange(4)
    packet["slot"] = FIRST_SLOT + slot + (4 if packet["job"][0] == TOP_JOB else 0)
    packet["flags"] = chance.choice((Flag.WANTED, Flag.WANTED, 0))
    packet["sequence"] = chance.choice((about,) * 4 + (about - 1, about + 1))
    set_field(packet, "operation", Operation.WRAPPING_SUM if slot == 3 else Operation.SUM)
    seal(packet, source.ip_number, source.udp_port)
    return bytes(packet.tobytes())


def _answer(chance: random.Random, about: int, lanes: int) -> bytes:
    """Return an answer of the parent."""
    frame = contribution(chance, UPLINK, about, lanes, jobs=(UPLINK_JOB,))
    target = BELOW if chance.random() < 0.95 else SERVICE
    kind = chance.choice((*(Kind.RESULT,) * 5, Kind.PENDING, Kind.STALE, Kind.HELLO))
    lanes = (len(frame) - _BARE) // LANE_BYTES
    packet = np.frombuffer(frame, packet_dtype(lanes, ENCAPSULATION_BYTES)).copy()
    if kind not in WITH_LANES and chance.random() < 0.9:
        packet, lanes = bare(packet), 0
    front = encapsulation(SERVICE, target, packet_bytes(lanes), chance.choice([*Ecn]))
    packet["encapsulation"] = np.frombuffer(front, "V42")
    set_field(packet, "kind", kind)
    packet["count"], packet["workers"] = 7, chance.getrandbits(64)
    if not lanes:  # a parent leaves out those that were carried only if nobody below wants them
        packet["flags"] &= ~np.uint16(Flag.CARRIED)
    seal(packet, SERVICE.ip_number, SERVICE.udp_port)
    if chance.random() < 0.05:
        _change(chance, packet)
    return bytes(packet.tobytes())


def contribution(
    chance: random.Random, port: int, about: int, lanes: int = LANES, jobs: Sequence[int] = ()
) -> bytes:
    """Return a packet of the worker at a port, with about this sequence number.

    Its job may be another worker's.
    """
    jobs = jobs or [*WORKERS, *(job for job in WORKERS if port in WORKERS[job])]
    source, operation = station(port), chance.choice(_OPERATIONS)
    flags = chance.choice((0, 0, 0, Flag.OVERFLOW, 1 << 15)) | chance.choice((0, Flag.WANTED))
    # Lanes that the flags do not announce, and a maximum without lanes, are rare.
    lanes = 0 if chance.random() < (0.05, 0.4)[operation == Operation.SUM] else lanes
    flags |= Flag.CARRIED if (chance.random() < 0.97) == (lanes > 0) else 0
    front = encapsulation(source, SERVICE, packet_bytes(lanes), chance.choice([*Ecn]))
    packet = blank(1, lanes, Kind.CONTRIBUTION, front)
    packet["job"], packet["count"] = chance.choice(jobs), chance.choice((1, 1, 1, 300))
    packet["term"] = TERM
    # Not all targets have the wrapping sum, so it has slots of its own.
    slot = 3 if operation == Operation.WRAPPING_SUM else chance.randrange(3)
    packet["slot"] = FIRST_SLOT + slot + (4 if packet["job"][0] == TOP_JOB else 0)
    packet["flags"] = flags
    packet["sequence"] = chance.choice((about,) * 6 + (about - 1, about + 1))
    set_field(packet, "operation", operation)
    values = np.array([chance.getrandbits(32) for _ in range(lanes)], np.uint32).view(np.int32)
    extreme = chance.choice((0, 0.3))
    if lanes:
        packet["lanes"] = np.where(
            [chance.random() < extreme for _ in range(lanes)],
            chance.choices(EXTREMES, k=lanes),
            values >> chance.choice((0, 2)),
        )
    if chance.random() < 0.05:
        _change(chance, packet)
    seal(packet, source.ip_number, source.udp_port)
    if chance.random() < 0.05:
        _change(chance, packet)
    return bytes(packet.tobytes())


def _change(chance: random.Random, packet: Records) -> None:
    name = chance.choice(("version", "kind", "operation", "job", "term", "slot", "check"))
    set_field(packet, name, chance.randrange(16 if name in ("kind", "operation") else 256))


def _forged(chance: random.Random, port: int, about: int, lanes: int) -> bytes:
    """Return a packet in another worker's name or the switch's, sometimes in one or two VLANs."""
    source = chance.choice((SERVICE, SERVICE, *map(station, PORTS)))
    frame = bytearray(contribution(chance, port, about, lanes))
    frame[26:30] = source.ip_bytes
    for _ in range(chance.choice((0, 0, 1, 2, 3))):
        frame[12:12] = chance.choice((b"\x81\x00", b"\x88\xa8")) + bytes([0, chance.choice((0, 5))])
    return bytes(frame)


def _entities(program: Artifact) -> list[p4rt.Entity]:
    """Return the entries that the controller would write for the jobs."""
    names = Names(program.p4info)
    service = {"address": number(SERVICE.ip_bytes)}
    made = [
        group(FLOOD_GROUP, *((port, 1) for port in PORTS)),
        names.entry("service", service, "serve", mac=number(SERVICE.mac_bytes)),
        names.entry("own_addresses", service, "expose"),
        names.entry("bridge", {"destination": number(station(2).mac_bytes)}, "forward", port=2),
    ]
    for job, ports in WORKERS.items():
        made.append(group(job, *((port, rank + 1) for rank, port in enumerate(ports))))
        for rank, port in enumerate(ports):
            at = station(port)
            where = {"address": number(at.ip_bytes), "udp_port": at.udp_port}
            slots = {"job": job, "term": TERM, "slot": (FIRST_SLOT, SLOT_PREFIX)}
            bits, copy = 1 << rank, {"job": job, "instance": rank + 1}
            params = {"worker": bits, "quorum": QUORUM[job], "group": job, "job_index": job}
            to = {"mac": number(at.mac_bytes), "bits": bits, **where}
            made.append(names.entry("workers", {"port": port, **where, **slots}, "admit", **params))
            made.append(names.entry("replicas", copy, "address_to", **to))
    return made


def _tree_entities(program: Artifact) -> list[p4rt.Entity]:
    """Return the entries that the controller would write for the two jobs of several switches."""
    names = Names(program.p4info)
    link = {"port": UPLINK, "parent": number(SERVICE.ip_bytes), "address": number(BELOW.ip_bytes)}
    made = [names.entry("uplinks", link, "descend")]
    for job, quorum in (UPLINK_JOB, 3), (TOP_JOB, 2):
        slots = {"job": job, "term": TERM, "slot": (FIRST_SLOT, SLOT_PREFIX)}
        first = 1 if job == UPLINK_JOB else FIRST_OF_SWITCHES
        made.append(group(job, *((port, first + port) for port in PORTS[:2])))
        for port in PORTS[:2]:
            at = station(port)
            where = {"address": number(at.ip_bytes), "udp_port": at.udp_port}
            bits = 1 << port if job == UPLINK_JOB else 0b11 << 2 * port
            params = {"worker": bits, "quorum": quorum, "group": job, "job_index": job}
            copy = {"job": job, "instance": first + port}
            to = {"mac": number(at.mac_bytes), "bits": bits, **where}
            made.append(names.entry("workers", {"port": port, **where, **slots}, "admit", **params))
            made.append(names.entry("replicas", copy, "address_to", **to))
        below = {
            "port": UPLINK, "mac": number(BELOW.mac_bytes), "address": number(BELOW.ip_bytes),
            "elsewhere": 0xF0, "group": job, "job_index": job,
        }  # fmt: skip
        if job == UPLINK_JOB:
            made.append(names.entry("trees", slots, "below", **below))
    return made
