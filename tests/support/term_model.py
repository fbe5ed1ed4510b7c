"""A model of a job's terms (docs/terms.md), small enough to visit every state of it.

As in `slot_model`, no packet ever disappears: the contributions and the results of every term may
arrive at any time, any number of times. The controller may begin a new term at any time. It may
then find the switch unchanged, out of reach, or rebooted.

All workers must end with the same results, bit by bit. A sum is therefore modelled as its
contributions *and* the term in which it was made. A repeated sum counts as a different one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from slot_model import NOBODY, FalseAlarm, Violation, Workers, WrongSum


class Flaw(Enum):
    """A part of the protocol that the model leaves out."""

    CONTRIBUTIONS_OF_ANY_TERM = auto()  # the switch counts them
    RESULTS_OF_ANY_TERM = auto()  # workers accept them
    CELLS_ARE_NOT_CLEARED = auto()
    NOTHING_IS_SHARED = auto()  # workers repeat an exchange that others have finished


class Path(Enum):
    """The way in which the workers of a term sum."""

    SWITCH = auto()
    FALLBACK = auto()


@dataclass(frozen=True)
class Job:
    """The size of the model: each exchange has `chunks` chunks, all in one slot.

    A result of the switch takes `quorum` contributions, where 0 means those of all workers.
    """

    workers: int
    exchanges: int
    chunks: int
    terms: int
    quorum: int = 0
    flaw: Flaw | None = None

    @property
    def needed(self) -> int:
        """Return the number of contributions in a result of the switch."""
        return self.quorum or self.workers


class Unequal(Violation):
    """Two workers took different results of one exchange."""


class TooFarApart(Violation):
    """A new term finds workers more than one exchange apart, although all of them are needed."""


class Total(NamedTuple):
    """A result: the term in which it was made, and each contribution (worker, exchange, chunk)."""

    term: int
    parts: tuple[tuple[int, int, int], ...]


Content = Total | tuple[int, int] | None
"""A contribution: own numbers for (exchange, chunk), a result to share, or None for no result."""


class Cell(NamedTuple):
    """One copy of the slot: the contributions by worker, and the result, once there is one."""

    sequence: int = 0
    contents: tuple[tuple[int, Content], ...] = ()
    result: Content = None


class Resume(NamedTuple):
    """The start of a term. If its first exchange is shared, `holders` have that exchange's result."""

    path: Path
    exchange: int
    holders: Workers = NOBODY

    @property
    def shared(self) -> bool:
        """Return whether the first exchange only passes a result on."""
        return bool(self.holders)


class Worker(NamedTuple):
    """A worker's progress: in its term it has accepted the results of `done` chunks.

    `results` are those of all exchanges that it has finished, and `taken` those of the present one.
    """

    term: int = 0
    running: bool = False
    done: int = 0
    taken: tuple[Content, ...] = ()
    results: tuple[tuple[Content, ...], ...] = ()
    ended: bool = False


class State(NamedTuple):
    """The whole state of the model.

    `resumes` holds by term the controller's `Resume`, or None while the controller waits for the
    workers. `started` is the number of chunks ever sent, by term and worker. `sent` are the
    switch's results (term, number, content). The switch admits only contributions of the term
    `admits`.
    """

    workers: tuple[Worker, ...]
    resumes: tuple[Resume | None, ...]
    started: tuple[tuple[int, ...], ...]
    admits: int | None = None
    cells: tuple[Cell, Cell] = (Cell(), Cell())
    sent: frozenset[tuple[int, int, Content]] = frozenset()

    @property
    def term(self) -> int:
        """Return the present term."""
        return len(self.resumes) - 1

    def with_worker(self, number: int, worker: Worker) -> "State":
        """Return the state with one worker changed."""
        return self._replace(workers=(*self.workers[:number], worker, *self.workers[number + 1 :]))

    def with_started(self, term: int, number: int, count: int) -> "State":
        """Return the state after a worker has sent so many chunks in a term."""
        row = self.started[term]
        row = (*row[:number], max(count, row[number]), *row[number + 1 :])
        return self._replace(started=(*self.started[:term], row, *self.started[term + 1 :]))


def start(job: Job) -> State:
    """Return the state in which all workers have joined, but no term has begun."""
    return State((Worker(),) * job.workers, (None,), ((0,) * job.workers,))


def over(job: Job, state: State) -> bool:
    """Return whether every worker has all results, or an error."""
    return all(each.ended or len(each.results) == job.exchanges for each in state.workers)


