"""The settings of a training, which travel as JSON from innet's environment to torchft's."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Learning:
    """The settings of an algorithm: ``DDP``, ``LocalSGD`` or ``DiLoCo``.

    ``LocalSGD`` and ``DiLoCo`` make `sync_every` steps by themselves between two sums.
    """

    algorithm: str = "DDP"
    width: int = 640
    batch: int = 32
    rate: float = 0.05
    momentum: float = 0.9
    sync_every: int = 1
    outer_rate: float = 0.7
    outer_momentum: float = 0.6


@dataclass(frozen=True)
class Training:
    """A replica's part in a training over ``innet`` or ``Gloo``, until the Manager's step `steps`.

    `digits` is a file with images and labels. `timeout_s` bounds the waits for other replicas. With
    `small` it ends earlier, after as many steps in a row with at most `small_size` participants.
    """

    replica: int
    over: str
    lighthouse: str
    digits: str
    steps: int
    small: int = 0
    small_size: int = 0
    learning: Learning = Learning()
    timeout_s: float = 20.0
    seed: int = 1

    @classmethod
    def read(cls, text: str) -> "Training":
        """Read settings from JSON."""
        found = json.loads(text)
        return cls(**{**found, "learning": Learning(**found["learning"])})
