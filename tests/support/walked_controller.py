"""A controller that dies at any of its writes, among switches that are plain objects.

The controller's own code runs, but without its threads and its connections: a test decides when time
passes, and when a supervisor looks after its switch.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from innet.controller.controller import Controller
from innet.controller.handlers import probes, switch_factory
from innet.controller.handlers.clock import Clock
from innet.controller.handlers.hellos import Hellos
from innet.controller.jobs.records import Assignment, Attachment, Share, SlotRange
from innet.controller.jobs.slots import SwitchAllocator
from innet.controller.state import registry
from innet.controller.state.registry import Policy
from innet.controller.state.store import Store
from innet.controller.switches.election import SwitchTaken
from innet.controller.switches.supervisor import Supervisor
from innet.errors import SwitchError

SLOTS, ROOM, LEASE_S = 64, 40, 4.0


class Killed(BaseException):
    """The controller is dead: nothing happens of what it would do next."""


class Device:
    """A switch, which outlives controllers.

    `own` tells whether it holds the controller's own entries. `dirty` has the job and the term that have
    used each slot since it was cleared. `highest` is the highest election id that it has seen.
    """

    def __init__(self, name: str) -> None:
        self.name, self.connection = name, None
        self.restart()
        self.up = True

    def restart(self) -> None:
        """Forget everything, as a switch without power does."""
        self.up = self.program = self.own = False
        self.entries: dict[int, Assignment] = {}
        self.dirty: dict[int, tuple[int, int]] = {}
        self.highest = (0, 0)
        self.cut()

    def cut(self) -> None:
        """Break the controller's connection."""
        if self.connection:
            self.connection.broken = "the connection is cut"
        self.connection: Connection | None = None

    def shares(self, job: int, term: int, slots: SlotRange) -> tuple[Share, ...]:
        """Return the shares by which contributions of a job's term are summed, or none."""
        held = self.entries.get(job)
        fits = self.up and held and (held.term, held.slot_range) == (term, slots)
        return held.shares if held and fits else ()

    def use(self, job: int, term: int, slots: SlotRange) -> None:
        """Let a contribution change cells, which no other job or term may have left dirty."""
        for slot in _every(slots):
            assert self.dirty.setdefault(slot, (job, term)) == (job, term), (self.name, slot)


class Connection:
    """A connection to a device, in the place of AggregationSwitch."""

    def __init__(self, world: "World", device: Device, election: tuple[int, int]) -> None:
        self.world, self.device, self.held = world, device, {}
        self.broken: str | None = None
        if not device.up:
            raise SwitchError(f"no switch answers at {device.name}")
        if election <= device.highest:
            raise SwitchTaken(
                "has another controller", device.highest, live=bool(device.connection)
            )
        device.cut()
        device.highest, device.connection = election, self

    def start(self) -> bool:
        self.check_ports()
        runs, self.device.program = self.device.program, True
        return runs and self.device.own

    def check_ports(self, _: object = None) -> None:
        if self.world.dead:
            raise Killed
        if not self.device.up:
            self.broken = "no answer"
        if self.broken:
            raise SwitchError(self.broken)

    def hold(self, jobs: Sequence[Assignment]) -> dict[int, str]:
        self.check_ports()
        device, wanted = self.device, {each.job: each for each in jobs if each.shares}
        for job, held in list(device.entries.items()):
            if wanted.get(job) != held:
                del device.entries[job]
                self.world.may_die()
        device.own = True
        for job, each in wanted.items():
            for other, held in device.entries.items():
                assert other == job or not held.slot_range.overlaps(each.slot_range)
                assert other == job or held.slot_range.index != each.slot_range.index
            device.entries[job] = each
            self.world.may_die()
        return {}

    def clear(self, slot_range: SlotRange) -> Iterator[None]:
        for slot in _every(slot_range):
            self.check_ports()
            used = [
                each for each in self.device.entries.values() if slot in _every(each.slot_range)
            ]
            assert not used, "cells in use are cleared"
            self.device.dirty.pop(slot, None)
            if slot % 8 == 7:
                yield

    def inspect(self) -> tuple[list[str], bool]:
        self.check_ports()
        return [], not self.device.own

    def damaged(self) -> dict[int, int]:
        self.check_ports()
        return {}

    def reset_counters(self, _: SlotRange) -> None:
        self.check_ports()

    def probe(self, *_: object) -> None:
        self.check_ports()

    def expect(self, _: object) -> None:
        pass

    def close(self) -> None:
        if self.device.connection is self:
            self.device.cut()


