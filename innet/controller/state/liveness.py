"""The decision that a worker's machine is gone, from the silence of its kernel.

A worker is given up when it has been silent for a lease *while somebody else was heard*. When all
are silent together, the controller's own network is the suspect, and nobody's lease runs. After an
outage everybody has a whole lease again.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LONGEST_OUTAGE_S = 600.0
"""Seconds of silence after which a worker is given up even if all are silent: its slots may be needed."""

_QUIET = 2.5
"""Seconds of silence that mean nothing: a kernel is asked every second."""

_FRESH = 2.0
"""Seconds for which a look counts: a controller that stood still longer knows nothing of its workers."""

_LONGEST_STEP = 1.0
"""The most seconds between two looks that count for a lease."""


@dataclass(frozen=True)
class Sign:
    """A worker's connection: seconds of silence, None without one, and whether it is `remote`."""

    silence: float | None
    remote: bool = False


@dataclass
class _Pulse:
    """One worker's silence in seconds: `silent` in all, `missed` while others were heard."""

    remote: bool = False
    connected: bool = True
    silent: float = 0.0
    missed: float = 0.0


class Liveness:
    """The liveness of all workers of all jobs, by nonce. In an `outage` nobody is heard."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._pulses: dict[int, _Pulse] = {}
        self._looked = -math.inf
        self.outage = False

    def look(self, now: float, signs: Mapping[int, Sign]) -> list[int]:
        """Take in the signs of all workers. Return the nonces of the workers to be given up."""
        step = min(max(0.0, now - self._looked), _LONGEST_STEP)
        self._looked = now
        self._pulses = {nonce: self._pulses.get(nonce, _Pulse()) for nonce in signs}
        for nonce, sign in signs.items():
            _update(self._pulses[nonce], sign, step)
        heard = [each.remote for each in self._pulses.values() if _heard(each)]
        network = any(heard)
        for each in self._pulses.values():
            # A worker on the controller's own machine tells nothing about the network.
            if not _heard(each) and (network or (heard and not each.remote)):
                each.missed += step
        self.outage = self._all_silent()
        return [nonce for nonce, each in self._pulses.items() if self._over(each)]

    def disconnected(self, nonce: int) -> None:
        """Note that a worker's connection was lost. The worker has one lease to come back."""
        pulse = self._pulses.setdefault(nonce, _Pulse())
        pulse.connected, pulse.missed = False, 0.0

    def excuse(self, seconds: float) -> None:
        """Extend the present lease of each worker that is known now by this many seconds."""
        for each in self._pulses.values():
            each.missed -= seconds

    def healthy(self, nonce: int, now: float) -> bool:
        """Return whether a worker's machine was heard just now.

        If it was, the worker itself has ended its stream, and not the network.
        """
        pulse = self._pulses.get(nonce)
        return pulse is None or (_heard(pulse) and now - self._looked < _FRESH)

    def unheard(self, some: Iterable[int] | None = None) -> frozenset[int]:
        """Return the workers, or `some` of them, that are silent, or have no connection."""
        pulses = self._pulses
        known = pulses if some is None else (nonce for nonce in some if nonce in pulses)
        return frozenset(nonce for nonce in known if not _heard(pulses[nonce]))

    def _all_silent(self) -> bool:
        """Return whether all remote workers are silent, or all workers if none is remote."""
        pulses = list(self._pulses.values())
        those = [each for each in pulses if each.remote] or pulses
        return bool(those) and min(each.silent for each in those) > self._lease

    def _over(self, pulse: _Pulse) -> bool:
        lease = max(0.0, self._lease - _QUIET) if pulse.connected else self._lease
        return pulse.missed > lease or pulse.silent > LONGEST_OUTAGE_S


def _update(pulse: _Pulse, sign: Sign, step: float) -> None:
    if sign.silence is None:
        pulse.connected = False
        pulse.silent += step
        return
    pulse.connected, pulse.remote = True, sign.remote
    if sign.silence < _QUIET:
        pulse.silent = pulse.missed = 0.0
    else:
        pulse.silent = max(_QUIET, pulse.silent + step)


def _heard(pulse: _Pulse) -> bool:
    return pulse.connected and not pulse.silent
