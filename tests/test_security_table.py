"""Every cell of SECURITY.md's tables, tried against a controller, a switch and a parameter server."""

import contextlib
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from aggregation_rack import PROGRAM
from authorities import mixed, unchecked
from faults import DOWN, UP, Wiring, faulty
from p4.v1 import p4runtime_pb2 as p4rt
from p4.v1 import p4runtime_pb2_grpc
from racks import WITHIN, free_cables
from scapy.layers.l2 import Ether
from switches import running_switch
from test_tls_switch import tls_options

from innet.controller.p4runtime import SwitchConnection
from innet.controller.server import ControllerServer
from innet.errors import NotAuthorized, SwitchError
from innet.host.join import join
from innet.host.link import frame_address, parse_endpoints
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import tls
from innet.rpc.client import connect
from innet.servers import pbox
from innet.servers.pbox.metrics import serve_metrics
from innet.servers.pbox.protocol import HEADER, MAGIC
from innet.servers.pbox.protocol import Kind as FrameKind
from innet.wire.check import seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import Kind, Operation
from innet.wire.records import blank, packet_bytes

LANES, SLOTS = 64, 4
STRANGER = Address("02:00:00:00:00:77", "10.7.7.7", 7777)
LET_IN = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
KEPT_OUT = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
}


def tables() -> dict[str, dict[tuple[str, str], str]]:
    """Return SECURITY.md's tables of who can do what: by name, the cells by row and column."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    text = Path("SECURITY.md").read_text()
    for block in (
        text.partition("\n## Who can do what: the tables\n")[2].partition("\n## ")[0].split("\n\n")
    ):
        if block.startswith("| "):
            lines = [[cell.strip() for cell in line.strip("| ").split("|")]
                     for line in block.splitlines()]  # fmt: skip
            (name, *columns), _, *rows = lines
            found[name] = {
                (row[0], column): cell
                for row in rows
                for column, cell in zip(columns, row[1:], strict=True)
            }
    return found


TABLES = tables()


def cells(name: str) -> Any:
    return pytest.mark.parametrize(
        ("who", "what", "cell"), [(*where, cell) for where, cell in TABLES[name].items()]
    )


def test_the_tables_are_there_and_every_cell_says_yes_or_no():
    assert [*TABLES] == ["control plane", "data plane", "parameter server"]
    assert {cell for table in TABLES.values() for cell in table.values()} == {"yes", "no"}
    for table, checks in zip(TABLES.values(), (CONTROL, DATA, PARAMETERS), strict=True):
        assert {column for _, column in table} == set(checks)


def outcome(call: Callable[[], Any]) -> bool:
    """Return whether a gRPC call is authorized. Its request may be rejected afterwards."""
    code = grpc.StatusCode.OK
    try:
        call()
    except grpc.RpcError as problem:
        code = problem.code()
    assert code in LET_IN | KEPT_OUT, code
    return code in LET_IN


# ---- the control plane and the data plane -------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A controller, its switch, the tokens of its jobs, and a switch without a program."""

    controller: str
    switch: str
    blank_switch: str
    stub: Any
    tokens: dict[str, str]
    cables: list[str]


@dataclass(frozen=True)
class Caller:
    """A caller's certificates, token of a job, and address."""

    place: Place
    identity: tls.Identity | None
    token: str = ""


@dataclass(frozen=True)
class Scene:
    """A place with TLS, where two jobs have a worker each, and one without."""

    folder: Path
    foreign: Path
    place: Place
    plain: Place
    wiring: Wiring

    @property
    def stub(self) -> Any:
        return self.place.stub

    def callers(self) -> dict[str, Caller]:
        """Return the callers of the first table."""
        here, token = self.place, self.place.tokens["seat-a"]
        own = {role: unchecked(self.folder, role) for role in
               (tls.WORKER, tls.SWITCH, tls.CONTROLLER, tls.ADMIN)}  # fmt: skip
        plain = "controller and switch without TLS"
        return {
            "no certificate": Caller(here, None, token),
            "certificates of other authorities": Caller(
                here, unchecked(self.foreign, tls.ADMIN), token
            ),
            "worker certificate": Caller(here, own[tls.WORKER]),
            "worker certificate and job A's token": Caller(here, own[tls.WORKER], token),
            "switch certificate": Caller(here, own[tls.SWITCH], token),
            "controller certificate": Caller(here, own[tls.CONTROLLER], token),
            "administrator certificate": Caller(here, own[tls.ADMIN]),
            "administrator certificate and job A's token": Caller(here, own[tls.ADMIN], token),
            f"no certificate, {plain}": Caller(self.plain, None),
            f"no certificate and job A's token, {plain}": Caller(
                self.plain, None, self.plain.tokens["seat-a"]
            ),
        }

    def show(self, job: str) -> pb.Job:
        shown: pb.Job = self.stub.GetJob(pb.GetJobRequest(name=job))
        return shown

    def switch_state(self) -> pb.Switch:
        shown: pb.Switch = self.stub.GetSwitch(pb.GetSwitchRequest(name="tor"))
        return shown

    def dropped(self, kind: str) -> int:
        return sum(getattr(each, kind) for each in self.switch_state().port_counters)

    def address(self, cable: int) -> Address:
        return frame_address(parse_endpoints(self.wiring.links[cable])[0])


