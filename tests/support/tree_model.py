"""The slot protocol over two levels of switches, small enough to visit every state of it.

Every rack has a switch that waits for its workers and for one more contribution, the answer of the
switch above. As in :mod:`slot_model`, a packet that was sent once may arrive at any time, any
number of times, or never. If the model `loses`, packets between the switches can also be lost for
good. This shows how they are recovered, and takes many more states.

With a quorum, the switch above makes a result of some racks' sums. A rack that is not in it takes the
result all the same, in a cell that is unfinished or that still holds an earlier chunk. A worker whose
rack is not complete asks the switch above for a result that was lost. A question changes nothing on
its way. So it arrives in the step in which it is sent, and a later one stands for one that is delayed.

Variants show the purpose of a part. One does not compare the sequence numbers of answers, and one
does not raise a sum again. In one, the switch above does not know who wants lanes: it looks at the
last contribution only. In one, workers do not ask. In one, a rack's switch takes a result without the
lanes that its workers want. In one, it only takes a result if it has sent its sum up.

Two variants are of Tofino's program. A rack's switch asks for lanes in each sum, and on Tofino 1 a result
begins no chunk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

from slot_model import (
    NOBODY,
    Cell,
    Collective,
    FalseAlarm,
    Size,
    Sum,
    Workers,
    WrongSum,
)

from innet.wire.layout import Kind

Cells = tuple[tuple[Cell, Cell], ...]
"""Cells by [slot][copy]."""


@dataclass(frozen=True)
class Shape:
    """The workers of every rack, and the size of the model.

    A result takes the sums of `quorum` racks, where 0 means all racks.
    """

    racks: tuple[tuple[int, ...], ...]
    slots: int
    chunks: int
    collectives: tuple[Collective, ...] = (Collective.ALL_REDUCE,)
    quorum: int = 0

    @property
    def needed(self) -> int:
        """Return the number of racks in a result."""
        return self.quorum or len(self.racks)

    @cached_property
    def size(self) -> Size:
        """Return the size without racks."""
        workers = sum(map(len, self.racks))
        return Size(workers, self.slots, self.chunks, collectives=self.collectives)

    def rack_of(self, worker: int) -> int:
        """Return a worker's rack."""
        return self._by_worker[worker]

    @cached_property
    def _by_worker(self) -> dict[int, int]:
        return {each: rack for rack, workers in enumerate(self.racks) for each in workers}


class Packet(NamedTuple):
    """A packet between the switches, or a result for workers: a rack's sum, or the result for a rack.

    Without its lanes, `total` is None. `announced` tells whether somebody has contributed lanes. A
    sum tells whether the rack `wants` the result's.
    """

    rack: int
    slot: int
    sequence: int
    members: Workers
    total: Sum | None
    announced: bool
    wants: bool = False


class TreeState(NamedTuple):
    """The whole state of the model.

    `progress[worker][slot]` is the number of the slot's results that the worker has accepted.
    `raised` are the sums on their way up, and `answers` the results on their way down. `results`
    are all results that the racks' switches have sent. The workers in `ended` have ended with an error.
    """

    progress: tuple[tuple[int, ...], ...]
    below: tuple[Cells, ...]
    above: Cells
    raised: frozenset[Packet] = frozenset()
    answers: frozenset[Packet] = frozenset()
    results: frozenset[Packet] = frozenset()
    ended: Workers = NOBODY


class Reply(NamedTuple):
    """The reply of a rack's switch: the sum to the parent, or a packet to one worker or to all."""

    kind: Kind | None  # None: the sum goes up
    to: Workers
    members: Workers = frozenset()
    total: Sum | None = None  # the lanes
    announced: bool = False
    full: Workers = frozenset()  # those who get the lanes
    wants: bool = False


