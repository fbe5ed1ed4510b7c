"""The sequence of a job's terms: how one ends, and how its workers agree on the next."""

from collections.abc import Iterator

from innet.controller.jobs.agreement import Detour, first_exchange
from innet.controller.jobs.events import Actions, EndStream, Event, Notify, Path, Recover, Resume
from innet.controller.jobs.history import Cause, Departed, History
from innet.controller.jobs.job_switches import JobSwitches
from innet.controller.jobs.records import JobSpec
from innet.controller.jobs.roster import Roster, Worker
from innet.errors import ControllerError
from innet.machine.numbers import listed

LAST_TERM = 0xFFFF


class Terms:
    """The terms of a job, of which `term` is the present one.

    `agreement` says how the term begins, None until the workers agree. `cause` and `why` say why the
    term before it has ended, and `culprit` is the rank that has ended it, if a worker has.
    """

    def __init__(
        self,
        term: int,
        spec: JobSpec,
        roster: Roster,
        switches: JobSwitches,
        history: History,
        now: float,
    ) -> None:
        self.term = term
        self.agreement: Resume | None = None
        self.cause, self.why = Cause.NEW_WORKERS, ""
        self.culprit: int | None = None
        self._spec, self._roster, self._switches, self._history = spec, roster, switches, history
        self._detour, self._began = Detour(), now

    @property
    def path(self) -> Path:
        """Return how exchanges are summed at present."""
        return self.agreement.path if self.agreement else Path.NONE

    @property
    def awaited(self) -> frozenset[int]:
        """Return the ranks that have to join before a term can begin."""
        if not self._switches.pending and self._everybody_counts:
            return frozenset()
        return self._roster.to_come

    def obstacle(self, now: float) -> str | None:
        """Return the reason why the job cannot use the switch now, or None."""
        avoided = self._detour.reason(now, can_fall_back=not self._roster.no_fallback)
        return self._switches.problem or avoided

    def reason(self, now: float) -> str:
        """Return why the path is not the switch, or "" if it is, or if there are no workers."""
        if not self._roster.workers or self.path == Path.SWITCH:
            return ""
        if obstacle := self.obstacle(now):
            without = self._roster.no_fallback
            return f"{obstacle}, and {without}" if without else obstacle
        if missing := self._switches.pending:
            return f"several switches sum, and {missing} of the workers are missing"
        waited = [each.rank for each in self._roster.admitted if each.ready is None]
        if waited:
            unready = listed([self._spec.in_group(rank) for rank in waited])
            return f"a term begins; not ready yet: worker {unready}"
        return "a term begins"

    def begin_generation(self, now: float) -> Actions:
        """Begin with new workers."""
        self.next(Cause.NEW_WORKERS, now)
        return self._roster.begin_generation(now)

    def next(
        self,
        cause: Cause,
        now: float,
        why: str = "",
        rank: int | None = None,
        *,
        still_clear: bool = False,
    ) -> None:
        """Go on to the next term. With `still_clear`, cells that are clear need no clearing."""
        self._history.terms[cause] += 1
        self.cause, self.why, self.culprit = cause, why, rank
        self.term = self.term % LAST_TERM + 1
        self.agreement = None
        self._switches.begin_term(now, still_clear=still_clear)
        for worker in self._roster.workers.values():
            worker.notified = False

    def avoid_switch(self, reason: str, now: float, *, strict: bool) -> None:
        """Begin a detour: the switch has failed in this term."""
        self._detour.begin(reason, self._began, now, strict=strict)

    def look(self, now: float) -> Actions:
        """Go back to a switch once it can be used again.

        A job on its fallback, or without a path, goes back when the switch has cleared its cells.
        """
        if self.path == Path.SWITCH and (back := self._switches.regained(now)):
            why = f"{', '.join(back)} can be used again"
            return self.renew(Cause.SWITCH_USABLE, why, now)
        on_detour = self.path == Path.FALLBACK
        if on_detour and self._switches.cleared and not self.obstacle(now):
            return self.renew(Cause.SWITCH_USABLE, "the switch can be used", now)
        return self.advance(now)

    def renew(self, cause: Cause, reason: str, now: float, rank: int | None = None) -> Actions:
        """Begin to agree on a new term, unless that is already under way or pointless.

        `rank` is the worker that is the cause, if one is.
        """
        if not self.agreement or self._roster.ending:
            return self.advance(now)
        # Cells cleared while no worker was admitted are still clear.
        self.next(cause, now, reason, rank, still_clear=self.path != Path.SWITCH)
        return self._stop(reason) + self.advance(now)

    def move(self, cause: Cause, reason: str, now: float) -> Actions:
        """Begin a new term because the job has other slots now, whatever became of the present one.

        The switches' entries and cells of the present term are not those of the new slots.
        """
        self.next(cause, now, reason)
        return self._stop(reason) + self.advance(now)

    def recover(self, worker: Worker, reason: str) -> Notify:
        """Return the message that stops a worker for the present term."""
        return Notify(worker.nonce, Recover(self.term, reason))

    def advance(self, now: float) -> Actions:
        """Agree on how the term begins if possible, and notify the workers."""
        if not self.agreement:
            try:
                self.agreement = self._agree(now)
            except ControllerError as problem:
                return self._give_up(problem, now)
            if not self.agreement:
                return []
            self._began = now
        due = [each for each in self._roster.admitted if not each.notified]
        if due and self.path == Path.SWITCH and not self._switches.admit_all:
            return []
        for worker in due:
            worker.notified, worker.ready = True, None
        return [
            Notify(worker.nonce, event) for worker in due for event in self._beginning(worker.rank)
        ]

    def _stop(self, reason: str) -> Actions:
        """Return the messages that stop the workers that have not stopped yet."""
        return [self.recover(each, reason) for each in self._roster.admitted if each.ready is None]

    def _beginning(self, rank: int) -> Iterator[Event]:
        """Yield what a worker has to know as the term begins."""
        if self.path == Path.SWITCH and (bitmaps := self._switches.bitmaps(rank)):
            yield bitmaps
        if self.agreement:
            yield self.agreement

    @property
    def _everybody_counts(self) -> bool:
        """Return whether a result takes the contributions of all workers that are left."""
        return self._roster.quorum >= self._roster.left

    def _agree(self, now: float) -> Resume | None:
        """Return how the term begins, None while that is open. Raises ControllerError if impossible."""
        if not self._all_ready():
            return None
        obstacle = self.obstacle(now)
        blocked = self._roster.no_fallback if obstacle else not self._switches.cleared
        if blocked:
            return None
        path = Path.FALLBACK if obstacle else Path.SWITCH
        exchange, shared = first_exchange(
            [each.ready for each in self._roster.admitted if each.ready is not None],
            in_step=self._spec.quorum == self._spec.workers,
            sharable=self._everybody_counts or path == Path.FALLBACK,
        )
        slots = self._switches.slot_range
        return Resume(
            self.term,
            path,
            slots.first_slot if slots else 0,
            slots.slots if slots else 0,
            exchange,
            shared,
            obstacle or "",
        )

    def _all_ready(self) -> bool:
        """Return whether every worker that the term needs is there and has stopped."""
        if self._switches.pending:
            return False  # a worker that comes later might need other switches
        admitted = self._roster.admitted
        if not admitted or any(each.ready is None for each in admitted):
            return False
        # A worker that comes after the quorum has begun would be left behind.
        return self._everybody_counts or len(admitted) >= self._roster.left

    def _give_up(self, problem: ControllerError, now: float) -> Actions:
        ended: Actions = [EndStream(each.nonce, problem) for each in self._roster.admitted]
        for each in self._roster.admitted:
            self._history.note_departure(Departed(each.rank, str(problem), now))
        self._roster.remove_admitted(now)
        return ended + self.begin_generation(now)
