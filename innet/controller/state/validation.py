"""Checks of requests: every field is checked before anything is done. Checks raise UsageError."""

import math
import re
from collections.abc import Iterable, Sequence

from innet.controller import defaults
from innet.controller.jobs.host_addresses import is_host_mac
from innet.controller.jobs.records import Station, SwitchRecord, Uplink
from innet.controller.switches.targets.choice import find
from innet.controller.switches.targets.interface import Target
from innet.errors import NoCapacity, UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls, words
from innet.rpc.addresses import check_address
from innet.rpc.tokens import DIGEST_BYTES
from innet.wire.frames import Address
from innet.wire.layout import MOST_WORKERS, UDP_PORT

MOST_BYTES = (64 << 10) + MOST_WORKERS * (DIGEST_BYTES + 2)
"""The longest message to the controller, in bytes: a job may have a token's digest for each worker."""

_LONGEST_NAME, _LONGEST_ADDRESS, _LONGEST_TOKEN = 64, 300, 256
_LONGEST_LEASE_S = 366 * 24 * 3600
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{_LONGEST_NAME - 1}}}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_MOST_STATIONS = 64  # the table has more room, for the hosts of workers
_HIGHEST_PRIORITY = 100
_HIGHEST_GROUP_RANK = (1 << 31) - 1
_LARGEST_COUNT = (1 << 63) - 1  # the largest integer in SQLite
_LONGEST_PATH = 4096
_LAST_PORT = (1 << 16) - 1


def check_name(what: str, name: str) -> None:
    """Raise UsageError for a name that a shell or a terminal might misread."""
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "..."
        raise UsageError(
            f"{shown!a} is not a name for a {what}: use 1 to {_LONGEST_NAME} letters, digits, '.', '_' "
            "and '-', the first of them a letter, a digit or '_'"
        )


def check_switch(request: pb.AddSwitchRequest) -> None:
    """Check a switch that is to be added."""
    check_name("switch", request.name)
    address = request.grpc_address
    if len(address) > _LONGEST_ADDRESS or not address.isprintable():
        raise UsageError(f"{address[:_LONGEST_ADDRESS]!r} is not an address: write HOST:PORT")
    check_address(address.removeprefix(tls.INSECURE), "the switch's address")
    if request.device_id > _LARGEST_COUNT:
        raise UsageError(
            f"device id {request.device_id} is too large: the largest is {_LARGEST_COUNT}"
        )
    target = find(request.target)
    check_ports(target, request.ports)
    if request.device_id < target.first_device:
        raise UsageError(
            f"device id {request.device_id} does not exist: a {target.name}'s server counts devices from "
            f"{target.first_device}; use --device-id {target.first_device}"
        )
    folder = request.artifact
    if len(folder) > _LONGEST_PATH or not folder.isprintable():
        raise UsageError(f"{folder[:_LONGEST_NAME]!r} is not a folder's name")


def check_ports(target: Target, ports: Sequence[int]) -> None:
    """Check the ports of a switch: at least one, each once, with numbers that its kind has."""
    if not ports:
        raise UsageError("a switch needs ports: name those that workers are attached to")
    if len(set(ports)) < len(ports) or not all(map(target.is_port, ports)):
        few = [*ports][:8]
        raise UsageError(
            f"ports are {target.port_rule}, each once, not {few}"
            + ("..." if len(ports) > len(few) else "")
        )


def switch_record(request: pb.AddSwitchRequest) -> SwitchRecord:
    """Return the record of a switch to be added, with the defaults filled in."""
    return SwitchRecord(
        request.name,
        request.grpc_address,
        request.device_id,
        tuple(request.ports),
        service_address(request),
        request.lanes or defaults.LANES,
        uplinks(request.uplinks),
        find(request.target).name,
        request.artifact,
        stations=_stations(request),
    )


def uplinks(links: Iterable[pb.Uplink]) -> tuple[Uplink, ...]:
    """Return the uplinks of a request."""
    return tuple(Uplink(each.parent, each.port, each.parent_port) for each in links)


def _stations(request: pb.AddSwitchRequest) -> tuple[Station, ...]:
    """Return the stations of a request, with their MAC addresses in lower case."""
    found: dict[str, Station] = {}
    for each in request.stations:
        shown = f"the station {each.mac[:_LONGEST_NAME]!r}"
        if not _MAC.fullmatch(each.mac) or not is_host_mac(each.mac):
            raise UsageError(f"{shown}: give a machine's MAC address, as in {defaults.SERVICE.mac}")
        if each.port not in request.ports:
            raise UsageError(f"{shown} is at port {each.port}: name a port of the switch")
        mac = each.mac.lower()
        if mac in found:
            raise UsageError(f"{shown} is named twice: it can be at one port only")
        found[mac] = Station(mac, each.port)
    if len(found) > _MOST_STATIONS:
        raise UsageError(f"{len(found)} stations are too many: name at most {_MOST_STATIONS}")
    return tuple(found.values())


def service_address(request: pb.AddSwitchRequest) -> Address:
    """Return the address at which workers reach the switch."""
    if not request.HasField("service"):
        return defaults.SERVICE
    message = request.service
    address = Address(message.mac, message.ip, message.udp_port or UDP_PORT)
    try:
        complete = len(address.mac_bytes) == 6 and len(address.ip_bytes) == 4
    except ValueError:
        complete = False
    if not complete:
        raise UsageError(
            f"{message.mac[:_LONGEST_NAME]!r} and {message.ip[:_LONGEST_NAME]!r} are not a MAC and an "
            f"IPv4 address: write them as in {defaults.SERVICE.mac} and {defaults.SERVICE.ip}"
        )
    if address.udp_port != UDP_PORT:
        raise UsageError(
            f"UDP port {address.udp_port} cannot be used: the program serves {UDP_PORT} only"
        )
    return address


