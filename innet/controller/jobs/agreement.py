"""The agreement on a term: its first exchange, and how long to avoid a switch that has failed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from innet.errors import ControllerError

_FIRST_DETOUR, _LONGEST_DETOUR, _CALM = 1.0, 60.0, 60.0
"""Seconds of a first detour, of the longest detour, and of a calm time. A detour takes twice as long as
the one before, unless there was a calm time in between.
"""


@dataclass
class Detour:
    """A period in which a job avoids a switch that has failed it, although the switch seems to be there.

    A `strict` one holds even for jobs that cannot fall back.
    """

    _until: float = -math.inf
    _seconds: float = 0.0
    _reason: str = ""
    _strict: bool = False

    def begin(self, reason: str, since: float, now: float, *, strict: bool) -> None:
        """Begin a detour: the switch has failed after having been used from `since` on."""
        calm = now - since > _CALM or not self._seconds
        self._seconds = _FIRST_DETOUR if calm else min(2 * self._seconds, _LONGEST_DETOUR)
        self._until, self._reason, self._strict = now + self._seconds, reason, strict

    def reason(self, now: float, *, can_fall_back: bool) -> str | None:
        """Return the reason for avoiding the switch, or None if it may be used."""
        over = now >= self._until or not (self._strict or can_fall_back)
        return None if over else self._reason


def first_exchange(exchanges: Iterable[int], *, in_step: bool, sharable: bool) -> tuple[int, bool]:
    """Return the term's first exchange, and whether its result is shared instead of summed.

    `exchanges` are those that the workers have not finished. With `in_step`, no worker could finish
    an exchange without the others. With `sharable`, a result can be shared in this term. Raises
    ControllerError if the exchanges are impossible.
    """
    order = sorted(exchanges)
    first, last = order[0], order[-1]
    if in_step and last - first > 1:
        raise ControllerError(
            f"the workers are at exchanges {first} to {last}, more than one apart: they have not made "
            "the same calls; start them all again"
        )
    if first == last or not sharable:
        return last, False
    return last - 1, True
