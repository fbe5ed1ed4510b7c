"""A model of a slot that two jobs lend to each other, small enough to visit every state of it.

As in `term_model`, no packet ever disappears: the contributions and the results of every term of each job
may arrive at any time, any number of times. The controller may take the slot from a job and give it to
the other at any time, and the thread that writes to the switch may be late by any number of moves.

A job also has slots of its own, in which it sums while it lacks this one. Nothing can go wrong there, so
the model only counts the chunks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from slot_model import WrongSum

JOBS = (0, 1)


class Flaw(Enum):
    """A part of the protocol that the model leaves out."""

    JOBS_ARE_NOT_TOLD_APART = auto()  # by the switch, which looks at the term only
    ENTRIES_STAY = auto()  # those of the last holder, until those of the next are written
    CELLS_ARE_NOT_CLEARED = auto()
    MOVES_BEGIN_NO_TERM = auto()
    CLEARS_OF_ANY_TERM = auto()  # the controller counts them


@dataclass(frozen=True)
class Size:
    """The size of the model: each job sums `chunks` chunks, and its slots change `moves` times."""

    workers: int
    chunks: int
    moves: int
    flaw: Flaw | None = None


class Packet(NamedTuple):
    """A contribution: which worker's, of which job and term, and its chunk and sequence number."""

    job: int
    term: int
    worker: int
    chunk: int
    sequence: int


class Cell(NamedTuple):
    """One copy of the slot: the contributions so far to one use of it."""

    sequence: int = 0
    contents: frozenset[Packet] = frozenset()


class Worker(NamedTuple):
    """A worker's term, the chunks that it has results of, and the sequence number that it waits for."""

    term: int = 0
    done: int = 0
    awaited: int = 0  # 0 while it does not use the slot


class Job(NamedTuple):
    """A job's term, whether its workers have agreed on it, and the workers."""

    workers: tuple[Worker, ...]
    term: int = 0
    agreed: bool = False
    moves: int = 0


class State(NamedTuple):
    """The whole state of the model.

    `holder` has the slot, as far as the controller knows, which has heard of the clears in `cleared`, as
    jobs and terms. `admits` are the jobs and terms that the switch admits. `clearing` are the copies that
    the thread still has to clear, and for which job and term. `sent` are the switch's results.
    """

    jobs: tuple[Job, Job]
    holder: int | None = None
    cleared: frozenset[tuple[int, int]] = frozenset()
    admits: frozenset[tuple[int, int]] = frozenset()
    clearing: tuple[tuple[int, int], frozenset[int]] | None = None
    cells: tuple[Cell, Cell] = (Cell(), Cell())
    packets: frozenset[Packet] = frozenset()
    sent: frozenset[tuple[int, int, int, frozenset[Packet]]] = frozenset()

    def with_job(self, number: int, job: Job) -> "State":
        """Return the state with one job changed."""
        first, second = self.jobs
        return self._replace(jobs=(first, job) if number else (job, second))


def start(size: Size) -> State:
    """Return the state in which both jobs use their own slots."""
    job = Job((Worker(),) * size.workers)
    return State((job, job))


def over(size: Size, state: State) -> bool:
    """Return whether every worker has all results."""
    return all(each.done == size.chunks for job in state.jobs for each in job.workers)


def steps(size: Size, state: State) -> Iterator[tuple[str, State]]:
    """Yield all possible next steps, each with the state after it. Raises Violation."""
    yield from _moves(size, state)
    yield from _thread(size, state)
    yield from _arrivals(size, state)
    for number in JOBS:
        yield from _agreements(size, state, number)
        yield from _own_slots(size, state, number)
        yield from _workers(size, state, number)


# -- the controller ------------------------------------------------------------------------------


def _moves(size: Size, state: State) -> Iterator[tuple[str, State]]:
    """Yield the moves: the holder gives the slot up, or a job gets it when nobody has it."""
    for number, job in enumerate(state.jobs):
        if job.moves == size.moves or state.holder not in (None, number):
            continue
        term = job.term if size.flaw == Flaw.MOVES_BEGIN_NO_TERM and job.moves else job.term + 1
        moved = state.with_job(number, job._replace(term=term, agreed=False, moves=job.moves + 1))
        what = "gives up" if state.holder == number else "gets"
        yield (
            f"job {number} {what} the slot",
            moved._replace(holder=None if state.holder == number else number),
        )


def _agreements(size: Size, state: State, number: int) -> Iterator[tuple[str, State]]:
    """Yield the agreement of a job that has the slot, once the cells are clear and all have stopped."""
    job = state.jobs[number]
    stopped = all(each.term == job.term and not each.awaited for each in job.workers)
    if state.holder != number or job.agreed or not stopped:
        return
    terms = {term for of, term in state.cleared if of == number}
    if not (terms if size.flaw == Flaw.CLEARS_OF_ANY_TERM else job.term in terms):
        return
    last = max(each.done for each in job.workers)  # the others get its result, as in term_model
    workers = tuple(each._replace(done=last) for each in job.workers)
    yield (
        f"the workers of job {number} agree on chunk {last} in term {job.term}",
        state.with_job(number, job._replace(agreed=True, workers=workers)),
    )