def steps(job: Job, state: State) -> Iterator[tuple[str, State]]:
    """Yield all possible next steps, each with the state after it. Raises Violation."""
    yield from _terms(job, state)
    yield from _resumes(job, state)
    yield from _arrivals(job, state)
    for number, worker in enumerate(state.workers):
        if not worker.ended:
            yield from _messages(job, state, number, worker)
            yield from _results(job, state, number, worker)
            yield from _ends(job, state, number, worker)


# -- the controller ------------------------------------------------------------------------------


def _terms(job: Job, state: State) -> Iterator[tuple[str, State]]:
    """Yield the ways in which a new term can begin."""
    if state.term + 1 < job.terms:
        after = state._replace(
            resumes=(*state.resumes, None),
            started=(*state.started, (0,) * job.workers),
        )
        what = f"term {after.term} begins"
        yield f"{what}, the switch is out of reach", after
        yield f"{what}, the switch admits nobody", after._replace(admits=None)
        rebooted = after._replace(admits=None, cells=(Cell(), Cell()))
        yield f"{what}, the switch has rebooted", rebooted


def _resumes(job: Job, state: State) -> Iterator[tuple[str, State]]:
    """Yield the controller's possible `Resume` messages, if all workers are ready."""
    present = [each for each in state.workers if not each.ended]
    if state.resumes[-1] or not present or any(each.term < state.term for each in present):
        return
    for path in Path:
        resume = _agreement(job, state, path)
        what = f"the controller says how term {state.term} begins: {resume}"
        after = state._replace(resumes=(*state.resumes[:-1], resume))
        if path == Path.SWITCH:
            after = after._replace(admits=state.term)
            if job.flaw != Flaw.CELLS_ARE_NOT_CLEARED:
                after = after._replace(cells=(Cell(), Cell()))
        yield what, after


def _agreement(job: Job, state: State, path: Path) -> Resume:
    at = {n: len(each.results) for n, each in enumerate(state.workers) if not each.ended}
    first, last = min(at.values()), max(at.values())
    holders = frozenset(number for number, exchange in at.items() if exchange == last)
    if job.quorum:
        if path == Path.SWITCH or not last:
            return Resume(path, last)
        return Resume(path, last - 1, holders)
    if last - first > 1:
        raise TooFarApart(f"the workers are at {at}")
    shared = last > first and job.flaw != Flaw.NOTHING_IS_SHARED
    return Resume(path, first, holders if shared else NOBODY)


# -- the switch ----------------------------------------------------------------------------------


def _arrivals(job: Job, state: State) -> Iterator[tuple[str, State]]:
    """Yield the arrivals of contributions of any term at the switch."""
    for term, resume in enumerate(state.resumes):
        if resume is None or resume.path != Path.SWITCH or state.admits is None:
            continue
        if term != state.admits and job.flaw != Flaw.CONTRIBUTIONS_OF_ANY_TERM:
            continue
        for number, started in enumerate(state.started[term]):
            for chunk in range(started):
                what = f"worker {number}'s chunk {chunk} of term {term} arrives"
                yield what, _contribute(job, state, term, number, chunk)


def _contribute(job: Job, state: State, term: int, number: int, chunk: int) -> State:
    sequence = chunk + 1
    cell = state.cells[sequence % 2]
    if sequence < cell.sequence:
        return state
    if sequence > cell.sequence:
        cell = Cell(sequence)
    missing = job.needed - len(cell.contents)
    if missing and number not in dict(cell.contents):
        content = _content(job, state, term, number, chunk)
        contents, missing = (
            tuple(sorted((*cell.contents, (number, content)), key=repr)),
            missing - 1,
        )
        cell = Cell(sequence, contents, None if missing else _combined(term, contents))
    cells = (cell, state.cells[1]) if sequence % 2 == 0 else (state.cells[0], cell)
    sent = state.sent if missing else state.sent | {(term, chunk, cell.result)}
    return state._replace(cells=cells, sent=sent)


def _content(job: Job, state: State, term: int, number: int, chunk: int) -> Content:
    """Return a worker's n-th contribution of a term."""
    resume = state.resumes[term]
    assert resume
    turn, place = divmod(chunk, job.chunks)
    if resume.shared and turn == 0:
        have = state.workers[number].results
        return have[resume.exchange][place] if number in resume.holders else None
    return resume.exchange + turn, place


