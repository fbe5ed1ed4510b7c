"""The steps from the controller's present state to the state that a cluster file describes."""

import graphlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from innet.cluster.file import ClusterFile, JobSpec, QuotaSpec, SwitchSpec
from innet.errors import UsageError
from innet.machine.private_file import private_file
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import tls, words
from innet.rpc.client import created_job, write_token
from innet.wire.layout import UDP_PORT


@dataclass(frozen=True)
class Step:
    """One change: a line that describes it, and the call that makes it."""

    line: str
    carry_out: Callable[[rpc.ControllerStub], object]


def plan(
    file: ClusterFile,
    switches: dict[str, pb.Switch],
    jobs: dict[str, pb.Job],
    quotas: dict[str, pb.Quota],
    *,
    prune: bool = False,
) -> list[Step]:
    """Return the steps, in an order in which each can be carried out, or [] if nothing differs.

    `quotas` are the default quota, and the quotas that owners have of their own. With `prune`, what is
    not in the file is removed. Raises UsageError if something differs that cannot be changed in place.
    """
    problems = [*_conflicts(file, switches, jobs)]
    if problems:
        raise UsageError("\n".join(problems))
    steps: list[Step] = []
    gone: list[str] = []
    if prune:
        steps += [_delete(name) for name in jobs if name not in file.jobs]
        gone += [name for name in _bottom_up(switches) if name not in file.switches]
    parents = _needed(gone, switches)
    steps += [_remove(name) for name in gone if name not in parents]
    for name in file.top_down():
        spec, found = file.switches[name], switches.get(name)
        if not found:
            steps.append(_add(name, spec))
        elif _ports(found) != _ports(spec) or _uplinks(found) != _uplinks(spec):
            steps.append(_set_ports(name, spec, found))
    steps += [_remove(name) for name in gone if name in parents]
    steps += _drains(file, switches)
    steps += _limits(file, quotas, prune=prune)
    steps += [_create(name, spec) for name, spec in file.jobs.items() if name not in jobs]
    return steps


def _conflicts(
    file: ClusterFile, switches: dict[str, pb.Switch], jobs: dict[str, pb.Job]
) -> Iterator[str]:
    """Yield a message for each difference that cannot be changed in place."""
    for name, spec in file.switches.items():
        if found := switches.get(name):
            for field, present, wanted in _switch_differences(spec, found):
                yield (
                    f"the switch {name!r} has {field} {present}, not {wanted}: remove it first with "
                    f"`innet switch remove {name}`"
                )
    for name, job in file.jobs.items():
        if running := jobs.get(name):
            for field, present, wanted in _job_differences(job, running):
                yield (
                    f"the job {name!r} has {field} {present}, not {wanted}: delete it first with "
                    f"`innet job delete {name}`"
                )


def _switch_differences(spec: SwitchSpec, found: pb.Switch) -> Iterator[tuple[str, object, object]]:
    pairs: tuple[tuple[str, object, object], ...] = (
        ("address", found.grpc_address.removeprefix(tls.INSECURE), spec.address),
        ("device_id", found.device_id, spec.device_id),
        ("lanes", found.lanes, spec.lanes),
        ("target", found.target, spec.target),
        ("artifact", found.artifact or "none", spec.artifact or "none"),
        ("service_ip", found.service.ip, spec.service_ip or found.service.ip),
        ("service_mac", found.service.mac, spec.service_mac or found.service.mac),
        ("insecure", found.grpc_address.startswith(tls.INSECURE), spec.insecure),
    )
    return ((field, present, wanted) for field, present, wanted in pairs if present != wanted)


def _job_differences(spec: JobSpec, found: pb.Job) -> Iterator[tuple[str, object, object]]:
    quorum = spec.quorum or spec.workers
    pairs: tuple[tuple[str, object, object], ...] = (
        ("switch", found.switch, spec.switch),
        ("workers", found.workers, spec.workers),
        ("quorum", found.asked_quorum, quorum),
        ("min_workers", found.min_workers, spec.min_workers or quorum),
        ("lease", found.lease_s, spec.lease or found.lease_s),
        ("slots", found.asked_slots, spec.slots or found.asked_slots),
        ("min_slots", found.min_slots, spec.min_slots or found.asked_slots),
        ("priority", found.priority, spec.priority),
    )
    return ((field, present, wanted) for field, present, wanted in pairs if present != wanted)


def _add(name: str, spec: SwitchSpec) -> Step:
    request = pb.AddSwitchRequest(
        name=name,
        grpc_address=tls.INSECURE * spec.insecure + spec.address,
        device_id=spec.device_id,
        ports=spec.ports,
        lanes=spec.lanes,
        target=spec.target,
        artifact=spec.artifact,
        uplinks=_links(spec),
    )
    if spec.service_ip or spec.service_mac:
        request.service.CopyFrom(
            pb.Address(mac=spec.service_mac, ip=spec.service_ip, udp_port=UDP_PORT)
        )
    return Step(f"+ switch {name} at {spec.address}", lambda stub: stub.AddSwitch(request))


