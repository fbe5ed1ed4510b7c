"""The controller dies at any of its writes, while jobs, switches and workers come, go and change.

What clients and workers were told stays true, the file always has the controller's state, no slot is two
jobs', and no worker is asked for a result that it does not have.

``INNET_RESTART_WALKS=1000`` is the long mode.
"""

import contextlib
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from walked_controller import Killed, World
from walked_workers import JobModel, WorkerModel

from innet.controller.handlers import clock
from innet.controller.jobs.changes import CREATED, ENDED
from innet.controller.jobs.job import Job
from innet.controller.jobs.records import Attachment, JobRecord
from innet.errors import InnetError
from innet.rpc import innet_pb2 as pb
from innet.wire.frames import Address

WALKS, STEPS = int(os.environ.get("INNET_RESTART_WALKS", "12")), 120
JOBS = ("a", "b", "c", "d")
UPLINKS = {
    "one": (), "two": (), "solo": (),
    "left": (("one", 5, 1), ("two", 6, 1)), "right": (("one", 5, 2), ("two", 6, 2)),
}  # fmt: skip
LINKS = {
    name: [pb.Uplink(parent=parent, port=port, parent_port=there) for parent, port, there in each]
    for name, each in UPLINKS.items()
}
"""The uplinks of all switches that there may be."""

EVENTS = {
    "add_switch": 3, "set_uplinks": 2, "remove_switch": 1, "drain": 1, "undrain": 3, "create": 8,
    "delete": 1, "join": 8, "communicate": 8, "move": 1, "trouble": 2, "end_process": 1,
    "break_connection": 2, "fail_switch": 2, "take_switch": 1, "mend_switches": 4, "restart": 2,
    "go_on": 32,
}  # fmt: skip
"""The events of a walk, and how often they happen."""