class Hand(Supervisor):
    """A supervisor without a thread: it makes a step when it is told to."""

    def start(self) -> None:
        pass

    def finish(self) -> None:
        if not self._problem:
            self.step()
        self.close()

    def step(self) -> None:
        """Look after the switch once."""
        try:
            self._settle(self._switch or self._reconnect())
        except SwitchError as problem:
            if not (self._switch and self._switch.broken and self._switch.device.up):
                self._lose(str(problem))
            if self._switch:
                self._switch.close()
                self._before, self._switch = self._switch.held, None
                self._clearing.clear()


class World:
    """All that is around a controller: the file of its state, the time, and devices with these names.

    The controller dies at the write number `die_in` from now on, unless that is 0.
    """

    def __init__(self, path: Path, names: Sequence[str], patch: pytest.MonkeyPatch) -> None:
        self._path, self.now, self.die_in, self.dead = path, 0.0, 0, False
        self.devices = {each: Device(each) for each in names}
        clock = SimpleNamespace(monotonic=lambda: self.now, time=time.time)
        patch.setattr(registry, "time", clock)
        patch.setattr(probes, "_WITHIN", 0.0)
        patch.setattr(switch_factory, "AggregationSwitch", self._connect)
        patch.setattr(switch_factory, "Supervisor", Hand)
        patch.setattr(switch_factory, "SwitchAllocator", lambda *_: SwitchAllocator(SLOTS, ROOM))
        patch.setattr(switch_factory, "VACANT_FOR_S", 0.0)
        patch.setattr(Clock, "start", lambda _: None)
        patch.setattr(Hellos, "start", lambda _: None)
        self.start()

    def start(self) -> None:
        """Start a controller with the state of the last one."""
        self.store = MortalStore(self)
        self.controller = Controller(self.store, Policy(LEASE_S))
        self.registry = self.controller._registry

    def kill(self) -> None:
        """End the controller without a word. `kept` is the state that it leaves behind."""
        self.kept = self.store.load()
        self.die_in, self.dead = 0, False
        for each in self.devices.values():
            each.cut()
        self.store.close()

    def may_die(self) -> None:
        """Die if the time has come. A dead controller does nothing more."""
        if self.die_in and not self.dead:
            self.die_in -= 1
            self.dead = not self.die_in
        if self.dead:
            raise Killed

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the controller notice it."""
        self.now += seconds
        with self.registry.lock:
            Clock(self.registry)._tick(self.now, 0.0)

    def look_after(self, name: str) -> None:
        """Let a switch's supervisor make a step."""
        self.registry.switches[name].supervisor.step()

    def hello(self, nonce: int, where: Attachment) -> None:
        """Let a hello packet arrive at a switch, which passes it to its controller."""
        device = self.devices[where.switch]
        if device.up and device.own and device.connection:
            with self.registry.together():
                self.controller._factory._events.hello(where.switch, nonce, where)

    def _connect(self, record: Any, *_: object, election: Any, **__: object) -> Connection:
        return Connection(self, self.devices[record.name], election)


class MortalStore(Store):
    """A store at whose writes the controller may die, before or after them."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__(world._path)
        self._database.execute("PRAGMA synchronous = OFF")

    @contextlib.contextmanager
    def _transaction(self, *changed: Any) -> Iterator[Any]:
        self._world.may_die()
        with super()._transaction(*changed) as database:
            yield database
        self._world.may_die()


def _every(slots: SlotRange) -> range:
    return range(slots.first_slot, slots.first_slot + slots.slots)
