"""The fallback as a path of exchanges: this worker waits for it, and breaks off if it has to."""

from collections import Counter
from collections.abc import Callable
from concurrent import futures
from typing import TYPE_CHECKING, TypeVar

from innet.errors import AllReduceError, LinkFailed, WorkersMissing
from innet.host.fallback import Fallback
from innet.host.integers import Flags, Integers, Reduction
from innet.host.job import Term, Timeouts, WorkerInfo
from innet.host.missing import DEPARTURE_SETTLES
from innet.host.stopwatch import Stopwatch
from innet.host.wait_limits import WaitLimits
from innet.host.waker import Waker
from innet.host.worker_log import WorkerLog
from innet.wire.layout import Operation

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch

Result = TypeVar("Result")
REASONS = ("switch", "no_slots", "dtype")
"""The reasons for a sum without the switch."""


class FallbackPath:
    """A worker's use of its fallback. `counts` has the number of sums made there, by reason.

    Every call takes a function `meanwhile`, which raises to break off.
    """

    def __init__(
        self,
        fallback: Fallback | None,
        info: WorkerInfo,
        waker: Waker,
        limits: WaitLimits,
        timeouts: Timeouts,
        clock: Callable[[], float],
    ) -> None:
        self._fallback, self._waker, self._limits = fallback, waker, limits
        self._timeouts, self._clock = timeouts, clock
        self.counts: Counter[str] = Counter()
        self._log, self._logged = WorkerLog(info), set[str]()

    def all_reduce(
        self,
        term: Term,
        number: int,
        chunks: Integers,
        flags: Flags,
        operation: Operation,
        meanwhile: Callable[[], None],
    ) -> Reduction:
        """Carry out exchange `number` in a term whose path is the fallback."""
        if not self._fallback:
            raise AllReduceError(
                "the controller has this job sum over a fallback, and this worker has none: join "
                "the job again, with a fallback"
            )
        self._count("switch" if term.slots else "no_slots", term.reason)
        future = self._fallback.all_reduce((term.number, number), chunks, operation, flags)
        return self._await(future, meanwhile)

    def combine(
        self, tensor: "torch.Tensor", meanwhile: Callable[[], None], *, mean: bool
    ) -> "torch.Tensor":
        """Return the sum or mean of a tensor, in its own dtype."""
        if not self._fallback:
            raise AssertionError
        self._count("dtype", f"the switch cannot sum {tensor.dtype}, {tensor.layout}")
        return self._await(self._fallback.combine(tensor, mean=mean), meanwhile)

    def over(self) -> None:
        """Note that the path is the switch again."""
        detours = self._logged - {"dtype"}
        if detours:
            self._log.warning("summing over the switch again")
            self._logged -= detours

    def _count(self, kind: str, reason: str) -> None:
        """Count a sum, and log the first of its kind with the reason."""
        if kind not in self._logged:
            self._logged.add(kind)
            self._log.warning("summing over the fallback instead of the switch: %s", reason)
        self.counts[kind] += 1

    def _await(self, future: "Future[Result]", meanwhile: Callable[[], None]) -> Result:
        waited = Stopwatch(self._clock)
        future.add_done_callback(lambda _: self._waker.wake())
        try:
            while not future.done():
                try:
                    meanwhile()
                except WorkersMissing:
                    # Who has left may have finished before that. Then this worker will, too.
                    if not futures.wait([future], DEPARTURE_SETTLES).done:
                        raise
                self._limits.check_fallback(waited.look())
                self._waker.wait(1.0)
            if (problem := future.exception()) and not isinstance(problem, AllReduceError):
                self._explain(problem, meanwhile)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def _explain(self, problem: BaseException, meanwhile: Callable[[], None]) -> None:
        """Wait for the cause of the fallback's failure, such as a worker's death, and raise it."""
        waited = Stopwatch(self._clock)
        while waited.look() < self._timeouts.switch:
            meanwhile()
            self._waker.wait(1.0)
        raise LinkFailed(f"the fallback failed ({problem}): join the job again") from problem
