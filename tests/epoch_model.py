"""How a job goes on after a failure (docs/epochs.md), small enough to visit every state of it.

As in `slot_model`, nothing that was ever sent is gone: the contributions and the results of every
epoch may arrive at any time, in any number. The controller begins a new epoch whenever it likes, and may
find the switch then as it was, or out of reach, or rebooted.

What workers end up with must be the same everywhere, bit by bit. So a sum is modelled as what went into
it *and* the epoch in which it was made: made again, it counts as another.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from slot_model import NOBODY, FalseAlarm, Violation, Workers, WrongSum


class Flaw(Enum):
    """What a protocol may do without, and should not."""

    CONTRIBUTIONS_OF_ANY_EPOCH = auto()  # count in the switch
    RESULTS_OF_ANY_EPOCH = auto()  # are taken by the workers
    CELLS_ARE_NOT_CLEARED = auto()
    NOTHING_IS_SHARED = auto()  # what some have finished is done again


class Path(Enum):
    """How the workers of an epoch sum."""

    SWITCH = auto()
    FALLBACK = auto()


@dataclass(frozen=True)
class Job:
    """How much there is to explore: each exchange is of `chunks` chunks, all through one slot.

    A result of the switch takes `quorum` contributions; 0 means: of all workers.
    """

    workers: int
    exchanges: int
    chunks: int
    epochs: int
    quorum: int = 0
    flaw: Flaw | None = None

    @property
    def needed(self) -> int:
        """How many contributions make a result of the switch."""
        return self.quorum or self.workers


class Unequal(Violation):
    """Two workers took different results of one exchange."""


class TooFarApart(Violation):
    """A new epoch finds workers further apart than an exchange, which are all needed."""


class Total(NamedTuple):
    """A result: the epoch in which it was made, and each contribution (worker, exchange, chunk)."""

    epoch: int
    parts: tuple[tuple[int, int, int], ...]


Content = Total | tuple[int, int] | None
"""A contribution: a worker's own numbers to (exchange, chunk), or a result that it has, or has not."""


@dataclass(frozen=True)
class Cell:
    """One copy of the slot: who has contributed what, and the result, once there is one."""

    sequence: int = 0
    contents: tuple[tuple[int, Content], ...] = ()
    result: Content = None


@dataclass(frozen=True)
class Resume:
    """How an epoch begins. If the first exchange is shared, `holders` are those who have its result."""

    path: Path
    exchange: int
    holders: Workers = NOBODY

    @property
    def shared(self) -> bool:
        """Whether the first exchange only passes a result on."""
        return bool(self.holders)


@dataclass(frozen=True)
class Worker:
    """Where a worker is: in its epoch it has taken the results of `done` chunks.

    `results` are those of all exchanges that it has finished; `taken` those of the present one.
    """

    epoch: int = 0
    running: bool = False
    done: int = 0
    taken: tuple[Content, ...] = ()
    results: tuple[tuple[Content, ...], ...] = ()
    ended: bool = False


@dataclass(frozen=True)
class State:
    """Everything that the future depends on.

    `resumes` is what the controller has said, by epoch, or None if it waits for the workers; `started`
    is by epoch and worker how many chunks it has ever sent; `sent` are the results (epoch, number,
    content) of the switch, which admits the contributions of the epoch `admits`.
    """

    workers: tuple[Worker, ...]
    resumes: tuple[Resume | None, ...]
    started: tuple[tuple[int, ...], ...]
    admits: int | None = None
    cells: tuple[Cell, Cell] = (Cell(), Cell())
    sent: frozenset[tuple[int, int, Content]] = frozenset()

    @property
    def epoch(self) -> int:
        """The present epoch."""
        return len(self.resumes) - 1

    def with_worker(self, number: int, worker: Worker) -> "State":
        """The state with one worker changed."""
        return replace(self, workers=(*self.workers[:number], worker, *self.workers[number + 1 :]))

    def with_started(self, epoch: int, number: int, count: int) -> "State":
        """The state when a worker has sent so many chunks in an epoch."""
        row = self.started[epoch]
        row = (*row[:number], max(count, row[number]), *row[number + 1 :])
        return replace(self, started=(*self.started[:epoch], row, *self.started[epoch + 1 :]))


