"""The detection of an exchange that stalls: the switch is silent, or contributions are missing."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy.typing as npt

from innet.host.job import Term, Timeouts, WorkerInfo
from innet.host.missing import MissingWorkers
from innet.host.rounds import RoundOutcome
from innet.host.silence import SwitchSilence
from innet.host.stopwatch import Lateness
from innet.host.timer import ProbeTimer, RetransmissionTimer
from innet.host.window import Indices
from innet.host.worker_log import WorkerLog
from innet.rpc import innet_pb2 as pb


class MembershipView(Protocol):
    """The interface to a worker's membership for an exchange under way."""

    def check(self) -> None:
        """Raise if something ends the exchange."""

    def departed(self) -> Mapping[int, str]:
        """Return the ranks that have left the job, with the reasons."""

    def trouble(self, reason: str) -> None:
        """Ask for another term, because the switch does not answer."""

    def in_touch(self) -> bool:
        """Return whether the controller can be reached; only the controller knows another way to sum."""

    def waits(self, seconds: float, ranks: Iterable[int]) -> None:
        """Note how long the exchange has waited, and for which ranks as far as known."""


class StallDetector:
    """The progress of an exchange, the switch's `silence`, and the workers that are `missing`.

    Times are in seconds of the agent's clock. `result_at` is when the last result came. The timers
    are the transport's. `refusal` returns why this machine's kernel has refused the last packets, or "".
    """

    def __init__(
        self,
        info: WorkerInfo,
        membership: MembershipView,
        timeouts: Timeouts,
        timer: RetransmissionTimer,
        probes: ProbeTimer,
        refusal: Callable[[], str],
    ) -> None:
        self._membership, self._timeouts = membership, timeouts
        self._timer, self._probes, self._refusal = timer, probes, refusal
        self._log = WorkerLog(info)
        self.missing = MissingWorkers(info)
        self.silence = SwitchSilence()
        self.result_at = float("-inf")
        self._progress_at = 0.0
        self._lateness = Lateness()

    def begin_term(self, term: Term) -> None:
        """Forget the missing workers of the term before. The silence may be reported again."""
        self.missing.begin_term(term)
        self.silence.begin_term()

    def begin_exchange(self, now: float) -> None:
        """Note that an exchange begins."""
        self._lateness.restart(now)
        self._progress_at = now
        self.missing.begin_exchange()

    @property
    def report_at(self) -> float:
        """Return when to ask for another term; infinity if that is not due yet, or was done."""
        return self.silence.report_at(self._probes.unanswered, self._timer.timeout)

    def note_round(self, outcome: RoundOutcome, due: float) -> None:
        """Note the end of a round, which was to end at `due` at the latest."""
        self._lateness.expect(due)
        self.silence.owed_since = outcome.owed_since

    def excuse(self, now: float) -> None:
        """Forgive the others' silence if this process did not run meanwhile."""
        if late := self._lateness.look(now):
            self._progress_at = min(now, self._progress_at + late)
            self.silence.excuse(late, now)

    def note_results(self, outcome: RoundOutcome) -> None:
        """Note that a round has brought results."""
        self.silence.owed_since = outcome.owed_since
        self.silence.forget()
        self._progress_at = self.result_at = outcome.result_at

    def note_answers(self, slots: Indices, bitmaps: npt.NDArray[Any], now: float) -> None:
        """Note the switch's answers for slots: the bitmaps of those whose contributions it has."""
        self.missing.take(slots, bitmaps, self._membership.departed(), now)

    def check(self, now: float) -> None:
        """Ask for another term if the switch is silent.

        Raises the errors of :meth:`MembershipView.check`, SwitchUnreachable and WorkersMissing.
        """
        self._membership.check()
        self.missing.note_departures(self._membership.departed(), now)
        if now >= self.report_at:
            self.silence.report()
            reason = f"the switch has not answered for {self.silence.now(now):.1f} s"
            if refusal := self._refusal():
                reason = f"{reason}: {refusal}"
                self._log.warning("%s", reason)  # nothing else may tell it on this machine
            self._membership.trouble(reason)
        stuck = now - self._progress_at
        self.silence.check(
            now, stuck, self._timeouts, self._refusal(), in_touch=self._membership.in_touch()
        )
        self.missing.check_departures()
        self._membership.waits(stuck, self.missing.known)
        self.missing.check_wait(stuck, self._timeouts)

    def fill(self, progress: pb.Progress, now: float) -> None:
        """Fill in how long the switch has been silent. Safe from any thread."""
        progress.silent_s = self.silence.total(now)
