"""Elastic averaging: the equations, and the servers that keep the centre.

Equations of You, Buluç and Demmel, "Scaling Deep Learning on GPU and Knights Landing clusters", SC17;
W is a worker's weight, ΔW its gradient, C the centre (W with a bar), η the step size, ρ the elasticity::

    (1)  W ← W - η (ΔW + ρ (W - C))
    (2)  C ← C + η Σ ρ (W - C)            over all workers, or the one that is at the server
    (5)  V ← μ V - η ΔW
    (6)  W ← W + V - η ρ (W - C)

What (1) and (5), (6) do without the elastic term is a torch optimizer's step, ``SGD(lr=η)`` and
``SGD(lr=η, momentum=μ)``. On the right-hand sides W and C are those of before.
"""

import torch
from torch import Tensor

from innet.training.server import Server


def pull_of(weight: Tensor, centre: Tensor, strength: float) -> Tensor:
    """The elastic term, ηρ (W - C), with `strength` = ηρ: what (1) and (6) take off W."""
    return strength * (weight - centre)


class ElasticServer(Server):
    """First come, first served: (2) for one worker at a time (Async EASGD, section 5.1).

    Workers push their weights, with ηρ for the rate. The answer is the centre before the update.
    """

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Answer with the centre, and let the worker's weight pull it."""
        del worker
        with self.changed:
            before = self.centre.clone()
            self.centre += pull_of(vector, before, rate)
            self.updates += 1
            return before


class HogwildElasticServer(Server):
    """The same without the lock (Hogwild EASGD): workers pull at the centre at the same time."""

    def pull(self, worker: int) -> Tensor:
        """The centre as it is, perhaps in the middle of updates."""
        del worker
        return self.centre.clone()

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Answer with the centre as it is, and let the worker's weight pull it."""
        del worker
        before = self.centre.clone()
        self.centre += pull_of(vector, before, rate)
        self.updates += 1
        return before


class RoundRobinServer(Server):
    """In the order of the ranks, over and over (Original EASGD, Algorithm 1).

    A worker's turn begins with a pull, line 11, and ends with its push, line 15.
    """

    def __init__(self, initial: Tensor, workers: int) -> None:
        super().__init__(initial, workers)
        self._turn = 0

    def pull(self, worker: int) -> Tensor:
        """Wait for the worker's turn."""
        with self.changed:
            self.wait_until(lambda: self._turn == worker)
            return self.centre.clone()

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """End the worker's turn."""
        with self.changed:
            self.wait_until(lambda: self._turn == worker)
            before = self.centre.clone()
            self.centre += pull_of(vector, before, rate)
            self.updates += 1
            self._pass_on()
            return before

    def left(self, worker: int) -> None:
        """Nobody waits for who is gone."""
        if self._turn == worker:
            self._pass_on()

    def _pass_on(self) -> None:
        for step in range(1, self.workers + 1):
            candidate = (self._turn + step) % self.workers
            if candidate in self.present:
                self._turn = candidate
                break
        self.changed.notify_all()


class SyncElasticServer(Server):
    """All at once: (2) with the weights of all workers (Sync EASGD1, Algorithm 2)."""

    def __init__(self, initial: Tensor, workers: int) -> None:
        super().__init__(initial, workers)
        self._weights: dict[int, Tensor] = {}
        self._before = self.centre.clone()
        self._rate = 0.0

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Wait for all, and answer with the centre of before the update."""
        with self.changed:
            number = self.updates
            self._weights[worker], self._rate = vector, rate
            self._update_if_complete()
            self.wait_until(lambda: self.updates > number)
            return self._before.clone()

    def left(self, worker: int) -> None:
        """The sum is over those who are left."""
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
