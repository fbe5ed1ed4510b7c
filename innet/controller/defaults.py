"""The controller's defaults."""

from innet.wire.frames import Address

LANES = 64
SLOTS = 128
SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254")
WORKER_LEASE_S = 8.0
JOB_LEASE_S = 3600


def uplink_address(parent_port: int) -> Address:
    """Return the address by which a parent knows the switch at one of its ports."""
    high, low = divmod(parent_port, 256)
    return Address(f"02:00:00:01:{high:02x}:{low:02x}", f"10.255.{252 + high}.{low}")
