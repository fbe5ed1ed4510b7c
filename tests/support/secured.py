"""A rack whose controller uses TLS, with people who have certificates of their own."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from racks import TIMEOUTS, free_cables
from switches import running_switch
from waiting import WITHIN

from innet.controller.server import ControllerServer
from innet.controller.state.registry import Policy
from innet.host.agent import Agent
from innet.host.join import join
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.certificates import issue, make
from innet.rpc.client import connected

PEOPLE = {
    "alice": (tls.USER, tls.WORKER),
    "bob": (tls.USER, tls.WORKER),
    "mallory": (tls.USER,),
    "olivia": (tls.OBSERVER,),
    "root": (tls.ADMIN,),
}


@dataclass
class SecuredRack:
    """A running rack, and the folder with its authorities. Each of `PEOPLE` has a folder there."""

    folder: Path
    switch: str
    links: list[str]
    server: ControllerServer | None = None

    @property
    def address(self) -> str:
        """Return the controller's address."""
        assert self.server
        return f"127.0.0.1:{self.server.port}"

    @contextlib.contextmanager
    def serving(self, state: Path | None = None) -> Iterator[str]:
        """Run the controller. Yield its address."""
        identity, policy = tls.load(self.folder, tls.CONTROLLER), Policy(lease_s=WITHIN)
        self.server = ControllerServer("127.0.0.1:0", identity, state=state, policy=policy)
        try:
            yield self.address
        finally:
            self.server.close()

    @contextlib.contextmanager
    def client(self, name: str) -> Iterator[Any]:
        """Yield a stub with somebody's certificate."""
        with connected(self.address, self.folder / name) as stub:
            yield stub

    def create(self, name: str, job: str, workers: int = 1, **more: Any) -> str:
        """Create a job as somebody. Return its token."""
        request = pb.CreateJobRequest(name=job, switch="tor", workers=workers, slots=4, **more)
        with self.client(name) as stub:
            return str(stub.CreateJob(request).token)

    def join(self, name: str, job: str, rank: int, token: str) -> Agent:
        """Join a job with somebody's certificate of a worker."""
        return join(
            self.address, job, rank, self.links[rank], token=token, tls=self.folder / name,
            timeouts=TIMEOUTS,
        )  # fmt: skip


@contextlib.contextmanager
def secured_rack(folder: Path, ports: int = 2) -> Iterator[SecuredRack]:
    """Make certificates, and run a switch. The controller has still to be served."""
    make(folder, [])
    for name, roles in PEOPLE.items():
        issue(folder, name, roles)
    with running_switch(ports) as switch:
        yield SecuredRack(folder, switch.address, free_cables(switch))


def add_switch(rack: SecuredRack) -> None:
    """Add the switch, which uses no TLS itself."""
    with rack.client("root") as stub:
        stub.AddSwitch(
            pb.AddSwitchRequest(
                name="tor", grpc_address=tls.INSECURE + rack.switch, lanes=64,
                ports=range(1, len(rack.links) + 1),
            )
        )  # fmt: skip
