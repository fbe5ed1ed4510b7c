"""SECURITY.md's tables, and the controller, switches and callers with which the tests try them."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from authorities import tls_options, unchecked
from racks import free_cables
from switches import running_switch

from innet.controller.server import ControllerServer
from innet.host.join import join
from innet.host.link import frame_address, parse_endpoints
from innet.local.faults import Wiring, faulty
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.certificates import issue
from innet.rpc.client import connect
from innet.rpc.issued import revoke
from innet.wire.frames import Address

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
class Deployment:
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

    deployment: Deployment
    identity: tls.Identity | None
    token: str = ""


@dataclass(frozen=True)
class Scene:
    """A deployment with TLS, where two jobs have a worker each, and one without."""

    folder: Path
    foreign: Path
    deployment: Deployment
    plain: Deployment
    wiring: Wiring

    @property
    def stub(self) -> Any:
        return self.deployment.stub

    def callers(self) -> dict[str, Caller]:
        """Return the callers of the first table."""
        here, token = self.deployment, self.deployment.tokens["joined-a"]
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
            "user certificate": Caller(here, unchecked(self.folder / "alice", tls.USER), token),
            "observer certificate": Caller(
                here, unchecked(self.folder / "alice", tls.OBSERVER), token
            ),
            "revoked administrator certificate": Caller(
                here, unchecked(self.folder / "mallory", tls.ADMIN), token
            ),
            "controller certificate": Caller(here, own[tls.CONTROLLER], token),
            "administrator certificate": Caller(here, own[tls.ADMIN]),
            "administrator certificate and job A's token": Caller(here, own[tls.ADMIN], token),
            f"no certificate, {plain}": Caller(self.plain, None),
            f"no certificate and job A's token, {plain}": Caller(
                self.plain, None, self.plain.tokens["joined-a"]
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
def running_deployment(folder: Path | None) -> Iterator[Deployment]:
    """Run a deployment. With a folder, everything uses TLS."""
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
            for name in ("a", "b", "joined-a", "joined-b")
        }
        yield Deployment(address, switch.address, unused.address, stub, tokens, free_cables(switch))


@contextlib.contextmanager
def running_scene(folder: Path, stranger: Path) -> Iterator[Scene]:
    """Run a scene. `stranger` is a folder with the certificates of other authorities."""
    issue(folder, "alice", [tls.USER, tls.OBSERVER])
    issue(folder, "mallory", [tls.ADMIN])
    revoke(folder, "mallory")
    with contextlib.ExitStack() as stack:
        deployment = stack.enter_context(running_deployment(folder))
        plain = stack.enter_context(running_deployment(None))
        wiring = stack.enter_context(faulty(deployment.cables, seed=1))
        for name, link in zip("ab", wiring.links, strict=False):
            agent = stack.enter_context(
                join(
                    deployment.controller, name, 0, link, token=deployment.tokens[name], tls=folder
                )
            )
            assert (agent.all_reduce(np.ones(10, np.float32)) == 1).all()
        yield Scene(folder, stranger, deployment, plain, wiring)
