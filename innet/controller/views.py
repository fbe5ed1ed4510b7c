"""Switches and jobs as clients see them."""

from innet.controller import innet_pb2 as pb
from innet.controller.jobs import Job, Worker
from innet.controller.values import SwitchRecord
from innet.wire.frames import Address

PATHS = {pb.PATH_NONE: "none", pb.PATH_SWITCH: "switch", pb.PATH_FALLBACK: "fallback"}
"""What people call them."""


def switch_view(switch: SwitchRecord, slots: int, free_slots: int, *, reachable: bool) -> pb.Switch:
    """A switch, without its ports' counters."""
    return pb.Switch(
        name=switch.name,
        grpc_address=switch.grpc_address,
        device_id=switch.device_id,
        ports=switch.ports,
        service=address_view(switch.service),
        lanes=switch.lanes,
        target=switch.target,
        slots=slots,
        free_slots=free_slots,
        reachable=reachable,
        uplinks=[
            pb.Uplink(parent=link.parent, port=link.port, parent_port=link.parent_port)
            for link in switch.uplinks
        ],
    )


def job_view(job: Job, lanes: int, lease_s: float, now: float) -> pb.Job:
    """A job, without counters and members."""
    place = job.place
    return pb.Job(
        name=job.spec.name,
        switch=job.spec.switch,
        id=job.spec.id,
        epoch=job.epoch,
        workers=job.spec.workers,
        lanes=lanes,
        first_slot=place.first_slot if place else 0,
        slots=place.slots if place else 0,
        joined=[each.rank for each in job.admitted],
        quorum=job.quorum,
        path=job.path,
        reason=job.reason(now),
        worker_lease_s=lease_s,
    )


def worker_view(worker: Worker, job: Job, now: float) -> pb.WorkerStatus:
    """A worker that has a seat; without port and address while they are not known."""
    view = pb.WorkerStatus(
        rank=worker.rank, silent_s=max(0.0, now - worker.heard), progress=worker.progress
    )
    if worker.where:
        view.switch = worker.where.switch or job.spec.switch
        view.port = worker.where.port
        view.address.CopyFrom(address_view(worker.where.address))
    return view


def tree_view(job: Job) -> list[pb.JobSwitch]:
    """What each of several switches does for a job, without counters; nothing where there is one.

    Of a job whose workers are not all there no switch does anything, but each has counted something.
    """
    if job.fabric.single:
        return []
    at = {each.rank: each.where.switch for each in job.admitted if each.where}
    plan = job.plan
    return [
        pb.JobSwitch(
            switch=switch,
            parents=dict.fromkeys(
                share.uplink.parent for share in plan.get(switch, ()) if share.uplink
            ),
            workers=[rank for rank, where in at.items() if where == switch],
        )
        for switch in plan or job.fabric.uplinks
    ]


def address_view(address: Address) -> pb.Address:
    """An address."""
    return pb.Address(mac=address.mac, ip=address.ip, udp_port=address.udp_port)
