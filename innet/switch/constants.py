"""The numbers that the C runtime and Python share (:mod:`innet.native.constants`)."""

import enum

from innet.machine.sockets import (
    FRAME_MEMORY,
    MOST_SEGMENTS,
    MOST_SENT_BYTES,
    UDP_GRO,
    UDP_SEGMENT,
)
from innet.native.constants import Constants

MISS = 0xFFFFFFFF
"""The id of a table's default action, in place of an entry's id."""

NO_ACTION = 0xFFFFFFFF
"""The action of an entry whose table has an action profile, or of a table without a default action."""

NO_BUNDLE = 0xFFFFFFFF
"""The bundle of entries in tables without an action profile."""

MAX_FRAME = 1 << 16
"""The most bytes of a frame."""

MAX_PORTS = 1 << 9
"""The ports that a program can name: v1model has 9 bits for a port."""

MAX_GROUPS, MAX_SESSIONS = 1 << 16, 1 << 15
"""The multicast groups and the clone sessions that a program can name."""

MAX_CORES = 64
"""The most cores of one switch."""

COUNTER_BYTES, METER_BYTES = 16, 80
"""The most bytes of a counter's cell, and of a meter's."""


class PortKind(enum.IntEnum):
    """The way in which frames cross a port's socket."""

    FRAMES = 1  # one frame in a message
    SEGMENTS = 2  # UDP, with segmentation offload
    SHARED_MEMORY = 3  # in shared memory; workers use the socket only to connect
    SUPER_FRAMES = 4  # of a network interface, with the kernel's description in front of each


PIPELINES = ("ingress", "egress")
"""The pipelines in which a program drops packets on purpose, perhaps because it has answered them."""

DROPS = (
    *PIPELINES,
    "no_multicast_group",
    "no_such_port",
    "too_long",
    "queue_full",
    "priority",
    "offload",
)
"""The reasons for dropping packets, by their numbers."""

CONSTANTS: Constants = {
    "RT_MISS": MISS,
    "RT_NO_BUNDLE": NO_BUNDLE,
    "RT_MAX_FRAME": MAX_FRAME,
    "RT_MAX_PORTS": MAX_PORTS,
    "RT_MAX_GROUPS": MAX_GROUPS,
    "RT_MAX_SESSIONS": MAX_SESSIONS,
    "RT_MAX_CORES": MAX_CORES,
    "COUNTER_BYTES": COUNTER_BYTES,
    "METER_BYTES": METER_BYTES,
    "PORT": PortKind,
    "DROPS": len(DROPS),
    **{f"DROP_{reason.upper()}": number for number, reason in enumerate(DROPS)},
    "FRAME_MEMORY": FRAME_MEMORY,
    "MOST_SEGMENTS": MOST_SEGMENTS,
    "MOST_SENT_BYTES": MOST_SENT_BYTES,
    "UDP_SEGMENT": UDP_SEGMENT,
    "UDP_GRO": UDP_GRO,
}
