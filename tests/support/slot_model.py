"""The slot protocol as a state machine small enough to visit every state of it.

The network loses, repeats, reorders and delays without bound, which makes it simple. A packet that
was sent once may arrive at any time, any number of times, or never. So the model keeps no packets
in flight. The contributions that can arrive are those of all chunks that a worker has ever started.
The results that can arrive are those that the switch has ever sent. A contribution that is stale
once stays stale.

A sum is modelled as the multiset of its contributions, so that a wrong sum shows whatever the
numbers are. There are two variants. `Protocol` is innet's. `AlternatingBit` has no sequence
numbers, as in SwitchML (Sapio et al., NSDI 2021, algorithms 3 and 4).
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol as Interface
from typing import TypeVar

from innet.wire.layout import Kind

Sum = tuple[tuple[int, int], ...]
"""The contributions (worker, chunk) in a sum, sorted. One of them may be there twice."""

Workers = frozenset[int]

NOBODY: Workers = frozenset()


@dataclass(frozen=True)
class Size:
    """The size of the model: chunk c goes through slot c mod slots.

    A result takes the contributions of `quorum` workers, where 0 means all workers.
    """

    workers: int
    slots: int
    chunks: int
    quorum: int = 0

    @property
    def needed(self) -> int:
        """Return the number of contributions in a result."""
        return self.quorum or self.workers

    def chunk(self, slot: int, use: int) -> int:
        """Return the chunk of a slot's n-th use, counted from 0."""
        return use * self.slots + slot

    def uses(self, slot: int) -> int:
        """Return how often a slot is used."""
        return len(range(slot, self.chunks, self.slots))


@dataclass(frozen=True)
class Cell:
    """One copy of a slot in the switch."""

    sequence: int = 0
    arrived: Workers = NOBODY
    missing: int = 0
    total: Sum = ()

    def plus(self, worker: int, chunk: int) -> "Cell":
        """Return the cell with one more contribution."""
        return replace(
            self,
            arrived=self.arrived | {worker},
            missing=self.missing - 1,
            total=tuple(sorted((*self.total, (worker, chunk)))),
        )


@dataclass(frozen=True)
class Answer:
    """The switch's answer to a contribution, and the workers that get it.

    `members` are the workers in a result, or those that have contributed to a pending chunk.
    """

    kind: Kind
    to: Workers
    members: Workers = NOBODY
    total: Sum = ()


@dataclass(frozen=True)
class Sent:
    """A result that was sent: its slot, tag and members, and the contributions in its sum."""

    slot: int
    tag: int
    members: Workers
    total: Sum


@dataclass(frozen=True)
class State:
    """The whole state of the model.

    `progress[worker][slot]` is the number of the slot's results that the worker has accepted.
    `cells` is [slot][copy]. `results` are all results that the switch has sent. The workers in
    `ended` have ended with an error.
    """

    progress: tuple[tuple[int, ...], ...]
    cells: tuple[tuple[Cell, Cell], ...]
    results: frozenset[Sent] = frozenset()
    ended: Workers = NOBODY

    def with_cell(self, slot: int, copy: int, cell: Cell) -> "State":
        """Return the state with one cell changed."""
        pair = (cell, self.cells[slot][1]) if copy == 0 else (self.cells[slot][0], cell)
        return replace(self, cells=(*self.cells[:slot], pair, *self.cells[slot + 1 :]))


class Violation(Exception):
    """The model has reached a forbidden state. The message gives the steps to it."""


class WrongSum(Violation):
    """A worker accepted a result that is not the sum of its members' contributions to the chunk."""


class FalseAlarm(Violation):
    """A worker was told that it is left behind by a quorum that has not moved on."""


class Variant(Interface):
    """A protocol: the tags of a slot's uses, and the switch's reaction to contributions."""

    size: Size

    def tag(self, use: int) -> int:
        """Return the tag by which a packet identifies the use of its slot."""

    def contribute(
        self, state: State, worker: int, slot: int, use: int
    ) -> tuple[State, Answer | None]:
        """Let a contribution arrive at the switch."""


