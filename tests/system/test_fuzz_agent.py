"""Packets at an agent's socket: none breaks the agent or a sum, and none fills its memory.

``INNET_FUZZ_PACKETS=1000000`` is the long mode.
"""

import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import damage
import numpy as np
import pytest
from faulty_job import FaultyJob, faulty_job
from racks import Rack, rack

from innet.local.faults import DOWN, UP
from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import WITH_LANES, Kind
from innet.wire.records import bare, get_field, packet_dtype, set_field

PACKETS = int(os.environ.get("INNET_FUZZ_PACKETS", "20000"))
BATCH = 250
LANES, SLOTS, WORKERS = 64, 16, 2
FRAME = packet_dtype(LANES, ENCAPSULATION_BYTES)
SOURCE_ADDRESS, SOURCE_PORT = slice(26, 30), slice(34, 36)
OTHER_KINDS = (0, Kind.CONTRIBUTION, Kind.HELLO, Kind.CLEAR, 7, 255)
GROWTH = 16 << 20
"""Bytes by which the memory of the agents' process may grow, however much they receive."""

LONG = 4 * 3600


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(WORKERS, LANES) as running:
        yield running


def memory() -> int:
    """Return the resident bytes of this process's memory."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("the memory of a process is read from Linux's /proc")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def forged(chance: random.Random, answers: Sequence[bytes], asked: Sequence[bytes]) -> bytes:
    """Return a packet as if from the switch, made from its answers and the requests."""
    kind = chance.random()
    if kind < 0.2:
        return chance.choice((*answers, *asked))
    if kind < 0.6:
        return damage.frame(chance, (*answers, *asked))
    return foreign(chance, chance.choice(answers))


def foreign(chance: random.Random, answer: bytes) -> bytes:
    """Return a packet of another job, term or time, with a valid check.

    Its lanes are made up. But for the difference it would answer a chunk that is in flight, or soon
    will be.
    """
    answered = np.frombuffer(answer, FRAME)
    packet = answered.copy()
    packet["sequence"] += chance.randrange(3)
    packet["lanes"] = chance.getrandbits(31)
    set_field(packet, "kind", chance.choice((Kind.RESULT, Kind.PENDING, Kind.STALE)))
    match chance.choice(("job", "term", "slot", "sequence", "kind", "version")):
        case "job" | "term" as name:
            packet[name] ^= chance.randint(1, 0xFFFF)
        case "slot":
            packet["slot"] ^= chance.randint(SLOTS, 0xFFFF)
        case "sequence":  # the slot has used that number before
            packet["sequence"] = chance.randrange(int(answered["sequence"][0]))
        case "kind":
            set_field(packet, "kind", chance.choice(OTHER_KINDS))
        case "version":
            packet["version"] ^= chance.randint(1, 0xFF)
    if get_field(packet, "kind")[0] not in WITH_LANES and chance.random() < 0.8:
        packet = bare(packet)
    address, port = answer[SOURCE_ADDRESS], answer[SOURCE_PORT]
    seal(packet, int.from_bytes(address, "big"), int.from_bytes(port, "big"))
    return bytes(packet.tobytes())


def bother(job: FaultyJob, chance: random.Random, packets: int) -> None:
    """Inject forged packets between the switch and its workers while sums are under way."""
    for done in range(0, packets, WORKERS * BATCH):
        running = job.submit(3 * SLOTS * LANES)
        for worker in range(WORKERS):
            answers = [
                frame for frame in job.wiring.recent(worker, DOWN) if len(frame) == FRAME.itemsize
            ]
            asked = job.wiring.recent(worker, UP)
            frames = [forged(chance, answers, asked) for _ in range(BATCH)]
            job.wiring.inject(worker, DOWN, frames)
        running.check()
        if done % 50_000 == 0:
            say(f"{done:,} of {packets:,} packets")


def say(line: str) -> None:
    """Print progress, which pytest shows for a failed test, and with ``-s`` always."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@pytest.mark.timeout(LONG)
def test_no_packet_stops_an_agent_or_changes_a_sum_and_the_memory_stays(tor: Rack):
    chance = random.Random(41)
    with faulty_job(tor, WORKERS, SLOTS, seed=41) as job:
        job.sum(SLOTS * LANES)
        bother(job, chance, PACKETS // 4)
        before = memory()
        bother(job, chance, PACKETS)
        assert memory() - before < GROWTH
        for agent in job.agents:
            assert agent.traffic.corrupted > PACKETS // 10
