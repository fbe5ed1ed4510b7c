"""The messages of innet.proto: switches and jobs as clients see them, and events for workers."""

import functools
from collections.abc import Collection
from typing import Any

from innet.controller.jobs.changes import DatedEvent
from innet.controller.jobs.events import (
    Admission,
    Bitmaps,
    Departure,
    Event,
    Invitation,
    Progress,
    Recover,
    Resume,
    Waiting,
)
from innet.controller.jobs.job import Job
from innet.controller.jobs.records import SwitchRecord
from innet.controller.jobs.roster import Worker
from innet.rpc import innet_pb2 as pb
from innet.wire.frames import Address

_PROGRESS = tuple(each.name for each in pb.Progress.DESCRIPTOR.fields)


def event_message(event: Event) -> pb.JoinEvent:
    """Return the message of an event for a worker."""
    fields: dict[str, Any] = dict(vars(event))
    match event:
        case Invitation():
            fields["service"] = address_view(event.service)
            return pb.JoinEvent(invitation=pb.Invitation(**fields))
        case Admission():
            return pb.JoinEvent(admission=pb.Admission(**fields))
        case Departure():
            return pb.JoinEvent(departure=pb.Departure(**fields))
        case Recover():
            return pb.JoinEvent(recover=pb.Recover(**fields))
        case Bitmaps():
            return pb.JoinEvent(bitmaps=_bitmaps_message(event))
        case Resume():
            return pb.JoinEvent(resume=pb.Resume(**fields))
        case Waiting():
            return pb.JoinEvent(waiting=pb.Waiting(**fields))


@functools.lru_cache(maxsize=128)  # the workers of a switch get the same
def _bitmaps_message(bitmaps: Bitmaps) -> pb.Bitmaps:
    return pb.Bitmaps(
        switches=[
            pb.SwitchBits(
                first_slot=each.first_slot,
                slots=each.slots,
                level_bit=each.level_bit,
                contributors=[pb.Contributor(ranks=_ranges(ranks)) for ranks in each.contributors],
            )
            for each in bitmaps.switches
        ]
    )


def _ranges(ranks: Collection[int]) -> list[pb.RankRange]:
    """Return the ranges of neighbouring ranks."""
    found: list[pb.RankRange] = []
    for rank in sorted(ranks):
        if found and rank == found[-1].first + found[-1].count:
            found[-1].count += 1
        else:
            found.append(pb.RankRange(first=rank, count=1))
    return found


def pace_message(heartbeat_s: float) -> pb.JoinEvent:
    """Return the message that sets the time between two heartbeats."""
    return pb.JoinEvent(pace=pb.Pace(heartbeat_s=heartbeat_s))


def progress_of(report: pb.Progress) -> Progress:
    """Return a worker's progress from its report. Fields that are not known here are left out."""
    fields = {name: getattr(report, name) for name in _PROGRESS}
    return Progress(**{**fields, "missing": tuple(report.missing)})


def switch_view(switch: SwitchRecord, slots: int, free_slots: int, *, reachable: bool) -> pb.Switch:
    """Return a switch, without its ports' counters."""
    return pb.Switch(
        name=switch.name,
        grpc_address=switch.grpc_address,
        device_id=switch.device_id,
        ports=switch.ports,
        service=address_view(switch.service),
        lanes=switch.lanes,
        target=switch.target,
        artifact=switch.artifact,
        slots=slots,
        free_slots=free_slots,
        reachable=reachable,
        drained=switch.drained,
        uplinks=[
            pb.Uplink(parent=link.parent, port=link.port, parent_port=link.parent_port)
            for link in switch.uplinks
        ],
        stations=[pb.Station(mac=each.mac, port=each.port) for each in switch.stations],
    )


def job_view(job: Job, lanes: int, lease_s: float, now: float) -> pb.Job:
    """Return a job, without counters and members."""
    slots = job.slot_range
    return pb.Job(
        name=job.spec.name,
        switch=job.spec.switch,
        id=job.spec.id,
        term=job.term,
        workers=job.spec.workers,
        lanes=lanes,
        first_slot=slots.first_slot if slots else 0,
        slots=slots.slots if slots else 0,
        joined=[each.rank for each in job.roster.admitted],
        quorum=job.roster.quorum,
        path=f"PATH_{job.path.name}",
        reason=job.terms.reason(now),
        worker_lease_s=lease_s,
        recoveries=job.history.recoveries,
        owner=job.spec.owner,
        asked_slots=job.spec.slots,
        min_slots=job.spec.kept_slots,
        priority=job.spec.priority,
        asked_quorum=job.spec.quorum,
        min_workers=job.spec.min_workers,
        lease_s=round(job.spec.lease_s),
        group_ranks=job.spec.group_ranks,
    )


def worker_view(worker: Worker, job: Job, now: float, silence: float | None) -> pb.WorkerStatus:
    """Return a worker, without port and address while they are unknown.

    `silence` is that of its machine, in seconds, or None if the worker is not connected.
    """
    view = pb.WorkerStatus(
        rank=worker.rank,
        silent_s=max(0.0, now - worker.heard),
        progress=pb.Progress(**vars(worker.progress)),
        unreachable_s=silence or 0.0,
        disconnected=silence is None,
    )
    if worker.where:
        view.switch = worker.where.switch or job.spec.switch
        view.port = worker.where.port
        view.address.CopyFrom(address_view(worker.where.address))
    return view


def departures(job: Job, now: float) -> list[pb.Departed]:
    """Return the workers that have left the job, in order."""
    return [
        pb.Departed(rank=each.rank, reason=each.reason, ago_s=now - each.at)
        for each in job.history.departures
    ]


def tree_view(job: Job) -> list[pb.JobSwitch]:
    """Return each switch's part in a job of several switches, without counters, or [] for one switch.

    Until all workers are there, no switch takes part, but each may have counted something. So all
    are listed.
    """
    if not job.spec.others:
        return []
    at = job.roster.attachments
    plan = job.switches.plan
    return [
        pb.JobSwitch(
            switch=switch,
            parents=dict.fromkeys(
                share.uplink.parent for share in plan.get(switch, ()) if share.uplink
            ),
            workers=sorted(rank for rank, where in at.items() if where.switch == switch),
        )
        for switch in plan or job.spec.switches
    ]


def address_view(address: Address) -> pb.Address:
    """Return an address."""
    return pb.Address(mac=address.mac, ip=address.ip, udp_port=address.udp_port)


def history_view(event: DatedEvent) -> pb.JobEvent:
    """Return an event in the life of a job as clients see it."""
    ranks = [] if event.rank is None else [event.rank]
    return pb.JobEvent(at=event.at, event=event.event, ranks=ranks, term=event.term, why=event.why)
