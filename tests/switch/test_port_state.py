"""The state of a switch's port, from its interface to `innet switch show` and the metrics."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from commands import run
from prometheus_client import generate_latest
from prometheus_client.core import CollectorRegistry
from switches import running_switch
from waiting import until

from innet.controller.metrics import ControllerCollector
from innet.controller.server import ControllerServer
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"
)


@pytest.fixture
def interface() -> Iterator[tuple[str, str]]:
    """Make a pair of interfaces, and yield their names."""
    near, far = (f"innet{os.getpid()}{end}" for end in "ab")
    ip("link", "add", near, "type", "veth", "peer", "name", far)
    try:
        for end in (near, far):
            ip("link", "set", end, "up")
        yield near, far
    finally:
        ip("link", "delete", near)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def test_a_port_that_is_down_is_shown(interface: tuple[str, str]):
    near, far = interface
    with running_switch(1, "-i", f"2@{near}") as switch, contextlib.ExitStack() as stack:
        server = ControllerServer("127.0.0.1:0")
        stack.callback(server.close)
        address = f"127.0.0.1:{server.port}"
        channel, stub = connect(address)
        stack.callback(channel.close)
        ports = [1, 2]
        stub.AddSwitch(pb.AddSwitchRequest(name="tor", grpc_address=switch.address, ports=ports))
        registry = CollectorRegistry()
        registry.register(ControllerCollector(server.controller))

        def down() -> list[int]:
            shown = stub.GetSwitch(pb.GetSwitchRequest(name="tor")).port_counters
            return [each.port for each in shown if each.down]

        assert not down()
        ip("link", "set", far, "down")
        until(lambda: down() == [2])
        page = generate_latest(registry).decode()
        assert 'innet_controller_switch_port_up{port="2",switch="tor"} 0.0' in page
        assert 'innet_controller_switch_port_up{port="1",switch="tor"} 1.0' in page
        shown = run("innet", "switch", "show", "tor", "--controller", address).stdout
        assert sum("down" in line for line in shown.splitlines()) == 1
        ip("link", "set", far, "up")
        until(lambda: not down())
