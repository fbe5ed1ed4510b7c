"""The controller of an emulation, and its job.

The controller runs on a host of its own. A link without a cap connects this host to a port of the
root switch. Workers reach the controller through the emulated switches, as they would in a cluster.
The controller reaches the switches' P4Runtime through Unix sockets in a folder. These sockets stand
for a separate management network.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from innet.emulation.plan import Plan, PlannedSwitch
from innet.emulation.sums import SwitchSums
from innet.errors import InnetError
from innet.local.processes import announced, command, spawned
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc.client import connected, translated
from innet.wire.frames import Address

PORT = 9600
JOB = "emulated"
_LEASE_S = 15.0


@dataclass(frozen=True)
class RunningController:
    """A running controller with a job over all hosts of the plan."""

    address: str
    token: str
    stub: rpc.ControllerStub
    plan: Plan

    def sums(self) -> list[SwitchSums]:
        """Return the sums of every switch so far. Raises ControllerError."""
        with translated("read the counters"):
            job = self.stub.GetJob(pb.GetJobRequest(name=JOB))
        counters = {each.switch: each.counters for each in job.tree}
        counters = counters or {
            self.plan.root.name: job.counters
        }  # a job on one switch has no tree
        return [
            SwitchSums.of(switch, counters[switch.name])
            for switch in self.plan.switches
            if switch.name in counters
        ]


@dataclass(frozen=True)
class StartingController:
    """A controller that has been started, and may not serve yet."""

    process: subprocess.Popen[str]
    log: Path

    def await_ready(self) -> None:
        """Wait until the controller serves. Raises InnetError if it fails to start."""
        try:
            announced(self.process, "controller")
        except InnetError:
            raise InnetError(
                f"the controller did not start: {self.log.read_text().strip()}"
            ) from None


@contextlib.contextmanager
def start_controller(folder: Path) -> Iterator[StartingController]:
    """Start the controller, before there is a network.

    The controller listens at all addresses, so it serves at those that are added later, too.
    """
    # Only the emulation's own processes are in this network, so TLS would protect nothing. The lease
    # is long, because hosts that share a processor or two may be unable to send for seconds.
    served = ["controller", "--address", f"0.0.0.0:{PORT}", "--insecure", "--lease", str(_LEASE_S)]
    log = folder / "controller.log"
    with (
        log.open("w") as errors,
        spawned([*command("innet.cli"), *served], stderr=errors) as process,
    ):
        yield StartingController(process, log)


@contextlib.contextmanager
def set_up(
    controller: StartingController, plan: Plan, p4runtime: dict[str, str]
) -> Iterator[RunningController]:
    """Add the switches to the controller, and create the job.

    `p4runtime` has the address of each switch. Raises InnetError.
    """
    controller.await_ready()
    address = f"{plan.controller.address.ip}:{PORT}"
    with connected(address, None) as stub:
        with translated("set up the emulation"):
            for switch in plan.switches:
                stub.AddSwitch(_add_request(plan, switch, p4runtime[switch.name]))
            created = stub.CreateJob(
                pb.CreateJobRequest(
                    name=JOB,
                    switch=plan.root.name,
                    workers=len(plan.hosts),
                    slots=plan.slots,
                )
            )
        yield RunningController(address, created.token, stub, plan)


def _add_request(plan: Plan, switch: PlannedSwitch, p4runtime: str) -> pb.AddSwitchRequest:
    port = plan.towards_controller(switch)
    return pb.AddSwitchRequest(
        name=switch.name,
        grpc_address=p4runtime,
        device_id=switch.device_id,
        ports=switch.ports,
        service=_address_message(plan.service),
        lanes=plan.lanes,
        stations=[pb.Station(mac=plan.controller.address.mac, port=port)] if port else [],
        uplinks=[
            pb.Uplink(parent=up.parent.node, port=up.child.port, parent_port=up.parent.port)
            for up in switch.uplinks
        ],
    )


def _address_message(address: Address) -> pb.Address:
    return pb.Address(mac=address.mac, ip=address.ip, udp_port=address.udp_port)
