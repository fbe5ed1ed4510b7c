"""The slot protocol as a state machine small enough to visit every state of it.

The network loses, repeats, reorders and delays without bound, which makes it simple: what was sent
once may arrive at any time, any number of times, or never. So nothing needs to be kept in flight. The
contributions that can arrive are those of all chunks that a worker has ever started; the results
that can arrive are those that the switch has ever sent.

A sum is modelled as the multiset of contributions that went into it, so that a wrong one shows
whatever the numbers are. Two variants: `Protocol` is ours; `AlternatingBit` is the same without
sequence numbers, as SwitchML (Sapio et al., NSDI 2021, algorithms 3 and 4) has it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol as Interface

Sum = tuple[tuple[int, int], ...]
"""Contributions (worker, chunk) that were added up, sorted; one may stand twice."""


@dataclass(frozen=True)
class Size:
    """How much there is to explore: chunk c goes through slot c mod slots."""

    workers: int
    slots: int
    chunks: int

    @property
    def uses(self) -> int:
        """How often the most used slot is used."""
        return -(-self.chunks // self.slots)

    def chunk(self, slot: int, use: int) -> int:
        """The chunk of a slot's n-th use, counted from 0."""
        return use * self.slots + slot

    def exact(self, chunk: int) -> Sum:
        """The only right sum of a chunk."""
        return tuple((worker, chunk) for worker in range(self.workers))


@dataclass(frozen=True)
class Cell:
    """One copy of a slot in the switch."""

    sequence: int = 0
    arrived: frozenset[int] = frozenset()
    missing: int = 0
    total: Sum = ()

    def plus(self, worker: int, chunk: int) -> "Cell":
        """The cell with one more contribution."""
        return replace(
            self,
            arrived=self.arrived | {worker},
            missing=self.missing - 1,
            total=tuple(sorted((*self.total, (worker, chunk)))),
        )


@dataclass(frozen=True)
class State:
    """Everything that the future depends on.

    `progress[worker][slot]` is how many of the slot's results the worker has taken; `cells` is
    [slot][copy]; `results` are the (slot, tag, sum) that the switch has sent.
    """

    progress: tuple[tuple[int, ...], ...]
    cells: tuple[tuple[Cell, Cell], ...]
    results: frozenset[tuple[int, int, Sum]] = frozenset()

    def with_cell(self, slot: int, copy: int, cell: Cell) -> "State":
        """The state with one cell changed."""
        pair = (cell, self.cells[slot][1]) if copy == 0 else (self.cells[slot][0], cell)
        return replace(self, cells=(*self.cells[:slot], pair, *self.cells[slot + 1 :]))

    def with_result(self, slot: int, tag: int, total: Sum) -> "State":
        """The state with a result on its way."""
        return replace(self, results=self.results | {(slot, tag, total)})


class WrongSum(Exception):
    """A worker took a result that is not its chunk's sum."""


class Variant(Interface):
    """What distinguishes protocols: how uses of a slot are tagged, and what the switch does."""

    size: Size

    def tag(self, use: int) -> int:
        """What a packet says about which use of its slot it belongs to."""

    def contribute(self, state: State, worker: int, slot: int, use: int) -> State:
        """The switch takes a contribution."""


@dataclass(frozen=True)
class Protocol:
    """The state machine of innet/p4/v1model/aggregation.p4."""

    size: Size

    def tag(self, use: int) -> int:
        """A sequence number, from 1 on."""
        return use + 1

    def contribute(self, state: State, worker: int, slot: int, use: int) -> State:
        """One row of the table `decision`."""
        sequence, chunk = self.tag(use), self.size.chunk(slot, use)
        copy = sequence % 2
        cell = state.cells[slot][copy]
        if sequence < cell.sequence:
            return state
        if sequence > cell.sequence:
            cell = Cell(sequence, missing=self.size.workers)
        elif cell.missing == 0:
            return state.with_result(slot, sequence, cell.total)
        elif worker in cell.arrived:
            return state
        cell = cell.plus(worker, chunk)
        state = state.with_cell(slot, copy, cell)
        return state if cell.missing else state.with_result(slot, sequence, cell.total)