def _set_ports(name: str, spec: SwitchSpec, found: pb.Switch) -> Step:
    request, changes = pb.SetSwitchPortsRequest(name=name), []
    if _ports(found) != _ports(spec):
        request.ports.extend(spec.ports)
        changes.append(f"ports {_ports(found)} become {_ports(spec)}")
    if _uplinks(found) != _uplinks(spec):
        request.uplinks.CopyFrom(pb.Uplinks(links=_links(spec)))
        changes.append(f"uplinks {_uplinks(found)} become {_uplinks(spec)}")
    line = f"~ switch {name}: {', '.join(changes)}"
    return Step(line, lambda stub: stub.SetSwitchPorts(request))


def _ports(switch: SwitchSpec | pb.Switch) -> str:
    return ",".join(map(str, sorted(switch.ports)))


def _uplinks(switch: SwitchSpec | pb.Switch) -> str:
    return ",".join(map(words.uplink, switch.uplinks)) or "none"


def _links(spec: SwitchSpec) -> list[pb.Uplink]:
    return [
        pb.Uplink(parent=each.parent, port=each.port, parent_port=each.parent_port)
        for each in spec.uplinks
    ]


def _drains(file: ClusterFile, switches: dict[str, pb.Switch]) -> list[Step]:
    """Return the steps that undrain switches, before those that drain others, so that jobs can move."""
    known = {name: each.drained for name, each in switches.items()}
    wanted = {name: spec.drained for name, spec in file.switches.items()}
    undrained = [name for name, drained in wanted.items() if drained is False and known.get(name)]
    drained = [name for name, drained in wanted.items() if drained and not known.get(name)]
    return [*map(_undrain, undrained), *map(_drain, drained)]


def _limits(file: ClusterFile, quotas: dict[str, pb.Quota], *, prune: bool) -> Iterator[Step]:
    """Yield the changes of quotas. They come before jobs, which may need them."""
    missing = QuotaSpec()
    kept = {} if prune else {name: _quota(each) for name, each in quotas.items()}
    wanted = {**dict.fromkeys(quotas, missing), **kept, **file.quotas}
    for name, spec in wanted.items():
        found = _quota(quotas[name]) if name in quotas else missing
        if found != spec:
            sign = "-" if spec == missing else "~" if found != missing else "+"
            limits = [f"{most} {what}" for what, most in spec if most]
            line = f"{sign} quota of {name}{': ' * bool(limits)}{', '.join(limits)}"
            yield Step(line, partial(_set_quota, name, spec))


def _quota(found: pb.Quota) -> QuotaSpec:
    return QuotaSpec(jobs=found.most_jobs, slots=found.most_slots, workers=found.most_workers)


def _set_quota(name: str, spec: QuotaSpec, stub: rpc.ControllerStub) -> object:
    return stub.SetQuota(
        pb.SetQuotaRequest(
            name=name, most_jobs=spec.jobs, most_slots=spec.slots, most_workers=spec.workers
        )
    )


def _drain(name: str) -> Step:
    request = pb.DrainSwitchRequest(name=name)
    return Step(f"~ switch {name}: drained", lambda stub: stub.DrainSwitch(request))


def _undrain(name: str) -> Step:
    request = pb.UndrainSwitchRequest(name=name)
    return Step(f"~ switch {name}: in use again", lambda stub: stub.UndrainSwitch(request))


def _remove(name: str) -> Step:
    request = pb.RemoveSwitchRequest(name=name)
    return Step(f"- switch {name}", lambda stub: stub.RemoveSwitch(request))


def _create(name: str, spec: JobSpec) -> Step:
    request = pb.CreateJobRequest(
        name=name, switch=spec.switch, workers=spec.workers, slots=spec.slots,
        quorum=spec.quorum, min_workers=spec.min_workers, queue=spec.queue, lease_s=spec.lease,
        min_slots=spec.min_slots, priority=spec.priority,
    )  # fmt: skip
    workers = words.counted(spec.workers, "worker")
    line = f"+ job {name} on {spec.switch}: {workers}, token in {spec.token_file}"
    return Step(line, lambda stub: _create_with_token(stub, request, spec.token_file))


def _create_with_token(stub: rpc.ControllerStub, request: pb.CreateJobRequest, file: Path) -> None:
    with private_file(file) as secret, created_job(stub, request) as answer:
        write_token(secret, answer.token)


def _delete(name: str) -> Step:
    request = pb.DeleteJobRequest(name=name)
    return Step(f"- job {name}", lambda stub: stub.DeleteJob(request))


def _needed(gone: list[str], switches: dict[str, pb.Switch]) -> set[str]:
    """Return those of the switches to be removed, bottom up, that have a kept switch below them."""
    needed = switches.keys() - {*gone}
    for name in [*needed, *gone]:
        if name in needed:
            needed.update(link.parent for link in switches[name].uplinks)
    return needed.intersection(gone)


def _bottom_up(switches: dict[str, pb.Switch]) -> list[str]:
    """Return the names of the controller's switches, children before parents."""
    parents = {name: [link.parent for link in each.uplinks] for name, each in switches.items()}
    return [*graphlib.TopologicalSorter(parents).static_order()][::-1]
