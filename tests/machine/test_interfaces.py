"""The machine's interfaces, as the kernel reports them."""

import subprocess
import sys

import pytest

from innet.machine import interfaces
from topologies import namespaces

TWO_ADDRESSES = """
ip link set lo up
ip link add first type veth peer name peer1
ip link add second type veth peer name peer2
ip address add 10.1.0.1/24 dev first
ip address add 10.2.0.1/24 dev second
ip address add 10.3.0.1/24 dev second
ip link set first up; ip link set peer1 up
ip link set second up; ip link set peer2 up
exec "$@"
"""
ASK = """
from innet.machine.interfaces import interface_at, interface_to
print(*map(interface_to, ("10.1.0.9", "10.2.0.9", "10.3.0.9", "127.0.0.1")), interface_at("10.9.9.9"))
"""


def test_an_interface_is_found_by_each_of_its_addresses():
    if why := namespaces.unavailable():
        pytest.skip(why)
    command = ["unshare", "--net", "sh", "-ec", TWO_ADDRESSES, "sh", sys.executable, "-c", ASK]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "first second second lo \n"


def test_without_privileges_the_loopback_interface_is_found():
    assert interfaces.interface_to("127.0.0.1") == "lo"
    assert interfaces.interface_at("192.0.2.1") == ""
