"""Switches in this process that sum jobs, alone or as a tree, and the frames between them.

The controller's own functions make the entries. Every frame may be lost, on every cable.
"""

import contextlib
import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from aggregation_rack import PROGRAM, SERVICE, packet_in, told
from compared_switches import Target, embedded
from tiny_programs import Program

from innet.controller.jobs.records import Assignment, Attachment, SlotRange, Uplink
from innet.controller.jobs.trees import Fabric, shares
from innet.controller.switches import entries
from innet.controller.switches.names import Names
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation
from innet.wire.layout import HEADER_BYTES, Kind, Operation
from innet.wire.records import blank, get_field, packet_bytes, set_field

TERM, SLOTS, UPLINK, PLACES = 3, 8, 4, 3
"""The term and slots of every job, the port of a rack's uplink, and the ports for its workers."""

Numbers = np.ndarray
_BARE = ENCAPSULATION_BYTES + HEADER_BYTES


@dataclass(frozen=True)
class Chunk:
    """A chunk's lanes by worker, with those who contribute them and those who want the result's."""

    lanes: Numbers
    carries: frozenset[int]
    wants: frozenset[int]

    @property
    def total(self) -> Numbers:
        """Return the exact sum."""
        return self.lanes[sorted(self.carries)].sum(0, dtype=np.int64)


@dataclass
class FabricOfSwitches:
    """The switches by name, and the racks' ports at the top. `seen` counts frames by cable and size."""

    switches: dict[str, Target]
    uplinks: dict[str, tuple[Uplink, ...]]
    seen: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    """By switch, `up` or `down` its uplink, or the worker's address, and whether there are lanes."""

    def open_job(self, number: int, racks: Sequence[Sequence[int]]) -> "Job":
        """Open a job with these ranks at each rack."""
        names, slot_range = Names(PROGRAM.p4info), SlotRange(number, SLOTS * number, SLOTS)
        where = {
            rank: Attachment(1 + rank % PLACES, address(rank), rack)
            for rack, ranks in zip(self.racks, racks, strict=True)
            for rank in ranks
        }
        trees = Fabric("top", {"top": (), **self.uplinks}).trees(
            {at.switch for at in where.values()}
        )
        planned = shares(trees, slot_range, where, len(where))
        for name, switch in self.switches.items():
            here = {rank: at for rank, at in where.items() if at.switch == name}
            job = Assignment(number, slot_range, TERM, here, planned.get(name, ()))
            outward, inward = (
                entries.outward_entities(names, job),
                entries.inward_entities(names, job),
            )
            insert(switch, [*outward, *inward])
        [top] = [share for each in planned.values() for share in each if not share.uplink]
        bits = sum(each.bits for each in top.contributors)
        return Job(self, number, slot_range.first_slot, where, bits)

    @property
    def racks(self) -> list[str]:
        """Return the switches with workers."""
        return [*self.uplinks] or ["top"]

    def deliver(self, at: str, port: int, frame: bytes, lost: random.Random | None) -> list[bytes]:
        """Deliver a frame and all that follows from it. Returns the frames for workers."""
        under_way, arrived = deque([(at, port, frame)]), []
        while under_way:
            name, port, frame = under_way.popleft()
            for out, made in self.switches[name].send(port, frame):
                if lost and lost.random() < 0.2:
                    continue
                beyond, what = self._beyond(name, out)
                self.seen[(*what, len(made) > _BARE)] += 1
                if beyond:
                    under_way.append((*beyond, made))
                else:
                    arrived.append(made)
        return arrived

    def _beyond(self, name: str, port: int) -> tuple[tuple[str, int] | None, tuple[str, str]]:
        for rack, [link] in self.uplinks.items():
            if name == rack and port == link.port:
                return ("top", link.parent_port), (rack, "up")
            if name == "top" and port == link.parent_port:
                return (rack, link.port), (rack, "down")
        return None, (name, "workers")


