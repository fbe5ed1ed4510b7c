"""The speed of workers, from two of their heartbeats."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from innet.observe.sample import SILENT_HEART_S, Sample
from innet.rpc import innet_pb2 as pb

_ANOTHER_S = 0.05
"""Two sightings of a heartbeat that are closer together than this are of the same one."""


@dataclass(frozen=True)
class Pace:
    """A worker's rates, per second."""

    exchanges: float = 0.0
    chunks: float = 0.0
    packets: float = 0.0
    retransmissions: float = 0.0

    @classmethod
    def between(cls, before: pb.Progress, now: pb.Progress, seconds: float) -> Self:
        """Compute rates from two heartbeats, which are `seconds` apart.

        If the worker has joined again in between, only the second heartbeat counts.
        """
        since = before if now.packets_sent >= before.packets_sent else pb.Progress()
        return cls(
            max(0, now.exchange - since.exchange) / seconds,
            max(0, now.chunks_done - since.chunks_done) / seconds,
            (now.packets_sent - since.packets_sent) / seconds,
            max(0, now.retransmissions - since.retransmissions) / seconds,
        )

    def payload(self, lanes: int) -> float:
        """Return bytes of lanes per second, one way, without headers and repetitions."""
        return self.chunks * lanes * 4


class Paces:
    """The workers' rates, by job and rank, updated with each sample."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, int], tuple[float, pb.Progress]] = {}
        self._paces: dict[tuple[str, int], Pace] = {}

    def update(self, sample: Sample) -> None:
        """Take in a job's next sample."""
        for rank, member in sample.members.items():
            key, heard_at = (sample.job.name, rank), sample.heard_at(rank)
            before_at, before = self._heard.get(key, (heard_at, member.progress))
            if heard_at - before_at > _ANOTHER_S:
                self._paces[key] = Pace.between(before, member.progress, heard_at - before_at)
                self._heard[key] = heard_at, member.progress
            self._heard.setdefault(key, (heard_at, member.progress))
            if member.silent_s > SILENT_HEART_S:
                self._paces.pop(key, None)

    def of(self, job: str, rank: int) -> Pace | None:
        """Return a worker's rates, if two of its heartbeats have been seen."""
        return self._paces.get((job, rank))

    def of_job(self, sample: Sample) -> Pace | None:
        """Return a job's rates: those of its fastest worker, and the packets of all of them."""
        name = sample.job.name
        paces = [pace for rank in sample.members if (pace := self.of(name, rank))]
        return _together(paces) if paces else None


def _together(paces: Iterable[Pace]) -> Pace:
    paces = list(paces)
    return Pace(
        max(pace.exchanges for pace in paces),
        max(pace.chunks for pace in paces),
        sum(pace.packets for pace in paces),
        sum(pace.retransmissions for pace in paces),
    )
