"""Every cell of SECURITY.md's tables for the control plane and the data plane, tried."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from aggregation_rack import PROGRAM
from authorities import mixed
from parameter_server_acts import PARAMETERS
from racks import WITHIN
from scapy.layers.l2 import Ether
from security_scene import (
    LANES,
    SLOTS,
    STRANGER,
    TABLES,
    Caller,
    Scene,
    cells,
    outcome,
    running_scene,
)

from innet.controller.switches.p4runtime import SwitchConnection
from innet.errors import SwitchError
from innet.local.faults import DOWN, UP
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime import p4runtime_pb2_grpc
from innet.rpc import channels
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.wire.check import seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import WITH_LANES, Flag, Kind, Operation
from innet.wire.records import blank, packet_bytes, set_field


def test_the_tables_are_there_and_every_cell_says_yes_or_no():
    assert [*TABLES] == ["control plane", "data plane", "parameter server"]
    assert {cell for table in TABLES.values() for cell in table.values()} == {"yes", "no"}
    for table, checks in zip(TABLES.values(), (CONTROL, DATA, PARAMETERS), strict=True):
        assert {column for _, column in table} == set(checks)


@pytest.fixture(scope="module")
def scene(folder: Path, foreign: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    stranger = mixed(tmp_path_factory.mktemp("strangers"), folder, foreign)
    with running_scene(folder, stranger) as running:
        yield running


@contextlib.contextmanager
def controller_of(caller: Caller) -> Iterator[Any]:
    with channels.channel(caller.deployment.controller, caller.identity) as channel:
        yield rpc.ControllerStub(channel)


def every(caller: Caller, **requests: Any) -> bool:
    """Return whether some methods admit the caller. They have to agree."""
    with controller_of(caller) as stub:
        [same] = {
            outcome(lambda name=name, request=request: getattr(stub, name)(request, timeout=WITHIN))
            for name, request in requests.items()
        }
    return bool(same)


def asks_for_switches(_: Scene, caller: Caller) -> bool:
    return every(
        caller,
        ListSwitches=pb.ListSwitchesRequest(),
        GetSwitch=pb.GetSwitchRequest(name="tor"),
    )


def asks_for_jobs(_: Scene, caller: Caller) -> bool:
    allowed = every(
        caller,
        GetJob=pb.GetJobRequest(name="a"),
        GetJobHistory=pb.GetJobHistoryRequest(name="a"),
    )
    with controller_of(caller) as stub, contextlib.suppress(grpc.RpcError):
        listed = stub.ListJobs(pb.ListJobsRequest(), timeout=WITHIN).jobs
        assert ("a" in [job.name for job in listed]) == allowed
    return allowed


def deletes_jobs(_: Scene, caller: Caller) -> bool:
    administrator = caller.deployment.stub
    request = pb.CreateJobRequest(name="another", switch="tor", workers=1, slots=SLOTS)
    administrator.CreateJob(request)
    allowed = every(caller, DeleteJob=pb.DeleteJobRequest(name="another"))
    if not allowed:
        administrator.DeleteJob(pb.DeleteJobRequest(name="another"))
    return allowed


def changes_jobs(_: Scene, caller: Caller) -> bool:
    def jobs() -> list[str]:
        return [job.name for job in caller.deployment.stub.ListJobs(pb.ListJobsRequest()).jobs]

    allowed = every(
        caller, CreateJob=pb.CreateJobRequest(name="new", switch="tor", workers=1, slots=SLOTS)
    )
    assert ("new" in jobs()) == allowed
    assert every(caller, DeleteJob=pb.DeleteJobRequest(name="new")) == allowed
    assert "new" not in jobs()
    return allowed


def changes_switches(_: Scene, caller: Caller) -> bool:
    return every(
        caller,
        AddSwitch=pb.AddSwitchRequest(),
        RemoveSwitch=pb.RemoveSwitchRequest(name="none"),
        SetQuota=pb.SetQuotaRequest(name="nobody"),
    )


def joins(job: str) -> Callable[[Scene, Caller], bool]:
    def attempt(_: Scene, caller: Caller) -> bool:
        request = pb.WorkerMessage(join=pb.JoinRequest(job=job, rank=0, token=caller.token))
        with controller_of(caller) as stub:
            stream = stub.Join(iter([request]), timeout=WITHIN)
            allowed = outcome(lambda: next(stream).invitation)
            stream.cancel()
            return allowed

    return attempt


def programs(_: Scene, caller: Caller) -> bool:
    try:
        connection = SwitchConnection(
            caller.deployment.blank_switch, 0, PROGRAM.p4info, lambda *_: None, caller.identity
        )
    except SwitchError:
        return False
    with contextlib.closing(connection):
        connection.run(PROGRAM.json)
    return True


def reads(_: Scene, caller: Caller) -> bool:
    counter = p4rt.Entity(counter_entry=p4rt.CounterEntry())
    with channels.channel(caller.deployment.switch, caller.identity) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        request = p4rt.ReadRequest(device_id=0, entities=[counter])
        return outcome(lambda: [*stub.Read(request, timeout=WITHIN)])


CONTROL = {
    "ask for switches": asks_for_switches,
    "ask for any job": asks_for_jobs,
    "create and delete own jobs": changes_jobs,
    "delete any job": deletes_jobs,
    "change switches and quotas": changes_switches,
    "join job A": joins("joined-a"),
    "join job B": joins("joined-b"),
    "program the switch": programs,
    "read the switch": reads,
}


@cells("control plane")
def test_the_control_plane(scene: Scene, who: str, what: str, cell: str):
    assert CONTROL[what](scene, scene.callers()[who]) == (cell == "yes")


def packet(scene: Scene, job: str, source: Address, target: Address, kind: Kind) -> bytes:
    """Return a packet that fits a job in everything, with a correct check."""
    lanes = LANES if kind in WITH_LANES else 0
    shown = scene.show(job)
    made = blank(1, lanes, kind, encapsulation(source, target, packet_bytes(lanes)))
    made["slot"], made["sequence"] = shown.first_slot + SLOTS - 1, 1
    made["job"], made["term"] = shown.id, shown.term
    if lanes:
        set_field(made, "operation", Operation.SUM)
        made["lanes"] = 1
        made["flags"] = Flag.CARRIED | Flag.WANTED
    seal(made, int.from_bytes(source.ip_bytes), source.udp_port)
    return made.tobytes()


def gets_through(scene: Scene, cable: int, frame: bytes, to: int, seen: Any, drop: str) -> bool:
    """Return whether a frame sent into one cable has its effect at another. Otherwise it is counted."""
    before = len(scene.wiring.recent(to, DOWN)), scene.dropped(drop)
    scene.wiring.inject(cable, UP, [frame])
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        if any(seen(each) for each in scene.wiring.recent(to, DOWN)[before[0] :]):
            return True
        if scene.dropped(drop) > before[1]:
            return False
    raise AssertionError("neither has it got through nor was it counted")


def service(scene: Scene) -> Address:
    known = scene.switch_state().service
    return Address(known.mac, known.ip, known.udp_port)


def contributes(job: str) -> Callable[[Scene, int], bool]:
    def attempt(scene: Scene, cable: int) -> bool:
        own = STRANGER if cable == 2 else scene.address(cable)
        victim = scene.address("ab".index(job))
        answer = service(scene)
        results = [
            gets_through(
                scene, cable,
                packet(scene, job, source, answer, Kind.CONTRIBUTION), "ab".index(job),
                lambda frame: Ether(frame).src == answer.mac, "refused",
            )
            for source in {own, victim}
        ]  # fmt: skip
        return any(results)

    return attempt


def neighbour(cable: int) -> int:
    return 1 if cable == 0 else 0


def clears(scene: Scene, cable: int) -> bool:
    source = STRANGER if cable == 2 else scene.address(cable)
    for job in "ab":
        frame = packet(scene, job, source, service(scene), Kind.CLEAR)
        if gets_through(scene, cable, frame, cable, lambda _: True, "refused"):
            return True
    return False


def speaks_as_the_switch(scene: Scene, cable: int) -> bool:
    to = neighbour(cable)
    frame = packet(scene, "ab"[to], service(scene), scene.address(to), Kind.RESULT)
    return gets_through(scene, cable, frame, to, lambda each: each == frame, "spoofed")


def sends_other_frames(scene: Scene, cable: int) -> bool:
    to = neighbour(cable)
    source = STRANGER if cable == 2 else scene.address(cable)
    frame = bytes(Ether(src=source.mac, dst=scene.address(to).mac, type=0x88B5)) + bytes(64)
    return gets_through(scene, cable, frame, to, lambda each: each == frame, "refused")


DATA = {
    "contribute to job A": contributes("a"),
    "contribute to job B": contributes("b"),
    "clear cells": clears,
    "send in the switch's name": speaks_as_the_switch,
    "send other frames": sends_other_frames,
}
CABLES = {
    "host at the port of job A's worker": 0,
    "host at the port of job B's worker": 1,
    "host at no worker's port": 2,
}


@cells("data plane")
def test_the_data_plane(scene: Scene, who: str, what: str, cell: str):
    assert DATA[what](scene, CABLES[who]) == (cell == "yes")
