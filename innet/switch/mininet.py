"""innet's switch as a Mininet switch class. Mininet must be importable (Debian: package mininet).

::

    from functools import partial
    from mininet.net import Mininet
    from mininet.topo import SingleSwitchTopo
    from innet.switch.mininet import InnetSwitch

    net = Mininet(SingleSwitchTopo(2), partial(InnetSwitch, program="router.json"), controller=None)
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mininet.node import Switch

from innet.errors import InnetError

_FIRST_GRPC_PORT = 9559
_STOP_TIMEOUT = 10.0


class InnetSwitch(Switch):
    """A switch that runs a compiled P4 program, or waits for P4Runtime to bring one.

    Port numbers are Mininet's interface numbers, from 1 on. `s1` serves P4Runtime as device 1 at
    port 9559 of 127.0.0.1, `s2` as device 2 at port 9560, and so on. `grpc_address` and `device_id`
    change this. With ``inNamespace=True`` the address is in the switch's own namespace. A
    `grpc_address` such as ``unix:FILE`` then makes the switch reachable from elsewhere.

    `options` are further options of ``innet-switch``. To serve other machines, the switch needs the
    TLS options or ``--insecure`` among them.
    """

    def __init__(
        self,
        name: str,
        program: str | Path | None = None,
        device_id: int | None = None,
        grpc_port: int | None = None,
        grpc_address: str | None = None,
        options: Sequence[str] = (),
        **mininet: Any,
    ) -> None:
        self.controlIntf = None  # Mininet sets it only for switches without a namespace
        super().__init__(name, **mininet)
        self.program = program
        self.device_id = int(self.dpid, 16) if device_id is None else device_id
        port = grpc_port or _FIRST_GRPC_PORT - 1 + self.device_id
        self.grpc_address = grpc_address or f"127.0.0.1:{port}"
        self.options = options
        self.process: subprocess.Popen[str] | None = None

    def start(self, controllers: Iterable[Any]) -> None:  # noqa: ARG002  (P4Runtime's clients connect)
        """Start the switch, and return when it forwards packets. Raises InnetError."""
        for interface in self._interfaces().values():
            _make_checksums(interface)
        self.process = self.popen(
            self._command(), stdout=subprocess.PIPE, stderr=sys.stderr, text=True
        )
        if not (self.process.stdout and self.process.stdout.readline()):
            raise InnetError(f"{self.name} did not start: its error message is above")

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803  (Mininet's)
        """Stop forwarding."""
        if self.process:
            self.process.terminate()
            self.process.wait(_STOP_TIMEOUT)
            if self.process.stdout:
                self.process.stdout.close()
            self.process = None
        super().stop(deleteIntfs)

    def _interfaces(self) -> dict[int, Any]:
        return {number: each for number, each in self.intfs.items() if each.name != "lo"}

    def _command(self) -> list[str]:
        # Links are often shaped by queueing disciplines, which frames sent through XDP would bypass.
        ports = (f"-i{number}@packet:{each.name}" for number, each in self._interfaces().items())
        return [
            *self._base_command(),
            "--device-id", str(self.device_id),
            "--grpc-server-addr", self.grpc_address,
            *ports,
            *self.options,
        ]  # fmt: skip

    def _base_command(self) -> list[str]:
        """Return the command and the program, without the options that every switch has."""
        return [_find_command(), str(self.program) if self.program else "--no-p4"]


def _find_command() -> str:
    """Return the command of this Python's environment, or the one on the PATH."""
    beside = Path(sys.executable).with_name("innet-switch")
    command = str(beside) if beside.exists() else shutil.which("innet-switch")
    if not command:
        raise InnetError("innet-switch is not on the PATH: install innet there")
    return command


def _make_checksums(interface: Any) -> None:
    """Make both ends of a link compute checksums, which Linux leaves out between veths."""
    for end in (interface.link.intf1, interface.link.intf2):
        end.node.cmd("ethtool", "-K", end.name, "tx", "off")
