"""The workers that connect to a port with cables in shared memory, and the memory of their cables.

A worker gets the memory as a file, and can keep it. It may do with it, and with the other files that it
shares with the switch, whatever it likes. So nothing here happens in the packet loop, and each port has
its own thread: a worker that makes this thread wait keeps other workers only from its own port.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import threading

from innet.switch.engine.library import Library
from innet.switch.ports import Port

_VERSION = 2  # CABLE_VERSION in wire/ring.h
_OFFER = struct.Struct("=II")
_BREATHER_S = 0.05
"""The pause between two connections at a port: a worker may connect in a loop."""

_GONE_AT_ONCE = 16
"""The most connections without a pause that have ended before they were looked at."""

_ENDS_WITHIN_S = 5.0
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_SO_PASSRIGHTS = 83  # since Linux 6.16


class CableServer:
    """A thread that serves the workers of a `port`, one at a time, until it is closed."""

    def __init__(self, library: Library, cores: int, port: Port) -> None:
        self._library, self._cores, self._port = library, cores, port
        self._lock, self._closed = threading.Lock(), False
        self._stopping = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with contextlib.suppress(OSError):
            # Nobody may send files: if this process had the last descriptor of a TCP socket with
            # SO_LINGER, to close it could take hours. Without this, only the port's own thread waits.
            port.socket.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
        self._thread = threading.Thread(target=self._run, name="innet-cables", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the worker's cable and the thread."""
        os.eventfd_write(self._stopping, 1)
        self._thread.join(_ENDS_WITHIN_S)
        self._set(None, None)
        with self._lock:
            self._closed = True
        if not self._thread.is_alive():
            os.close(self._stopping)

    def _run(self) -> None:
        while self._port in self._ready(self._port):
            self._serve_next()
            self._ready(seconds=_BREATHER_S)

    def _serve_next(self) -> None:
        """Give the next worker its cable, and take it back when the worker ends."""
        with contextlib.suppress(OSError):  # nobody is there, or memory or files are short
            for _ in range(_GONE_AT_ONCE):
                worker, _ = self._port.socket.accept()
                with worker:
                    if not self._ready(worker, seconds=0):
                        self._serve(worker)
                        return

    def _serve(self, worker: socket.socket) -> None:
        """Raise OSError if the worker has gone, or if memory or files are short."""
        with contextlib.closing(_Cable(self._cores, self._library)) as cable:
            if not self._set(cable, worker):
                return
            try:
                cable.offer(worker)
                # A worker says nothing, so it has ended if there is something to read.
                while self._ready(worker, self._port) == [self._port]:
                    self._refuse_next()
                    self._ready(seconds=_BREATHER_S)
            finally:
                self._set(None, None)

    def _refuse_next(self) -> None:
        with contextlib.suppress(OSError):
            self._port.socket.accept()[0].close()

    def _set(self, cable: "_Cable | None", worker: socket.socket | None) -> bool:
        """Set or remove the cable. Return False if the switch has ended."""
        with self._lock:
            if self._closed:
                return False
            if cable and worker:
                self._library.set_cable(
                    self._port.number, cable.address, worker.fileno(), cable.bells
                )
            else:
                self._library.set_cable(self._port.number, None, -1, None)
            return True

    def _ready(
        self, *watched: Port | socket.socket, seconds: float | None = None
    ) -> list[Port | socket.socket]:
        """Return which of these can be read or have ended within so many seconds; none if this stops."""
        poll = select.poll()
        for each in watched:
            poll.register(each, select.POLLIN)
        poll.register(self._stopping, select.POLLIN)
        ready = {file for file, _ in poll.poll(None if seconds is None else seconds * 1000)}
        if self._stopping in ready:
            return []
        return [each for each in watched if each.fileno() in ready]


class _Cable:
    """A cable: memory, at `address`, and eventfds that wake the cores, `bells`. Raises OSError."""

    def __init__(self, cores: int, library: Library) -> None:
        self._size = library.cable_bytes(cores)
        with contextlib.ExitStack() as stack:
            self._file = os.memfd_create("innet-cable", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            stack.callback(os.close, self._file)
            os.posix_fallocate(self._file, 0, self._size)
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, _SEALS)  # else an access could fail
            shared = mmap.MAP_SHARED | mmap.MAP_POPULATE
            self._memory = stack.enter_context(mmap.mmap(self._file, self._size, shared))
            # The worker may keep the file, but not this memory.
            stack.callback(self._memory.madvise, mmap.MADV_REMOVE)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
            self.bells = (ctypes.c_int * cores)()
            for core in range(cores):
                self.bells[core] = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                stack.callback(os.close, self.bells[core])
            self._opened = stack.pop_all()

    def offer(self, worker: socket.socket) -> None:
        """Pass the cable on to a worker. Raises OSError."""
        worker.setblocking(False)
        content = _OFFER.pack(_VERSION, self._size)
        socket.send_fds(worker, [content], [self._file, *self.bells])

    def close(self) -> None:
        """Free the memory, also if the worker still has its file, and close the eventfds."""
        self._opened.close()
