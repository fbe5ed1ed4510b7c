"""Requests about switches: adding, showing, changing and removing them."""

import contextlib
from collections.abc import Iterator

import structlog

from innet.controller.handlers.ports import with_ports
from innet.controller.handlers.probes import Probes
from innet.controller.handlers.switch_factory import SwitchFactory
from innet.controller.jobs.records import SwitchRecord
from innet.controller.state import validation
from innet.controller.state.inventory import Switch, check_links, children
from innet.controller.state.registry import Registry, listed
from innet.errors import AlreadyExists, ControllerError, SwitchError
from innet.rpc import innet_pb2 as pb

_log = structlog.get_logger("innet.controller")


class SwitchRequests:
    """The requests about a registry's switches. Any thread may make them. They raise InnetError."""

    def __init__(self, registry: Registry, factory: SwitchFactory, probes: Probes) -> None:
        self._registry, self._factory, self._probes = registry, factory, probes
        self._adding: dict[str, SwitchRecord] = {}

    def add(self, request: pb.AddSwitchRequest) -> pb.Switch:
        """Take charge of a switch."""
        validation.check_switch(request)
        record = validation.switch_record(request)
        switch = self._factory.make(record)
        with self._being_added(record):
            switch.supervisor.connect()  # without the lock, so that nobody else waits for it
            with self._registry.lock:
                self._registry.check_open()
                check_links(record, self._registry.switches)
                self._registry.store.add_switch(record)
                self._registry.switches[record.name] = switch
                switch.supervisor.start()
                self._wake_parents(record)
        self._probes.send(switch)
        _log.info("switch added", name=record.name, address=record.grpc_address)
        with self._registry.lock:
            self._probes.wait(switch)
            return switch.view()

    def views(self) -> list[pb.Switch]:
        """Return all switches."""
        with self._registry.lock:
            return [switch.view() for switch in self._registry.switches.values()]

    def view(self, name: str) -> pb.Switch:
        """Return one switch, with its ports' counters if it answers."""
        with self._registry.lock:
            switch = self._registry.switch(name)
            view = switch.view()
        with contextlib.suppress(SwitchError):
            connection = switch.supervisor.switch()
            down = connection.ports_down()
            for port, counts in connection.port_counters().items():
                view.port_counters.add(port=port, down=port in down, **counts)
        return view

    def set_ports(self, request: pb.SetSwitchPortsRequest) -> pb.Switch:
        """Give a switch other ports. Its jobs continue."""
        with self._registry.lock:
            switch, _ = self._with_ports(request)
        # Without the lock, so that nobody else waits for a slow switch.
        switch.supervisor.switch().check_ports(request.ports)
        with self._registry.lock:
            self._registry.check_open()
            switch, record = self._with_ports(request)
            self._registry.store.set_ports(record)
            switch.record = record
            switch.supervisor.wake()
            _log.info("ports changed", switch=record.name, ports=record.ports)
            return switch.view()

    def remove(self, name: str) -> None:
        """Release a switch that no job uses. It stays a bridge."""
        with self._registry.lock:
            self._registry.check_open()
            switch = self._registry.switch(name)
            self._check_unused(name)
            self._registry.store.remove_switch(name)
            del self._registry.switches[name]
            self._wake_parents(switch.record)
        switch.supervisor.finish()
        _log.info("switch removed", name=name)

    def drifts(self) -> dict[str, int]:
        """Return the number of differences found between entries written and entries read, by switch."""
        with self._registry.lock:
            switches = self._registry.switches.items()
            return {name: each.supervisor.drifts for name, each in switches}

    def _with_ports(self, request: pb.SetSwitchPortsRequest) -> tuple[Switch, SwitchRecord]:
        """Return a switch, and its record with other ports. Raises InnetError if that cannot be."""
        switch = self._registry.switch(request.name)
        jobs = self._registry.jobs_on(request.name)
        return switch, with_ports(switch.record, request.ports, self._registry.switches, jobs)

    def _check_unused(self, name: str) -> None:
        if below := children(name, self._registry.switches):
            raise ControllerError(
                f"the switch {name!r} is a parent: remove {listed(map(repr, below))} first"
            )
        if users := [job.spec.name for job in self._registry.jobs_on(name)]:
            raise ControllerError(
                f"the switch {name!r} is in use: delete {listed(map(repr, users))} first"
            )

    def _wake_parents(self, record: SwitchRecord) -> None:
        for link in record.uplinks:  # their flood groups may have changed
            self._registry.switches[link.parent].supervisor.wake()

    @contextlib.contextmanager
    def _being_added(self, record: SwitchRecord) -> Iterator[None]:
        """Prevent others from adding a switch with this name or address meanwhile."""
        with self._registry.lock:
            self._registry.check_open()
            self._check_new(record)
            check_links(record, self._registry.switches)
            self._adding[record.name] = record
        try:
            yield
        finally:
            with self._registry.lock:
                del self._adding[record.name]

    def _check_new(self, record: SwitchRecord) -> None:
        others = [switch.record for switch in self._registry.switches.values()]
        for other in [*others, *self._adding.values()]:
            if other.name == record.name:
                raise AlreadyExists(
                    f"a switch named {record.name!r} exists already: choose another name"
                )
            if _same_device(other, record):
                raise AlreadyExists(
                    f"the switch at {record.grpc_address} has been added already, as {other.name!r}"
                )


def _same_device(one: SwitchRecord, other: SwitchRecord) -> bool:
    return (one.grpc_address, one.device_id) == (other.grpc_address, other.device_id)
