"""The slot protocol as a state machine small enough to visit every state of it.

The network loses, repeats, reorders and delays without bound, which makes it simple. A packet that
was sent once may arrive at any time, any number of times, or never. So the model keeps no packets
in flight. The contributions that can arrive are those of all chunks that a worker has ever started.
The results that can arrive are those that the switch has ever sent. A contribution that is stale
once stays stale.

A sum is modelled as the multiset of its contributions, so that a wrong sum shows whatever the
numbers are. A cell's lanes stay as they are until a contribution with lanes comes, so they may be
those of an older chunk. There are two variants. `Protocol` is innet's. `AlternatingBit` has no sequence
numbers, as in SwitchML (Sapio et al., NSDI 2021, algorithms 3 and 4).
"""

import contextlib
import enum
import gc
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeVar
from typing import Protocol as Interface

from innet.wire.layout import Kind

Sum = tuple[tuple[int, int], ...]
"""The contributions (worker, chunk) in a sum, sorted. One of them may be there twice."""

Workers = frozenset[int]

NOBODY: Workers = frozenset()


class Collective(enum.Enum):
    """A collective: whose contributions have lanes, and who wants those of the result."""

    ALL_REDUCE = (False, False)
    REDUCE_SCATTER = (False, True)
    ALL_GATHER = (True, False)
    BARRIER = None

    # `_value_` is `value` without a call of Python, which shows in a search of so many states.

    def carries(self, *, owner: bool) -> bool:
        """Return whether the contribution of the chunk's owner, or of another worker, has lanes."""
        return self._value_ is not None and (owner or not self._value_[0])

    def wants(self, *, owner: bool) -> bool:
        """Return whether the chunk's owner, or another worker, wants the result's lanes."""
        return self._value_ is not None and (owner or not self._value_[1])


@dataclass(frozen=True)
class Size:
    """The size of the model: chunk c goes through slot c mod slots.

    A result takes the contributions of `quorum` workers, where 0 means all workers. The chunks
    belong to the `collectives` in turn, and to the workers as their owners.
    """

    workers: int
    slots: int
    chunks: int
    quorum: int = 0
    collectives: tuple[Collective, ...] = (Collective.ALL_REDUCE,)

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

    def carries(self, worker: int, chunk: int) -> bool:
        """Return whether a worker's contribution to a chunk has lanes."""
        return self._collective(chunk).carries(owner=self._owns(worker, chunk))

    def wants(self, worker: int, chunk: int) -> bool:
        """Return whether a worker wants the lanes of a chunk's result."""
        return self._collective(chunk).wants(owner=self._owns(worker, chunk))

    def exact(self, members: Iterable[int], chunk: int) -> Sum:
        """Return the sum of the contributions of these workers."""
        return tuple((each, chunk) for each in sorted(members) if self.carries(each, chunk))

    def _collective(self, chunk: int) -> Collective:
        return self.collectives[chunk % len(self.collectives)]

    def _owns(self, worker: int, chunk: int) -> bool:
        return worker == chunk % self.workers


class Cell(NamedTuple):
    """One copy of a slot in the switch.

    `total` are the lanes. They are this chunk's only if the cell has `carried` some. `announced` is
    the flag CARRIED, which also tells of lanes that a parent's result was sent without.
    """

    sequence: int = 0
    arrived: Workers = NOBODY
    missing: int = 0
    total: Sum = ()
    carried: bool = False
    announced: bool = False
    wanted: Workers = NOBODY

    def restarted(self, sequence: int, missing: int) -> "Cell":
        """Return the cell at the beginning of a chunk: only the lanes stay."""
        return Cell(sequence, missing=missing, total=self.total)

    def plus(
        self, workers: Workers, lanes: Sum | None, *, wants: bool, starts: bool = True
    ) -> "Cell":
        """Return the cell with one more contribution, with lanes or without.

        If it does not start, its lanes are added to those of an older chunk.
        """
        before = () if starts and not self.carried else self.total
        return self._replace(
            arrived=self.arrived | workers,
            missing=self.missing - 1,
            total=self.total if lanes is None else tuple(sorted((*before, *lanes))),
            carried=self.carried or lanes is not None,
            announced=self.announced or lanes is not None,
            wanted=self.wanted | workers if wants else self.wanted,
        )


class Answer(NamedTuple):
    """The switch's answer to a contribution, and the workers that get it.

    `members` are the workers in a result, or those that have contributed to a pending chunk. Those in
    `full` get the result's lanes. `announced` tells whether there are any.
    """

    kind: Kind
    to: Workers
    members: Workers = NOBODY
    total: Sum = ()
    announced: bool = False
    full: Workers = NOBODY


class Sent(NamedTuple):
    """A result that was sent: its slot, tag and members, and the contributions in its sum.

    Without its lanes, the sum is None.
    """

    slot: int
    tag: int
    members: Workers
    announced: bool
    total: Sum | None


class State(NamedTuple):
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
        return self._replace(cells=(*self.cells[:slot], pair, *self.cells[slot + 1 :]))


