"""The lending of slots between jobs that do not communicate all the time.

A job that lends has a few slots of its own (:attr:`JobSpec.kept_slots`). While all its workers
communicate, it may borrow a larger range, up to the slots that it has asked for, and uses that one
instead. It keeps the loan until another job needs the slots:

* A job that does not communicate gives its loan up at once.
* A job that communicates keeps its loan for a lease, `LEASE_S`. After that, it gives the loan up to a
  job that waits, unless that job has a lower priority.
* A job that waits takes the loan at once if its priority is higher by one or more.

The priority of a job that waits rises by one every `AGEING_S`. It keeps its raised priority for a
lease. So every job that waits gets slots, whatever the priorities are.

Each move begins a term (docs/recovery.md), and breaks off the exchange under way. If a job loses its
loan before it has finished an exchange, its next lease is twice as long. Before this lease is over, only
a job whose priority is higher by two takes the loan. So no exchange is broken off for ever.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from innet.controller.jobs.job import Job
from innet.controller.jobs.records import SlotRange
from innet.controller.jobs.slots import SlotAllocator, free_ranges

LEASE_S, AGEING_S = 2.0, 5.0
_MOST_DOUBLINGS = 8  # of a lease, to eight minutes

Allocators = Callable[[Job], Sequence[SlotAllocator]]
"""A function that returns the allocators of a job's switches."""

Change = tuple[Job, SlotRange | None]
"""A job, and the slots that it borrows from now on, or None if it uses its own."""

Offer = tuple[SlotRange, list[Job]]
"""Slots that a job can borrow, and the jobs that have to give up their loans before."""


@dataclass
class _Standing:
    """A job's standing among those that borrow.

    It has waited for slots since `waits_since`. It has its loan for a lease until `lent_until`, with the
    priority `priority`. It has lost `losses` loans since it last finished an exchange.
    """

    waits_since: float | None = None
    lent_until: float = 0.0
    priority: float = 0.0
    losses: int = 0