def check_job(request: pb.CreateJobRequest) -> None:
    """Check a job that is to be created."""
    check_name("job", request.name)
    if not 1 <= request.workers <= MOST_WORKERS:
        raise UsageError(f"{request.workers} workers: a job has 1 to {MOST_WORKERS}")
    if request.quorum > request.workers:
        raise UsageError(
            f"a quorum of {request.quorum} is more than the job's "
            f"{words.counted(request.workers, 'worker')}: give fewer, or 0 for all of them"
        )
    quorum = request.quorum or request.workers
    if request.min_workers > quorum:
        raise UsageError(
            f"a minimum of {request.min_workers} workers is more than the quorum of {quorum}: give a "
            "smaller --min-workers"
        )
    _check_lending(request)
    if request.token_digests:
        _check_digests(request.token_digests, request.workers)
    if request.group_ranks:
        _check_group_ranks(request.group_ranks, request.workers)
    if request.lease_s > _LONGEST_LEASE_S:
        raise UsageError(
            f"a lease of {request.lease_s} s is too long: the longest is {_LONGEST_LEASE_S} s, a year"
        )


def _check_lending(request: pb.CreateJobRequest) -> None:
    """Check the slots that a job keeps while it lends the others."""
    least = request.min_slots
    if least & (least - 1) or (request.slots and least > request.slots):
        raise UsageError(
            f"a minimum of {least} slots: give a power of two that is no more than the job's slots"
        )
    if request.priority > _HIGHEST_PRIORITY:
        raise UsageError(
            f"priority {request.priority} is too high: the highest is {_HIGHEST_PRIORITY}"
        )
    if least and least != request.slots and 0 < request.quorum < request.workers:
        raise UsageError(
            f"a job with a quorum of {request.quorum} of {request.workers} workers cannot lend slots, "
            "because it would leave workers behind each time: leave out --min-slots or --quorum"
        )


def check_tree(
    request: pb.CreateJobRequest, switches: int, most: int, middle: Sequence[str]
) -> None:
    """Check a job against the number of its switches, and the `most` contributors of each.

    With any of the switches `middle` in its tree, a result takes the contributions of all workers. Raises
    NoCapacity if one switch has too few contributors, and UsageError.
    """
    if switches == 1 and request.workers > most:
        raise NoCapacity(
            f"{request.workers} workers: the switch {request.switch!r} sums {most} "
            "contributions at most, because its bitmaps have as many bits; create the job on "
            "a switch that has others below it, and attach the workers there"
        )
    if middle and least_workers(request) < request.workers:
        raise UsageError(
            f"the job would sum without some workers in a tree with the Tofino 1 {middle[0]!r} between "
            "other switches, which might leave those below it behind: leave out --quorum and "
            f"--min-workers, create the job on a switch without {middle[0]!r} below it, or put a "
            "Tofino 2 in its place"
        )


def least_workers(request: pb.CreateJobRequest) -> int:
    """Return the smallest number of workers with which the job has results."""
    return request.min_workers or request.quorum or request.workers


def _check_digests(digests: Sequence[bytes], workers: int) -> None:
    if len(digests) != workers or {len(each) for each in digests} != {DIGEST_BYTES}:
        raise UsageError(
            f"{len(digests)} token digests do not fit {workers} workers: "
            f"send one of {DIGEST_BYTES} bytes for each rank"
        )
    if len(set(digests)) != workers:
        raise UsageError("two ranks have the same token: make a token for each rank")


def _check_group_ranks(ranks: Sequence[int], workers: int) -> None:
    if len(ranks) != workers or len(set(ranks)) != workers or max(ranks) > _HIGHEST_GROUP_RANK:
        raise UsageError(
            f"{words.counted(len(ranks), 'rank')} of a group, {words.counted(workers, 'worker')}: send "
            f"one for each worker, all different, from 0 to {_HIGHEST_GROUP_RANK}"
        )


def check_quota(request: pb.SetQuotaRequest) -> None:
    """Check a quota that is to be set."""
    if not request.name or len(request.name) > _LONGEST_NAME or not request.name.isprintable():
        raise UsageError(
            f"{request.name[:_LONGEST_NAME]!a} owns no jobs: give the name in a certificate, of 1 to "
            f"{_LONGEST_NAME} printable characters"
        )


def check_join(request: pb.JoinRequest | pb.CheckJoinRequest) -> None:
    """Check the fields of a worker that joins, or asks whether it could."""
    check_name("job", request.job)
    if len(request.token) > _LONGEST_TOKEN:
        raise UsageError(
            f"a token of {len(request.token)} characters is too long: the longest is {_LONGEST_TOKEN}"
        )


def check_ready(ready: pb.Ready) -> None:
    """Check the answer of a worker that has stopped."""
    if ready.exchange > _LARGEST_COUNT:
        raise UsageError(f"exchange {ready.exchange} is too large: the largest is {_LARGEST_COUNT}")


def check_reason(reason: str) -> None:
    """Check the reason that a worker gives, which the other workers will read."""
    if len(reason) > words.LONGEST_REASON or not reason.isprintable():
        raise UsageError(f"a reason has up to {words.LONGEST_REASON} printable characters")


def check_progress(progress: pb.Progress) -> None:
    """Check a worker's progress report, which people will read."""
    if len(progress.missing) > MOST_WORKERS:
        raise UsageError(
            f"progress: {len(progress.missing)} ranks are missing, and a job has at most {MOST_WORKERS}"
        )
    for field in progress.DESCRIPTOR.fields:
        value = getattr(progress, field.name)
        if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
            raise UsageError(f"progress: {field.name} is {value}, and has to be 0 or more")
