"""Interfaces of a switch that go down, disappear and come back. Only one switch can have an interface.

Everything happens in a network namespace of the test's own.
"""

import os
import shutil
from collections.abc import Iterator

import pytest
from linked_switches import connect, inside, ip, linked_namespace, refused, watched

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"
)


@pytest.fixture
def namespace() -> Iterator[str]:
    with linked_namespace() as name:
        yield name


@pytest.mark.parametrize("way", ["xdp:", "packet:"])
def test_an_interface_that_goes_down_or_disappears_is_noticed_and_taken_again(namespace, way):
    with watched(namespace, way=way) as switch:
        assert switch.up() == {"s1", "s2"}
        ip("-n", namespace, "link", "set", "h1", "down")
        switch.says("port down", "interface=s1", "port=1", "it is down")
        assert switch.up() == {"s2"}
        ip("-n", namespace, "link", "set", "h1", "up")
        switch.says("port up", "interface=s1", "port=1")
        assert switch.up() == {"s1", "s2"}
        switch.forwards()
        ip("-n", namespace, "link", "delete", "s2")
        switch.says("port down", "interface=s2", "port=2", "it has disappeared")
        assert switch.up() == {"s1"}
        connect(namespace, "2")
        switch.says("port up", "interface=s2", "port=2")
        assert switch.up() == {"s1", "s2"}
        switch.forwards()


def test_an_interface_is_a_port_of_one_switch_only(namespace):
    with watched(namespace):
        said = refused(namespace, "7@s2")
        assert "port '7@s2': s2 is a port of an innet-switch already" in said
        other = f"{namespace}-b"
        ip("netns", "add", other)
        try:  # another namespace may have an interface with the same number
            connect(other, "2")
            inside(other, "from innet.switch.ports import open_port; open_port('7@s2')")
        finally:
            ip("netns", "delete", other)
    inside(namespace, "from innet.switch.ports import open_port; open_port('7@s2')")
