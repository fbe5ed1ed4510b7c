"""Requests about switches: adding, showing, changing and removing them."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import structlog

from innet.controller.handlers.ports import with_ports, with_uplinks
from innet.controller.handlers.probes import Probes
from innet.controller.handlers.switch_factory import SwitchFactory
from innet.controller.jobs.events import Path
from innet.controller.jobs.job import Job
from innet.controller.jobs.records import SwitchRecord
from innet.controller.jobs.trees import Fabric
from innet.controller.state import validation
from innet.controller.state.inventory import Switch, check_links, children, uplinks
from innet.controller.state.registry import Registry, listed
from innet.errors import AlreadyExists, ControllerError, SwitchError
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls, words

_log = structlog.get_logger("innet.controller")


class SwitchRequests:
    """The requests about a registry's switches. Any thread may make them. They raise InnetError."""

    def __init__(self, registry: Registry, factory: SwitchFactory, probes: Probes) -> None:
        self._registry, self._factory, self._probes = registry, factory, probes
        self._adding: dict[str, SwitchRecord] = {}
        self._removing: dict[str, SwitchRecord] = {}

    def add(self, request: pb.AddSwitchRequest) -> pb.Switch:
        """Take charge of a switch."""
        validation.check_switch(request)
        record = validation.switch_record(request)
        switch = self._factory.make(record)
        with self._being_added(record):
            switch.supervisor.connect()  # without the lock, so that nobody else waits for it
            with contextlib.ExitStack() as stack, self._registry.lock:
                stack.callback(switch.supervisor.close)
                self._registry.check_open()
                check_links(record, self._registry.switches)
                self._registry.store.add_switch(record)
                self._registry.switches[record.name] = switch
                switch.supervisor.start()
                self._wake_parents(record)
                stack.pop_all()
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
            counters = connection.port_counters()  # first: it raises if the switch hangs
            down = connection.ports_down()
            for port, counts in counters.items():
                view.port_counters.add(port=port, down=port in down, **counts)
        return view

    def set_ports(self, request: pb.SetSwitchPortsRequest) -> pb.Switch:
        """Give a switch other ports and uplinks. Its jobs continue."""
        with self._registry.lock:
            switch, _ = self._with_changes(request)
        if request.ports:  # without the lock, so that nobody else waits for a slow switch
            switch.supervisor.switch().check_ports(request.ports)
        with self._registry.lock:
            self._registry.check_open()
            switch, record = self._with_changes(request)
            fabrics = self._fabrics(record)
            self._registry.store.change_switch(record)
            before, switch.record = switch.record, record
            switch.supervisor.wake()
            _log.info(
                "ports changed", switch=record.name, ports=record.ports,
                uplinks=[*map(words.uplink, record.uplinks)],
            )  # fmt: skip
            if record.uplinks == before.uplinks:
                return switch.view()
            switch.found.clear()
            self._wake_parents(before)
            self._wake_parents(record)
            for job, fabric in fabrics.items():
                job.switches.fabric = fabric
                self._registry.commit(job, [])
        self._probes.send(switch)
        with self._registry.lock:
            self._probes.wait(switch)
            return switch.view()

    def drain(self, request: pb.DrainSwitchRequest) -> pb.DrainSwitchResponse:
        """Move a switch's jobs to other switches, or to their fallback, and give it no new ones.

        It goes on as a bridge. Raises ControllerError, and changes nothing, if a job has no other path
        and the request does not force it.
        """
        with self._registry.lock:
            self._registry.check_open()
            switch = self._registry.switch(request.name)
            paths = self._paths_without(switch)
            if not request.force:
                _check_paths(request.name, paths)
            self._set_drained(switch, drained=True)
            moved = [
                pb.MovedJob(job=job.spec.name, path=f"PATH_{path.name}")
                for job, path in paths.items()
            ]
            return pb.DrainSwitchResponse(jobs=moved)

    def undrain(self, name: str) -> pb.Switch:
        """Use a drained switch again. Raises ControllerError if it does not answer."""
        with self._registry.lock:
            self._registry.check_open()
            switch = self._registry.switch(name)
            if switch.record.drained and switch.supervisor.problem:
                raise ControllerError(
                    f"{switch.supervisor.problem}: jobs would stand still; undrain it once it answers"
                )
            self._set_drained(switch, drained=False)
            return switch.view()

    def remove(self, name: str) -> None:
        """Release a switch that no job uses. It stays a bridge."""
        with self._registry.lock:
            self._registry.check_open()
            switch = self._registry.switch(name)
            self._check_unused(name)
            self._registry.store.remove_switch(name)
            del self._registry.switches[name]
            self._removing[name] = switch.record
            self._wake_parents(switch.record)
        try:
            switch.supervisor.finish()
        finally:
            with self._registry.lock:
                del self._removing[name]
        _log.info("switch removed", name=name)

    def drifts(self) -> dict[str, int]:
        """Return the number of differences found between entries written and entries read, by switch."""
        with self._registry.lock:
            switches = self._registry.switches.items()
            return {name: each.supervisor.drifts for name, each in switches}

    def _with_changes(self, request: pb.SetSwitchPortsRequest) -> tuple[Switch, SwitchRecord]:
        """Return a switch, and its record with what a request changes. Raises InnetError."""
        registry, switch = self._registry, self._registry.switch(request.name)
        jobs, record, links = registry.jobs_on(request.name), switch.record, switch.record.uplinks
        if request.HasField("uplinks"):
            links = validation.uplinks(request.uplinks.links)
        if request.ports or not request.HasField("uplinks"):
            wanted = replace(record, uplinks=links)
            ports = with_ports(wanted, request.ports, registry.switches, jobs).ports
            record = replace(record, ports=ports)
        if links != record.uplinks:
            record = with_uplinks(record, links, registry.switches, jobs)
        return switch, record

    def _fabrics(self, record: SwitchRecord) -> dict[Job, Fabric]:
        """Return the fabrics of a switch's jobs with its changed record.

        Raises ControllerError if a job sums over a link that would change.
        """
        links = {**uplinks(self._registry.switches), record.name: record.uplinks}
        before = self._registry.switches[record.name].record.uplinks
        changed = {*before} ^ {*record.uplinks} or {*before}  # or only their order
        parents = {link.parent for link in changed}
        found = {}
        for job in self._registry.jobs_on(record.name):
            now = job.switches.fabric
            found[job] = replace(
                Fabric.of(job.spec.switches, links),
                drained=now.drained,
                lost=now.lost,
                contributors=now.contributors,
            )
            if not job.allows(found[job]):
                raise ControllerError(
                    f"the job {job.spec.name!r} needs links of {record.name!r} that would change: first "
                    f"drain {listed(map(repr, parents))}"
                )
        return found

    def _paths_without(self, switch: Switch) -> dict[Job, Path]:
        """Return the path of each job that has to leave a switch, none if it is drained already."""
        if switch.record.drained:
            return {}
        jobs = self._registry.jobs_on(switch.record.name)
        found = {job: job.path_without(switch.record.name) for job in jobs}
        return {job: path for job, path in found.items() if path is not None}

    def _set_drained(self, switch: Switch, *, drained: bool) -> None:
        if switch.record.drained == drained:
            return
        record = replace(switch.record, drained=drained)
        self._registry.store.change_switch(record)
        switch.record = record
        _log.info("switch drained" if drained else "switch undrained", name=record.name)
        self._registry.drain(record.name)

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
        for other in self._removing.values():
            # Its supervisor still removes entries, and reports by name.
            if other.name == record.name or _same_device(other, record):
                raise ControllerError(
                    f"the switch {other.name!r} at {other.grpc_address} is being removed: try again soon"
                )
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


def _check_paths(name: str, paths: Mapping[Job, Path]) -> None:
    """Raise ControllerError if a job has no path without the switch."""
    why = [
        f"the job {job.spec.name!r} has no other path, and {job.roster.no_fallback}"
        for job, path in paths.items()
        if path == Path.NONE
    ]
    if why:
        raise ControllerError(
            f"the switch {name!r} cannot be drained: {'; '.join(why)}; let these jobs end first, or use "
            "--force to make them wait"
        )


def _same_device(one: SwitchRecord, other: SwitchRecord) -> bool:
    addresses = {each.grpc_address.removeprefix(tls.INSECURE) for each in (one, other)}
    return len(addresses) == 1 and one.device_id == other.device_id
