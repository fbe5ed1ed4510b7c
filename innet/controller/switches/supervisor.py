"""The control of each switch: one thread that connects, compares and writes.

Nobody else writes tables. The thread always does the same: it gets the wanted entries and writes
the difference. The same code thus serves a worker that joins, a controller that comes back to its
switch, and a switch that has lost all its entries.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import structlog

from innet.controller.jobs.records import Assignment
from innet.controller.switches.aggregation import AggregationSwitch
from innet.controller.switches.election import SwitchTaken
from innet.controller.switches.inspections import Inspections
from innet.errors import SwitchError, UsageError

if TYPE_CHECKING:
    from innet.controller.switches.reconcile import Held

_log = structlog.get_logger("innet.controller")

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
"""Seconds between attempts to connect: a tenth of the time the switch is gone, within these limits."""

_DONE = object()
_STOP_WITHIN = 10.0


class Listener(Protocol):
    """The source of the wanted entries, which is notified of their outcome."""

    def assignments(self, switch: str) -> Sequence[Assignment]:
        """Return the jobs' entries that a switch should hold at present."""

    def up(self, switch: str) -> None:
        """Note that a switch is connected, runs the program, and holds its own entries."""

    def down(self, switch: str, problem: str) -> None:
        """Note that a switch cannot be used, or has lost its entries."""

    def cleared(self, switch: str, job: int, term: int) -> None:
        """Note that a switch has cleared a job's cells for a term."""

    def held(self, switch: str, job: int, term: int, ranks: frozenset[int]) -> None:
        """Note that a switch admits these workers of a job in this term and sends them results."""

    def refused(self, switch: str, job: int, term: int, reason: str) -> None:
        """Note that a switch has refused a job's entries."""

    def damaged(self, switch: str, counts: Mapping[int, int]) -> None:
        """Note how many damaged packets have come in at each port of a switch so far."""


Connect = Callable[[Callable[[], None], bool], AggregationSwitch]
"""A function that makes a connection, given a callback for its end and whether to be patient."""