@dataclass(frozen=True)
class AlternatingBit:
    """The same with one bit in place of the sequence number."""

    size: Size

    def tag(self, use: int) -> int:
        """Which of the two copies."""
        return use % 2

    def contribute(self, state: State, worker: int, slot: int, use: int) -> State:
        """A worker's bit in one copy makes room for its bit in the other."""
        copy, chunk = self.tag(use), self.size.chunk(slot, use)
        cell, other = state.cells[slot][copy], state.cells[slot][1 - copy]
        if worker in cell.arrived:
            done = cell.missing == 0
            return state.with_result(slot, copy, cell.total) if done else state
        if cell.missing == 0:  # the first of a new use
            cell = Cell(arrived=cell.arrived, missing=self.size.workers)
        cell = cell.plus(worker, chunk)
        state = state.with_cell(slot, copy, cell)
        state = state.with_cell(slot, 1 - copy, replace(other, arrived=other.arrived - {worker}))
        return state if cell.missing else state.with_result(slot, copy, cell.total)


def start(size: Size) -> State:
    """Before the first packet."""
    return State(((0,) * size.slots,) * size.workers, ((Cell(), Cell()),) * size.slots)


def uses_of(size: Size, slot: int) -> int:
    """How often a slot is used."""
    return len(range(slot, size.chunks, size.slots))


def finished(size: Size, state: State) -> bool:
    """Whether every worker has every result."""
    return all(
        done == uses_of(size, slot)
        for progress in state.progress
        for slot, done in enumerate(progress)
    )


def steps(variant: Variant, state: State) -> Iterator[tuple[str, State]]:
    """Every packet that may arrive next, and what comes of it. Raises WrongSum."""
    size = variant.size
    for worker, progress in enumerate(state.progress):
        for slot, done in enumerate(progress):
            for use in range(min(done + 1, uses_of(size, slot))):
                chunk = size.chunk(slot, use)
                what = f"worker {worker}'s contribution to chunk {chunk} arrives"
                yield what, variant.contribute(state, worker, slot, use)
    for slot, tag, total in state.results:
        for worker, progress in enumerate(state.progress):
            if progress[slot] < uses_of(size, slot) and variant.tag(progress[slot]) == tag:
                chunk = size.chunk(slot, progress[slot])
                what = f"worker {worker} takes a result for chunk {chunk}"
                if total != size.exact(chunk):
                    raise WrongSum(f"{what}, which is the sum of {total}")
                yield what, _taken(state, worker, slot)


def _taken(state: State, worker: int, slot: int) -> State:
    mine = state.progress[worker]
    mine = (*mine[:slot], mine[slot] + 1, *mine[slot + 1 :])
    return replace(state, progress=(*state.progress[:worker], mine, *state.progress[worker + 1 :]))


def explore(variant: Variant) -> dict[State, frozenset[State]]:
    """Every reachable state with its successors. Raises WrongSum, with the shortest way to it."""
    first = start(variant.size)
    came: dict[State, tuple[State, str] | None] = {first: None}
    graph: dict[State, frozenset[State]] = {}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        try:
            following = list(steps(variant, state))
        except WrongSum as problem:
            raise WrongSum("\n".join([*_way(came, state), str(problem)])) from None
        graph[state] = frozenset(each for _, each in following)
        for what, each in following:
            if each not in came:
                came[each] = state, what
                waiting.append(each)
    return graph


def stuck(size: Size, graph: dict[State, frozenset[State]]) -> set[State]:
    """States from which no way leads to the end."""
    before: dict[State, list[State]] = {state: [] for state in graph}
    for state, following in graph.items():
        for each in following:
            before[each].append(state)
    good = {state for state in graph if finished(size, state)}
    waiting = list(good)
    while waiting:
        for state in before[waiting.pop()]:
            if state not in good:
                good.add(state)
                waiting.append(state)
    return set(graph) - good


def _way(came: dict[State, tuple[State, str] | None], state: State) -> Iterable[str]:
    way: list[str] = []
    while (step := came[state]) is not None:
        state, what = step
        way.append(what)
    return reversed(way)