def start(job: Job) -> State:
    """All workers have joined, and the controller is about to say how the first epoch begins."""
    return State((Worker(),) * job.workers, (None,), ((0,) * job.workers,))


def over(job: Job, state: State) -> bool:
    """Whether every worker has all results, or an error."""
    return all(each.ended or len(each.results) == job.exchanges for each in state.workers)


def steps(job: Job, state: State) -> Iterator[tuple[str, State]]:
    """Everything that may happen next, and what comes of it. Raises Violation."""
    yield from _epochs(job, state)
    yield from _resumes(job, state)
    yield from _arrivals(job, state)
    for number, worker in enumerate(state.workers):
        if not worker.ended:
            yield from _messages(job, state, number, worker)
            yield from _results(job, state, number, worker)
            yield from _ends(job, state, number, worker)


# -- the controller ------------------------------------------------------------------------------


def _epochs(job: Job, state: State) -> Iterator[tuple[str, State]]:
    """A new epoch begins."""
    if state.epoch + 1 < job.epochs:
        after = replace(
            state,
            resumes=(*state.resumes, None),
            started=(*state.started, (0,) * job.workers),
        )
        what = f"epoch {after.epoch} begins"
        yield f"{what}, the switch is out of reach", after
        yield f"{what}, the switch admits nobody", replace(after, admits=None)
        rebooted = replace(after, admits=None, cells=(Cell(), Cell()))
        yield f"{what}, the switch has rebooted", rebooted


def _resumes(job: Job, state: State) -> Iterator[tuple[str, State]]:
    """All workers are ready, and the controller says how the epoch begins."""
    present = [each for each in state.workers if not each.ended]
    if state.resumes[-1] or not present or any(each.epoch < state.epoch for each in present):
        return
    for path in Path:
        resume = _agreement(job, state, path)
        what = f"the controller says how epoch {state.epoch} begins: {resume}"
        after = replace(state, resumes=(*state.resumes[:-1], resume))
        if path == Path.SWITCH:
            after = replace(after, admits=state.epoch)
            if job.flaw != Flaw.CELLS_ARE_NOT_CLEARED:
                after = replace(after, cells=(Cell(), Cell()))
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
    """A contribution of any epoch arrives at the switch."""
    for epoch, resume in enumerate(state.resumes):
        if resume is None or resume.path != Path.SWITCH or state.admits is None:
            continue
        if epoch != state.admits and job.flaw != Flaw.CONTRIBUTIONS_OF_ANY_EPOCH:
            continue
        for number, started in enumerate(state.started[epoch]):
            for chunk in range(started):
                what = f"worker {number}'s chunk {chunk} of epoch {epoch} arrives"
                yield what, _contribute(job, state, epoch, number, chunk)


def _contribute(job: Job, state: State, epoch: int, number: int, chunk: int) -> State:
    sequence = chunk + 1
    cell = state.cells[sequence % 2]
    if sequence < cell.sequence:
        return state
    if sequence > cell.sequence:
        cell = Cell(sequence)
    missing = job.needed - len(cell.contents)
    if missing and number not in dict(cell.contents):
        content = _content(job, state, epoch, number, chunk)
        contents, missing = (
            tuple(sorted((*cell.contents, (number, content)), key=repr)),
            missing - 1,
        )
        cell = Cell(sequence, contents, None if missing else _combined(epoch, contents))
    cells = (cell, state.cells[1]) if sequence % 2 == 0 else (state.cells[0], cell)
    sent = state.sent if missing else state.sent | {(epoch, chunk, cell.result)}
    return replace(state, cells=cells, sent=sent)


def _content(job: Job, state: State, epoch: int, number: int, chunk: int) -> Content:
    """What a worker contributes as its n-th chunk of an epoch."""
    resume = state.resumes[epoch]
    assert resume
    turn, place = divmod(chunk, job.chunks)
    if resume.shared and turn == 0:
        have = state.workers[number].results
        return have[resume.exchange][place] if number in resume.holders else None
    return resume.exchange + turn, place


def _combined(epoch: int, contents: tuple[tuple[int, Content], ...]) -> Content:
    """The maximum of results that some have; or the sum of the workers' own numbers."""
    shared = {each for _, each in contents if each is None or isinstance(each, Total)}
    if shared:
        return max(shared - {None}, default=None)
    return Total(epoch, tuple(sorted((number, *each) for number, each in contents)))


