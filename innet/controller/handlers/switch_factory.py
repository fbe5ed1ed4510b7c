"""The making of switches: each has an allocator of its slots and a supervisor of its entries."""

import itertools
import time
from collections.abc import Callable
from functools import partial

from innet.controller.handlers.hellos import Hellos
from innet.controller.handlers.switch_events import SwitchEvents
from innet.controller.jobs.records import SwitchRecord
from innet.controller.jobs.slots import SwitchAllocator
from innet.controller.state.inventory import Switch, silent_ports
from innet.controller.state.registry import Registry
from innet.controller.switches.aggregation import AggregationSwitch
from innet.controller.switches.election import VACANT_FOR_S, Candidate, Id
from innet.controller.switches.entries import most_workers
from innet.controller.switches.inspections import Inspections
from innet.controller.switches.names import Names
from innet.controller.switches.supervisor import Supervisor
from innet.controller.switches.targets.choice import find
from innet.rpc import tls


class SwitchFactory:
    """A maker of switches that report to `events` and `hellos`, over TLS if there is an `identity`."""

    def __init__(
        self,
        registry: Registry,
        events: SwitchEvents,
        hellos: Hellos,
        identity: tls.Identity | None,
    ) -> None:
        self._registry, self._events, self._identity = registry, events, identity
        self._hellos, self._inspections = hellos, Inspections()
        # Of two controllers the one that started later is in charge of a switch.
        self._started = time.time_ns()
        # No two connections have the same number: if a switch is removed and added again, the stream
        # of its first connection may still be open.
        self._connections = itertools.count()

    def make(self, record: SwitchRecord) -> Switch:
        """Return a switch that is not connected yet. Raises UsageError if its binary is not there."""
        program = find(record.target).program(record.lanes, record.artifact)
        allocator = SwitchAllocator(program.slots, most_workers(Names(program.p4info)))
        candidate = Candidate(self._started, self._connections)

        def connect(ended: Callable[[], None], patient: bool) -> AggregationSwitch:
            def connect_as(election: Id) -> AggregationSwitch:
                return AggregationSwitch(
                    record,
                    program,
                    partial(self._hellos.put, record.name),
                    self._identity,
                    ended=ended,
                    election=election,
                    patient=patient,
                    present=lambda: made.record,
                    silent=lambda: self._silent(made.record),
                )

            # A person who adds a switch should not wait for a controller that is gone.
            return candidate.take_charge(connect_as, 0.0 if patient else VACANT_FOR_S)

        supervisor = Supervisor(record.name, connect, self._events, self._inspections)
        made = Switch(record, program, allocator, supervisor)
        return made

    def _silent(self, record: SwitchRecord) -> frozenset[int]:
        with self._registry.lock:
            return silent_ports(record, self._registry.switches)
