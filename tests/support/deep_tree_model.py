"""The slot protocol in a tree of any depth, small enough to visit every state of it.

:mod:`tree_model` has two levels, and also loses packets for good. Here a switch may have workers, and
switches below it, at once. A packet that was sent once may arrive at any time, any number of times, or
never. A variant does not compare the sequence numbers of answers.

With a quorum, the top makes a result of some of its contributors' sums, as in :mod:`tree_model`. In a
variant, such a result begins no chunk, as on Tofino 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from slot_model import Cell, FalseAlarm, Sum, WrongSum

Contributor = tuple[str, int]
"""A contributor at a switch: ``("worker", rank)`` or ``("switch", number)``."""

TOP = 0


class Packet(NamedTuple):
    """A sum on its way up from a switch, or a result on its way down to a contributor."""

    of: Contributor
    slot: int
    sequence: int
    total: Sum


class State(NamedTuple):
    """The whole state of the model.

    `progress[worker][slot]` is the number of the slot's results that the worker has accepted.
    `cells` is [switch][slot][copy]. `sums` and `results` are all packets that switches have sent up
    and down. The workers in `ended` are left behind.
    """

    progress: tuple[tuple[int, ...], ...]
    cells: tuple[tuple[tuple[Cell, Cell], ...], ...]
    sums: frozenset[Packet] = frozenset()
    results: frozenset[Packet] = frozenset()
    ended: frozenset[int] = frozenset()


@dataclass(frozen=True)
class DeepTree:
    """A tree: `parents` of the switches from number 1 on, and `homes`, the switch of every worker.

    Each slot is used `uses` times. A result takes `quorum` of the top's contributors, where 0 means
    all of them. Workers that have `stopped` send nothing.
    """

    parents: tuple[int, ...]
    homes: tuple[int, ...]
    uses: int
    slots: int = 1
    compares: bool = True
    quorum: int = 0
    begins: bool = True
    stopped: frozenset[int] = frozenset()

    def contributors(self, switch: int) -> tuple[Contributor, ...]:
        """Return the contributors at a switch."""
        workers = [("worker", rank) for rank, home in enumerate(self.homes) if home == switch]
        below = [("switch", at) for at, up in enumerate(self.parents, 1) if up == switch]
        return (*workers, *below)

    def first_state(self) -> State:
        """Return the state before the first packet."""
        cells = ((Cell(), Cell()),) * self.slots
        progress = ((0,) * self.slots,) * len(self.homes)
        return State(progress, (cells,) * (len(self.parents) + 1))

    def ranks(self, contributor: Contributor) -> frozenset[int]:
        """Return the workers behind a contributor."""
        kind, number = contributor
        if kind == "worker":
            return frozenset({number})
        return frozenset().union(*map(self.ranks, self.contributors(number)))

    def finished(self, state: State) -> bool:
        """Return whether every worker has every result."""
        return all(done == self.uses for progress in state.progress for done in progress)

    def over(self, state: State) -> bool:
        """Return whether every worker that has not stopped has every result, or is left behind."""
        return all(
            worker in state.ended | self.stopped or all(done == self.uses for done in progress)
            for worker, progress in enumerate(state.progress)
        )

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield all possible next steps, each with the state after it. Raises Violation."""
        for worker, progress in enumerate(state.progress):
            if worker in self.stopped:
                continue
            for slot, done in enumerate(progress):
                if self.quorum and done < self.uses:
                    yield from self._asked(state, worker, slot, done + 1)
                for use in range(min(done + 1, self.uses)):
                    total = ((worker, use * self.slots + slot),)
                    packet = Packet(("worker", worker), slot, use + 1, total)
                    yield f"{packet} arrives", self.arrive(state, self.homes[worker], packet)
        for packet in state.sums:
            parent = self.parents[packet.of[1] - 1]
            yield f"{packet} arrives above", self.arrive(state, parent, packet)
        for packet in state.results:
            kind, number = packet.of
            if kind == "switch":
                yield f"{packet} arrives below", self.hear(state, number, packet)
            elif (
                state.progress[number][packet.slot] + 1 == packet.sequence
                and number not in state.ended | self.stopped
            ):
                yield f"{packet} is taken", self._take(state, number, packet)

    def arrive(self, state: State, switch: int, packet: Packet) -> State:
        """Let a contribution arrive at a switch: the tables `decision` and `decision_below`."""
        cell = state.cells[switch][packet.slot][packet.sequence % 2]
        contributors, below = self.contributors(switch), switch != TOP
        if packet.sequence < cell.sequence:
            self._check_stale(state, packet)
            return state
        if packet.sequence > cell.sequence:
            needed = len(contributors) + 1 if below else self.quorum or len(contributors)
            cell = Cell(packet.sequence, missing=needed)
        elif cell.missing == 0:
            return _with_results(state, packet, cell.total, [packet.of])
        elif packet.of in cell.arrived:
            return state  # the reply is PENDING, or the same sum goes up again
        total = tuple(sorted((*cell.total, *packet.total)))
        cell = cell._replace(
            arrived=cell.arrived | {packet.of}, missing=cell.missing - 1, total=total
        )
        state = self._with_cell(state, switch, packet, cell)
        if below and cell.missing == 1:
            sum_of = Packet(("switch", switch), packet.slot, packet.sequence, total)
            return state._replace(sums=state.sums | {sum_of})
        return state if cell.missing else _with_results(state, packet, total, contributors)

    def hear(self, state: State, switch: int, packet: Packet) -> State:
        """Let a result of the parent arrive at a switch."""
        cell = state.cells[switch][packet.slot][packet.sequence % 2]
        if not self.compares:
            if cell.missing != 1:
                return state
            packet = packet._replace(sequence=cell.sequence)
        elif packet.sequence < cell.sequence or (
            not self.begins if packet.sequence > cell.sequence else not cell.missing
        ):
            return state
        cell = Cell(packet.sequence, total=packet.total)
        state = self._with_cell(state, switch, packet, cell)
        return _with_results(state, packet, packet.total, self.contributors(switch))

    def _asked(
        self, state: State, worker: int, slot: int, sequence: int
    ) -> Iterator[tuple[str, State]]:
        """Yield the ends of a worker's question: the result that it asks for, or STALE.

        A question changes nothing on its way up. Its answer comes down from where the result is, and
        STALE from where the slot has gone on, through switches that do not know better.
        """
        asking: Contributor = ("worker", worker)
        switch = self.homes[worker]
        while True:
            cell = state.cells[switch][slot][sequence % 2]
            packet = Packet(asking, slot, sequence, cell.total)
            if sequence < cell.sequence:
                if not self._made(state, slot, sequence):
                    raise FalseAlarm(f"{packet} hears that it is left behind")
                what = f"worker {worker} hears that use {sequence} of slot {slot} is over"
                yield what, state._replace(ended=state.ended | {worker})
                return
            if sequence == cell.sequence and not cell.missing:
                yield f"{packet} is answered", _with_results(state, packet, cell.total, [asking])
                return
            if switch == TOP:
                return
            asking = ("switch", switch)
            switch = self.parents[switch - 1]

    def _made(self, state: State, slot: int, sequence: int) -> bool:
        """Return whether the top has made the result of a use of a slot."""
        cell = state.cells[TOP][slot][sequence % 2]
        return cell.sequence > sequence or (cell.sequence == sequence and not cell.missing)

    def _check_stale(self, state: State, packet: Packet) -> None:
        """Raise FalseAlarm if the sender still needs the result of what it hears is over."""
        kind, number = packet.of
        if kind == "worker":
            needs = state.progress[number][packet.slot] + 1 == packet.sequence
        else:
            mine = state.cells[number][packet.slot][packet.sequence % 2]
            needs = mine.sequence == packet.sequence and mine.missing == 1
        if needs and not (self.quorum and self._made(state, packet.slot, packet.sequence)):
            raise FalseAlarm(f"{packet} hears that it is left behind")

    def _take(self, state: State, worker: int, packet: Packet) -> State:
        chunk = (packet.sequence - 1) * self.slots + packet.slot
        if packet.total not in self._exact(chunk):
            raise WrongSum(f"worker {worker} takes {packet}")
        mine = list(state.progress[worker])
        mine[packet.slot] += 1
        before, after = state.progress[:worker], state.progress[worker + 1 :]
        return state._replace(progress=(*before, tuple(mine), *after))

    def _exact(self, chunk: int) -> "Iterator[Sum]":
        """Yield the possible sums of a chunk: of as many of the top's contributors as it takes."""
        all_of_them = self.contributors(TOP)
        for some in combinations(all_of_them, self.quorum or len(all_of_them)):
            ranks = frozenset().union(*map(self.ranks, some))
            yield tuple((each, chunk) for each in sorted(ranks))

    def _with_cell(self, state: State, switch: int, packet: Packet, cell: Cell) -> State:
        cells = [list(each) for each in state.cells]
        pair = list(cells[switch][packet.slot])
        pair[packet.sequence % 2] = cell
        cells[switch][packet.slot] = (pair[0], pair[1])
        return state._replace(cells=tuple(map(tuple, cells)))


def _with_results(
    state: State, packet: Packet, total: Sum, to: "list[Contributor] | tuple[Contributor, ...]"
) -> State:
    results = {Packet(each, packet.slot, packet.sequence, total) for each in to}
    return state._replace(results=state.results | results)
