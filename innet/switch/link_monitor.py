"""A monitor of the interfaces behind ports. It logs changes, and attaches interfaces that come back."""

import contextlib
import fcntl
import os
import select
import socket
import struct
import threading
from collections.abc import Iterable

import structlog

from innet.switch.ports import Port, attach

_SIOCGIFFLAGS = 0x8913
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_RTMGRP_LINK = 1
_REQUEST = struct.Struct("16sH14x")
_log = structlog.get_logger("innet.switch")


class LinkMonitor:
    """A monitor of the interfaces of some ports until :meth:`close`. Cables are always up."""

    def __init__(self, ports: Iterable[Port]) -> None:
        self._ports = [port for port in ports if port.interface]
        self._indices = {port.number: _index(port) for port in self._ports}
        self._down: set[int] = set()
        self._changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._changes.bind((0, _RTMGRP_LINK))
        self._changes.setblocking(False)
        self._closing = os.eventfd(0, os.EFD_CLOEXEC)
        self._check_ports()
        self._thread = threading.Thread(target=self._run, name="innet-link-monitor", daemon=True)
        self._thread.start()

    def is_up(self, port: Port) -> bool:
        """Return whether a port's interface was up at its last change."""
        return port.number not in self._down

    def close(self) -> None:
        """Stop the monitor."""
        os.eventfd_write(self._closing, 1)
        self._thread.join()
        self._changes.close()
        os.close(self._closing)

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._changes, select.POLLIN)
        poller.register(self._closing, select.POLLIN)
        while all(each != self._closing for each, _ in poller.poll()):
            # The messages themselves do not matter, nor do any that the buffer had no room for.
            with contextlib.suppress(OSError):
                while self._changes.recv(1 << 16):
                    pass
            self._check_ports()

    def _check_ports(self) -> None:
        for port in self._ports:
            index = _index(port)
            if index and index != self._indices[port.number]:
                with contextlib.suppress(OSError):  # it has gone again, or is still being made
                    attach(port.socket, port.interface, index)
                    self._attach_xdp(port)
                    self._indices[port.number] = index
            problem = "" if _is_up(port) else "it is down" if index else "it has disappeared"
            self._record(port, problem)

    @staticmethod
    def _attach_xdp(port: Port) -> None:
        reason = port.xdp.attach(port.interface) if port.xdp else ""
        if reason:
            names = {"port": port.number, "interface": port.interface}
            _log.warning("packet socket instead of XDP", **names, why=reason)

    def _record(self, port: Port, problem: str) -> None:
        if bool(problem) == (port.number in self._down):
            return
        names = {"port": port.number, "interface": port.interface}
        if problem:
            self._down.add(port.number)
            _log.warning("port down", **names, why=problem)
        else:
            self._down.discard(port.number)
            _log.info("port up", **names)


def _index(port: Port) -> int:
    """Return the number of a port's interface, or 0 if it is not there."""
    try:
        return socket.if_nametoindex(port.interface)
    except OSError:
        return 0


def _is_up(port: Port) -> bool:
    """Return whether a port's interface is up and has a carrier."""
    request = _REQUEST.pack(port.interface.encode(), 0)
    try:
        _, flags = _REQUEST.unpack(fcntl.ioctl(port.fileno(), _SIOCGIFFLAGS, request))
    except OSError:
        return False
    return bool(flags & _IFF_UP and flags & _IFF_RUNNING)