@contextlib.contextmanager
def running_place(folder: Path | None) -> Iterator[Place]:
    """Run a place. With a folder, everything uses TLS."""
    options = tls_options(folder) if folder else []
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(running_switch(3, *options))
        unused = stack.enter_context(running_switch(0, *options))
        server = ControllerServer(
            "127.0.0.1:0", tls.load(folder, tls.CONTROLLER) if folder else None
        )
        stack.callback(server.close)
        address = f"127.0.0.1:{server.port}"
        channel, stub = connect(address, identity=tls.load(folder, tls.ADMIN) if folder else None)
        stack.callback(channel.close)
        added = {"grpc_address": switch.address, "ports": range(1, 4), "lanes": LANES}
        stub.AddSwitch(pb.AddSwitchRequest(name="tor", **added))
        tokens = {
            name: stub.CreateJob(
                pb.CreateJobRequest(name=name, switch="tor", workers=1, slots=SLOTS)
            ).token
            for name in ("a", "b", "seat-a", "seat-b")
        }
        yield Place(address, switch.address, unused.address, stub, tokens, free_cables(switch))


@pytest.fixture(scope="module")
def scene(folder: Path, foreign: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(running_place(folder))
        plain = stack.enter_context(running_place(None))
        wiring = stack.enter_context(faulty(place.cables, seed=1))
        for name, link in zip("ab", wiring.links, strict=False):
            agent = stack.enter_context(
                join(place.controller, name, 0, link, token=place.tokens[name], tls=folder)
            )
            assert (agent.all_reduce(np.ones(10, np.float32)) == 1).all()
        stranger = mixed(tmp_path_factory.mktemp("strangers"), folder, foreign)
        yield Scene(folder, stranger, place, plain, wiring)


@contextlib.contextmanager
def controller_of(caller: Caller) -> Iterator[Any]:
    with tls.channel(caller.place.controller, caller.identity) as channel:
        yield rpc.ControllerStub(channel)


def every(caller: Caller, **requests: Any) -> bool:
    """Return whether some methods admit the caller. They have to agree."""
    with controller_of(caller) as stub:
        [same] = {
            outcome(lambda name=name, request=request: getattr(stub, name)(request, timeout=WITHIN))
            for name, request in requests.items()
        }
    return bool(same)


def asks(_: Scene, caller: Caller) -> bool:
    return every(
        caller,
        ListJobs=pb.ListJobsRequest(),
        ListSwitches=pb.ListSwitchesRequest(),
        GetJob=pb.GetJobRequest(name="a"),
        GetSwitch=pb.GetSwitchRequest(name="tor"),
    )


def changes_jobs(_: Scene, caller: Caller) -> bool:
    def jobs() -> list[str]:
        return [job.name for job in caller.place.stub.ListJobs(pb.ListJobsRequest()).jobs]

    allowed = every(
        caller, CreateJob=pb.CreateJobRequest(name="new", switch="tor", workers=1, slots=SLOTS)
    )
    assert ("new" in jobs()) == allowed
    assert every(caller, DeleteJob=pb.DeleteJobRequest(name="new")) == allowed
    assert "new" not in jobs()
    return allowed


def changes_switches(_: Scene, caller: Caller) -> bool:
    return every(
        caller, AddSwitch=pb.AddSwitchRequest(), RemoveSwitch=pb.RemoveSwitchRequest(name="none")
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
            caller.place.blank_switch, 0, PROGRAM.p4info, lambda *_: None, caller.identity
        )
    except SwitchError:
        return False
    with contextlib.closing(connection):
        connection.run(PROGRAM.json)
    return True


def reads(_: Scene, caller: Caller) -> bool:
    counter = p4rt.Entity(counter_entry=p4rt.CounterEntry())
    with tls.channel(caller.place.switch, caller.identity) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        request = p4rt.ReadRequest(device_id=0, entities=[counter])
        return outcome(lambda: [*stub.Read(request, timeout=WITHIN)])


CONTROL = {
    "ask for jobs and switches": asks,
    "change jobs": changes_jobs,
    "change switches": changes_switches,
    "join job A": joins("seat-a"),
    "join job B": joins("seat-b"),
    "program the switch": programs,
    "read the switch": reads,
}


@cells("control plane")
def test_the_control_plane(scene: Scene, who: str, what: str, cell: str):
    assert CONTROL[what](scene, scene.callers()[who]) == (cell == "yes")


def packet(scene: Scene, job: str, source: Address, target: Address, kind: Kind) -> bytes:
    """Return a packet that fits a job in everything, with a correct check."""
    lanes = 0 if kind == Kind.CLEAR else LANES
    shown = scene.show(job)
    made = blank(1, lanes, kind, encapsulation(source, target, packet_bytes(lanes)))
    made["slot"], made["sequence"] = shown.first_slot + SLOTS - 1, 1
    made["job"], made["term"] = shown.id, shown.term
    if lanes:
        made["operation"], made["lanes"] = Operation.SUM, 1
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


# ---- the parameter server -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def parameters() -> Iterator[pbox.Server]:
    """Run a server with two jobs of two workers, whose second seats are free."""
    with pbox.Server(memory_bytes=1 << 24) as server, contextlib.ExitStack() as stack:
        for name in "ab":
            stack.enter_context(seat(server, name, 0, f"token of {name}"))
        yield server


def seat(server: pbox.Server, job: str, rank: int, token: str) -> pbox.Client:
    return pbox.connect(
        server.address, job=job, rank=rank, workers=64, quorum=1, keys=[100], token=token,
        timeout=WITHIN,
    )  # fmt: skip


RANKS = iter(range(1, 64))


def takes_a_seat(job: str) -> Callable[[pbox.Server, str], bool]:
    def attempt(server: pbox.Server, token: str) -> bool:
        try:
            seat(server, job, next(RANKS), token).close()
        except NotAuthorized:
            return False
        return True

    return attempt


def pushes(job: str) -> Callable[[pbox.Server, str], bool]:
    def attempt(server: pbox.Server, token: str) -> bool:
        with contextlib.suppress(NotAuthorized), seat(server, job, next(RANKS), token) as client:
            client.push_pull([np.ones(100, np.float32)])
            return True
        # Without a seat there is no key. The only way left is to guess one at a core's port.
        [core] = server._cores
        with socket.create_connection(("127.0.0.1", core.port), WITHIN) as sock:
            number = server._jobs[job].number
            sock.sendall(
                HEADER.pack(MAGIC, FrameKind.HELLO, next(RANKS), 16, number, 0.0) + bytes(16)
            )
            with contextlib.suppress(ConnectionError):
                answer = sock.recv(1 << 10)
                assert not answer or answer[4] == 6  # a refusal
        return False

    return attempt


def creates_a_job(server: pbox.Server, token: str) -> bool:
    seat(server, "new", 0, token).close()
    return True


def reads_metrics(server: pbox.Server, _: str) -> bool:
    with serve_metrics(server.stats, "127.0.0.1:0") as address:
        url = f"http://{address}/metrics"
        with urllib.request.urlopen(url, timeout=WITHIN) as answer:
            return b'job="a"' in answer.read()


PARAMETERS = {
    "read metrics": reads_metrics,
    "create a job": creates_a_job,
    "join job A": takes_a_seat("a"),
    "join job B": takes_a_seat("b"),
    "contribute to job A": pushes("a"),
    "contribute to job B": pushes("b"),
}
TOKENS = {"no token": "", "job A's token": "token of a"}


@cells("parameter server")
def test_the_parameter_server(parameters: pbox.Server, who: str, what: str, cell: str):
    assert PARAMETERS[what](parameters, TOKENS[who]) == (cell == "yes")
