"""Samples of a job that runs well, and ways to spoil them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from innet.observe.diagnosis import diagnose
from innet.observe.findings import Finding, Severity
from innet.observe.sample import Observation, Sample
from innet.rpc import innet_pb2 as pb

WORKERS, SLOTS, CHUNKS = 3, 32, 391
SECONDS = 1.0


def progress(exchange: int = 42, **changes) -> pb.Progress:
    """Return the progress of a worker in the middle of an exchange without problems."""
    fields = {
        "busy": True, "chunks": CHUNKS, "remaining": 100, "stuck_s": 0.001, "chunk": 291,
        "slot": 3, "sequence": 55, "packets_sent": 10_000, "packets_received": 9_900,
        "chunks_done": 9_000, "round_trip_s": 0.0002, "timeout_s": 0.05, "window": SLOTS,
    }  # fmt: skip
    return pb.Progress(exchange=exchange, **{**fields, **changes})


def member(rank: int) -> pb.WorkerStatus:
    address = pb.Address(mac=f"02:00:00:00:00:0{rank}", ip=f"10.0.0.{rank}", udp_port=20_000)
    return pb.WorkerStatus(
        rank=rank, port=rank + 1, address=address, silent_s=0.1, progress=progress()
    )


def healthy() -> tuple[pb.Job, pb.Switch]:
    members = [member(rank) for rank in range(WORKERS)]
    job = pb.Job(
        name="train", switch="tor", id=1, term=7, workers=WORKERS, quorum=WORKERS, lanes=64,
        slots=SLOTS, asked_slots=SLOTS, min_slots=SLOTS, joined=range(WORKERS),
        path=pb.PATH_SWITCH, members=members, worker_lease_s=3.0, counters=pb.Counters(),
    )  # fmt: skip
    switch = pb.Switch(
        name="tor", grpc_address="10.0.9.1:9559", ports=range(1, 5), lanes=64, slots=8192,
        free_slots=8160, reachable=True, service=pb.Address(ip="10.255.255.254"),
        port_counters=[pb.PortCounters(port=port) for port in range(1, 5)],
    )  # fmt: skip
    return job, switch


@dataclass
class Situation:
    """Two samples of a job that runs well. Tests spoil them with `now`, `both` and `gets_on`."""

    before: tuple[pb.Job, pb.Switch]
    after: tuple[pb.Job, pb.Switch]
    others: tuple[pb.Switch, ...] = ()
    others_before: tuple[pb.Switch, ...] = ()

    @classmethod
    def well(cls) -> "Situation":
        return cls(healthy(), healthy())

    @property
    def observation(self) -> Observation:
        return Observation(
            Sample(10.0, *self.before, self.others_before),
            Sample(10.0 + SECONDS, *self.after, self.others),
        )

    @property
    def job(self) -> pb.Job:
        return self.after[0]

    @property
    def switch(self) -> pb.Switch:
        return self.after[1]

    def says(self, rank: int, **changes) -> None:
        """Change a worker's progress in both samples."""
        for job, _ in (self.before, self.after):
            progress = job.members[rank].progress
            for name, value in changes.items():
                if name == "missing":
                    progress.missing[:] = value
                else:
                    setattr(progress, name, value)

    def stalls(self, *ranks: int, lacking: Sequence[int] = (), **changes) -> None:
        """Let workers wait for long at one chunk, for the ranks `lacking`."""
        for rank in ranks:
            self.says(rank, stuck_s=12.3, missing=lacking, **changes)

    def racks(self, **growth: int) -> None:
        """Put the job's switch above two racks, and let counters of the right one grow."""
        for job, _ in (self.before, self.after):
            job.tree.add(switch="tor", counters=pb.Counters())
            job.tree.add(switch="left", parents=["tor"], workers=[0], counters=pb.Counters())
            job.tree.add(switch="right", parents=["tor"], workers=[1, 2], counters=pb.Counters())
            for each in job.members:
                each.switch = "right" if each.rank else "left"
        for name, by in growth.items():
            setattr(self.job.tree[2].counters, name, by)

    def counts(self, port: int, **growth: int) -> None:
        """Let counters of a port grow."""
        for name, by in growth.items():
            counters = self.switch.port_counters[port - 1]
            setattr(counters, name, getattr(counters, name) + by)

    def works(self, rank: int, **growth: int) -> None:
        """Let a worker's own counters grow."""
        for name, by in growth.items():
            found = self.job.members[rank].progress
            setattr(found, name, getattr(found, name) + by)

    def without(self, rank: int, *, from_the_start: bool = True) -> None:
        """Remove a worker."""
        for job, _ in (self.before, self.after) if from_the_start else (self.after,):
            kept = [each for each in job.members if each.rank != rank]
            del job.members[:]
            job.members.extend(kept)


def found_by(situation: Situation) -> dict[tuple[str, str], Finding]:
    return {(each.rule, each.subject): each for each in diagnose(situation.observation)}


def all_text(finding: Finding) -> str:
    return "\n".join([finding.statement, *finding.evidence, finding.remedy])


# ---- one situation for every rule ---------------------------------------------------------------

Spoil = Callable[[Situation], None]
Cases = dict[str, tuple[Spoil, str, Severity, list[str]]]
"""By rule and variant: how to spoil the samples, and the finding's subject, severity and words."""


def into(cases: Cases) -> Callable[..., Callable[[Spoil], Spoil]]:
    """Return the decorator of functions that spoil the samples. It adds each to `cases`."""

    def case(name: str, subject: str, severity: Severity, *words: str) -> Callable[[Spoil], Spoil]:
        def keep(spoil: Spoil) -> Spoil:
            cases[name] = (spoil, subject, severity, list(words))
            return spoil

        return keep

    return case
