"""The limits of a worker's waits: for the other workers, for the controller, for a new term."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from innet.errors import AgentClosed, JobEnded, SwitchUnreachable, WorkersMissing
from innet.host.job import ControllerMessages, Timeouts, WorkerInfo
from innet.host.stragglers import StragglerLog
from innet.rpc.words import workers_text

_ADVICE = ": are they stuck, or do they call all-reduce less often?"


class WaitLimits:
    """The reasons to give up a wait. Each check raises an error if its reason holds."""

    def __init__(
        self, info: WorkerInfo, controller: ControllerMessages, timeouts: Timeouts
    ) -> None:
        self._info, self._controller, self._timeouts = info, controller, timeouts
        self._stragglers = StragglerLog(info)
        self._stopped = False
        self._further: Callable[[], None] | None = None

    def stop(self) -> None:
        """End all waits. Safe from any thread."""
        self._stopped = True

    @contextlib.contextmanager
    def watching(self, check: Callable[[], None]) -> Iterator[None]:
        """Let :meth:`check_membership` call `check`, too, which may raise an AllReduceError."""
        self._further = check
        try:
            yield
        finally:
            self._further = None

    def note(self, seconds: float, ranks: Iterable[int]) -> None:
        """Note how long the worker has waited, and for which ranks of the job as far as known."""
        self._stragglers.note(seconds, map(self._info.in_group, ranks))

    def over(self) -> None:
        """Note that a wait is over."""
        self._stragglers.over()

    def check_membership(self) -> None:
        """Raise AgentClosed or JobEnded."""
        if self._stopped:
            raise AgentClosed("the agent was closed before the all-reduce was done")
        if self._controller.ended:
            raise JobEnded(self._controller.ended)
        if self._further:
            self._further()

    def check_departures(self, needed: int | None = None) -> None:
        """Raise WorkersMissing if too few workers are left, or fewer than `needed`."""
        departed = self._controller.departed()
        if self._info.workers - len(departed) < (needed or self._info.min_workers):
            named = ((self._info.in_group(rank), why) for rank, why in departed.items())
            reasons = "; ".join(f"worker {rank}: {why}" for rank, why in named)
            raise WorkersMissing(f"the all-reduce cannot finish: {reasons}")

    def check_first_term(self, seconds: float) -> None:
        """Raise WorkersMissing if the worker has waited too long for the job to begin."""
        others = self._note_others(seconds)
        if seconds > self._timeouts.workers:
            raise WorkersMissing(
                f"the job has not begun for {seconds:.0f} s: it waits for "
                f"{workers_text(others) if others else 'workers, or for slots of the switch'} "
                "(`innet job show` tells which)"
            )

    def check_next_term(self, seconds: float, switch_missing: float, reason: str) -> None:
        """Raise WorkersMissing or SwitchUnreachable if the worker has waited too long for a term.

        For `switch_missing` seconds nothing but the switch has been missing. `reason` tells why the last
        term is over.
        """
        others = self._note_others(seconds)
        late = seconds > self._timeouts.workers
        if others and late:
            raise WorkersMissing(
                f"the job has waited {seconds:.0f} s for {workers_text(others)}{_ADVICE}"
            )
        if switch_missing > self._timeouts.switch or late:
            raise SwitchUnreachable(
                f"the job has not gone on for {seconds:.1f} s after a term was over ({reason}): "
                "is the switch running, and is every worker?"
            )

    def check_fallback(self, seconds: float) -> None:
        """Raise WorkersMissing if the worker has waited too long for others at the fallback."""
        others = self._note_others(seconds)
        if seconds > self._timeouts.workers:
            late = f"; {workers_text(others)} did not" if others else ""
            raise WorkersMissing(
                f"not all workers have begun this all-reduce for {seconds:.0f} s{late}{_ADVICE}"
            )

    def check_node(self, seconds: float, late: Sequence[int]) -> None:
        """Raise WorkersMissing if the worker has waited too long for others of its node."""
        if seconds > self._timeouts.workers:
            # If nobody is late, the last worker was stopped before it woke this one.
            who = workers_text(late) if late else "the last worker"
            raise WorkersMissing(
                f"{who}, on the same node, did not come within {seconds:.0f} s{_ADVICE}"
            )

    def _note_others(self, seconds: float) -> frozenset[int]:
        """Note the wait. Return the others that the job waits for, by their ranks in the group."""
        others = self._controller.waiting_for - {self._info.rank}
        self.note(seconds, others)
        return frozenset(map(self._info.in_group, others))
