"""The events in the life of a job, found by comparing two states of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from innet.controller.jobs.history import LENDING, Departed
from innet.controller.jobs.records import JobRecord
from innet.controller.jobs.terms import Terms

CREATED, JOINED, NOT_JOINED, LEFT = (
    "job created", "worker joined", "worker not joined", "worker left",
)  # fmt: skip
TERM_ENDS, TERM_BEGINS, ENDED = "term ends", "term begins", "job ended"


@dataclass(frozen=True)
class JobEvent:
    """An event in the life of a job, about a worker or about all of them.

    `rank` is that of the job's group. `details` are more facts for the log.
    """

    event: str
    term: int
    why: str = ""
    rank: int | None = None
    details: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class DatedEvent:
    """An event in the life of a job of `owner`'s, at a time in seconds since 1970."""

    job: str
    at: float
    event: str
    rank: int | None
    term: int
    why: str
    owner: str = ""


def changes(
    before: JobRecord | None, after: JobRecord, terms: Terms, departures: Iterable[Departed]
) -> Iterator[JobEvent]:
    """Yield what has happened between two states. Without one before, the job is new."""
    for each in _changes(before, after, terms, departures):
        rank = None if each.rank is None else after.spec.in_group(each.rank)
        yield replace(each, rank=rank)


def _changes(
    before: JobRecord | None, after: JobRecord, terms: Terms, departures: Iterable[Departed]
) -> Iterator[JobEvent]:
    """Yield the events, with the ranks of the job."""
    if not before:
        spec = after.spec
        about = (("switch", spec.switch), ("workers", spec.workers), ("owner", spec.owner))
        yield JobEvent(CREATED, after.term, details=about)
    for each in departures:
        event = LEFT if each.admitted else NOT_JOINED
        yield JobEvent(event, before.term if before else after.term, each.reason, each.rank)
    yield from _joined(before, after)
    if before:
        yield from _terms(before, after, terms)


def _terms(before: JobRecord, after: JobRecord, terms: Terms) -> Iterator[JobEvent]:
    """Yield the end and the beginning of a term. If no workers are left, the end is no event.

    Terms for lent slots are left out: they come and go with every burst.
    """
    if terms.cause in LENDING:
        return
    why = f"{terms.cause}: {terms.why}" if terms.why else str(terms.cause)
    if before.agreement and not after.agreement and after.workers:
        yield JobEvent(TERM_ENDS, before.term, why, terms.culprit)
    begun = after.agreement
    if begun and begun != before.agreement:
        yield JobEvent(
            TERM_BEGINS, begun.term, why, terms.culprit,
            details=(
                ("path", begun.path.name.lower()), ("avoids_switch", begun.reason),
                ("exchange", begun.exchange), ("shared", begun.shared),
            ),
        )  # fmt: skip


def _joined(before: JobRecord | None, after: JobRecord) -> Iterator[JobEvent]:
    for was, each in after.since(before)[0]:
        if each.where and not (was and was.nonce == each.nonce and was.where):
            about = (("switch", each.where.switch), ("port", each.where.port))
            yield JobEvent(JOINED, after.term, "", each.rank, about)
