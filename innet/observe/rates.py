"""The rates of workers, from two of their heartbeats."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

from innet.observe.sample import Sample
from innet.rpc import innet_pb2 as pb


@dataclass(frozen=True)
class Rates:
    """A worker's rates, per second."""

    exchanges: float = 0.0
    chunks: float = 0.0
    packets: float = 0.0
    retransmissions: float = 0.0
    losses: float = 0.0
    bytes_sent: float = 0.0
    bytes_received: float = 0.0

    @classmethod
    def between(cls, before: pb.Progress, now: pb.Progress, seconds: float) -> Self:
        """Compute rates from two heartbeats, which are `seconds` apart.

        If the worker has joined again in between, only the second heartbeat counts.
        """
        since = before if now.packets_sent >= before.packets_sent else pb.Progress()

        def growth(counter: str) -> int:
            return max(0, int(getattr(now, counter)) - int(getattr(since, counter)))

        sent, again = growth("packets_sent"), growth("retransmissions")
        return cls(
            growth("exchange") / seconds,
            growth("chunks_done") / seconds,
            sent / seconds,
            again / seconds,
            lost_packets(sent, growth("packets_received"), again, now) / seconds,
            growth("bytes_sent") / seconds,
            growth("bytes_received") / seconds,
        )

    def payload(self, lanes: int) -> float:
        """Return bytes of lanes per second, one way, without headers and repetitions."""
        return self.chunks * lanes * 4


def lost_packets(sent: int, received: int, retransmissions: int, now: pb.Progress) -> int:
    """Return how many of a worker's packets must have been lost, at least, in either direction.

    The switch answers every packet with one packet: a first contribution with its chunk's result, and a
    repeated one on the spot. So a repetition that came too soon gets an answer of its own. A packet that
    never gets an answer was lost on one of the two ways. The counts are growths up to the report `now`.
    """
    under_way = min(now.window, now.remaining) if now.busy else 0
    return max(0, min(sent - received - under_way, retransmissions))


class RateTracker:
    """The workers' rates, by job and rank, updated with each sample."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, int], tuple[float, pb.Progress]] = {}
        self._rates: dict[tuple[str, int], Rates] = {}

    def update(self, sample: Sample) -> None:
        """Update the rates from a job's next sample."""
        for rank, member in sample.members.items():
            key, heard_at = (sample.job.name, rank), sample.heard_at(rank)
            if report := sample.report(rank):
                before_at, before = self._heard.setdefault(key, (heard_at, report))
                # Less than half an interval apart, it is the same heartbeat, in a later answer.
                if heard_at - before_at > sample.heartbeat_s / 2:
                    self._rates[key] = Rates.between(before, report, heard_at - before_at)
                    self._heard[key] = heard_at, report
            if member.silent_s > sample.overdue_s:
                self._rates.pop(key, None)

    def keep(self, workers: Collection[tuple[str, int]]) -> None:
        """Forget all workers but these, given by job and rank."""
        self._heard = {key: each for key, each in self._heard.items() if key in workers}
        self._rates = {key: each for key, each in self._rates.items() if key in workers}

    def of_worker(self, job: str, rank: int) -> Rates | None:
        """Return a worker's rates, if two of its heartbeats have been seen."""
        return self._rates.get((job, rank))

    def of_job(self, sample: Sample) -> Rates | None:
        """Return a job's rates.

        Exchanges and chunks are those of its fastest worker. All other rates are sums over its workers.
        """
        name = sample.job.name
        found = [rates for rank in sample.members if (rates := self.of_worker(name, rank))]
        return _combined(found) if found else None


def _combined(rates: Sequence[Rates]) -> Rates:
    return Rates(
        max(each.exchanges for each in rates),
        max(each.chunks for each in rates),
        sum(each.packets for each in rates),
        sum(each.retransmissions for each in rates),
        sum(each.losses for each in rates),
        sum(each.bytes_sent for each in rates),
        sum(each.bytes_received for each in rates),
    )
