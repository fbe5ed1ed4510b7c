"""The fastest algorithm and transport, and the range in which communication is hidden."""

from dataclasses import dataclass

from innet.model import all_reduce, iteration
from innet.model.all_reduce import SlotParameters
from innet.model.links import LinkModel

ALGORITHMS = {
    "d-sync": iteration.synchronous,
    "pipe-sgd": iteration.pipelined,
    "sync-easgd-3": iteration.elastic_overlapped,
}
"""The models by name: functions of iterations, update, compute and communicate that return seconds."""


@dataclass(frozen=True)
class Workload:
    """A workload: bytes of the model, and seconds of a worker's iteration alone."""

    size: float
    compute: float
    update: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """One algorithm over one transport, between `workers` workers. Seconds are of one iteration."""

    workers: int
    algorithm: str
    transport: str
    seconds: float
    communicate: float
    exposed: float
    """Communication that nothing hides, in seconds."""
    efficiency: float
    """The scaling efficiency of equation (7), from 0 to 1: one worker's seconds alone, over `seconds`."""

    @property
    def hidden(self) -> bool:
        """Return whether all communication is hidden."""
        return self.exposed <= 1e-12 * self.seconds


def communication(
    workers: int, workload: Workload, link: LinkModel, slots: SlotParameters, rack: int
) -> dict[str, float]:
    """Return the seconds of one all-reduce by transport, with a hierarchy if one rack is too small."""
    n = workload.size
    seconds = {
        "server": all_reduce.server(workers, n, link),
        "tree": all_reduce.tree(workers, n, link),
        "ring": all_reduce.ring(workers, n, link),
    }
    if workers <= rack:
        seconds["switch"] = all_reduce.switch(n, link, slots)
    else:
        seconds["hierarchy"] = all_reduce.hierarchy(n, link, slots)
    return seconds


def predictions(
    workers: int, workload: Workload, link: LinkModel, slots: SlotParameters, rack: int = 32
) -> list[Prediction]:
    """Return every algorithm over every transport, the fastest first, then by least communication."""
    alone = workload.update + workload.compute
    found = [
        Prediction(
            workers, algorithm, transport, seconds, communicate, seconds - alone, alone / seconds
        )
        for transport, communicate in communication(workers, workload, link, slots, rack).items()
        for algorithm, model in ALGORITHMS.items()
        for seconds in [model(1, workload.update, workload.compute, communicate)]
    ]
    return sorted(found, key=lambda one: (one.seconds, one.communicate))


def max_workers_hidden(
    transport: str,
    counts: list[int],
    workload: Workload,
    link: LinkModel,
    slots: SlotParameters,
    rack: int,
) -> int | None:
    """Return the largest of `counts` for which Pipe-SGD hides the communication, or None."""
    hidden = [
        one.workers
        for workers in counts
        for one in predictions(workers, workload, link, slots, rack)
        if one.transport == transport and one.algorithm == "pipe-sgd" and one.hidden
    ]
    return max(hidden, default=None)