@dataclass
class Job:
    """A job of the fabric. Its workers use one slot at a time.

    `bits` are those of all contributors at the switch that makes the results.
    """

    fabric: FabricOfSwitches
    number: int
    first_slot: int
    where: dict[int, Attachment]
    bits: int
    uses: Counter[int] = field(default_factory=Counter)

    def sum(self, chunk: Chunk, slot: int, chance: random.Random, *, loses: bool = True) -> None:
        """Sum a chunk. Every worker has to get exactly what it may accept, and the exact sum."""
        self.uses[slot] += 1
        waiting = [*self.where]
        for _ in range(300):
            chance.shuffle(waiting)
            for rank in waiting + (chance.sample(waiting, 1) if loses else []):
                at, frame = self.where[rank], self.contribution(chunk, slot, rank)
                answers = self.fabric.deliver(at.switch, at.port, frame, chance if loses else None)
                for answer in answers:
                    got = next(each for each in self.where if is_for(answer, each))
                    if got in waiting and self._accepted(chunk, got, answer, slot):
                        waiting = [each for each in waiting if each != got]
            if not waiting:
                return
        raise AssertionError(f"{waiting} wait for ever")

    def contribution(self, chunk: Chunk, slot: int, rank: int) -> bytes:
        """Return the frame with a worker's contribution."""
        lanes, source = PROGRAM.lanes * (rank in chunk.carries), self.where[rank].address
        packet = blank(
            1, lanes, Kind.CONTRIBUTION, encapsulation(source, SERVICE, packet_bytes(lanes))
        )
        packet["job"], packet["term"], packet["slot"] = self.number, TERM, self.first_slot + slot
        set_field(packet, "operation", Operation.SUM)
        packet["sequence"] = self.uses[slot]
        packet["flags"] = told(carried=lanes > 0, wanted=rank in chunk.wants)
        if lanes:
            packet["lanes"] = chunk.lanes[rank]
        seal(packet, source.ip_number, source.udp_port)
        return packet.tobytes()

    def _accepted(self, chunk: Chunk, rank: int, frame: bytes, slot: int) -> bool:
        """Return whether a frame is the result that the worker waits for. It has to be right."""
        packet = packet_in(frame, SERVICE)
        if get_field(packet, "kind") != Kind.RESULT:
            return False
        assert (packet["slot"], packet["sequence"]) == (self.first_slot + slot, self.uses[slot])
        assert packet["workers"] == self.bits
        assert packet["count"] == len(self.where)
        assert packet["flags"] == told(carried=bool(chunk.carries), wanted=bool(chunk.wants))
        lanes = len(frame) > _BARE
        assert lanes == (rank in chunk.wants and bool(chunk.carries))
        if lanes:
            np.testing.assert_array_equal(packet["lanes"], chunk.total)
        return True


def address(rank: int) -> Address:
    """Return a worker's address."""
    return Address(f"02:00:00:00:01:{rank:02x}", f"10.0.1.{rank + 1}", 21_000 + rank)


def is_for(frame: bytes, rank: int) -> bool:
    """Return whether a frame is addressed to a worker."""
    return frame[30:34] == _ip_bytes(rank)


@cache
def _ip_bytes(rank: int) -> bytes:
    return address(rank).ip_bytes


def insert(switch: Target, entities: Sequence[p4rt.Entity]) -> None:
    for each in entities:
        assert switch.write(p4rt.Update(type=p4rt.Update.INSERT, entity=each))


@contextlib.contextmanager
def fabric(racks: int) -> Iterator[FabricOfSwitches]:
    """Run a switch alone, or one above `racks` others."""
    uplinks = {f"rack-{n}": (Uplink("top", UPLINK, n + 1),) for n in range(racks)}
    with contextlib.ExitStack() as stack:
        program, names = Program(PROGRAM.json, PROGRAM.p4info), Names(PROGRAM.p4info)
        switches = {name: stack.enter_context(embedded(program)) for name in ("top", *uplinks)}
        for name, switch in switches.items():
            insert(switch, entries.own_entities(names, SERVICE, range(1, 5), uplinks.get(name, ())))
        yield FabricOfSwitches(switches, uplinks)