@dataclass(frozen=True)
class Child:
    """The switch of a rack: the table `decision_below` of innet/p4/shared/fragments/decision.p4."""

    size: Size
    workers: Workers
    compares: bool = True
    raises_again: bool = True
    takes_early: bool = True
    strict: bool = True
    begins: bool = True
    asks_for_lanes: bool = False

    def contribute(
        self, cell: Cell, worker: int, sequence: int, chunk: int
    ) -> tuple[Cell, Reply | None]:
        """Take a worker's contribution."""
        one, wants = frozenset({worker}), self.size.wants(worker, chunk)
        if sequence < cell.sequence:
            return cell, Reply(Kind.STALE, one)
        if sequence > cell.sequence:
            cell = cell.restarted(sequence, len(self.workers) + 1)
        elif cell.missing == 0:
            return cell, self._down(cell, one, one if wants else NOBODY)
        elif worker in cell.arrived:
            if cell.missing > 1:
                return cell, Reply(Kind.PENDING, one, cell.arrived)
            return cell, self._up(cell) if self.raises_again else None
        lanes = ((worker, chunk),) if self.size.carries(worker, chunk) else None
        cell = cell.plus(one, lanes, wants=wants)
        return cell, self._up(cell) if cell.missing == 1 else None

    def hear(
        self,
        cell: Cell,
        kind: Kind,
        sequence: int,
        members: Workers,
        total: Sum | None = None,
        *,
        announced: bool = False,
    ) -> tuple[Cell, Reply | None]:
        """Take an answer of the parent."""
        newer = self.compares and sequence > cell.sequence
        if self.compares and sequence < cell.sequence:
            return cell, None
        waits = cell.missing == 1 and not newer
        if kind == Kind.PENDING:
            return cell, Reply(kind, self.workers, members) if waits else None
        if not waits and (not self.takes_early or not (newer or cell.missing)):
            return cell, None
        if kind != Kind.RESULT:
            return cell, Reply(kind, self.workers, members)
        if newer and not self.begins:
            return cell, None
        carried = total is not None
        withheld = announced and not carried
        if self.strict and withheld and (cell.wanted or not waits):
            return cell, None
        cell = cell.restarted(sequence, 0) if newer else cell
        cell = cell._replace(arrived=members, missing=0, announced=announced, carried=carried)
        cell = cell if total is None else cell._replace(total=total)
        return cell, self._down(cell, self.workers, cell.wanted if waits else self.workers)

    def ask(self, cell: Cell, worker: int, sequence: int) -> Reply | None:
        """Take a worker's question. Without a reply, it goes on to the parent."""
        one = frozenset({worker})
        if sequence < cell.sequence:
            return Reply(Kind.STALE, one)
        if sequence == cell.sequence and not cell.missing:
            return self._down(cell, one, one)
        return None

    def _up(self, cell: Cell) -> Reply:
        lanes = cell.total if cell.carried else None
        wants = bool(cell.wanted) or self.asks_for_lanes
        return Reply(None, NOBODY, cell.arrived, lanes, announced=cell.announced, wants=wants)

    def _down(self, cell: Cell, to: Workers, wanting: Workers) -> Reply:
        full = wanting if cell.carried else NOBODY
        lanes = cell.total if full else None
        return Reply(Kind.RESULT, to, cell.arrived, lanes, announced=cell.announced, full=full)


def first_state(shape: Shape) -> TreeState:
    """Return the state before the first packet."""
    cells = ((Cell(), Cell()),) * shape.slots
    return TreeState(((0,) * shape.slots,) * shape.size.workers, (cells,) * len(shape.racks), cells)


def finished(shape: Shape, state: TreeState, *, without: Workers = NOBODY) -> bool:
    """Return whether every worker has every result, `without` some workers."""
    size = shape.size
    return all(
        done == size.uses(slot)
        for worker, progress in enumerate(state.progress)
        for slot, done in enumerate(progress)
        if worker not in without
    )


