"""Packets of workers to the switch that runs the aggregation program, drawn at random.

Two jobs share three slots: their packets come in any order, again, late and damaged, with lanes that
overflow.
"""

import random

import damage
import numpy as np
from aggregation_rack import (
    EPOCH,
    FIRST_SLOT,
    FLOOD_GROUP,
    LANES,
    NAMES,
    PROGRAM,
    SERVICE,
    SLOT_PREFIX,
    arp_request,
    number,
    station,
)
from p4.v1 import p4runtime_pb2 as p4rt
from p4runtime_client import group
from scenarios import PORTS, Scenario, scenario

from innet.wire.frames import encapsulation
from innet.wire.layout import Kind, Operation
from innet.wire.records import blank, packet_bytes

WORKERS = {2: PORTS[:3], 3: PORTS[2:]}
"""The jobs, and the ports of their workers."""

EXTREMES = (0, 1, -1, (1 << 31) - 1, -(1 << 31))


def rack_scenario(seed: int, packets: int) -> Scenario:
    """Two jobs at work, beside ordinary and damaged traffic."""
    chance = random.Random(seed)
    updates = [p4rt.Update(type=p4rt.Update.INSERT, entity=each) for each in _entities()]
    others = scenario(PROGRAM, seed, 50).packets
    made = Scenario(updates)
    for sent in range(packets):
        about = 1 + sent // 40  # where the workers are
        port = chance.choice(PORTS)
        kind = chance.random()
        if kind < 0.75:
            made.packets.append((port, contribution(chance, port, about)))
        elif kind < 0.8:
            made.packets.append((port, bytes(arp_request(port, SERVICE.ip))))
        elif kind < 0.9:
            cut = damage.frame(chance, [contribution(chance, port, about)])
            made.packets.append((port, cut or b"\0"))
        else:
            made.packets.append(chance.choice(others))
    return made


def contribution(chance: random.Random, port: int, about: int) -> bytes:
    """One packet of the worker at a port, for a job that may be another's, of about this sequence."""
    prefix = encapsulation(station(port), SERVICE, packet_bytes(LANES))
    packet = blank(1, LANES, Kind.CONTRIBUTION, prefix)
    packet["job"] = chance.choice([*WORKERS, *(job for job in WORKERS if port in WORKERS[job])])
    packet["epoch"] = EPOCH
    packet["slot"] = FIRST_SLOT + chance.randrange(3)
    packet["sequence"] = chance.choice((about,) * 6 + (about - 1, about + 1))
    packet["operation"] = chance.choice((Operation.SUM, Operation.SUM, Operation.MAX))
    lanes = np.array([chance.getrandbits(32) for _ in range(LANES)], np.uint32).view(np.int32)
    packet["lanes"] = np.where(
        [chance.random() < 0.3 for _ in range(LANES)],
        chance.choices(EXTREMES, k=LANES),
        lanes,
    )
    if chance.random() < 0.05:
        field = chance.choice(("job", "epoch", "slot", "operation", "kind"))
        packet[field] = chance.randrange(256)
    return bytes(packet.tobytes())


def _entities() -> list[p4rt.Entity]:
    """What the controller would write for the jobs."""
    mac = number(SERVICE.mac_bytes)
    made = [
        group(FLOOD_GROUP, *((port, 1) for port in PORTS)),
        NAMES.entry("service", {"address": number(SERVICE.ip_bytes)}, "serve", mac=mac),
        NAMES.entry("bridge", {"destination": number(station(2).mac_bytes)}, "forward", port=2),
    ]
    for job, ports in WORKERS.items():
        made.append(group(job, *((port, port) for port in ports)))
        for rank, port in enumerate(ports):
            at = station(port)
            where = {"address": number(at.ip_bytes), "udp_port": at.udp_port}
            slots = {"job": job, "epoch": EPOCH, "slot": (FIRST_SLOT, SLOT_PREFIX)}
            params = {"worker": 1 << rank, "quorum": len(ports), "group": job, "job_index": job}
            copy, mac = {"job": job, "instance": port}, number(at.mac_bytes)
            made.append(NAMES.entry("workers", {"port": port, **where, **slots}, "admit", **params))
            made.append(NAMES.entry("replicas", copy, "address_to", mac=mac, **where))
    return made
