"""What requests may say: every field is checked before anything is done. All raise UsageError."""

import math

from innet.controller import defaults
from innet.controller import innet_pb2 as pb
from innet.controller.targets.choice import find
from innet.controller.values import SwitchRecord, Uplink
from innet.errors import UsageError
from innet.wire.frames import Address
from innet.wire.layout import MAX_WORKERS, UDP_PORT

MOST_BYTES = 64 << 10
"""Of a message to the controller."""

_LONGEST_NAME, _LONGEST_ADDRESS, _LONGEST_TOKEN, _LONGEST_REASON = 64, 300, 256, 500
_LONGEST_LEASE_S = 366 * 24 * 3600
_LARGEST_COUNT = (1 << 63) - 1  # what SQLite keeps
_LONGEST_PATH = 4096
_LAST_PORT = (1 << 16) - 1


def check_name(what: str, name: str) -> None:
    """A name has 1 to 64 printable characters."""
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        shown = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "..."
        raise UsageError(
            f"{shown!r} is no name for a {what}: 1 to {_LONGEST_NAME} printable characters"
        )


def check_switch(request: pb.AddSwitchRequest) -> None:
    """A switch to be added."""
    check_name("switch", request.name)
    address = request.grpc_address
    if not address or len(address) > _LONGEST_ADDRESS or not address.isprintable():
        raise UsageError(f"{address[:_LONGEST_ADDRESS]!r} is no address: write HOST:PORT")
    if request.device_id > _LARGEST_COUNT:
        raise UsageError(f"device id {request.device_id}: at most {_LARGEST_COUNT}")
    if not request.ports:
        raise UsageError("which ports does the switch have? Name those that workers are at")
    target = find(request.target)
    if len(set(request.ports)) < len(request.ports) or not all(map(target.is_port, request.ports)):
        few = [*request.ports][:8]
        raise UsageError(
            f"ports are {target.port_rule}, each once, not {few}"
            + ("..." if len(request.ports) > len(few) else "")
        )
    if request.device_id < target.first_device:
        raise UsageError(
            f"device id {request.device_id}: a {target.name}'s server counts devices from "
            f"{target.first_device}; say --device-id {target.first_device}"
        )
    folder = request.artifact
    if len(folder) > _LONGEST_PATH or not folder.isprintable():
        raise UsageError(f"{folder[:_LONGEST_NAME]!r} is no folder's name")


def switch_record(request: pb.AddSwitchRequest) -> SwitchRecord:
    """A switch to be added, with what was not said."""
    return SwitchRecord(
        request.name,
        request.grpc_address,
        request.device_id,
        tuple(request.ports),
        service_address(request),
        request.lanes or defaults.LANES,
        tuple(Uplink(each.parent, each.port, each.parent_port) for each in request.uplinks),
        find(request.target).name,
        request.artifact,
    )


def service_address(request: pb.AddSwitchRequest) -> Address:
    """Under which address the switch is to be reached."""
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
            f"{message.mac[:_LONGEST_NAME]!r} and {message.ip[:_LONGEST_NAME]!r} are no MAC and IPv4 "
            f"address: write them as in {defaults.SERVICE.mac} and {defaults.SERVICE.ip}"
        )
    if address.udp_port != UDP_PORT:
        raise UsageError(f"UDP port {address.udp_port}: the program serves {UDP_PORT} only")
    return address


def check_job(request: pb.CreateJobRequest) -> None:
    """A job to be created."""
    check_name("job", request.name)
    if not 1 <= request.workers <= MAX_WORKERS:
        raise UsageError(
            f"{request.workers} workers: a job on one switch has 1 to {MAX_WORKERS}, "
            "as many as the bitmap has bits"
        )
    if request.quorum > request.workers:
        raise UsageError(
            f"a quorum of {request.quorum}: the job has {request.workers} workers; 0 is all of them"
        )
    quorum = request.quorum or request.workers
    if request.fewest > quorum:
        raise UsageError(f"to go on with {request.fewest} workers or more: the quorum is {quorum}")
    if request.lease_s > _LONGEST_LEASE_S:
        raise UsageError(f"a lease of {request.lease_s} s: at most {_LONGEST_LEASE_S}, a year")


def check_join(request: pb.JoinRequest) -> None:
    """A worker that joins."""
    check_name("job", request.job)
    if len(request.token) > _LONGEST_TOKEN:
        raise UsageError(f"a token of {len(request.token)} characters: at most {_LONGEST_TOKEN}")


def check_ready(ready: pb.Ready) -> None:
    """A worker that has stopped."""
    if ready.exchange > _LARGEST_COUNT:
        raise UsageError(f"exchange {ready.exchange}: at most {_LARGEST_COUNT}")


def check_trouble(trouble: pb.Trouble) -> None:
    """A worker's complaint, which the other workers will read."""
    if len(trouble.reason) > _LONGEST_REASON or not trouble.reason.isprintable():
        raise UsageError(f"a reason has up to {_LONGEST_REASON} printable characters")


def check_progress(progress: pb.Progress) -> None:
    """What a worker says of itself, which people will read."""
    for field in progress.DESCRIPTOR.fields:
        value = getattr(progress, field.name)
        if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
            raise UsageError(f"progress: {field.name} is {value}")
