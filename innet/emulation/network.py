"""A plan as a Mininet network: nodes in namespaces of their own, capped links, running switches.

Mininet has to be importable: call :func:`innet.emulation.requirements.require` before the import.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from mininet.link import TCIntf
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host

from innet.emulation import requirements
from innet.emulation.plan import Plan, PlannedHost, PlannedSwitch
from innet.emulation.requirements import BMV2
from innet.emulation.topology import LinkSpec
from innet.errors import InnetError
from innet.local.processes import command as run
from innet.rpc import channels
from innet.switch.mininet import InnetSwitch
from innet.wire.frames import ETHERNET_BYTES, USUAL_MTU

CPU_PORT = 510
# In bytes: 1.2 ms at 100 Mbit/s, so that no bandwidth is lost when a timer is a millisecond late.
_LEAST_BURST = 15_000
_BURST_SECONDS = 0.001
_READY_WITHIN = 30.0
_SERVER_GIB = 1


class CappedInterface(TCIntf):
    """An end of a link that limits outgoing traffic to the link's rate.

    With `offloads`, the kernel leaves checksums and the cutting of super-frames to the other end, as to
    a network card. Without, it does both before a frame leaves.
    """

    def config(
        self,
        spec: LinkSpec | None = None,
        mtu: int = USUAL_MTU,
        offloads: bool = False,
        **settings: Any,
    ) -> None:
        """Apply Mininet's settings, the MTU and the cap. Raises InnetError."""
        super().config(txo=offloads, **settings)
        if mtu != USUAL_MTU:
            self._run("set the MTU of", f"ip link set dev {self.name} mtu {mtu}")
        for command in cap_commands(spec or LinkSpec(), self.name, mtu):
            self._run("cap", command)

    def _run(self, purpose: str, command: str) -> None:
        """Run a command in the node's namespace. Raises InnetError."""
        # Some versions of tc warn although the kernel succeeds; the exit status is then 0.
        _, output, status = self.node.pexec(command)
        if status:
            raise InnetError(f"cannot {purpose} {self.name} with {command!r}: {output.strip()}")


def cap_commands(spec: LinkSpec, interface: str, mtu: int) -> list[str]:
    """Return the commands that limit an interface's outgoing rate, or none without a rate."""
    if spec.rate is None:
        return []
    largest_frame = ETHERNET_BYTES + mtu
    per_second = spec.rate / 8  # bytes
    burst = round(max(_LEAST_BURST, per_second * _BURST_SECONDS))
    queue = round(max(2 * largest_frame, per_second * spec.queue / 1000))
    add = f"tc qdisc add dev {interface}"
    if spec.cap == "tbf":
        return [f"{add} root tbf rate {spec.rate}bit burst {burst} limit {queue}"]
    return [
        f"{add} root handle 1: htb default 1",
        (
            f"tc class add dev {interface} parent 1: classid 1:1 htb "
            f"rate {spec.rate}bit burst {burst} cburst {largest_frame} quantum {largest_frame}"
        ),
        f"{add} parent 1:1 bfifo limit {queue}",
    ]


class EmulatedSwitch(InnetSwitch):
    """innet-switch, started without waiting for it. Its output goes to `log`."""

    def __init__(self, name: str, log: Path, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.log = log

    def start(self, controllers: Any) -> None:  # noqa: ARG002 - Mininet's
        """Start the switch. :meth:`await_ready` waits until it serves."""
        with self.log.open("w") as log:
            self.process = self.popen(self._command(), stdout=log, stderr=log, text=True)

    def await_ready(self) -> None:
        """Wait until the switch serves P4Runtime. Raises InnetError."""
        with grpc.insecure_channel(self.grpc_address) as channel:
            answer = channels.answered(channel, _READY_WITHIN)
            while self.alive:
                with contextlib.suppress(TimeoutError):
                    if answer.result(0.1):
                        return
                    break
        output = self.log.read_text().strip()
        raise InnetError(f"{self.name} does not serve P4Runtime: {output or 'its log is empty'}")

    @property
    def alive(self) -> bool:
        """Return whether the switch still runs."""
        return self.process is not None and self.process.poll() is None


class Bmv2Switch(EmulatedSwitch):
    """BMv2, which takes the same options, some of them after a ``--``."""

    def _command(self) -> list[str]:
        ports = (f"-i{number}@{each.name}" for number, each in self._interfaces().items())
        target = ["--grpc-server-addr", self.grpc_address, *self.options]
        return [BMV2, "--no-p4", "--device-id", str(self.device_id), *ports, "--", *target]


class EmulatedServer(EmulatedSwitch):
    """A parameter server in place of a switch."""

    def _base_command(self) -> list[str]:
        return [*run("innet.cli"), "pbox", "rack-server", "--memory", str(_SERVER_GIB)]


_CLASSES = {"embedded": EmulatedSwitch, "bmv2": Bmv2Switch, "pbox": EmulatedServer}


@contextlib.contextmanager
def running(plan: Plan, folder: Path) -> Iterator[Mininet]:
    """Yield the network, with running switches that wait for a program over P4Runtime.

    Switches serve P4Runtime at Unix sockets in `folder`, because the plan has no management network.
    The controller's node is the caller's network namespace. Raises InnetError.
    """
    setLogLevel("output")  # show the output of Mininet's prompt, and warnings
    Mininet.inited = True  # otherwise Mininet would raise the limits of the whole machine
    net = Mininet(host=Host, controller=None)
    try:
        _build(net, plan, folder)
        net.start()
        for switch in net.switches:
            switch.await_ready()
        yield net
    finally:
        net.stop()


def _build(net: Mininet, plan: Plan, folder: Path) -> None:
    for host in plan.hosts:
        net.addHost(host.name)
    net.addHost(plan.controller.name, inNamespace=False)
    for switch in plan.switches:
        _add_switch(net, switch, folder)
    addressed = {each.name: each for each in (*plan.hosts, plan.controller)}
    for node in net.values():
        if node.name != plan.controller.name:  # without IPv6 no unrequested packets are sent
            node.cmd("sysctl -qw net.ipv6.conf.all.disable_ipv6=1; ip link set lo up")
    offloads = requirements.offloads(each.kind for each in plan.switches)
    for link in plan.links:
        net.addLink(
            link.child.node, link.parent.node, link.child.port, link.parent.port,
            intf=CappedInterface, spec=link.spec, mtu=plan.mtu, offloads=offloads,
            **_own_mac(addressed.get(link.child.node)),
        )  # fmt: skip
    for host in addressed.values():
        net[host.name].setIP(host.address.ip, plan.prefix_length)
    # This keeps Mininet from giving every host an address of Mininet's choice.
    net.built = True


def _own_mac(host: PlannedHost | None) -> dict[str, str]:
    return {"addr1": host.address.mac} if host else {}


def _add_switch(net: Mininet, switch: PlannedSwitch, folder: Path) -> None:
    net.addSwitch(
        switch.name,
        cls=_CLASSES[switch.kind],
        log=folder / f"{switch.name}.log",
        device_id=switch.device_id,
        dpid=f"{switch.device_id:x}",
        grpc_address=f"unix:{folder}/{switch.name}",
        options=("--cpu-port", str(CPU_PORT)),
        inNamespace=True,
    )