def _combined(term: int, contents: tuple[tuple[int, Content], ...]) -> Content:
    """Return the maximum of the shared results, or else the sum of the workers' own numbers."""
    shared = {each for _, each in contents if each is None or isinstance(each, Total)}
    if shared:
        return max(shared - {None}, default=None)
    return Total(term, tuple(sorted((number, *each) for number, each in contents)))


# -- the workers ---------------------------------------------------------------------------------


def _messages(job: Job, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
    """Yield the next messages of the controller that a worker can receive, in order."""
    if worker.term < state.term:
        after = worker._replace(term=worker.term + 1, running=False, done=0, taken=())
        yield (
            f"worker {number} breaks off for term {after.term}",
            state.with_worker(number, after),
        )
    resume = state.resumes[worker.term]
    if resume and not worker.running:
        if len(worker.results) < resume.exchange:
            what = f"worker {number} hears that it is left behind"
            yield what, state.with_worker(number, worker._replace(ended=True))
        else:
            after = state.with_worker(number, worker._replace(running=True))
            yield f"worker {number} goes on", _go_on(job, after, number)


def _go_on(job: Job, state: State, number: int) -> State:
    """Return the state after a worker has sent its next chunk, if there is one."""
    worker = state.workers[number]
    resume = state.resumes[worker.term]
    assert resume
    if resume.exchange + worker.done // job.chunks == job.exchanges:
        return state
    return state.with_started(worker.term, number, worker.done + 1)


def _results(job: Job, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
    """Yield the results that a worker can accept."""
    if not worker.running or state.started[worker.term][number] <= worker.done:
        return
    for term, chunk, content in sorted(state.sent, key=repr):
        fits = term == worker.term or job.flaw == Flaw.RESULTS_OF_ANY_TERM
        if fits and chunk == worker.done:
            what = f"worker {number} takes chunk {chunk} of term {term}"
            yield what, _take(job, state, number, content, job.needed)
    resume = state.resumes[worker.term]
    present = [n for n, each in enumerate(state.workers) if not each.ended]
    everybody = all(state.started[worker.term][n] > worker.done for n in present)
    if resume and resume.path == Path.FALLBACK and everybody:
        contents = tuple((n, _content(job, state, worker.term, n, worker.done)) for n in present)
        content = _combined(worker.term, contents)
        what = f"worker {number} takes chunk {worker.done} of the fallback"
        yield what, _take(job, state, number, content, len(present))


def _take(job: Job, state: State, number: int, content: Content, needed: int) -> State:
    worker = state.workers[number]
    resume = state.resumes[worker.term]
    assert resume
    turn, place = divmod(worker.done, job.chunks)
    exchange = resume.exchange + turn
    if not isinstance(content, Total):
        raise WrongSum(f"worker {number} takes {content} for exchange {exchange}")
    if {part[1:] for part in content.parts} != {(exchange, place)} or (
        not (resume.shared and turn == 0) and len({part[0] for part in content.parts}) != needed
    ):
        raise WrongSum(f"worker {number} takes {content} for chunk {place} of exchange {exchange}")
    after = worker._replace(done=worker.done + 1, taken=(*worker.taken, content))
    if place + 1 == job.chunks:
        after = _finish(state, number, after, exchange)
    return _go_on(job, state.with_worker(number, after), number)


def _finish(state: State, number: int, worker: Worker, exchange: int) -> Worker:
    """Return the worker after a whole exchange. Raises Unequal if another one has a different result."""
    for other, each in enumerate(state.workers):
        if len(each.results) > exchange and each.results[exchange] != worker.taken:
            raise Unequal(
                f"of exchange {exchange} worker {number} has {worker.taken}, "
                f"worker {other} {each.results[exchange]}"
            )
    before = worker.results[:exchange]
    return worker._replace(
        taken=(), results=(*before, worker.taken, *worker.results[exchange + 1 :])
    )


def _ends(job: Job, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
    """Yield a worker's possible ends: it is left behind, or too few workers are left for a quorum."""
    ended = state.with_worker(number, worker._replace(ended=True))
    outstanding = state.started[worker.term][number] > worker.done
    if worker.running and outstanding and state.admits == worker.term:
        sequence = worker.done + 1
        if sequence < state.cells[sequence % 2].sequence:
            if not job.quorum:
                raise FalseAlarm(f"worker {number} is stale, though it is needed")
            yield f"worker {number} hears that the others have gone on", ended
    present = sum(not each.ended for each in state.workers)
    if present < job.needed and len(worker.results) < job.exchanges:
        yield f"worker {number} hears that too few are left", ended
