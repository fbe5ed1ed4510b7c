"""A training whose replicas are killed, one after the other, and the same one in which they leave.

Two replicas survive. Every other one gets SIGKILL a random time after a random step. In the second
training it leaves instead, at the step that was the first without it. Both have to end with the
same bits.
"""

import contextlib
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.replicas.settings import Training
from benchmarks.replicas.start import Replica, digits_file, replica

SURVIVORS = 2
_STEPS_AFTER = 6
_ENDLESS = 1_000_000  # steps: nobody gets there
_LONGEST_DELAY = 0.15  # seconds: several steps


@dataclass(frozen=True)
class Moment:
    """A moment for a kill: some seconds after a step."""

    step: int
    later: float


@dataclass(frozen=True)
class Kill:
    """The effects of a kill on the survivors, in seconds.

    `noticed` is the time until the last of them discarded the step, None if none did. `configured` is
    the duration of the longest reconfiguration. `recovered` is the time until all have made a step
    without the victim. `left_at` is the first step without it.
    """

    noticed: float | None
    configured: float
    recovered: float
    left_at: int


@dataclass(frozen=True)
class Round:
    """The outcome of a training with kills: its kills, and the survivors' digests."""

    kills: list[Kill]
    digests: list[str]
    steps: int


def moments(seed: int, victims: int) -> list[Moment]:
    """Return random moments, in order."""
    chance = random.Random(seed)  # noqa: S311 - a seed for a repeatable test
    found, step = [], 0
    for _ in range(victims):
        step += chance.randrange(8)
        found.append(Moment(step, chance.uniform(0, _LONGEST_DELAY)))
    return found


class Crew:
    """The survivors, the environments of other replicas, and a lighthouse for every training."""

    def __init__(
        self,
        survivors: Sequence[Replica],
        others: Sequence[Mapping[str, str]],
        lighthouses: Iterator[str],
    ) -> None:
        self._survivors, self._others, self._lighthouses = survivors, others, lighthouses

    def killed(self, over: str, seed: int) -> Round:
        """Train over ``innet`` or ``Gloo``, and kill all others at random moments."""
        when = moments(seed, len(self._others))
        with self._ready(over, [_ENDLESS] * len(when), _ENDLESS, _STEPS_AFTER) as victims:
            killed_at = []
            for victim, moment in zip(victims, when, strict=True):
                victim.until("committed" if moment.step else "begun", moment.step)
                time.sleep(moment.later)
                killed_at.append(time.monotonic())
                victim.kill()
            trained = self._trained()
        steps = self._survivors[0].all("committed")[-1]["step"]
        kills = [self._effects(at, len(when) - number) for number, at in enumerate(killed_at)]
        return Round(kills, [each["digest"] for each in trained], steps)

    def left(self, over: str, like: Round) -> list[str]:
        """Train again, with replicas that leave where others were killed. Return the digests."""
        with self._ready(over, [kill.left_at for kill in like.kills], like.steps) as others:
            for each in others:
                each.leave()
            return [each["digest"] for each in self._trained()]

    @contextlib.contextmanager
    def _ready(
        self, over: str, steps: Sequence[int], survivors_steps: int, small: int = 0
    ) -> Iterator[list[Replica]]:
        """Let all replicas begin a training. Yield those that do not survive.

        The survivors make `survivors_steps`. With `small`, they stop after that many steps alone,
        however long a step takes. So every kill has steps after it.
        """
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(replica(each)) for each in self._others]
            lighthouse = next(self._lighthouses)
            digits = stack.enter_context(digits_file())
            everybody = [*self._survivors, *others]
            ends = [survivors_steps] * SURVIVORS + list(steps)
            for number, (each, end) in enumerate(zip(everybody, ends, strict=True)):
                each.prepare(Training(number, over, lighthouse, digits, end, small, SURVIVORS))
            for each in everybody:
                each.until("ready")
            for each in everybody:
                each.begin()
            yield others
            for each in self._survivors:
                each.leave()
            for each in self._survivors:
                each.until("left")

    def _trained(self) -> list[dict[str, Any]]:
        return [each.until("trained") for each in self._survivors]

    def _effects(self, at: float, victims: int) -> Kill:
        """Return the effects of a kill. Before it, `victims` victims were alive."""
        without = SURVIVORS + victims - 1
        noticed, configured, recovered, left_at = [], [], [], [0]
        for each in self._survivors:
            steps = each.all("committed")
            left_at += [step["step"] for step in steps if step["participants"] > without]
            later = [step["at"] for step in steps if step["participants"] <= without]
            recovered.append(next(when for when in later if when > at))
            noticed += _between(each.all("discarded"), at, recovered[-1])[:1]
            configured += _between(each.all("configured"), at, recovered[-1])[:1]
        return Kill(
            max(each["at"] for each in noticed) - at if noticed else None,
            max((each["seconds"] for each in configured), default=0.0),
            max(recovered) - at,
            max(left_at),
        )


def _between(events: Sequence[dict[str, Any]], begin: float, end: float) -> list[dict[str, Any]]:
    return [event for event in events if begin < event["at"] <= end]


@contextlib.contextmanager
def crew(environments: Sequence[Mapping[str, str]], lighthouses: Iterator[str]) -> Iterator[Crew]:
    """Start two survivors, with the first two environments. The rest is for their victims."""
    with contextlib.ExitStack() as stack:
        survivors = [stack.enter_context(replica(each)) for each in environments[:SURVIVORS]]
        yield Crew(survivors, environments[SURVIVORS:], lighthouses)