@dataclass(frozen=True)
class Protocol:
    """The state machine of innet/p4/v1model/fragments/decision.p4."""

    size: Size

    def tag(self, use: int) -> int:
        """Return a sequence number, from 1 on."""
        return use + 1

    def contribute(
        self, state: State, worker: int, slot: int, use: int
    ) -> tuple[State, Answer | None]:
        """Apply one row of the table `decision`."""
        sequence, chunk = self.tag(use), self.size.chunk(slot, use)
        copy, this = sequence % 2, frozenset({worker})
        cell = state.cells[slot][copy]
        if sequence < cell.sequence:
            return state, Answer(Kind.STALE, this)
        if sequence > cell.sequence:
            cell = Cell(sequence, missing=self.size.needed)
        elif cell.missing == 0:
            return state, Answer(Kind.RESULT, this, cell.arrived, cell.total)
        elif worker in cell.arrived:
            return state, Answer(Kind.PENDING, this, cell.arrived)
        cell = cell.plus(worker, chunk)
        state = state.with_cell(slot, copy, cell)
        everybody = frozenset(range(self.size.workers))
        result = Answer(Kind.RESULT, everybody, cell.arrived, cell.total)
        return state, None if cell.missing else result


@dataclass(frozen=True)
class AlternatingBit:
    """A variant with one bit in place of the sequence number, and all workers in every result."""

    size: Size

    def tag(self, use: int) -> int:
        """Return the index of the copy."""
        return use % 2

    def contribute(
        self, state: State, worker: int, slot: int, use: int
    ) -> tuple[State, Answer | None]:
        """Take a contribution. A worker's bit in one copy clears its bit in the other."""
        copy, chunk = self.tag(use), self.size.chunk(slot, use)
        everybody = frozenset(range(self.size.workers))
        cell, other = state.cells[slot][copy], state.cells[slot][1 - copy]
        if worker in cell.arrived:
            done = Answer(Kind.RESULT, frozenset({worker}), everybody, cell.total)
            return state, None if cell.missing else done
        if cell.missing == 0:  # the first of a new use
            cell = Cell(arrived=cell.arrived, missing=self.size.workers)
        cell = cell.plus(worker, chunk)
        state = state.with_cell(slot, copy, cell)
        state = state.with_cell(slot, 1 - copy, replace(other, arrived=other.arrived - {worker}))
        result = Answer(Kind.RESULT, everybody, everybody, cell.total)
        return state, None if cell.missing else result


def start(size: Size) -> State:
    """Return the state before the first packet."""
    return State(((0,) * size.slots,) * size.workers, ((Cell(), Cell()),) * size.slots)


def finished(size: Size, state: State) -> Workers:
    """Return the workers that have every result."""
    return frozenset(
        worker
        for worker, progress in enumerate(state.progress)
        if all(done == size.uses(slot) for slot, done in enumerate(progress))
    )


def over(size: Size, state: State) -> bool:
    """Return whether every worker has every result, or an error."""
    return finished(size, state) | state.ended == frozenset(range(size.workers))


def steps(variant: Variant, state: State) -> Iterator[tuple[str, State]]:
    """Yield all possible next steps, each with the state after it. Raises Violation."""
    yield from _arrivals(variant, state)
    yield from _results(variant, state)
    yield from _ends(variant, state)


def _arrivals(variant: Variant, state: State) -> Iterator[tuple[str, State]]:
    """Yield the arrivals of contributions at the switch."""
    size = variant.size
    for worker, progress in enumerate(state.progress):
        for slot, done in enumerate(progress):
            for use in range(min(done + 1, size.uses(slot))):
                chunk = size.chunk(slot, use)
                what = f"worker {worker}'s contribution to chunk {chunk} arrives"
                yield what, arrive(variant, state, worker, slot, use)[0]


def arrive(
    variant: Variant, state: State, worker: int, slot: int, use: int
) -> tuple[State, Answer | None]:
    """Return the state after a contribution's arrival, and the switch's answer."""
    state, answer = variant.contribute(state, worker, slot, use)
    if answer and answer.kind == Kind.RESULT:
        sent = Sent(slot, variant.tag(use), answer.members, answer.total)
        state = replace(state, results=state.results | {sent})
    return state, answer


