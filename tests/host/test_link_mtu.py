"""A link of the host whose way is too narrow for the packets of its lanes is refused."""

from linked_switches import inside, ip, linked_namespace
from outages import needs_root

OPEN = """
from innet.errors import UsageError
from innet.host.link import Address, open_link
try:
    open_link("host", Address("", "10.0.0.254", 9), {lanes})
    print("open")
except UsageError as problem:
    print(problem)
"""


def opened(namespace: str, lanes: int) -> str:
    return inside(namespace, OPEN.format(lanes=lanes)).strip()


@needs_root
def test_packets_have_to_fit_the_mtu_of_the_way_to_the_switch():
    with linked_namespace() as name:
        ip("-n", name, "address", "add", "10.0.0.1/24", "dev", "h1")
        assert opened(name, 256) == "open"
        assert "1024 lanes need an MTU of 4152 bytes, and this way has 1500" in opened(name, 1024)
        ip("-n", name, "link", "set", "h1", "mtu", "4152")
        assert opened(name, 1024) == "open"
