"""The window against a model of the switch, over a network that loses, repeats and reorders."""

from typing import NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from innet.host.window import Window

TIMEOUT, LONGEST, REORDERING = 1.0, 5.0, 0.4


class Packet(NamedTuple):
    """A contribution, a result or a pending. `content` are the contributions in it."""

    rank: int
    slot: int
    sequence: int
    content: frozenset[tuple[int, int, int]]
    result: bool = True


class Switch:
    """The slot protocol: two copies of a slot, chosen by the parity of the sequence number."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.cells: dict[tuple[int, int], tuple[int, set[int], frozenset]] = {}

    def take(self, packet: Packet) -> list[Packet]:
        """Take a contribution. Returns the replies."""
        cell = packet.slot, packet.sequence % 2
        held, arrived, content = self.cells.get(cell, (0, set(), frozenset()))
        if packet.sequence < held:
            return []
        if packet.sequence > held:
            arrived, content = set(), frozenset()
        elif len(arrived) == self.workers:
            return [packet._replace(content=content)]
        elif packet.rank in arrived:
            return [packet._replace(content=content, result=False)]
        arrived, content = arrived | {packet.rank}, content | packet.content
        self.cells[cell] = packet.sequence, arrived, content
        ready = len(arrived) == self.workers
        return [packet._replace(rank=r, content=content) for r in arrived if ready]


class Worker:
    """A worker that drives a window as a transport does, and compares it with a simple model."""

    def __init__(self, rank: int, workers: int, slots: int, exchanges: list[int]) -> None:
        self.rank, self.workers, self.exchanges = rank, workers, exchanges
        self.window = Window(slots)
        self.begun = 0
        self.most = slots  # how many chunks may be in the network
        self.outstanding: dict[int, tuple[int, int]] = {}  # by slot: sequence number and chunk
        self.used = [0] * slots
        self.finished: list[tuple[int, int]] = []

    def start(self, now: float) -> list[Packet]:
        """Begin the next exchange, if there is one and none is in progress."""
        if self.window.remaining or self.begun == len(self.exchanges):
            return []
        assert not self.outstanding
        self.begun += 1
        self.window.start(self.exchanges[self.begun - 1])
        return self.transmit(now)

    def transmit(self, now: float) -> list[Packet]:
        """Return the due packets."""
        return self.send(*self.window.transmit(self.most, now))

    def send(self, slots: np.ndarray, chunks: np.ndarray) -> list[Packet]:
        for slot, chunk in zip(slots.tolist(), chunks.tolist(), strict=True):
            if slot not in self.outstanding:
                self.used[slot] += 1
                self.outstanding[slot] = self.used[slot], chunk
            assert self.outstanding[slot] == (self.window.sequence[slot], chunk)
        if self.window.remaining:  # otherwise no chunk is outstanding
            slot = min(self.outstanding, key=lambda each: self.outstanding[each][1])
            assert self.window.oldest() == (self.outstanding[slot][1], slot, self.used[slot])
        return [self.packet(slot) for slot in slots.tolist()]

    def packet(self, slot: int) -> Packet:
        sequence, chunk = self.outstanding[slot]
        return Packet(self.rank, slot, sequence, frozenset({(self.rank, self.begun, chunk)}))

    def take(self, batch: list[Packet], now: float) -> list[Packet]:
        """Take replies. Returns the packets to send next."""
        pendings = self.accepted([packet for packet in batch if not packet.result])
        self.window.had(np.array([p.slot for p in pendings], np.int64), now)
        results = self.accepted([packet for packet in batch if packet.result])
        for packet in pendings + results:
            _, chunk = self.outstanding[packet.slot]
            whole = {(rank, self.begun, chunk) for rank in range(self.workers)}
            assert packet.content == whole if packet.result else packet.content < whole
        if results:
            slots = np.array([packet.slot for packet in results], np.int64)
            self.window.deliver(slots, now, too_soon=0.5)
            due = [self.outstanding.pop(slot)[1] for slot in slots.tolist()]
            assert self.window.finish(slots).tolist() == due
            self.finished += [(self.begun, chunk) for chunk in due]
            self.window.lose(REORDERING)
        return self.transmit(now)

    def accepted(self, batch: list[Packet]) -> list[Packet]:
        """Return the replies to outstanding chunks, one for each slot."""
        positions, slots = self.window.accept(
            np.array([p.slot for p in batch], np.int64), np.array([p.sequence for p in batch])
        )
        assert sorted(slots.tolist()) == sorted({p.slot for p in batch if self.awaits(p)})
        found = [batch[position] for position in positions]
        assert [p.slot for p in found] == slots.tolist()
        assert all(map(self.awaits, found))
        return found

    def awaits(self, reply: Packet) -> bool:
        sequence, _ = self.outstanding.get(reply.slot, (None, None))
        return sequence == reply.sequence

    def ask(self, now: float) -> list[Packet]:
        """Return the packets to send after a long silence."""
        if not self.window.remaining:
            return []
        self.window.remind(now, TIMEOUT, LONGEST)
        return self.transmit(now) + self.send(*self.window.probe(1, now))


ranks, indices = st.integers(0, 2), st.integers(0, 10**6)


class AdversarialNetwork(RuleBasedStateMachine):
    """A network with loss, repetition and reordering.

    Every chunk must finish once, with all contributions.
    """

    @initialize(
        workers=st.integers(1, 3),
        slots=st.integers(1, 4),
        exchanges=st.lists(st.integers(1, 10), min_size=1, max_size=4),
    )
    def begin(self, workers: int, slots: int, exchanges: list[int]) -> None:
        self.now = 0.0
        self.switch = Switch(workers)
        self.workers = [Worker(rank, workers, slots, exchanges) for rank in range(workers)]
        self.underway: list[Packet] = []
        self.replies: list[list[Packet]] = [[] for _ in self.workers]
        for rank in range(workers):
            self.start(rank)

    def worker(self, rank: int) -> Worker:
        return self.workers[rank % len(self.workers)]

    @rule(rank=ranks)
    def start(self, rank: int) -> None:
        self.underway += self.worker(rank).start(self.now)

    @precondition(lambda self: self.underway)
    @rule(index=indices, fate=st.sampled_from(["lost", "delivered", "delivered and repeated"]))
    def to_switch(self, index: int, fate: str) -> None:
        packet = self.underway.pop(index % len(self.underway))
        if fate != "lost":
            for reply in self.switch.take(packet):
                self.replies[reply.rank].append(reply)
        if fate == "delivered and repeated":
            self.underway.append(packet)

    @rule(rank=ranks, picks=st.lists(indices, max_size=6), keep=st.booleans(), lose=st.booleans())
    def to_worker(self, rank: int, picks: list[int], *, keep: bool, lose: bool) -> None:
        worker = self.worker(rank)
        replies = self.replies[worker.rank]
        picks = [pick % len(replies) for pick in picks] if replies else []
        batch = [replies[pick] for pick in picks]
        if not keep:
            replies[:] = [reply for at, reply in enumerate(replies) if at not in picks]
        if not lose:
            self.underway += worker.take(batch, self.now)

    @rule(rank=ranks, seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0]))
    def ask(self, rank: int, seconds: float) -> None:
        self.now += seconds
        self.underway += self.worker(rank).ask(self.now)

    @rule(rank=ranks, most=st.integers(0, 4))
    def congestion(self, rank: int, most: int) -> None:
        self.worker(rank).most = most

    def teardown(self) -> None:
        """Deliver everything from now on: all exchanges must finish, by retransmission alone."""
        for _ in range(200):
            for worker in getattr(self, "workers", []):
                self.now += LONGEST
                self.underway += worker.start(self.now) + worker.ask(self.now)
                while self.underway:
                    self.to_switch(0, "delivered")
                self.underway += worker.take(self.replies[worker.rank], self.now)
                self.replies[worker.rank].clear()
        for worker in getattr(self, "workers", []):
            sizes = enumerate(worker.exchanges, 1)
            every = [(exchange, chunk) for exchange, size in sizes for chunk in range(size)]
            assert sorted(worker.finished) == every
            assert worker.window.remaining == 0


AdversarialNetwork.TestCase.settings = settings(max_examples=60)
test_every_chunk_finishes_once_with_everybodys_contribution = AdversarialNetwork.TestCase