def _results(variant: Variant, state: State) -> Iterator[tuple[str, State]]:
    """Yield the arrivals of results at workers whose chunks they answer."""
    size = variant.size
    for sent in state.results:
        for worker in _waiting(variant, state, sent.slot, sent.tag):
            chunk = size.chunk(sent.slot, state.progress[worker][sent.slot])
            what = f"worker {worker} takes a result for chunk {chunk}"
            exact = tuple((member, chunk) for member in sorted(sent.members))
            if sent.total != exact or len(exact) != size.needed:
                raise WrongSum(f"{what}, which is the sum of {sent.total}")
            yield what, _taken(state, worker, sent.slot)


def _ends(variant: Variant, state: State) -> Iterator[tuple[str, State]]:
    """Yield the workers' possible ends: left behind, or too few workers left for any result."""
    size = variant.size
    for worker, slot in product(range(size.workers), range(size.slots)):
        use = state.progress[worker][slot]
        if worker in state.ended or use == size.uses(slot):
            continue
        _, answer = variant.contribute(state, worker, slot, use)
        if answer and answer.kind == Kind.STALE:
            what = f"worker {worker} hears that the others have gone on in slot {slot}"
            if not any((sent.slot, sent.tag) == (slot, variant.tag(use)) for sent in state.results):
                raise FalseAlarm(what)
            yield what, replace(state, ended=state.ended | {worker})
    if size.workers - len(state.ended) < size.needed:
        for worker in set(range(size.workers)) - state.ended - finished(size, state):
            what = f"worker {worker} hears that too few are left"
            yield what, replace(state, ended=state.ended | {worker})


def _waiting(variant: Variant, state: State, slot: int, tag: int) -> list[int]:
    """Return the workers that wait for an answer with this tag."""
    return [
        worker
        for worker, progress in enumerate(state.progress)
        if worker not in state.ended
        and progress[slot] < variant.size.uses(slot)
        and variant.tag(progress[slot]) == tag
    ]


def _taken(state: State, worker: int, slot: int) -> State:
    mine = state.progress[worker]
    mine = (*mine[:slot], mine[slot] + 1, *mine[slot + 1 :])
    return replace(state, progress=(*state.progress[:worker], mine, *state.progress[worker + 1 :]))


# -- exploring any model -------------------------------------------------------------------------

S = TypeVar("S", bound=Hashable)
Graph = dict[S, frozenset[S]]
"""Every reachable state with its successors."""


def explore(variant: Variant) -> Graph[State]:
    """Return all reachable states. Raises Violation, with a shortest way to it."""
    return reachable(start(variant.size), lambda state: steps(variant, state))


def reachable(first: S, following: Callable[[S], Iterable[tuple[str, S]]]) -> Graph[S]:
    """Return every state that is reachable from `first`. Raises Violation, with a shortest way to it."""
    came: dict[S, tuple[S, str] | None] = {first: None}
    graph: Graph[S] = {}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        try:
            after = list(following(state))
        except Violation as problem:
            raise type(problem)("\n".join([*_way(came, state), str(problem)])) from None
        graph[state] = frozenset(each for _, each in after)
        for what, each in after:
            if each not in came:
                came[each] = state, what
                waiting.append(each)
    return graph


def stuck(graph: Graph[S], good: Callable[[S], bool]) -> set[S]:
    """Return the states from which no way leads to a good one."""
    before: dict[S, list[S]] = {state: [] for state in graph}
    for state, following in graph.items():
        for each in following:
            before[each].append(state)
    found = {state for state in graph if good(state)}
    waiting = list(found)
    while waiting:
        for state in before[waiting.pop()]:
            if state not in found:
                found.add(state)
                waiting.append(state)
    return set(graph) - found


def _way(came: dict[S, tuple[S, str] | None], state: S) -> Iterable[str]:
    way: list[str] = []
    while (step := came[state]) is not None:
        state, what = step
        way.append(what)
    return reversed(way)
