"""The cores of a server: threads that run the C code, and the events that they report."""

import ctypes
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from innet.errors import NoCapacity
from innet.machine.threads import start
from innet.servers.pbox import native

_AGAIN_S = 0.1


class Core:
    """A core of the server: a thread, a port, and its chunks of all jobs.

    Workers connect to the `port`. The core serves the connections that the `listener` accepts. Raises
    NoCapacity, and closes the listener, if too many files are open or there are too many threads.
    """

    def __init__(self, listener: socket.socket, port: int, events: int, cpu: int | None) -> None:
        self._library = native.library()
        self._listener = listener
        self._cpu = cpu
        self.port = port
        self._core = self._library.core_new(listener.fileno(), events)
        if not self._core:
            listener.close()
            raise NoCapacity("too many open files for another core: raise the limit (`ulimit -n`)")
        self._counts = np.ctypeslib.as_array(
            ctypes.cast(self._library.core_counts(self._core), ctypes.POINTER(ctypes.c_uint64)),
            (native.CORE_COUNTS.itemsize // 8,),
        )
        self._thread = threading.Thread(target=self._run, name=f"pbox core {self.port}")
        try:
            start(self._thread)
        except NoCapacity:
            self._library.core_free(self._core)
            listener.close()
            raise

    def counts(self) -> np.void:
        """Return a snapshot of the ``CORE_COUNTS``."""
        moment: np.void = self._counts.copy().view(native.CORE_COUNTS)[0]
        return moment

    def add(self, job: int) -> bool:
        """Hand over a job that ``job_new`` has made; the core frees it. Return False without memory."""
        added: bool = self._library.core_add(self._core, job)
        return added

    def remove(self, number: int) -> None:
        """End a job. The core reports REMOVED once it has freed the job."""
        while not self._library.core_remove(self._core, number):  # without memory, for now
            time.sleep(_AGAIN_S)

    def close(self) -> None:
        """End all jobs and the thread."""
        while not self._library.core_stop(self._core):  # without memory, for now
            time.sleep(_AGAIN_S)
        self._thread.join()
        self._counts = self._counts.copy()
        self._library.core_free(self._core)
        self._listener.close()

    def _run(self) -> None:
        if self._cpu is not None:
            os.sched_setaffinity(0, {self._cpu})  # of this thread only
        self._library.core_run(self._core)


class Events(threading.Thread):
    """A thread that reads the cores' events and calls `handle` with one ``EVENT`` after the other.

    Raises NoCapacity if too many files are open or there are too many threads.
    """

    def __init__(self, handle: Callable[[np.void], None]) -> None:
        super().__init__(name="pbox events")
        self._handle = handle
        try:
            self._from, self.into = os.pipe()
        except OSError:
            raise NoCapacity(
                "too many open files for a server: raise the limit (`ulimit -n`)"
            ) from None
        os.set_blocking(self.into, False)
        try:
            start(self)
        except NoCapacity:
            self._close_pipe()
            raise

    def run(self) -> None:
        """Read events until there is one of no job."""
        while (event := self._read())["job"]:
            self._handle(event)

    def close(self) -> None:
        """End the thread and close the pipe. Call it after the last core was closed."""
        # A forked child may hold a copy of the pipe, so closing it would not end the thread.
        os.set_blocking(self.into, True)
        os.write(self.into, bytes(native.EVENT.itemsize))
        self.join()
        self._close_pipe()

    def _close_pipe(self) -> None:
        for end in (self._from, self.into):
            os.close(end)

    def _read(self) -> np.void:
        event: np.void = np.frombuffer(os.read(self._from, native.EVENT.itemsize), native.EVENT)[0]
        return event


def usable_cpus(count: int) -> Sequence[int]:
    """Return a CPU for each of `count` cores, in turn."""
    cpus = sorted(os.sched_getaffinity(0))
    return [cpus[core % len(cpus)] for core in range(count)]