def _own_slots(size: Size, state: State, number: int) -> Iterator[tuple[str, State]]:
    """Yield a sum of a job that lacks the slot in its own slots."""
    job = state.jobs[number]
    stopped = all(each.term == job.term and not each.awaited for each in job.workers)
    if state.holder == number or not stopped:
        return
    done = min(each.done for each in job.workers) + 1
    if done <= size.chunks:
        workers = tuple(each._replace(done=max(each.done, done)) for each in job.workers)
        yield (
            f"job {number} sums chunk {done - 1} in its own slots",
            state.with_job(number, job._replace(workers=workers)),
        )


# -- the thread that writes to the switch --------------------------------------------------------


def _thread(size: Size, state: State) -> Iterator[tuple[str, State]]:
    """Yield what the thread does next: it takes the wanted entries, or goes on to clear."""
    holder = state.holder
    key = None if holder is None else (holder, state.jobs[holder].term)
    running = key is not None and state.jobs[key[0]].agreed
    wanted = frozenset({key}) if key and running else frozenset()
    stays = size.flaw == Flaw.ENTRIES_STAY and not wanted
    admits = state.admits if stays else wanted
    clearing = None
    if key and not running and key not in state.cleared:
        due = state.clearing and state.clearing[0] == key
        clearing = state.clearing if due else (key, frozenset({0, 1}))
    if (admits, clearing) != (state.admits, state.clearing):
        yield (
            "the thread takes the wanted entries",
            state._replace(admits=admits, clearing=clearing),
        )
    if state.clearing:
        key, copies = state.clearing
        for copy in copies:
            cells = list(state.cells)
            if size.flaw != Flaw.CELLS_ARE_NOT_CLEARED:
                cells[copy] = Cell()
            left = copies - {copy}
            after = state._replace(cells=(cells[0], cells[1]), clearing=(key, left))
            if not left:
                after = after._replace(clearing=None, cleared=after.cleared | {key})
            yield f"copy {copy} is clear", after


# -- the switch ----------------------------------------------------------------------------------


def _arrivals(size: Size, state: State) -> Iterator[tuple[str, State]]:
    """Yield the arrivals of contributions of any term of any job."""
    for packet in sorted(state.packets):
        if _admitted(size, state, packet):
            yield f"{packet} arrives", _contribute(size, state, packet)


def _admitted(size: Size, state: State, packet: Packet) -> bool:
    if size.flaw == Flaw.JOBS_ARE_NOT_TOLD_APART:
        return packet.term in {term for _, term in state.admits}
    return (packet.job, packet.term) in state.admits


def _contribute(size: Size, state: State, packet: Packet) -> State:
    place = packet.sequence % 2
    cell = state.cells[place]
    if packet.sequence < cell.sequence:
        return state
    if packet.sequence > cell.sequence:
        cell = Cell(packet.sequence)
    complete = len(cell.contents) == size.workers
    if not complete and packet.worker not in {each.worker for each in cell.contents}:
        cell = cell._replace(contents=cell.contents | {packet})
    cells = (state.cells[0], cell) if place else (cell, state.cells[1])
    after = state._replace(cells=cells)
    if len(cell.contents) < size.workers:
        return after
    result = (packet.job, packet.term, packet.sequence, cell.contents)
    return after._replace(sent=state.sent | {result})


# -- the workers ---------------------------------------------------------------------------------


def _workers(size: Size, state: State, number: int) -> Iterator[tuple[str, State]]:
    job = state.jobs[number]
    for rank, worker in enumerate(job.workers):
        who = f"worker {rank} of job {number}"
        begun = worker.term == job.term and worker.awaited
        if worker.term < job.term or (begun and not job.agreed):
            after = worker._replace(term=job.term, awaited=0)
            yield f"{who} stops for term {job.term}", _with(state, number, rank, after)
        elif job.agreed and not worker.awaited and worker.done < size.chunks:
            yield f"{who} goes on", _send(state, number, rank, worker, 1)
        if worker.awaited:
            yield from _results(size, state, number, rank)


def _results(size: Size, state: State, number: int, rank: int) -> Iterator[tuple[str, State]]:
    """Yield the results that a worker accepts."""
    worker = state.jobs[number].workers[rank]
    awaited = number, worker.term, worker.awaited
    for *_, contents in sorted((each for each in state.sent if each[:3] == awaited), key=repr):
        exact = {(number, each, worker.done) for each in range(size.workers)}
        if {(each.job, each.worker, each.chunk) for each in contents} != exact:
            raise WrongSum(
                f"worker {rank} of job {number} takes {contents} for chunk {worker.done}"
            )
        taken = worker._replace(done=worker.done + 1)
        what = f"worker {rank} of job {number} takes chunk {worker.done}"
        if taken.done < size.chunks:
            yield what, _send(state, number, rank, taken, worker.awaited + 1)
        else:
            yield what, _with(state, number, rank, taken._replace(awaited=0))


def _send(state: State, number: int, rank: int, worker: Worker, sequence: int) -> State:
    packet = Packet(number, worker.term, rank, worker.done, sequence)
    after = _with(state, number, rank, worker._replace(awaited=sequence))
    return after._replace(packets=state.packets | {packet})


def _with(state: State, number: int, rank: int, worker: Worker) -> State:
    job = state.jobs[number]
    workers = (*job.workers[:rank], worker, *job.workers[rank + 1 :])
    return state.with_job(number, job._replace(workers=workers))
