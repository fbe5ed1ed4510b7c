"""The switch's silence: for how long it has owed an answer, and when that is trouble."""

import math

from innet.errors import SwitchUnreachable
from innet.host.job import Timeouts

_UNANSWERED = 2  # probes, before which no silence is trouble
_LEAST_LIMIT = 1.0  # seconds: on a loaded machine the switch may take so long
_TIMEOUTS = 4  # retransmission timeouts
_MOST_DOUBLINGS = 2  # of the limit, in terms in which no exchange is finished


class SwitchSilence:
    """The silence of a switch in one term at a time, and in the terms before it.

    Times are in seconds of the agent's clock. `owed_since` is when the switch began to owe an
    answer, infinity if it owes none.
    """

    def __init__(self) -> None:
        self.owed_since = math.inf
        self._before = 0.0  # silence in terms before this one
        self._forgiven = 0.0  # silence while the controller was out of reach
        self._reported = False  # whether another term was requested because of the silence
        self._vain = -2  # terms since the last finished exchange; 0 in the first real term

    def begin_term(self) -> None:
        """Note that a term begins: its silence may be reported again."""
        self._reported = False
        self._vain += 1

    def end_exchange(self, now: float) -> None:
        """Count the silence as earlier silence: after an exchange the switch owes nothing."""
        self._before += self.now(now)
        self.owed_since = math.inf

    def succeed(self) -> None:
        """Note that an exchange was finished in this term."""
        self._vain = max(0, self._vain - 1)

    def owe(self, since: float) -> None:
        """Note that the switch owes an answer to a probe."""
        self.owed_since = min(self.owed_since, since)

    def end(self) -> None:
        """Note an answer: the switch owes none, and all earlier silence is over."""
        self.owed_since = math.inf
        self.forget()

    def forget(self) -> None:
        """Forget the silence in earlier terms."""
        self._before = 0.0

    def excuse(self, seconds: float, now: float) -> None:
        """Forgive so many seconds, in which this process did not run."""
        if self.owed_since < math.inf:
            self.owed_since = min(now, self.owed_since + seconds)

    def now(self, now: float) -> float:
        """Return the silence in this term. Safe from any thread."""
        return max(0.0, now - self.owed_since)

    def total(self, now: float) -> float:
        """Return the silence in this term and before it. Safe from any thread."""
        return self._before + self.now(now)

    def check(
        self, now: float, stuck: float, timeouts: Timeouts, refusal: str, *, in_touch: bool
    ) -> None:
        """Raise SwitchUnreachable if the silence is too long.

        `stuck` is the time in seconds since the exchange's last progress. Silence while the
        controller is out of reach does not count, because only the controller knows another way to
        sum. `refusal` tells why this machine's kernel has refused packets, if it has.
        """
        total = self.total(now)
        self._forgiven = min(self._forgiven, total) if in_touch else total
        late = stuck > timeouts.workers and total > _LEAST_LIMIT
        if total - self._forgiven > timeouts.switch or late:
            why = refusal or "is it running, and does it still hold this job?"
            raise SwitchUnreachable(f"the switch has not answered for {total:.1f} s: {why}")

    def report(self) -> None:
        """Note that another term was requested."""
        self._reported = True

    def report_at(self, unanswered: int, timeout: float) -> float:
        """Return when to request another term; infinity if that is not due yet, or was done.

        `unanswered` is the number of probes in a row, `timeout` the retransmission timeout.
        """
        if self._reported or unanswered < _UNANSWERED:
            return math.inf
        # Double the limit in every further term, because a new one may not help.
        limit = max(_LEAST_LIMIT, _TIMEOUTS * timeout)
        return self.owed_since + limit * (1 << min(self._vain, _MOST_DOUBLINGS))
