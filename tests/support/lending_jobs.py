"""Jobs of one switch that lend slots to each other. Tests give their events."""

from collections.abc import Iterable

from told import FABRIC, INVITATION

from innet.controller.jobs.events import Actions, Progress
from innet.controller.jobs.job import Job
from innet.controller.jobs.lending import Lending
from innet.controller.jobs.records import Attachment, JobSpec, SlotRange
from innet.controller.jobs.slots import SwitchAllocator, allocate
from innet.wire.frames import Address

ROOM = 1000


class Lenders:
    """Jobs of two workers each, which ask for `asked` slots and keep `kept` of them."""

    def __init__(self, priorities: Iterable[int], slots: int, asked: int, kept: int = 1) -> None:
        self.switch, self.lending, self.now = SwitchAllocator(slots, ROOM), Lending(), 0.0
        self.jobs = [
            self._job(number, priority, asked, kept) for number, priority in enumerate(priorities)
        ]
        self.said: list[Actions] = []
        self.settle()

    def _job(self, number: int, priority: int, asked: int, kept: int) -> Job:
        spec = JobSpec(
            f"job{number}", "tor", number + 1, 2, 2, 2, asked, 3600.0, b"", number,
            min_slots=kept, priority=priority,
        )  # fmt: skip
        own = allocate([self.switch], kept, 2)
        job = Job(spec, 7, INVITATION, FABRIC, own, 0.0)
        job.reports.switch_changed("tor", None, 0.0)
        for rank in range(2):
            address = Address(f"02:00:00:00:{number:02x}:{rank:02x}", "10.0.0.1", 4000)
            job.join(rank, 10 * number + rank, 0.0, fallback=False)
            job.hello(10 * number + rank, Attachment(2 * number + rank + 1, address, "tor"), 0.0)
        return job

    def busy(self, number: int, *ranks: int) -> None:
        """Let workers of a job begin a burst, by default all of them."""
        self._report(number, ranks or (0, 1), busy=True)

    def idle(self, number: int, *ranks: int) -> None:
        """Let the bursts of workers end."""
        self._report(number, ranks or (0, 1), busy=False)

    def _report(self, number: int, ranks: Iterable[int], *, busy: bool) -> None:
        for rank in ranks:
            self.jobs[number].activity(10 * number + rank, self.now, busy=busy)
            self.lend()

    def lend(self) -> None:
        """Carry out what is to be lent now."""
        for job, loan in self.lending.changes(self.jobs, lambda _: [self.switch.slots], self.now):
            self.said.append(job.reports.lend(loan, self.now))
            self.check()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.lend()

    def settle(self) -> None:
        """Let all workers stop, where they are asked to, and the switch do all that is wanted."""
        for job in self.jobs:
            for worker in job.roster.admitted:
                if not job.agreement and worker.ready is None:
                    job.ready(worker.nonce, job.term, worker.progress.exchange, self.now)
            for _ in range(2):
                wanted = job.assignment("tor", self.now)
                if wanted and wanted.clear:
                    job.reports.cells_cleared("tor", wanted.term, self.now)
                elif wanted:
                    job.reports.entries_held("tor", wanted.term, wanted.ranks, self.now)

    def finish_exchange(self, number: int) -> None:
        """Let the workers of a job finish an exchange, and report it."""
        job = self.jobs[number]
        for worker in job.roster.admitted:
            progress = Progress(exchange=worker.progress.exchange + 1)
            job.heartbeat(worker.nonce, progress, self.now)

    def slots(self) -> list[int]:
        """Return how many slots each job uses."""
        return [job.slot_range.slots if job.slot_range else 0 for job in self.jobs]

    def check(self) -> None:
        """Check that no slot is used by two jobs, and none borrowed that is a job's own."""
        own = [job.switches.own_range for job in self.jobs]
        lent = [job.switches.loan for job in self.jobs]
        ranges: list[SlotRange] = [each for each in own + lent if each]
        for place, one in enumerate(ranges):
            assert not any(one.overlaps(other) for other in ranges[:place]), (own, lent)
        assert all(each.first_slot % each.slots == 0 for each in ranges)
        assert all(
            each.index == own_range.index
            for each, own_range in zip(lent, own, strict=True)
            if each and own_range
        )
