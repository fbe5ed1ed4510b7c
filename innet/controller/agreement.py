"""How a job's workers come to terms about an epoch: where it begins, and when to keep off the switch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from innet.errors import ControllerError

_FIRST_DETOUR, _LONGEST_DETOUR, _CALM = 1.0, 60.0, 60.0
"""Seconds for which a job keeps off a switch that failed it; they double unless there was calm."""


@dataclass
class Detour:
    """How long to keep off a switch that has failed the job, though it seems to be there.

    A `strict` one holds even for those who have no other way.
    """

    _until: float = -math.inf
    _seconds: float = 0.0
    _reason: str = ""
    _strict: bool = False

    def begin(self, reason: str, since: float, now: float, *, strict: bool) -> None:
        """The switch has failed, after it was used from `since` on."""
        calm = now - since > _CALM or not self._seconds
        self._seconds = _FIRST_DETOUR if calm else min(2 * self._seconds, _LONGEST_DETOUR)
        self._until, self._reason, self._strict = now + self._seconds, reason, strict

    def reason(self, now: float, *, can_fall_back: bool) -> str | None:
        """Why the switch is to be kept off, if it is."""
        over = now >= self._until or not (self._strict or can_fall_back)
        return None if over else self._reason


def first_exchange(exchanges: Iterable[int], *, in_step: bool, sharable: bool) -> tuple[int, bool]:
    """Which exchange an epoch begins with, and whether it is shared, not summed.

    `exchanges` are those that the workers have not finished; `in_step` says that none of them could
    finish one without the others, `sharable` that none can in this epoch. Raises ControllerError if that
    cannot be.
    """
    order = sorted(exchanges)
    first, last = order[0], order[-1]
    if in_step and last - first > 1:
        raise ControllerError(
            f"the workers are at exchanges {first} to {last}, which cannot be: they are out of step"
        )
    if first == last or not sharable:
        return last, False
    return last - 1, True