class Lending:
    """The lending between the jobs of all switches."""

    def __init__(self) -> None:
        self._standings: dict[str, _Standing] = {}

    def forget(self, job: str) -> None:
        """Drop a job that is over."""
        self._standings.pop(job, None)

    def changes(self, jobs: Iterable[Job], allocators: Allocators, now: float) -> Iterator[Change]:
        """Yield the loans that begin and those that end before. Carry out each change before the next."""
        lenders = [job for job in jobs if job.spec.lends and job.switches.own_range]
        for job in lenders:
            self._note(job, now)
            if job.switches.loan and not job.roster.complete:  # workers have left, or were killed
                yield job, None
        waiting = [job for job in lenders if self._waits(job, now)]
        for job in sorted(waiting, key=lambda each: self._order(each, now)):
            if offer := self._offer(job, lenders, allocators(job), now):
                loan, holders = offer
                for holder in holders:
                    yield from self._displace(holder)
                self._lend(job, now)
                yield job, loan

    def _of(self, job: Job) -> _Standing:
        return self._standings.setdefault(job.spec.name, _Standing())

    def _note(self, job: Job, now: float) -> None:
        """Note since when a job waits, and whether it has finished an exchange."""
        standing = self._of(job)
        if _progresses(job):
            standing.losses = 0
        if job.switches.loan or not job.communicates:
            standing.waits_since = None
        elif standing.waits_since is None:
            standing.waits_since = now

    def _waits(self, job: Job, now: float) -> bool:
        """Return whether a job can use more slots than it has, and may be moved."""
        if not job.communicates or _slots(job) == job.spec.slots:
            return False
        standing = self._of(job)
        if job.switches.loan:
            return now >= standing.lent_until and _progresses(job)
        # After a loss, workers that were stopped in an exchange have to agree before slots are of use.
        return not standing.losses or job.agreement is not None

    def _order(self, job: Job, now: float) -> tuple[float, int]:
        return -self._priority(job, now), job.spec.number

    def _priority(self, job: Job, now: float) -> float:
        """Return a job's priority, raised by the time for which it has waited."""
        since = self._of(job).waits_since
        return job.spec.priority + (0.0 if since is None else (now - since) / AGEING_S)

    def _offer(
        self, job: Job, lenders: Iterable[Job], allocators: Sequence[SlotAllocator], now: float
    ) -> Offer | None:
        """Return slots that a job can borrow, and the jobs that have to give them up, or None.

        The largest range is the best one. Among ranges of one size, the best is the one that costs others
        least. A loan whose lease has run out ends only for a job that borrows nothing, and only if there
        is no range, however small, without it.
        """
        holders = [each for each in lenders if each is not job and _share_a_switch(each, job)]
        weak = [each for each in holders if self._makes_way(each, job, now)]
        over = [each for each in holders if self._is_over(each, job, now)]
        for allowed in (weak,) if job.switches.loan else (weak, weak + over):
            size = job.spec.slots
            while size > _slots(job):
                if found := _cheapest(_ranges(job, size, holders, allocators), allowed):
                    return found
                size //= 2
        return None

    def _makes_way(self, holder: Job, job: Job, now: float) -> bool:
        """Return whether a job gives up its loan to another job at once."""
        higher = self._priority(job, now) >= self._of(holder).priority + 1
        return higher or not holder.communicates

    def _is_over(self, holder: Job, job: Job, now: float) -> bool:
        """Return whether a job gives up its loan because it has had it for a lease."""
        return now >= self._of(holder).lent_until and (
            self._priority(job, now) >= holder.spec.priority
        )

    def _displace(self, holder: Job) -> Iterator[Change]:
        if holder.communicates and not _progresses(holder):
            self._of(holder).losses += 1
        yield holder, None

    def _lend(self, job: Job, now: float) -> None:
        standing = self._of(job)
        standing.priority = self._priority(job, now) + standing.losses
        lease = LEASE_S * 2 ** min(standing.losses, _MOST_DOUBLINGS)
        standing.waits_since, standing.lent_until = None, now + lease


def borrowers(jobs: Iterable[Job], slot_range: SlotRange, switches: Iterable[str]) -> list[Job]:
    """Return the jobs that borrow any of these slots on any of these switches."""
    return [
        job
        for job in jobs
        if job.switches.loan
        and job.switches.loan.overlaps(slot_range)
        and not {*switches}.isdisjoint(job.spec.switches)
    ]


def _ranges(
    job: Job, size: int, holders: Iterable[Job], allocators: Sequence[SlotAllocator]
) -> Iterator[Offer]:
    """Yield the aligned ranges that are no job's own, each with the jobs that borrow some of it."""
    index = job.switches.own_range.index if job.switches.own_range else 0
    for first in free_ranges(allocators, size):
        found = SlotRange(index, first, size)
        yield found, borrowers(holders, found, job.spec.switches)


def _cheapest(offers: Iterable[Offer], allowed: Collection[Job]) -> Offer | None:
    """Return the offer that costs others least, among those that take loans only from `allowed` jobs."""
    best: Offer | None = None
    for offer in offers:
        if not all(each in allowed for each in offer[1]):
            continue
        if not offer[1]:
            return offer
        if best is None or _cost(offer) < _cost(best):
            best = offer
    return best


def _cost(offer: Offer) -> tuple[int, int, int]:
    """Return the cost of an offer to the jobs that give up loans. Those that communicate count first."""
    slot_range, holders = offer
    return sum(each.communicates for each in holders), len(holders), slot_range.first_slot


def _slots(job: Job) -> int:
    return job.slot_range.slots if job.slot_range else 0


def _share_a_switch(one: Job, other: Job) -> bool:
    return not {*one.spec.switches}.isdisjoint(other.spec.switches)


def _progresses(job: Job) -> bool:
    """Return whether all workers have finished an exchange in the present term."""
    agreed = job.agreement
    return agreed is not None and all(
        each.progress.exchange > agreed.exchange for each in job.roster.admitted
    )