class Violation(Exception):
    """The model has reached a forbidden state. The message gives the steps to it."""


class WrongSum(Violation):
    """A worker accepted a result that is not the sum of its members' contributions to the chunk."""


class FalseAlarm(Violation):
    """A worker was told that it is left behind by a quorum that has not moved on."""


class Variant(Interface):
    """A protocol: the tags of a slot's uses, and the switch's reaction to contributions."""

    size: Size
    strict: bool

    def tag(self, use: int) -> int:
        """Return the tag by which a packet identifies the use of its slot."""

    def contribute(
        self, state: State, worker: int, slot: int, use: int
    ) -> tuple[State, Answer | None]:
        """Let a contribution arrive at the switch."""


@dataclass(frozen=True)
class Protocol:
    """The state machine of innet/p4/shared/fragments/decision.p4.

    Without `starts`, a chunk's first lanes are added to what the cell holds. If it is not `strict`, a
    worker takes a result without lanes also where it wants them.
    """

    size: Size
    starts: bool = True
    strict: bool = True

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
        wants = self.size.wants(worker, chunk)
        if sequence > cell.sequence:
            cell = cell.restarted(sequence, self.size.needed)
        elif cell.missing == 0:
            return state, _result(cell, this, this if wants else NOBODY)
        elif worker in cell.arrived:
            return state, Answer(Kind.PENDING, this, cell.arrived)
        lanes = ((worker, chunk),) if self.size.carries(worker, chunk) else None
        cell = cell.plus(this, lanes, wants=wants, starts=self.starts)
        state = state.with_cell(slot, copy, cell)
        everybody = frozenset(range(self.size.workers))
        return state, None if cell.missing else _result(cell, everybody, cell.wanted)


def _result(cell: Cell, to: Workers, wanting: Workers) -> Answer:
    """Return a finished cell's result. The lanes go to those who want them."""
    full = wanting if cell.carried else NOBODY
    return Answer(Kind.RESULT, to, cell.arrived, cell.total, cell.announced, full)


@dataclass(frozen=True)
class AlternatingBit:
    """A variant with one bit in place of the sequence number, and all workers in every result."""

    size: Size
    strict: bool = True

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
            one = frozenset({worker})
            done = Answer(Kind.RESULT, one, everybody, cell.total, announced=True, full=one)
            return state, None if cell.missing else done
        if cell.missing == 0:  # the first of a new use
            cell = Cell(arrived=cell.arrived, missing=self.size.workers)
        cell = cell.plus(frozenset({worker}), ((worker, chunk),), wants=True)
        state = state.with_cell(slot, copy, cell)
        state = state.with_cell(slot, 1 - copy, other._replace(arrived=other.arrived - {worker}))
        result = Answer(
            Kind.RESULT, everybody, everybody, cell.total, announced=True, full=everybody
        )
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
        bare = Sent(slot, variant.tag(use), answer.members, answer.announced, None)
        sent = {bare._replace(total=answer.total)} if answer.full else set()
        sent |= {bare} if answer.to - answer.full else set()
        state = state._replace(results=state.results | sent)
    return state, answer


def _results(variant: Variant, state: State) -> Iterator[tuple[str, State]]:
    """Yield the arrivals of results at workers whose chunks they answer."""
    size = variant.size
    for sent in state.results:
        for worker in _waiting(variant, state, sent.slot, sent.tag):
            chunk = size.chunk(sent.slot, state.progress[worker][sent.slot])
            what = f"worker {worker} takes a result for chunk {chunk}"
            lanes, exact = size.wants(worker, chunk), size.exact(sent.members, chunk)
            if variant.strict and (sent.total is not None) != (lanes and sent.announced):
                continue  # of a length that does not fit: as if it was damaged
            if len(sent.members) != size.needed or (lanes and (sent.total or ()) != exact):
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
            yield what, state._replace(ended=state.ended | {worker})
    if size.workers - len(state.ended) < size.needed:
        for worker in set(range(size.workers)) - state.ended - finished(size, state):
            what = f"worker {worker} hears that too few are left"
            yield what, state._replace(ended=state.ended | {worker})


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
    return state._replace(progress=(*state.progress[:worker], mine, *state.progress[worker + 1 :]))


# -- exploring any model -------------------------------------------------------------------------

S = TypeVar("S", bound=Hashable)
Graph = dict[S, frozenset[S]]
"""Every reachable state with its successors."""


def explore(variant: Variant) -> Graph[State]:
    """Return all reachable states. Raises Violation, with a shortest way to it."""
    return reachable(start(variant.size), lambda state: steps(variant, state))


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Do not search for cycles among states, of which there are many and none has a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_without_garbage_collection()
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
        # Most steps change nothing. It takes less time to see this than to hash the state again.
        others = [(what, each) for what, each in after if each is not state]
        stays = [state] if len(others) < len(after) else []
        graph[state] = frozenset([*(each for _, each in others), *stays])
        for what, each in others:
            if each not in came:
                came[each] = state, what
                waiting.append(each)
    return graph


@_without_garbage_collection()
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