class Walk:
    """A walk: a controller, and what clients and workers know.

    The outcome of a request that the controller died in is not known: `unsure` has the jobs and switches
    that it is about.
    """

    def __init__(self, seed: int, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.chance, self.world = random.Random(seed), World(path, [*LINKS], patch)
        self.jobs: dict[str, JobModel] = {}
        self.added: set[str] = set()
        self.unsure: set[str] = set()
        self.workers: list[WorkerModel] = []
        for _ in range(3):
            for name in LINKS:
                self.try_to(lambda name=name: self.add(name))

    def try_to(self, event: object, *, die: bool = False) -> None:
        """Let something happen, which a controller may refuse, or die of."""
        self.unsure.clear()
        self.world.die_in = self.chance.choice([1, 1, 2, 2, 3, 4, 6, 9, 14]) if die else 0
        try:
            event()  # type: ignore[operator]
        except InnetError:
            pass
        except Killed:
            self.restart()
        self.world.die_in = 0
        self.workers = [each for each in self.workers if not each.gone]
        self.check()

    def some(self, share: float = 0.8) -> Iterator[WorkerModel]:
        return (each for each in [*self.workers] if self.chance.random() < share)

    # Requests.

    def add_switch(self) -> None:
        self.add(self.chance.choice([*LINKS]))

    def add(self, name: str) -> None:
        self.unsure.add(name)
        links = [each for each in LINKS[name] if each.parent in self.added]
        request = pb.AddSwitchRequest(
            name=name, grpc_address=f"{name}:1", ports=range(1, 9), lanes=64,
            uplinks=links[: self.chance.choice([1, 2, 2])],
        )  # fmt: skip
        self.world.controller.switches.add(request)
        self.added.add(name)

    def set_uplinks(self) -> None:
        name = self.chance.choice(["left", "right"])
        links = pb.Uplinks(links=self.chance.sample(LINKS[name], self.chance.randint(0, 2)))
        request = pb.SetSwitchPortsRequest(name=name, uplinks=links)
        self.world.controller.switches.set_ports(request)

    def remove_switch(self) -> None:
        name = self.chance.choice([*LINKS])
        self.unsure.add(name)
        self.world.controller.switches.remove(name)
        self.added.remove(name)

    def drain(self) -> None:
        name, force = self.chance.choice([*LINKS]), self.chance.random() < 0.5
        self.world.controller.switches.drain(pb.DrainSwitchRequest(name=name, force=force))

    def undrain(self) -> None:
        self.world.controller.switches.undrain(self.chance.choice([*LINKS]))

    def create(self) -> None:
        name = self.chance.choice(JOBS)
        self.unsure.add(name)
        request = pb.CreateJobRequest(
            name=name, switch=self.chance.choice([*LINKS]), workers=self.chance.choice([1, 2, 2, 3]),
            slots=self.chance.choice([8, 16, 32, 64]), min_slots=self.chance.choice([0, 0, 4, 8]),
            min_workers=self.chance.choice([0, 0, 1]), queue=self.chance.random() < 0.7,
            lease_s=self.chance.choice([8, 100, 100, 100]),
        )  # fmt: skip
        made = self.world.controller.jobs.create(request)
        spec = self.world.registry.job(name).spec
        self.jobs[name] = JobModel(
            name, made.token, spec.id, spec.workers, spec.min_workers, spec.switches
        )

    def delete(self) -> None:
        name = self.chance.choice(JOBS)
        self.unsure.add(name)
        self.world.controller.jobs.delete(name)
        del self.jobs[name]

    # Workers.

    def join(self) -> None:
        """Let workers of a job join together, most often all of them."""
        if not self.jobs:
            return
        job = self.chance.choice([*self.jobs.values()])
        there = {each.rank for each in self.workers if each.job is job}
        with self.world.registry.together():
            for rank in range(job.workers):
                if self.chance.random() < (0.1 if rank in there else 0.9):
                    address = Address(
                        f"02:00:00:00:{job.id:02x}:{rank:02x}", f"10.0.{job.id}.{rank + 1}"
                    )
                    where = Attachment(3, address, self.chance.choice(job.switches))
                    fallback = self.chance.random() < 0.5
                    worker = WorkerModel(self.world, job, rank, where, fallback)
                    self.workers.append(worker)
                    worker.open()

    def communicate(self) -> None:
        for job in self.jobs.values():
            busy = self.chance.random() < 0.7
            for each in self.some():
                if each.job is job:
                    each.say(activity=pb.Activity(busy=busy))

    def move(self) -> None:
        """Let workers move to other ports of their switches."""
        for each in self.some(0.3):
            each.where = replace(each.where, port=7 - each.where.port)

    def trouble(self) -> None:
        for each in self.some(0.3):
            if each.resume:
                each.say(trouble=pb.Trouble(term=each.resume.term, reason="silence"))

    def end_process(self) -> None:
        for each in self.some(0.2):
            each.hang_up(broken=self.chance.random() < 0.5)

    def break_connection(self) -> None:
        for each in self.some(0.3):
            each.lose_connection()

    # Switches, time, and the controller's end.

    def fail_switch(self) -> None:
        device = self.world.devices[self.chance.choice([*LINKS])]
        self.chance.choice([device.cut, device.restart])()

    def take_switch(self) -> None:
        """Let another controller take a switch, remove all entries, and go."""
        device = self.world.devices[self.chance.choice([*LINKS])]
        device.cut()
        device.highest, device.entries = (device.highest[0] + 10, 0), {}
        device.own = self.chance.random() < 0.5

    def mend_switches(self) -> None:
        for each in self.world.devices.values():
            each.up |= self.chance.random() < 0.7

    def go_on(self) -> None:
        """Let a moment pass in which most do what is due."""
        for _ in range(self.chance.randint(1, 4)):
            self.work(0.8)
            self.world.pass_time(self.chance.choice([0.1, 0.1, 0.5, 0.5, 2.5]))

    def work(self, share: float) -> None:
        """Let this share of all workers and switches do what is due."""
        for each in self.some(share):
            if not each.wire:
                each.open()
            if each.nonce:
                self.world.hello(each.nonce, each.where)
        for name in [*self.world.registry.switches]:
            if self.chance.random() < share:
                self.world.look_after(name)
        for each in self.some(share):
            each.attend()
        for each in self.some(share):
            each.contribute(self.workers)
        for each in self.some(share):
            each.finish()

    def restart(self) -> None:
        """Kill the controller, and start it again. It may die again as it starts."""
        jobs, self.world.dead = self.world.registry.jobs, True
        for each in self.some(0.5):
            each.attend()  # to what was on its way
        self.world.kill()
        for each in self.workers:
            each.wire, each.gone = None, each.gone or not each.admitted
        for die_in in (self.chance.choice([0, 0, 0, 1, 2, 3, 4]), 0):
            self.world.die_in = die_in
            try:
                self.world.start()
                break
            except Killed:
                self.world.kill()
        self.world.die_in = 0
        self.compare(jobs)

    def compare(self, before: dict[str, Job]) -> None:
        """Check that the controller has the jobs and switches that clients know of."""
        now, found = self.world.registry.jobs, self.world.registry.switches.keys()
        expired = {name for name, job in before.items() if job.roster.expired(self.world.now)}
        assert self.jobs.keys() ^ now.keys() <= self.unsure | expired
        assert self.added ^ found <= self.unsure
        self.added = {*found}
        for kept in self.world.kept.jobs:
            job = now[kept.spec.name]
            left_tree = kept.departed and kept.spec.others and not job.roster.ending
            if kept.agreement and not left_tree and kept.drained == job.switches.fabric.drained:
                assert _sorted(job.record()) == kept
            else:
                assert (job.switches.own_range, job.switches.loan) == (kept.slot_range, kept.loan)
                assert _sorted(job.record()).workers == kept.workers
        for name in JOBS:
            known = self.jobs.get(name)
            if name in now and not (known and known.id == now[name].spec.id):
                self.world.controller.jobs.delete(name)  # nobody has its token
                self.jobs.pop(name, None)

    # Checks.

    def check(self) -> None:
        """Check what always holds."""
        registry, kept = self.world.registry, self.world.store.load()
        self.jobs = {name: job for name, job in self.jobs.items() if name in registry.jobs}
        assert {each.name: each for each in kept.switches} == {
            name: each.record for name, each in registry.switches.items()
        }
        assert {each.spec.name: each for each in kept.jobs} == {
            name: _sorted(job.record()) for name, job in registry.jobs.items()
        }
        for name, switch in registry.switches.items():
            jobs = registry.jobs_on(name)
            own = [each.switches.own_range for each in jobs if each.switches.own_range]
            loans = [each.switches.loan for each in jobs if each.switches.loan]
            assert {(each.first_slot, each.slots) for each in own} == {
                *switch.allocator.slots.taken
            }
            ranges = own + loans
            assert not any(
                one.overlaps(other) for at, one in enumerate(ranges) for other in ranges[:at]
            )
        nonces = {nonce for job in registry.jobs.values() for nonce in job.roster.nonces}
        assert nonces == {*registry.members.nonces}
        results: dict[tuple[JobModel, int], object] = {}
        for each in self.workers:
            for number, result in each.results.items():
                assert results.setdefault((each.job, number), result) == result

    def calm_down(self) -> None:
        """Check that everybody gets to work once all that live answer."""
        for each in self.world.devices.values():
            each.up = True
        for at in range(80):
            self.work(1.0)
            self.world.pass_time(0.4)
            self.workers = [each for each in self.workers if not each.gone]
            for name in LINKS if at == 2 else ():
                with contextlib.suppress(InnetError):
                    self.world.controller.switches.undrain(name)
        self.check()
        models = {each.nonce: each for each in self.workers}
        for job in self.world.registry.jobs.values():
            if job.slot_range and job.roster.complete and job.roster.nonces <= models.keys():
                at_work = [models[each.nonce] for each in job.roster.admitted]
                assert job.path
                assert not any(each.stopped for each in at_work)
                assert {each.resume.term for each in at_work} == {job.term}
        for name in JOBS:
            events = [each.event for each in self.world.store.events(name)]
            lives = [each for each in events if each in (CREATED, ENDED)]
            assert lives == [CREATED, ENDED] * (len(lives) // 2) + [CREATED] * (len(lives) % 2)
            assert len(lives) % 2 == (name in self.world.registry.jobs)


def _sorted(record: JobRecord) -> JobRecord:
    """Return a job's record with its workers in the order of their ranks, as in the file."""
    return replace(record, workers=tuple(sorted(record.workers, key=lambda each: each.rank)))


def _fail(*_: object, **__: object) -> None:
    pytest.fail("a tick failed")


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_controller_that_dies_at_any_write_keeps_its_word(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(clock._log, "exception", _fail, raising=False)
    walk = Walk(seed, tmp_path / "state", monkeypatch)
    try:
        for _ in range(STEPS):
            [event] = walk.chance.choices([*EVENTS], [*EVENTS.values()])
            walk.try_to(getattr(walk, event), die=walk.chance.random() < 0.12)
        walk.calm_down()
    finally:
        walk.world.kill()