# -- the workers ---------------------------------------------------------------------------------


def _messages(job: Job, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
    """A worker hears from the controller, in order."""
    if worker.epoch < state.epoch:
        after = replace(worker, epoch=worker.epoch + 1, running=False, done=0, taken=())
        yield (
            f"worker {number} breaks off for epoch {after.epoch}",
            state.with_worker(number, after),
        )
    resume = state.resumes[worker.epoch]
    if resume and not worker.running:
        if len(worker.results) < resume.exchange:
            what = f"worker {number} hears that it is left behind"
            yield what, state.with_worker(number, replace(worker, ended=True))
        else:
            after = state.with_worker(number, replace(worker, running=True))
            yield f"worker {number} goes on", _go_on(job, after, number)


def _go_on(job: Job, state: State, number: int) -> State:
    """The worker sends its next chunk, if there is one."""
    worker = state.workers[number]
    resume = state.resumes[worker.epoch]
    assert resume
    if resume.exchange + worker.done // job.chunks == job.exchanges:
        return state
    return state.with_started(worker.epoch, number, worker.done + 1)


def _results(job: Job, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
    """A worker takes a result."""
    if not worker.running or state.started[worker.epoch][number] <= worker.done:
        return
    for epoch, chunk, content in sorted(state.sent, key=repr):
        fits = epoch == worker.epoch or job.flaw == Flaw.RESULTS_OF_ANY_EPOCH
        if fits and chunk == worker.done:
            what = f"worker {number} takes chunk {chunk} of epoch {epoch}"
            yield what, _take(job, state, number, content, job.needed)
    resume = state.resumes[worker.epoch]
    present = [n for n, each in enumerate(state.workers) if not each.ended]
    everybody = all(state.started[worker.epoch][n] > worker.done for n in present)
    if resume and resume.path == Path.FALLBACK and everybody:
        contents = tuple((n, _content(job, state, worker.epoch, n, worker.done)) for n in present)
        content = _combined(worker.epoch, contents)
        what = f"worker {number} takes chunk {worker.done} of the fallback"
        yield what, _take(job, state, number, content, len(present))


def _take(job: Job, state: State, number: int, content: Content, needed: int) -> State:
    worker = state.workers[number]
    resume = state.resumes[worker.epoch]
    assert resume
    turn, place = divmod(worker.done, job.chunks)
    exchange = resume.exchange + turn
    if not isinstance(content, Total):
        raise WrongSum(f"worker {number} takes {content} for exchange {exchange}")
    if {part[1:] for part in content.parts} != {(exchange, place)} or (
        not (resume.shared and turn == 0) and len({part[0] for part in content.parts}) != needed
    ):
        raise WrongSum(f"worker {number} takes {content} for chunk {place} of exchange {exchange}")
    after = replace(worker, done=worker.done + 1, taken=(*worker.taken, content))
    if place + 1 == job.chunks:
        after = _finish(state, number, after, exchange)
    return _go_on(job, state.with_worker(number, after), number)


def _finish(state: State, number: int, worker: Worker, exchange: int) -> Worker:
    """The worker has a whole exchange, which has to be what everybody else has."""
    for other, each in enumerate(state.workers):
        if len(each.results) > exchange and each.results[exchange] != worker.taken:
            raise Unequal(
                f"of exchange {exchange} worker {number} has {worker.taken}, "
                f"worker {other} {each.results[exchange]}"
            )
    before = worker.results[:exchange]
    return replace(
        worker, taken=(), results=(*before, worker.taken, *worker.results[exchange + 1 :])
    )


def _ends(job: Job, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
    """A worker hears that the quorum has gone on, or that too few are left for one."""
    ended = state.with_worker(number, replace(worker, ended=True))
    outstanding = state.started[worker.epoch][number] > worker.done
    if worker.running and outstanding and state.admits == worker.epoch:
        sequence = worker.done + 1
        if sequence < state.cells[sequence % 2].sequence:
            if not job.quorum:
                raise FalseAlarm(f"worker {number} is stale, though it is needed")
            yield f"worker {number} hears that the others have gone on", ended
    present = sum(not each.ended for each in state.workers)
    if present < job.needed and len(worker.results) < job.exchanges:
        yield f"worker {number} hears that too few are left", ended