class Supervisor:
    """The supervisor of one switch. From :meth:`start` on, it runs until it is closed.

    `inspections` are those of all switches. `drifts` counts the entries that differed from those
    written. `taken` is set while another controller is in charge of the switch.
    """

    def __init__(
        self, name: str, connect: Connect, listener: Listener, inspections: Inspections
    ) -> None:
        self.drifts = 0
        self.taken = False
        self._name, self._connect, self._listener = name, connect, listener
        self._inspections = inspections
        self._switch: AggregationSwitch | None = None
        self._before: Held = {}  # by what the last connection knew
        self._problem: str | None = f"the controller has not reached the switch {name!r} yet"
        self._waker = threading.Event()
        self._closed = self._finishing = False
        self._reported: dict[int, tuple[int, frozenset[int]]] = {}
        self._clearing: dict[int, tuple[int, Iterator[None]]] = {}
        self._thread = threading.Thread(target=self._run, name=f"innet-switch-{name}", daemon=True)

    def connect(self) -> None:
        """Take charge for the first time. Raises SwitchError, or UsageError if the switch lacks ports."""
        self._switch = self._connect(self._waker.set, True)
        try:
            self._switch.check_ports()
            self._switch.start()
            self._switch.hold([])
        except (SwitchError, UsageError):
            self._switch.close()
            raise
        self._problem = None

    @property
    def problem(self) -> str | None:
        """Return why the switch cannot be used at present, or None if it can."""
        return self._problem

    def start(self) -> None:
        """Look after the switch from now on."""
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread: the wanted entries have changed."""
        self._waker.set()

    def switch(self) -> AggregationSwitch:
        """Return the connection. Raises SwitchError if there is none."""
        switch, problem = self._switch, self._problem
        if problem or not switch:
            raise SwitchError(problem or f"the switch {self._name!r} is being reconnected")
        return switch

    def finish(self) -> None:
        """Disconnect once the switch holds the wanted entries, if it can be reached."""
        self._finishing = True
        self._closed = bool(self._problem)
        self._waker.set()
        self._thread.join(_STOP_WITHIN)
        self.close()

    def close(self) -> None:
        """Disconnect from the switch, which keeps running."""
        self._closed = True
        self._waker.set()
        if self._thread.ident:
            self._thread.join(_STOP_WITHIN)
        if self._switch:
            self._switch.close()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._closed:
            try:
                self._serve(self._switch or self._reconnect())
                last = time.monotonic()
            except SwitchError as problem:
                self.taken = isinstance(problem, SwitchTaken)
                self._lose(str(problem))
                self._closed |= self._finishing
                gone = time.monotonic() - last
                self._pause(min(max(_SHORTEST_PAUSE, gone / 10), _LONGEST_PAUSE))
            except Exception as problem:  # noqa: BLE001 - whatever it is
                # Even then the switch is not given up.
                _log.exception("the switch cannot be looked after", switch=self._name)
                self._lose(str(problem) or repr(problem))
                self._pause(_LONGEST_PAUSE)
            if self._switch and not self._closed:
                self._switch.close()
                self._before, self._switch = self._switch.held, None
                self._clearing.clear()

    def _pause(self, seconds: float) -> None:
        over = time.monotonic() + seconds
        while not self._closed and (left := over - time.monotonic()) > 0:
            self._waker.wait(left)
            self._waker.clear()

    def _reconnect(self) -> AggregationSwitch:
        self._switch = switch = self._connect(self._waker.set, False)
        try:
            switch.check_ports()
        except UsageError as problem:  # it was restarted with other ports
            _log.warning("ports are missing", switch=self._name, why=str(problem))
        if not switch.start():
            self._lose(f"the switch {self._name!r} has lost its program")
        elif not self._problem:
            switch.expect(self._before)
            self._inspect(switch)
        return switch

    def _lose(self, problem: str) -> None:
        if problem != self._problem:
            _log.warning("switch lost", switch=self._name, problem=problem)
            self._problem = problem
            self._reported.clear()
            self._clearing.clear()
            self._listener.down(self._name, problem)

    def _serve(self, switch: AggregationSwitch) -> None:
        """Maintain the switch until the connection ends.

        Raises SwitchError if more than the connection failed. If only the connection failed, the
        caller connects again at once, and nobody is notified.
        """
        began = time.monotonic()
        try:
            self._keep(switch)
        except SwitchError:
            if not switch.broken:
                raise
        if switch.broken:
            _log.info("connection ended", switch=self._name, why=switch.broken)
            if time.monotonic() - began < _SHORTEST_PAUSE:
                self._pause(_SHORTEST_PAUSE)  # not again and again

    def _keep(self, switch: AggregationSwitch) -> None:
        inspect_at = self._inspections.after(time.monotonic())
        while not (self._closed or switch.broken):
            self._waker.clear()
            last = self._finishing
            busy = self._settle(switch)
            started = time.monotonic()
            if busy:
                continue
            if last:
                self._closed = True
            elif started < inspect_at:
                self._waker.wait(inspect_at - started)
            else:
                processor = time.thread_time()
                self._inspect(switch)
                took, processor = time.monotonic() - started, time.thread_time() - processor
                inspect_at = self._inspections.after(started, took, processor)

    def _settle(self, switch: AggregationSwitch) -> bool:
        """Make the switch hold the wanted entries. Return whether there is more to do at once."""
        jobs = self._listener.assignments(self._name)
        refused = switch.hold(jobs)
        if self._problem:
            self._problem, self.taken = None, False
            _log.info("switch ready", switch=self._name)
            self._listener.up(self._name)
            self._listener.damaged(self._name, switch.damaged())
        self._reported = {
            job.job: self._reported[job.job] for job in jobs if job.job in self._reported
        }
        for job in jobs:
            if why := refused.get(job.job):
                self._refuse(job, why)
                continue
            ranks = job.ranks
            if self._reported.get(job.job) != (job.term, ranks):
                self._reported[job.job] = (job.term, ranks)
                self._listener.held(self._name, job.job, job.term, ranks)
        return self._clear_some(switch, [job for job in jobs if job.clear])

    def _clear_some(self, switch: AggregationSwitch, jobs: Sequence[Assignment]) -> bool:
        """Clear some more cells of every job that needs it. Return whether there are such jobs."""
        numbers = {job.job for job in jobs}
        self._clearing = {job: each for job, each in self._clearing.items() if job in numbers}
        for job in jobs:
            term, steps = self._clearing.get(job.job, (0, iter(())))
            try:
                if term != job.term:
                    if job.fresh:
                        switch.reset_counters(job.slot_range)
                    steps = switch.clear(job.slot_range)
                    self._clearing[job.job] = (job.term, steps)
                if next(steps, _DONE) is _DONE:
                    self._listener.cleared(self._name, job.job, job.term)
            except SwitchError as problem:
                if switch.broken:
                    raise
                self._refuse(job, str(problem))
        return bool(jobs)

    def _refuse(self, job: Assignment, why: str) -> None:
        _log.warning("the switch refused", switch=self._name, job=job.job, why=why)
        self._clearing.pop(job.job, None)
        self._listener.refused(self._name, job.job, job.term, why)

    def _inspect(self, switch: AggregationSwitch) -> None:
        """Compare the switch's entries with those written. The next write repairs the differences.

        Report damaged packets as well.
        """
        drift, anew = switch.inspect()
        for each in drift:
            self.drifts += 1
            _log.warning("drift", switch=self._name, found=each, drifts=self.drifts)
        if anew:
            self._lose(f"the switch {self._name!r} has forgotten everything")
        self._listener.damaged(self._name, switch.damaged())
