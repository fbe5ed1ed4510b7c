"""The workers of a job: those in it, those that wait for its next generation, those that have left."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from innet.controller.jobs.events import (
    Actions,
    Admission,
    Departure,
    EndStream,
    Event,
    Invitation,
    Notify,
    Progress,
)
from innet.controller.jobs.records import Attachment, JobSpec, WorkerRecord
from innet.errors import AlreadyExists, NotFound, UsageError
from innet.machine.numbers import listed


@dataclass(eq=False)
class Worker:
    """A worker of a job. It is admitted once its hello packet has told `where` it is attached.

    `ready` is the exchange that the worker will begin with. It is None while the worker is at work,
    or when that exchange is unknown. `notified` is set once the worker has been sent the agreement
    on the present term on its present stream. `busy` is set while the worker of a job that lends slots
    communicates.
    """

    rank: int
    nonce: int
    fallback: bool
    heard: float
    where: Attachment | None = None
    ready: int | None = 0
    notified: bool = False
    busy: bool = False
    progress: Progress = field(default_factory=Progress)
    _record: WorkerRecord | None = None

    def record(self) -> WorkerRecord:
        """Return the part of the state that has to outlive the controller.

        While nothing has changed, this is the same object as before, so that comparing it takes no time.
        """
        known = self._record
        if not known or known.where is not self.where or known.fallback != self.fallback:
            known = WorkerRecord(self.rank, self.nonce, self.fallback, self.where)
            self._record = known
        return known


class Roster:
    """A job's workers by rank, and the workers that wait for its next generation.

    Every worker first gets a copy of `invitation`, with a nonce of its own. `departed` holds the
    workers that have left the present generation, and why. `attachments` are those of the admitted
    workers, by rank, and never change: another worker makes another mapping.
    """

    def __init__(self, spec: JobSpec, invitation: Invitation, now: float) -> None:
        self._spec, self._invitation, self._idle_since = spec, invitation, now
        self.workers: dict[int, Worker] = {}
        self.attachments: Mapping[int, Attachment] = {}
        self._by_nonce: dict[int, Worker] = {}
        self._places: dict[Attachment, int] = {}  # the ranks of the admitted workers
        self._records: tuple[WorkerRecord, ...] | None = ()  # None: to be made again
        self._admitted: list[Worker] | None = []  # likewise
        self.waiting: list[Worker] = []
        self.departed: dict[int, str] = {}

    def restore(self, records: Collection[WorkerRecord], now: float) -> None:
        """Take in the workers of an earlier controller. They have one lease to come back."""
        for each in records:
            worker = Worker(each.rank, each.nonce, each.fallback, now, each.where)
            if each.where:
                worker.ready = None  # not known
            self.workers[each.rank] = worker
        self._refresh()

    def records(self) -> tuple[WorkerRecord, ...]:
        """Return the part of the workers' state that has to outlive the controller."""
        if self._records is None:
            self._records = tuple(each.record() for each in self.workers.values())
        return self._records

    # Queries.

    @property
    def admitted(self) -> list[Worker]:
        """Return the workers whose attachment is known, by rank."""
        if self._admitted is None:
            self._admitted = [self.workers[rank] for rank in sorted(self.attachments)]
        return self._admitted

    @property
    def left(self) -> int:
        """Return the number of workers that have not departed, including those still to come."""
        return self._spec.workers - len(self.departed)

    @property
    def missing(self) -> int:
        """Return the number of workers that are not admitted."""
        return self._spec.workers - len(self.attachments)

    @property
    def to_come(self) -> frozenset[int]:
        """Return the ranks that have neither been admitted nor departed."""
        return frozenset(range(self._spec.workers)) - {*self.departed, *self.attachments}

    @property
    def ending(self) -> bool:
        """Return whether too many workers have left to finish another exchange."""
        return self.left < self._spec.min_workers

    @property
    def complete(self) -> bool:
        """Return whether all workers that have not left are admitted, and enough of them are left."""
        return len(self.attachments) >= max(1, self.left) and not self.ending

    @property
    def communicates(self) -> bool:
        """Return whether all workers are there, and none of them computes."""
        return all(each.busy for each in self.workers.values()) and self.complete

    @property
    def quorum(self) -> int:
        """Return the number of contributions that make a result in this term."""
        return min(self._spec.quorum, max(self.left, self._spec.min_workers))

    @property
    def no_fallback(self) -> str:
        """Return why the workers cannot sum without the switch, or "" if they can."""
        if self.missing:
            return f"there is no fallback while {self.missing} of the workers are missing"
        without = [self._spec.in_group(each.rank) for each in self.admitted if not each.fallback]
        if not without:
            return ""
        if len(without) == len(self.admitted):
            return "no worker has a fallback"
        return f"some workers have no fallback: {listed(without)}"

    @property
    def nonces(self) -> set[int]:
        """Return the nonces of all workers, including those that wait."""
        return {each.nonce for each in [*self.workers.values(), *self.waiting]}

    def expired(self, now: float) -> bool:
        """Return whether the job has had no worker for the time of its lease."""
        empty = not self.workers and not self.waiting
        return empty and now - self._idle_since > self._spec.lease_s

    def find(self, nonce: int) -> Worker | None:
        """Return the worker with this nonce, unless it waits or has left."""
        return self._by_nonce.get(nonce)

    def at(self, where: Attachment) -> Worker | None:
        """Return the worker that already has this attachment, or None. Workers need different ones."""
        rank = self._places.get(where)
        return None if rank is None else self.workers[rank]

    def check_rank(self, rank: int) -> None:
        """Raise UsageError unless the job has a worker with this rank."""
        if rank >= self._spec.workers:
            raise UsageError(
                f"there is no rank {rank}: the job has {self._spec.workers} workers, with ranks from 0 on"
            )

    # Changes.

    def must_wait(self, worker: Worker, unheard: Collection[int]) -> bool:
        """Return whether a worker has to wait for the next generation.

        Raises AlreadyExists if another one has its rank, or waits for it.
        """
        self.check_rank(worker.rank)
        holder = self.workers.get(worker.rank)
        gone = holder is not None and holder.nonce in unheard
        if self.ending or worker.rank in self.departed or gone:
            if worker.rank in {each.rank for each in self.waiting}:
                raise AlreadyExists(
                    f"a worker {self._spec.in_group(worker.rank)} waits for the next run of the job "
                    f"{self._spec.name!r} already"
                )
            return True
        if holder:
            raise self._rank_taken(worker.rank)
        return False

    def add(self, worker: Worker, now: float) -> Actions:
        """Take in a worker, also one that has waited or come back, and invite it."""
        worker.heard = now  # its hello packet has time from here on
        self.workers[worker.rank] = self._by_nonce[worker.nonce] = worker
        self._records = None
        invitation = replace(self._invitation, nonce=worker.nonce)
        return [Notify(worker.nonce, invitation)]

    def attach(self, worker: Worker, where: Attachment) -> None:
        """Admit a worker at a port, or note that it has moved there. No other worker may be there."""
        if worker.where:
            del self._places[worker.where]
        worker.where = where
        self.attachments = {**self.attachments, worker.rank: where}
        self._places[where] = worker.rank
        self._records = self._admitted = None

    def welcome(self, worker: Worker) -> Actions:
        """Return a worker's admission, and the departures before it."""
        admission = Admission(
            job_id=self._spec.id,
            rank=worker.rank,
            workers=self._spec.workers,
            min_workers=self._spec.min_workers,
            lanes=self._invitation.lanes,
            lends=self._spec.lends,
        )
        departures = [Departure(rank, reason) for rank, reason in self.departed.items()]
        events: list[Event] = [admission, *departures]
        return [Notify(worker.nonce, event) for event in events]

    def remove(self, nonce: int, reason: str, now: float) -> Worker | None:
        """Remove a worker. Return it, or None if it only waited for the next generation."""
        self.waiting = [each for each in self.waiting if each.nonce != nonce]
        worker = self.find(nonce)
        if worker:
            del self.workers[worker.rank], self._by_nonce[nonce]
            self._records = self._admitted = None
            if worker.where:
                del self._places[worker.where]
                at = self.attachments
                self.attachments = {rank: at[rank] for rank in at if rank != worker.rank}
                self.departed[worker.rank] = reason
            if not self.workers and not self.waiting:
                self._idle_since = now
        return worker

    def seat_successor(self, rank: int, now: float) -> Actions:
        """Take in the worker that waits for a rank whose holder has left before it was admitted."""
        if self.ending or rank in self.departed:
            return []
        waiting = [each for each in self.waiting if each.rank == rank]
        self.waiting = [each for each in self.waiting if each.rank != rank]
        return [action for each in waiting for action in self.add(each, now)]

    def remove_admitted(self, now: float) -> None:
        """Remove all admitted workers."""
        self.workers = {each.rank: each for each in self.workers.values() if not each.where}
        self._refresh()
        self._idle_since = now

    def begin_generation(self, now: float) -> Actions:
        """Forget the departures, and take in the workers that have waited."""
        self.departed = {}
        waiting, self.waiting = self.waiting, []
        return [action for each in waiting for action in self._add_or_refuse(each, now)]

    def end(self, reason: str) -> Actions:
        """Remove all workers because the job ends."""
        actions: Actions = []
        for worker in self.workers.values():
            actions.append(Notify(worker.nonce, Departure(worker.rank, reason)))
            actions.append(EndStream(worker.nonce))
        actions += [EndStream(each.nonce, NotFound(reason)) for each in self.waiting]
        self.workers, self.waiting = {}, []
        self._refresh()
        return actions

    def _refresh(self) -> None:
        """Compute again all that follows from the workers."""
        self._by_nonce = {each.nonce: each for each in self.workers.values()}
        self.attachments = {
            rank: each.where for rank, each in sorted(self.workers.items()) if each.where
        }
        self._places = {where: rank for rank, where in self.attachments.items()}
        self._records = self._admitted = None

    def _add_or_refuse(self, worker: Worker, now: float) -> Actions:
        if worker.rank in self.workers:
            return [EndStream(worker.nonce, self._rank_taken(worker.rank))]
        return self.add(worker, now)

    def _rank_taken(self, rank: int) -> AlreadyExists:
        return AlreadyExists(
            f"the job {self._spec.name!r} has a worker {self._spec.in_group(rank)} already: give every "
            "worker a rank of its own, or end the other one"
        )