@dataclass(frozen=True)
class Tree:
    """The possible steps in such a tree. Workers that have `stopped` send nothing."""

    shape: Shape
    loses: bool = False
    compares: bool = True
    raises_again: bool = True
    knows_wants: bool = True
    takes_early: bool = True
    strict: bool = True
    asks: bool = True
    begins: bool = True
    asks_for_lanes: bool = False
    stopped: Workers = NOBODY

    def child(self, rack: int) -> Child:
        """Return a rack's switch."""
        return self._children[rack]

    @cached_property
    def _children(self) -> list[Child]:
        return [
            Child(
                self.shape.size,
                frozenset(workers),
                self.compares,
                self.raises_again,
                self.takes_early,
                self.strict,
                self.begins,
                self.asks_for_lanes,
            )
            for workers in self.shape.racks
        ]

    def steps(self, state: TreeState) -> Iterator[tuple[str, TreeState]]:
        """Yield all possible next steps, each with the state after it. Raises Violation."""
        yield from self._contributions(state)
        for packet in state.raised:
            yield f"{_shown(packet)} arrives above", self.arrive_above(state, packet)
            if self.loses:
                yield f"{_shown(packet)} is lost", state._replace(raised=state.raised - {packet})
        for packet in state.answers:
            yield f"{_shown(packet)} arrives below", self.answer(state, packet)[0]
            if self.loses:
                yield f"{_shown(packet)} is lost", state._replace(answers=state.answers - {packet})
        yield from self._results(state)
        if self.shape.quorum:
            yield from self._ends(state)
            if self.asks:
                yield from self._questions(state)

    def _contributions(self, state: TreeState) -> Iterator[tuple[str, TreeState]]:
        size = self.shape.size
        for worker, progress in enumerate(state.progress):
            if worker in self.stopped:
                continue
            for slot, done in enumerate(progress):
                for use in range(min(done + 1, size.uses(slot))):
                    what = (
                        f"worker {worker}'s contribution to chunk {size.chunk(slot, use)} arrives"
                    )
                    yield what, self.contribute(state, worker, slot, use)[0]

    def _questions(self, state: TreeState) -> Iterator[tuple[str, TreeState]]:
        """Yield the arrivals of workers' questions at the switch that can answer them."""
        for worker, progress in enumerate(state.progress):
            if worker in self.stopped:
                continue
            for slot, done in enumerate(progress):
                for use in range(min(done + 1, self.shape.size.uses(slot))):
                    what = f"worker {worker} asks for use {use} of slot {slot}"
                    yield what, self.ask(state, worker, slot, use)[0]

    def ask(
        self, state: TreeState, worker: int, slot: int, use: int
    ) -> tuple[TreeState, Reply | None]:
        """Let a worker's question arrive at its switch, and above if it goes on."""
        rack, sequence = self.shape.rack_of(worker), use + 1
        mine = state.below[rack][slot][sequence % 2]
        if reply := self.child(rack).ask(mine, worker, sequence):
            return self._after(state, rack, slot, sequence, mine, reply), reply
        cell = state.above[slot][sequence % 2]
        if cell.sequence == sequence and not cell.missing:
            packet = Packet(rack, slot, sequence, NOBODY, None, announced=False)
            return _with(state, "answers", {_to(packet, cell, rack, wants=True)}), None
        return state, None

    def _ends(self, state: TreeState) -> Iterator[tuple[str, TreeState]]:
        """Yield the workers' possible ends: left behind, or too few workers left for any result."""
        ended = state.ended | self.stopped
        left = sum(ended.isdisjoint(members) for members in self.shape.racks)
        for worker, progress in enumerate(state.progress):
            for slot, done in enumerate(progress):
                if worker in ended or done == self.shape.size.uses(slot):
                    continue
                if self._left_behind(state, worker, slot, done + 1):
                    yield (
                        f"worker {worker} hears that the others have gone on in slot {slot}",
                        state._replace(ended=state.ended | {worker}),
                    )
                elif left < self.shape.needed:
                    yield (
                        f"worker {worker} hears that too few are left",
                        state._replace(ended=state.ended | {worker}),
                    )

    def _left_behind(self, state: TreeState, worker: int, slot: int, sequence: int) -> bool:
        """Return whether a worker can hear STALE for its outstanding chunk. Raises FalseAlarm."""
        rack, copy = self.shape.rack_of(worker), sequence % 2
        mine, above = state.below[rack][slot][copy], state.above[slot][copy]
        if above.sequence > sequence:  # it answers a sum or a question that was for this use
            _, reply = self.child(rack).hear(mine, Kind.STALE, sequence, NOBODY)
            sent = any(
                (each.rack, each.slot, each.sequence) == (rack, slot, sequence)
                for each in state.raised
            )
            if reply and (sent or self.asks):
                return True
        if mine.sequence <= sequence:
            return False
        if above.sequence < sequence or (above.sequence == sequence and above.missing):
            raise FalseAlarm(f"worker {worker} hears that it is left behind in slot {slot}")
        return True

    def contribute(
        self, state: TreeState, worker: int, slot: int, use: int
    ) -> tuple[TreeState, Reply | None]:
        """Let a worker's contribution arrive at its switch."""
        rack, sequence = self.shape.rack_of(worker), use + 1
        cell, reply = self.child(rack).contribute(
            state.below[rack][slot][sequence % 2],
            worker,
            sequence,
            self.shape.size.chunk(slot, use),
        )
        current = use == state.progress[worker][slot]
        if reply and reply.kind == Kind.STALE and current and not self.shape.quorum:
            raise FalseAlarm(f"worker {worker} hears that it is left behind in slot {slot}")
        return self._after(state, rack, slot, sequence, cell, reply), reply

    def answer(self, state: TreeState, packet: Packet) -> tuple[TreeState, Reply | None]:
        """Let a result of the switch above arrive at a rack's switch."""
        rack, slot, sequence = packet.rack, packet.slot, packet.sequence
        cell, reply = self.child(rack).hear(
            state.below[rack][slot][sequence % 2],
            Kind.RESULT,
            sequence,
            packet.members,
            packet.total,
            announced=packet.announced,
        )
        return self._after(state, rack, slot, sequence, cell, reply), reply

    def _after(
        self, state: TreeState, rack: int, slot: int, sequence: int, cell: Cell, reply: Reply | None
    ) -> TreeState:
        if cell != state.below[rack][slot][sequence % 2]:
            cells = _changed(state.below[rack], slot, sequence % 2, cell)
            state = state._replace(below=(*state.below[:rack], cells, *state.below[rack + 1 :]))
        if reply and reply.kind in {None, Kind.RESULT}:
            packet = Packet(rack, slot, sequence, reply.members, reply.total, reply.announced)
            if reply.kind is None:
                return _with(state, "raised", {packet._replace(wants=reply.wants)})
            sent = {packet} if reply.full else set()
            sent |= {packet._replace(total=None)} if reply.to - reply.full else set()
            return _with(state, "results", sent)
        return state

    def arrive_above(self, state: TreeState, packet: Packet) -> TreeState:
        """Let a rack's sum arrive at the switch above, where a rack counts as one contributor."""
        rack, slot, copy = packet.rack, packet.slot, packet.sequence % 2
        cell, workers = state.above[slot][copy], frozenset(self.shape.racks[rack])
        if packet.sequence < cell.sequence:
            mine = state.below[rack][slot][copy]
            waits = mine.sequence == packet.sequence and mine.missing == 1
            if waits and not self.shape.quorum:
                raise FalseAlarm(f"the workers of rack {rack} hear that they are left behind")
            return state
        if packet.sequence > cell.sequence:
            cell = cell.restarted(packet.sequence, self.shape.needed)
        elif cell.missing == 0:
            return _with(state, "answers", {_to(packet, cell, rack, wants=packet.wants)})
        elif workers <= cell.arrived:
            return state  # the reply is PENDING
        cell = cell.plus(workers, packet.total, wants=packet.wants)
        state = state._replace(above=_changed(state.above, slot, copy, cell))
        if cell.missing:
            return state
        last = workers if packet.wants else NOBODY
        wanting = cell.wanted if self.knows_wants else last
        # Who is not in the result has not said yet what it wants.
        some = self.shape.needed < len(self.shape.racks) and bool(wanting)
        down = {
            _to(packet, cell, each, wants=some or not wanting.isdisjoint(members))
            for each, members in enumerate(self.shape.racks)
        }
        return _with(state, "answers", down)

    def _results(self, state: TreeState) -> Iterator[tuple[str, TreeState]]:
        """Yield the arrivals of results at workers whose chunks they answer."""
        for packet in state.results:
            for worker in self.shape.racks[packet.rack]:
                done = state.progress[worker][packet.slot]
                if done + 1 != packet.sequence or worker in state.ended | self.stopped:
                    continue
                size, chunk = self.shape.size, self.shape.size.chunk(packet.slot, done)
                what = f"worker {worker} takes a result for chunk {chunk}"
                lanes, exact = size.wants(worker, chunk), size.exact(packet.members, chunk)
                if packet.total is None and lanes and packet.announced:
                    continue  # of a length that does not fit: as if it was damaged
                shown = () if lanes and packet.total is None else packet.total
                wrong = shown not in (None, exact)
                if wrong or not self._in_whole_racks(packet.members):
                    raise WrongSum(f"{what}, which is the sum of {packet.total}")
                yield what, taken(state, worker, packet.slot)

    def _in_whole_racks(self, members: Workers) -> bool:
        """Return whether members are all workers of as many racks as a result takes."""
        racks = [each for each in self.shape.racks if not members.isdisjoint(each)]
        return len(racks) == self.shape.needed and members == frozenset().union(*racks)


_shown = cache(str)
"""The text of a packet. Few packets are shown in very many steps."""


def _with(state: TreeState, where: str, packets: set[Packet]) -> TreeState:
    """Return the state with more packets in one of its fields, or the same object if they are there."""
    there = getattr(state, where)
    return state if packets <= there else state._replace(**{where: there | packets})


def taken(state: TreeState, worker: int, slot: int) -> TreeState:
    """Return the state after a worker has accepted one more of a slot's results."""
    mine = state.progress[worker]
    mine = (*mine[:slot], mine[slot] + 1, *mine[slot + 1 :])
    return state._replace(progress=(*state.progress[:worker], mine, *state.progress[worker + 1 :]))


def _to(packet: Packet, cell: Cell, rack: int, *, wants: bool) -> Packet:
    """Return the result of a finished cell for a rack."""
    lanes = cell.total if cell.carried and wants else None
    return Packet(rack, packet.slot, packet.sequence, cell.arrived, lanes, cell.announced)


def _changed(cells: Cells, slot: int, copy: int, cell: Cell) -> Cells:
    pair = (cell, cells[slot][1]) if copy == 0 else (cells[slot][0], cell)
    return (*cells[:slot], pair, *cells[slot + 1 :])
