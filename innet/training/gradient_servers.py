"""Parameter servers that take gradients and answer with the updated centre.

A torch optimizer of the workers' kind and options makes the update: plain SGD, SGD with momentum
(equations 3 and 4 of You et al.), or any other.
"""

from torch import Tensor
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.training.algorithm import momentum
from innet.training.server import CentreOptimizer, CentreServer, Rule


class AsyncServer(CentreServer):
    """An update for every gradient, in the order of arrival (You et al., section 3.1).

    With `staleness_aware` a gradient's step size is divided by its staleness (Zhang et al., 2015,
    as in Arnold, 2016). The staleness is the number of updates since the worker's last pull. A
    staleness of 0 or 1 changes nothing.
    """

    def __init__(
        self,
        initial: Tensor,
        workers: int,
        like: Optimizer,
        *,
        staleness_aware: bool = False,
        one_at_a_time: bool = False,
    ) -> None:
        super().__init__(initial, workers, one_at_a_time=one_at_a_time)
        self._like = like
        self._optimizer = CentreOptimizer(self.centre, like)
        self._staleness_aware = staleness_aware
        self._pulled_at = [0] * workers

    def rule(self) -> Rule:
        """Return the rule of an update for every gradient."""
        if self._staleness_aware or self.one_at_a_time:
            raise UsageError(
                "staleness_aware and one_at_a_time need the parameter servers of innet.training"
            )
        return Rule(self._like, asynchronous=True)

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Update with the gradient and return the centre."""
        with self.changed:
            staleness = self.updates - self._pulled_at[worker]
            if self._staleness_aware:
                rate /= max(1, staleness)
            self._optimizer.apply(vector, rate)
            self.updates += 1
            self._pulled_at[worker] = self.updates
            return self.centre.clone()


class HogwildServer(CentreServer):
    """An AsyncServer without the lock: several updates at the same time (section 3.2)."""

    def __init__(self, initial: Tensor, workers: int, like: Optimizer) -> None:
        super().__init__(initial, workers)
        if momentum(like):
            raise UsageError("Hogwild SGD has no momentum: use async-msgd, or momentum=0")
        self._like = like
        self._optimizers = [CentreOptimizer(self.centre, like) for _ in range(workers)]

    def rule(self) -> Rule:
        """Return the rule of an update for every gradient. Other servers lock no vector either."""
        return Rule(self._like, asynchronous=True)

    def pull(self, worker: int) -> Tensor:
        """Return the present centre, perhaps in the middle of updates."""
        del worker
        return self.centre.clone()

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Update with the gradient, at the same time as others, and return the centre."""
        self._optimizers[worker].apply(vector, rate)
        self.updates += 1
        return self.centre.clone()


class BatchServer(CentreServer):
    """An update with the mean of `batch` gradients, or of all present workers' if these are fewer.

    Gradients are summed in the order of the ranks.
    """

    def __init__(self, initial: Tensor, workers: int, like: Optimizer, batch: int) -> None:
        super().__init__(initial, workers)
        self._like = like
        self._optimizer = CentreOptimizer(self.centre, like)
        self._batch = batch
        self._waiting: dict[int, tuple[Tensor, float]] = {}

    def left(self, worker: int) -> None:
        """Update if the gradients of the remaining workers are enough."""
        del worker
        self._update_if_complete()

    def _take_part(self, worker: int, vector: Tensor, rate: float) -> None:
        """Wait for the update with this gradient. Call it with `changed` held."""
        number = self.updates
        self._waiting[worker] = vector, rate
        self._update_if_complete()
        self.wait_until(lambda: self.updates > number)

    def _update_if_complete(self) -> None:
        if not self._waiting or len(self._waiting) < min(self._batch, len(self.present)):
            return
        given = [self._waiting[worker] for worker in sorted(self._waiting)]
        self._waiting = {}
        apply_mean(self._optimizer, given)
        self.updates += 1
        self.changed.notify_all()


class SoftsyncServer(BatchServer):
    """n-softsync (Zhang et al., 2015, as in Arnold, 2016): an update for every `batch` gradients.

    The update uses their mean, and a worker waits for the update with its gradient. A batch of one
    is asynchronous SGD, and a batch of all workers is synchronous SGD.
    """

    def __init__(self, initial: Tensor, workers: int, like: Optimizer, batch: int) -> None:
        if not 1 <= batch <= workers:
            raise UsageError(f"n is {batch}: it has to be 1 to {workers}, the number of workers")
        super().__init__(initial, workers, like, batch)

    def rule(self) -> Rule:
        """Return the rule for batches of one or of all workers. Raises UsageError for others."""
        if 1 < self._batch < self.workers:
            raise UsageError(
                f"n={self._batch} of {self.workers} needs the parameter servers of innet.training: "
                "others take 1, or all"
            )
        return Rule(self._like, asynchronous=self._batch < self.workers)

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Wait for the update of the batch with this gradient, and return the centre."""
        with self.changed:
            self._take_part(worker, vector, rate)
            return self.centre.clone()


class BackupServer(BatchServer):
    """Backup workers (Chen et al., 2016): the first `workers` - `backups` gradients make an update.

    An update uses their mean. A slower worker's gradient for an update that was made already is
    dropped, and the worker goes on with the present centre.
    """

    def __init__(self, initial: Tensor, workers: int, like: Optimizer, backups: int) -> None:
        if not 0 <= backups < workers:
            raise UsageError(
                f"{backups} backups of {workers} workers: at least one worker must not be a backup"
            )
        super().__init__(initial, workers, like, workers - backups)
        self._pulled_at = [0] * workers
        self.dropped = 0

    def rule(self) -> Rule:
        """Return the rule for all workers. Raises UsageError if there are backups.

        Other servers with quorums do not lower the quorum when a worker leaves. The remaining
        workers could then wait for it.
        """
        if self._batch < self.workers:
            raise UsageError("backup workers need the parameter servers of innet.training")
        return Rule(self._like, asynchronous=False)

    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Take part in the update, or drop a gradient that is too late. Return the centre."""
        with self.changed:
            if self._pulled_at[worker] < self.updates:
                self.dropped += 1
            else:
                self._take_part(worker, vector, rate)
            self._pulled_at[worker] = self.updates
            return self.centre.clone()


def apply_mean(optimizer: CentreOptimizer, given: list[tuple[Tensor, float]]) -> None:
    """Update once with the mean of the gradients and the step size of the first."""
    total = given[0][0].clone()
    for gradient, _ in given[1:]:
        total += gradient
    optimizer.apply(total / len(given), given[0][1])
