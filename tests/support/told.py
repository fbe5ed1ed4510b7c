"""A job whose events a test gives, and what its workers are told."""

from dataclasses import replace

from innet.controller.jobs.events import (
    Actions,
    Invitation,
    Notify,
    Path,
    Resume,
)
from innet.controller.jobs.job import Job
from innet.controller.jobs.records import Assignment, Attachment, JobSpec, SlotRange
from innet.controller.jobs.trees import Fabric
from innet.wire.frames import Address

LEASE = 3.0


SERVICE = Address("02:00:00:00:00:fe", "10.0.0.254")


INVITATION = Invitation(SERVICE, 64, LEASE)


FABRIC = Fabric.of(("tor",), {})


SLOT_RANGE = SlotRange(0, 0, 8)


SWITCH, FALLBACK = Path.SWITCH, Path.FALLBACK


def spec(
    workers: int = 2, quorum: int = 0, min_workers: int = 0, lease_s: float = 3600.0
) -> JobSpec:
    quorum = quorum or workers
    return JobSpec("job", "tor", 1, workers, quorum, min_workers or quorum, 8, lease_s, b"", 1)


def where(rank: int, port: int = 0) -> Attachment:
    address = Address("02:00:00:00:00:01", "10.0.0.1", 4000 + rank)
    return Attachment(port or rank + 1, address, "tor")


class Told:
    """A job, and the events for its workers, by nonce."""

    def __init__(
        self,
        workers: int = 2,
        quorum: int = 0,
        slot_range: SlotRange | None = SLOT_RANGE,
        min_workers: int = 0,
        group_ranks: tuple[int, ...] = (),
    ) -> None:
        requested = replace(spec(workers, quorum, min_workers), group_ranks=group_ranks)
        self.job = Job(requested, 7, INVITATION, FABRIC, slot_range, 0.0)
        self.now = 0.0
        self.reachable = False
        self.last: Actions = []

    def wanted(self) -> Assignment | None:
        """Return the entries that the switch should hold at present."""
        return self.job.assignments(self.now).get("tor")

    def switch_changed(self, problem: str | None) -> Actions:
        """Let the switch become ready, or fail."""
        self.reachable = problem is None
        return self.report("switch_changed", "tor", problem)

    def do(self, name: str, *arguments, **named) -> Actions:
        """Call one of the job's methods with the present time."""
        self.last = getattr(self.job, name)(*arguments, now=self.now, **named) or []
        return self.last

    def report(self, name: str, *arguments) -> Actions:
        """Report on a switch: call one of the methods of the job's reports with the present time."""
        self.last = getattr(self.job.reports, name)(*arguments, now=self.now)
        return self.last

    def join(self, rank: int, *, fallback: bool = False) -> None:
        self.do("join", rank, 100 + rank, fallback=fallback)

    def seat(self, *ranks: int, fallback: bool = False) -> None:
        """Let workers join and say hello, and let the switch do all that is wanted."""
        for rank in ranks:
            self.join(rank, fallback=fallback)
            self.do("hello", 100 + rank, where(rank))
            self.settle()

    def settle(self) -> Actions:
        """Let the switch hold its wanted entries."""
        said = []
        for _ in range(2):
            wanted = self.wanted()
            if wanted and wanted.clear:
                said += self.report("cells_cleared", "tor", wanted.term)
            elif wanted and self.reachable:
                said += self.report("entries_held", "tor", wanted.term, wanted.ranks)
        self.last = said
        return said

    def said(self, rank: int) -> list[str]:
        """Return the kinds of the last events for a worker."""
        return [
            type(each.event).__name__.lower() if isinstance(each, Notify) else "end"
            for each in self.last
            if each.nonce == 100 + rank
        ]

    def resume(self, rank: int) -> Resume:
        """Return the last agreement sent to a worker."""
        [found] = [
            each.event
            for each in self.last
            if each.nonce == 100 + rank
            and isinstance(each, Notify)
            and isinstance(each.event, Resume)
        ]
        return found


def working(workers: int = 2, quorum: int = 0, *, fallback: bool = False) -> Told:
    """Return a job whose workers all sum in the switch."""
    told = Told(workers, quorum)
    told.switch_changed(None)
    told.seat(*range(workers), fallback=fallback)
    assert told.job.path == SWITCH
    return told
