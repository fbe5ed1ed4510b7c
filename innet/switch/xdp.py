"""AF_XDP sockets for a port on a network interface.

The C code (runtime/xdp.c) is compiled by itself here, because ports are open before there is a
program, and stay open when the next program replaces it.
"""

import ctypes
import socket
from functools import cache

from innet.errors import CompilerError
from innet.machine import interfaces, netlink
from innet.machine.packaged import read
from innet.native.compiler import compile_library

_FLAGS = ("-std=gnu11", "-O2", "-fPIC")
_USUAL_QDISCS = {"", "noop", "noqueue", "mq", "pfifo_fast", "fq_codel", "fq"}


class Xdp:
    """The AF_XDP sockets of an interface, until :meth:`close`. Raises CompilerError.

    The packet loop gets `address`, and finds the present sockets there.
    """

    def __init__(self) -> None:
        self._library = _library()
        self.address: int = self._library.xdp_create()

    def attach(self, interface: str) -> str:
        """Open sockets for an interface, and attach the program that passes frames to them.

        Returns "", or the reason for which there are none.
        """
        index = socket.if_nametoindex(interface)
        queues = interfaces.receive_queues(interface)
        tags_seen = not interfaces.takes_vlan_tags(interface)
        reason = self._library.xdp_open(self.address, index, queues, tags_seen)
        return reason.decode() if reason else ""

    def lost(self) -> int:
        """Return the number of frames for which there was no room. The packet loop must not run."""
        return int(self._library.xdp_lost(self.address))

    def close(self) -> None:
        """Detach the program and close the sockets."""
        self._library.xdp_destroy(self.address)


def open_xdp(interface: str) -> Xdp | str:
    """Return the sockets of an interface, or the reason for which there are none. Raises OSError."""
    try:
        xdp = Xdp()
    except CompilerError as problem:
        return str(problem)
    reason = xdp.attach(interface)
    if reason:
        xdp.close()
        return reason
    return xdp


def other_use(interface: str) -> str:
    """Return who else needs an interface's frames, or "" for nobody. Raises OSError.

    XDP takes all frames away from the machine's network stack, and frames that it sends pass no
    queueing discipline.
    """
    index = socket.if_nametoindex(interface)
    links = netlink.links()
    own = next(link for link in links if link.index == index)
    if netlink.has_address(index):
        return "the machine has an IP address there"
    if own.master:
        return "it belongs to another interface"
    if any(link.below == index and link.kind != "veth" for link in links):
        return "another interface stands on it"
    if own.qdisc not in _USUAL_QDISCS:
        return f"its queueing discipline is {own.qdisc}"
    return ""


@cache
def _library() -> ctypes.CDLL:
    sources = {name: read("innet.switch", f"runtime/{name}") for name in ("xdp.c", "xdp.h")}
    library = ctypes.CDLL(str(compile_library(_FLAGS, sources.values(), lambda: sources)))
    port, number = ctypes.c_void_p, ctypes.c_uint32
    library.xdp_create.restype, library.xdp_create.argtypes = port, ()
    library.xdp_destroy.restype, library.xdp_destroy.argtypes = None, (port,)
    library.xdp_open.restype = ctypes.c_char_p
    library.xdp_open.argtypes = (port, number, number, ctypes.c_bool)
    library.xdp_lost.restype, library.xdp_lost.argtypes = ctypes.c_uint64, (port,)
    return library
