"""Elastic averaging: the equations, and the servers that keep the centre.

The equations are those of You, Buluç and Demmel, "Scaling Deep Learning on GPU and Knights Landing
clusters", SC17. W is a worker's weight, ΔW its gradient, C the centre (W with a bar), η the step
size, ρ the elasticity::

    (1)  W ← W - η (ΔW + ρ (W - C))
    (2)  C ← C + η Σ ρ (W - C)            over all workers, or the one that is at the server
    (5)  V ← μ V - η ΔW
    (6)  W ← W + V - η ρ (W - C)

Without the elastic term, (1) is the step of the torch optimizer ``SGD(lr=η)``, and (5) and (6) are
that of ``SGD(lr=η, momentum=μ)``. On the right-hand sides W and C are the values before the step.
"""

import torch
from torch import Tensor

from innet.training.server import CentreServer


def pull_of(weight: Tensor, centre: Tensor, strength: float) -> Tensor:
    """Return the elastic term ηρ (W - C), with `strength` = ηρ. (1) and (6) subtract it from W."""
    return strength * (weight - centre)


class ElasticServer(CentreServer):
    """Equation (2) for one worker at a time, in the order of arrival (Async EASGD, section 5.1).

    Workers push their weights, and ηρ as the rate. The answer is the centre before the update.
    """

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Return the centre, and then let the worker's weight pull it."""
        del worker
        with self.changed:
            before = self.centre.clone()
            self.centre += pull_of(vector, before, rate)
            self.updates += 1
            return before


class HogwildElasticServer(CentreServer):
    """An :class:`ElasticServer` without the lock (Hogwild EASGD): workers pull at the same time."""

    def pull(self, worker: int) -> Tensor:
        """Return the present centre, perhaps in the middle of updates."""
        del worker
        return self.centre.clone()

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Return the present centre, and let the worker's weight pull it."""
        del worker
        before = self.centre.clone()
        self.centre += pull_of(vector, before, rate)
        self.updates += 1
        return before


class RoundRobinServer(CentreServer):
    """Workers in the order of their ranks, over and over (Original EASGD, Algorithm 1).

    A worker's turn begins with a pull, line 11, and ends with its push, line 15.
    """

    def __init__(self, initial: Tensor, workers: int) -> None:
        super().__init__(initial, workers)
        self._turn = 0

    def pull(self, worker: int) -> Tensor:
        """Wait for the worker's turn and return the centre."""
        with self.changed:
            self.wait_until(lambda: self._turn == worker)
            return self.centre.clone()

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Let the worker's weight pull the centre, and end the worker's turn."""
        with self.changed:
            self.wait_until(lambda: self._turn == worker)
            before = self.centre.clone()
            self.centre += pull_of(vector, before, rate)
            self.updates += 1
            self._pass_on()
            return before

    def left(self, worker: int) -> None:
        """Pass the turn on if it was that of the worker that has left."""
        if self._turn == worker:
            self._pass_on()

    def _pass_on(self) -> None:
        for step in range(1, self.workers + 1):
            candidate = (self._turn + step) % self.workers
            if candidate in self.present:
                self._turn = candidate
                break
        self.changed.notify_all()


class SyncElasticServer(CentreServer):
    """Equation (2) with the weights of all workers at once (Sync EASGD1, Algorithm 2)."""

    def __init__(self, initial: Tensor, workers: int) -> None:
        super().__init__(initial, workers)
        self._weights: dict[int, Tensor] = {}
        self._before = self.centre.clone()
        self._rate = 0.0

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Wait for all workers, and return the centre before the update."""
        with self.changed:
            number = self.updates
            self._weights[worker], self._rate = vector, rate
            self._update_if_complete()
            self.wait_until(lambda: self.updates > number)
            return self._before.clone()

    def left(self, worker: int) -> None:
        """Update without the worker that has left, if the others have all pushed."""
        del worker
        self._update_if_complete()

    def _update_if_complete(self) -> None:
        if not self._weights or len(self._weights) < len(self.present):
            return
        self._before = self.centre.clone()
        total = torch.zeros_like(self.centre)
        for worker in sorted(self._weights):
            total += self._weights[worker]
        self.centre += pull_of(total, len(self._weights) * self._before, self._rate)
        self._weights = {}
        self.updates += 1
        self.changed.notify_all()
