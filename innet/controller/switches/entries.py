"""The aggregation program's table entries and counters, for the switch itself and for its jobs.

No other module of the controller knows the tables of ``innet/p4``. They are the same on all targets.
"""

from collections.abc import Iterable

from innet.controller.defaults import uplink_address
from innet.controller.jobs.host_addresses import is_host_mac
from innet.controller.jobs.records import Assignment, Attachment, Share, Station, Uplink
from innet.controller.switches.names import Names, group
from innet.controller.switches.reconcile import Held, Key, key
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.wire.frames import Address

_FLOOD_GROUP = 1
_FIRST_JOB_GROUP = 2
_SLOT_BITS = 16
_JOBS = 256  # of innet/p4/shared/constants.p4
_Host = tuple[str, int]  # MAC address and port

OUTCOMES = {
    "waiting": 1, "completed": 2, "answered": 3, "pending": 4, "stale": 5, "raised": 8, "ignored": 9,
    "asked": 10,
}  # fmt: skip
"""The outcomes of a contribution, with their numbers in the program: OUTCOME_* of its outcomes.p4."""


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
    """Return the entities that bring a job's results to its workers and to child switches.

    A contributor has the same bits in all of the job's trees. If a result may come without a switch
    below, that switch gets the lanes of every result that somebody wants: it has not said yet what the
    workers below it want.
    """
    copies = {each.instance: each for share in job.shares for each in share.contributors}
    if not copies:
        return []
    partial = any(share.is_partial for share in job.shares)
    everybody = names.all_bits("address_to", "bits")
    replicas = [(each.where.port, instance) for instance, each in copies.items()]
    return [
        group(_FIRST_JOB_GROUP + job.slot_range.index, replicas),
        *(
            names.entry(
                "replicas", {"job": job.job, "instance": instance},
                "address_to",
                {
                    "mac": _number(each.where.address.mac_bytes),
                    "address": _number(each.where.address.ip_bytes),
                    "udp_port": each.where.address.udp_port,
                    "bits": everybody if partial and each.is_switch else each.bits,
                },
            )
            for instance, each in copies.items()
        ),
    ]  # fmt: skip


def inward_entities(names: Names, job: Assignment) -> list[p4rt.Entity]:
    """Return the entities that let a job's workers and child switches contribute."""
    of_job = {"group": _FIRST_JOB_GROUP + job.slot_range.index, "job_index": job.slot_range.index}
    made = []
    for share in job.shares:
        slots = _slots(job, share)
        made += [
            names.entry(
                "workers", {**_source(each.where), **slots},
                "admit", {"worker": each.bits, "quorum": share.awaited, **of_job},
            )
            for each in share.contributors
        ]  # fmt: skip
        if share.uplink:
            made.append(names.entry("trees", slots, "below", _below(share, share.uplink) | of_job))
    return made


def job_counters(names: Names, index: int) -> dict[str, p4rt.Entity]:
    """Return the counter cells of the job with this index, one for each outcome."""
    return {
        name: names.counter("outcomes", outcome * _JOBS + index)
        for name, outcome in OUTCOMES.items()
    }


def is_inward(names: Names, entity: p4rt.Entity) -> bool:
    """Return whether an entity lets a worker contribute, or raises a job's sums."""
    return names.is_of("workers", entity) or names.is_of("trees", entity)


def whole_inward(names: Names) -> list[p4rt.Entity]:
    """Return the entities that, when read, match all entries of contributors, or [] without a table."""
    return [names.whole("workers")] if names.knows("workers") else []


class Forwarding:
    """The entries that forward ordinary frames for stations and for the workers' hosts to their ports.

    An entry is made once for each host. So a change of one job takes little time however many jobs
    there are.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._jobs: dict[int, tuple[Assignment, list[_Host]]] = {}
        self._made: dict[_Host, tuple[Key, p4rt.Entity]] = {}

    def entities(self, jobs: Iterable[Assignment], stations: Iterable[Station] = ()) -> Held:
        """Return the entries for these stations and jobs, by their keys.

        There are at most as many entries as the program has room for. A host's address at two ports
        gets none, so frames for it go to all ports. A station's address is at the station's port.
        """
        self._jobs = {job.job: (job, self._hosts(job)) for job in jobs}
        ports = {each.mac: each.port for each in stations}
        known, twice = frozenset(ports), set()
        for _, hosts in self._jobs.values():
            for mac, port in hosts:
                if ports.setdefault(mac, port) != port and mac not in known:
                    twice.add(mac)
        found = [host for host in ports.items() if host[0] not in twice]
        room = found[: self._names.size("bridge")]
        self._made = {host: self._made.get(host) or self._entry(host) for host in room}
        return dict(self._made.values())

    def _hosts(self, job: Assignment) -> list[_Host]:
        before, hosts = self._jobs.get(job.job, (None, []))
        if job == before:
            return hosts
        here = {(where.address.mac, where.port) for where in job.workers.values()}
        return sorted(each for each in {*job.beyond.items()} | here if is_host_mac(each[0]))

    def _entry(self, host: _Host) -> tuple[Key, p4rt.Entity]:
        mac, port = host
        destination = {"destination": int(mac.replace(":", ""), 16)}
        entity = self._names.entry("bridge", destination, "forward", {"port": port})
        return key(entity), entity


def most_workers(names: Names) -> int:
    """Return the number of workers, of all jobs together, that the program's tables have room for."""
    return min(names.size("workers"), names.size("replicas"))


def _below(share: Share, uplink: Uplink) -> dict[str, int]:
    """Return the port and addresses for sending a share's sum up."""
    here = uplink_address(uplink.parent_port)
    return {
        "port": uplink.port,
        "mac": _number(here.mac_bytes),
        "address": _number(here.ip_bytes),
        "elsewhere": share.level_bit,
    }


def _source(where: Attachment) -> dict[str, int]:
    return {
        "port": where.port,
        "address": _number(where.address.ip_bytes),
        "udp_port": where.address.udp_port,
    }


def _slots(job: Assignment, share: Share) -> dict[str, int | tuple[int, int]]:
    prefix = _SLOT_BITS - (share.slots.bit_length() - 1)
    return {"job": job.job, "term": job.term, "slot": (share.first_slot, prefix)}


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")
