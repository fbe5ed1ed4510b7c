"""The window against a model of the switch, over a network that loses, repeats and reorders."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from innet.host.window import Window

TIMEOUT, LONGEST = 1.0, 5.0


class Packet(NamedTuple):
    """A contribution, a result or a pending; `content` says which contributions are in it."""

    rank: int
    slot: int
    sequence: int
    content: frozenset[tuple[int, int, int]]
    result: bool = True


class Switch:
    """The slot protocol: two copies of a slot, picked by the sequence number's parity."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.cells: dict[tuple[int, int], tuple[int, set[int], frozenset]] = {}

    def take(self, packet: Packet) -> list[Packet]:
        """Let a contribution in. Returns the replies."""
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


@dataclass
class Sent:
    """What a slot of a worker waits for."""

    sequence: int
    chunk: int
    at: float
    attempts: int = 1

    @property
    def deadline(self) -> float:
        return self.at + min(TIMEOUT * 2 ** (self.attempts - 1), LONGEST)


class Worker:
    """Drives a window as a transport does, and compares it with what it should say."""

    def __init__(self, rank: int, workers: int, slots: int, exchanges: list[int]) -> None:
        self.rank, self.workers, self.exchanges = rank, workers, exchanges
        self.window = Window(slots)
        self.begun = 0
        self.outstanding: dict[int, Sent] = {}
        self.used = [0] * slots
        self.finished: list[tuple[int, int]] = []

    def start(self, now: float) -> list[Packet]:
        """Begin the next exchange, if there is one and none is under way."""
        if self.outstanding or self.begun == len(self.exchanges):
            return []
        self.begun += 1
        return self.send(*self.window.start(self.exchanges[self.begun - 1], now), now)

    def send(self, slots: np.ndarray, chunks: np.ndarray, now: float) -> list[Packet]:
        """Packets for chunks that are new."""
        for slot, chunk in zip(slots.tolist(), chunks.tolist(), strict=True):
            self.used[slot] += 1
            assert slot not in self.outstanding
            assert self.window.sequence[slot] == self.used[slot]
            self.outstanding[slot] = Sent(self.used[slot], chunk, now)
        return [self.packet(slot) for slot in slots.tolist()]

    def packet(self, slot: int) -> Packet:
        sent = self.outstanding[slot]
        content = frozenset({(self.rank, self.begun, sent.chunk)})
        return Packet(self.rank, slot, sent.sequence, content)

    def take(self, batch: list[Packet], now: float) -> list[Packet]:
        """Receive replies. Returns what to send next."""
        positions, slots = self.window.accept(
            np.array([p.slot for p in batch], np.int64), np.array([p.sequence for p in batch])
        )
        wanted = {p.slot for p in batch if self.awaits(p)}
        assert sorted(slots.tolist()) == sorted(wanted)
        accepted = [batch[position] for position in positions]
        assert [p.slot for p in accepted] == slots.tolist()
        assert all(map(self.awaits, accepted))
        done = np.array([p.result for p in accepted], bool)
        for p in accepted:
            whole = {(r, self.begun, self.outstanding[p.slot].chunk) for r in range(self.workers)}
            assert p.content == whole if p.result else p.content < whole
        chunks, again, following = self.window.finish(slots[done], now)
        due = [self.outstanding.pop(slot) for slot in slots[done].tolist()]
        assert chunks.tolist() == [sent.chunk for sent in due]
        self.finished += [(self.begun, sent.chunk) for sent in due]
        return self.send(again, following, now)

    def awaits(self, reply: Packet) -> bool:
        sent = self.outstanding.get(reply.slot)
        return sent is not None and sent.sequence == reply.sequence

    def repeat(self, now: float) -> list[Packet]:
        """What is overdue."""
        late = [slot for slot, sent in self.outstanding.items() if sent.deadline <= now]
        if self.outstanding:
            assert self.next_deadline() == min(s.deadline for s in self.outstanding.values())
        slots, chunks = self.window.overdue(now, TIMEOUT, LONGEST)
        assert slots.tolist() == sorted(late)
        for slot, chunk in zip(slots.tolist(), chunks.tolist(), strict=True):
            sent = self.outstanding[slot]
            assert sent.chunk == chunk
            sent.at, sent.attempts = now, sent.attempts + 1
        return [self.packet(slot) for slot in slots.tolist()]

    def next_deadline(self) -> float:
        return self.window.next_deadline(TIMEOUT, LONGEST)


ranks, indices = st.integers(0, 2), st.integers(0, 10**6)


class AdversarialNetwork(RuleBasedStateMachine):
    """Whatever the network does, every chunk is finished once, with everybody's contribution."""

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
    def wait(self, rank: int, seconds: float) -> None:
        self.now += seconds
        self.underway += self.worker(rank).repeat(self.now)

    @rule(rank=ranks)
    def wait_for_deadline(self, rank: int) -> None:
        worker = self.worker(rank)
        if worker.outstanding and (deadline := worker.next_deadline()) >= self.now:
            assert worker.repeat(np.nextafter(deadline, 0)) == []
            self.now = deadline
            again = worker.repeat(deadline)
            assert again
            self.underway += again

    def teardown(self) -> None:
        """From now on the network is good: all must come to an end."""
        for _ in range(200):
            for worker in getattr(self, "workers", []):
                self.now += LONGEST
                self.underway += worker.start(self.now) + worker.repeat(self.now)
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
