"""The aggregation program's table entries, for the switch itself and for its jobs.

No other module of the controller knows the tables of ``innet/p4/v1model``. Those of
``innet/p4/tna`` are the same.
"""

from collections.abc import Iterable

from innet.controller.defaults import uplink_address
from innet.controller.jobs.host_addresses import is_host_mac
from innet.controller.jobs.records import Assignment, Attachment, Share, Uplink
from innet.controller.switches.names import Names, group
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.wire.frames import Address

_FLOOD_GROUP = 1
_FIRST_JOB_GROUP = 2
_SLOT_BITS = 16


def own_entities(
    names: Names, service: Address, ports: Iterable[int], uplinks: Iterable[Uplink] = ()
) -> list[p4rt.Entity]:
    """Return the entities that a switch needs without any job: its address, parents and flood group."""
    return [
        group(_FLOOD_GROUP, [(port, 1) for port in ports]),
        names.entry(
            "service", {"address": _number(service.ip_bytes)},
            "serve", {"mac": _number(service.mac_bytes)},
        ),
        names.entry("own_addresses", {"address": _number(service.ip_bytes)}, "expose"),
        *(
            names.entry(
                "uplinks",
                {
                    "port": link.port,
                    "parent": _number(service.ip_bytes),  # all switches of a tree have one address
                    "address": _number(uplink_address(link.parent_port).ip_bytes),
                },
                "descend",
            )
            for link in uplinks
        ),
    ]  # fmt: skip


def outward_entities(names: Names, job: Assignment) -> list[p4rt.Entity]:
    """Return the entities that bring a job's results to its workers and to child switches."""
    copies = {each.instance: each.where for share in job.shares for each in share.contributors}
    if not copies:
        return []
    replicas = [(where.port, instance) for instance, where in copies.items()]
    return [
        group(_FIRST_JOB_GROUP + job.slot_range.index, replicas),
        *(
            names.entry(
                "replicas", {"job": job.job, "instance": instance},
                "address_to",
                {
                    "mac": _number(where.address.mac_bytes),
                    "address": _number(where.address.ip_bytes),
                    "udp_port": where.address.udp_port,
                },
            )
            for instance, where in copies.items()
        ),
    ]  # fmt: skip


def inward_entities(names: Names, job: Assignment) -> list[p4rt.Entity]:
    """Return the entities that let a job's workers contribute, each with the bit of its rank.

    A child switch contributes with the bits of all workers below it.
    """
    of_job = {"group": _FIRST_JOB_GROUP + job.slot_range.index, "job_index": job.slot_range.index}
    made = []
    for share in job.shares:
        slots = _slots(job, share)
        made += [
            names.entry(
                "workers", {**_source(each.where), **slots},
                "admit", {"worker": each.members, "quorum": share.awaited, **of_job},
            )
            for each in share.contributors
        ]  # fmt: skip
        if share.uplink:
            made.append(names.entry("trees", slots, "below", _below(share, share.uplink) | of_job))
        elif share.total != share.awaited:  # without an entry they are the same
            made.append(names.entry("trees", slots, "top", {"total": share.total}))
    return made


def is_inward(names: Names, entity: p4rt.Entity) -> bool:
    """Return whether an entity lets a worker contribute."""
    return names.is_of("workers", entity) or names.is_of("trees", entity)


def whole_inward(names: Names) -> list[p4rt.Entity]:
    """Return the entities that read all inward entries, or [] if the program has no such table."""
    return [names.whole("workers")] if names.knows("workers") else []


def forwarding_entities(names: Names, jobs: Iterable[Assignment]) -> list[p4rt.Entity]:
    """Return the entries that forward ordinary frames for the workers' hosts to their ports.

    There are at most as many entries as the program has room for. An address at two ports gets
    none, so frames for it go to all ports.
    """
    ports: dict[str, set[int]] = {}
    for job in jobs:
        here = {(where.address.mac, where.port) for where in job.workers.values()}
        for mac, port in sorted({*job.beyond.items()} | here):
            ports.setdefault(mac, set()).add(port)
    found = [(mac, min(at)) for mac, at in ports.items() if len(at) == 1 and is_host_mac(mac)]
    return [
        names.entry(
            "bridge", {"destination": int(mac.replace(":", ""), 16)}, "forward", {"port": port}
        )
        for mac, port in found[: names.size("bridge")]
    ]  # fmt: skip


def most_workers(names: Names) -> int:
    """Return the number of workers, of all jobs together, that the program's tables have room for."""
    return min(names.size("workers"), names.size("replicas"))


def _below(share: Share, uplink: Uplink) -> dict[str, int]:
    """Return the port, addresses and bitmaps for sending a share's sum up."""
    here = uplink_address(uplink.parent_port)
    return {
        "port": uplink.port,
        "mac": _number(here.mac_bytes),
        "address": _number(here.ip_bytes),
        "total": share.total,
        "elsewhere": ((1 << share.total) - 1) & ~share.members,
    }


def _source(where: Attachment) -> dict[str, int]:
    return {
        "port": where.port,
        "address": _number(where.address.ip_bytes),
        "udp_port": where.address.udp_port,
    }


def _slots(job: Assignment, share: Share) -> dict[str, int | tuple[int, int]]:
    prefix = _SLOT_BITS - (share.slots.bit_length() - 1)
    return {"job": job.job, "epoch": job.term, "slot": (share.first_slot, prefix)}


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")
