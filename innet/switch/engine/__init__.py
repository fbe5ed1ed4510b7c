"""A compiled program with its tables and ports: the Python interface to the C library.

Every method that changes or reads state takes the packet loop's lock in C for some microseconds.
Packets never pass through Python.

`library` declares the C functions. `entries` has the program's tables, `arrays` its registers,
counters and meters, and `counts` the numbers that they return. `cables` serves the workers that
connect through shared memory. The engine itself runs packets and copies them.
"""

import contextlib
import ctypes
import hashlib
import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from innet.switch import ir
from innet.switch.bmv2json import load
from innet.switch.build import compile_program
from innet.switch.codegen import generate
from innet.switch.codegen.partition import partition
from innet.switch.constants import DROPS, PortKind
from innet.switch.engine.arrays import Arrays
from innet.switch.engine.cables import CableServer
from innet.switch.engine.counts import PortCounts
from innet.switch.engine.entries import Entries
from innet.switch.engine.library import Library, PortCountsStruct, ReplicaStruct
from innet.switch.ports import Port

DROP_PORT = 511
"""The usual port to which a program sends packets to drop them."""

_log = structlog.get_logger("innet.switch")
_WORD = (1 << 64) - 1
_STDOUT = 1
_SAMPLE = struct.Struct("=HH")
_SAMPLES_BYTES = 1 << 16


@dataclass(frozen=True)
class EgressHook:
    """A C function that sees every frame before it leaves. It may change the frame, but not its size.

    The fields are the addresses of a ``void (*)(void *context, uint8_t *frame, uint32_t bytes)``,
    which the packet loop calls, and of its context. Both belong to the caller and must outlive the
    engine.
    """

    function: int
    context: int


class Engine:
    """A program that is loaded and runs on a set of ports until :meth:`close`.

    The sockets of the ports belong to the caller, so that the next program can use them.

    - `json`: the program, as p4c-bm2-ss has written it.
    - `drop_port`: the egress port with which a program drops packets.
    - `keep`: a folder to which the generated C is written.
    - `priority_queues`: the number of queues of each port, which metadata can name.
    - `tracing`: whether the program logs every step of every packet.
    - `log`: the file descriptor of the program's log. Without one, a trace goes to standard output.
    - `seed`: the seed of the program's random numbers, a random one by default.
    - `egress_hook`: a function for every frame that leaves.
    - `cores`: the most cores, of which a program may use only one. :attr:`cores` are those that it uses.

    Raises UnsupportedProgram, and CompilerError.
    """

    def __init__(
        self,
        json: str | bytes,
        drop_port: int = DROP_PORT,
        keep: Path | None = None,
        *,
        priority_queues: int = 1,
        tracing: bool = False,
        seed: int | None = None,
        egress_hook: EgressHook | None = None,
        cores: int = 1,
        log: int | None = None,
    ) -> None:
        self.program = load(json)
        self.cores = _cores(self.program, cores, tracing=tracing)
        content = json.encode() if isinstance(json, str) else json
        self.digest = hashlib.sha256(content).hexdigest()
        self.priority_queues = priority_queues
        path = compile_program(
            content + bytes([tracing]), partial(generate, self.program, tracing=tracing), keep
        )
        self._library = library = Library(path, drop_port, self.cores)
        self._threads: list[threading.Thread] = []
        self._cable_servers: list[CableServer] = []
        library.set_priority_queues(priority_queues)
        if egress_hook:
            library.set_egress_hook(egress_hook.function, egress_hook.context)
        seed = secrets.randbits(64) if seed is None else seed
        for core, plant in enumerate(library.on_each("seed")):
            plant((seed + core) & _WORD)
        if tracing or log is not None:
            self.log_to(_STDOUT if log is None else log)  # the trace goes there too
        self.entries = Entries(library, self.program)
        self.arrays = Arrays(library, self.program)

    def start(self, ports: Iterable[Port]) -> None:
        """Start forwarding packets."""
        ports = list(ports)
        for position, port in enumerate(ports):
            receiver = position % self.cores
            self._library.add_port(
                port.number, port.fileno(), port.kind, port.interface.encode(), receiver
            )
            if port.xdp:
                self._library.use_xdp(port.number, port.xdp.address, receiver)
            if port.captures:
                self._library.capture(port.number, *(file.fileno() for file in port.captures))
        self._threads = [
            threading.Thread(target=run, name="innet-switch", daemon=True)
            for run in self._library.on_each("run")
        ]
        for thread in self._threads:
            thread.start()
        self._cable_servers = [
            CableServer(self._library, self.cores, port)
            for port in ports
            if port.kind is PortKind.SHARED_MEMORY
        ]

    def stop(self) -> None:
        """Stop forwarding. Packets that arrive wait in the ports."""
        if self._threads:
            self._library.stop()
            for thread in self._threads:
                thread.join()
            self._library.finish()
            for server in self._cable_servers:
                server.close()
            self._threads, self._cable_servers = [], []

    def close(self) -> None:
        """Stop forwarding and release everything except the ports."""
        self.stop()
        self._library.destroy()

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Hold all packets back, so that they see this thread's changes as a single change."""
        return self._library.held()

    def log_to(self, file: int) -> None:
        """Write the program's log to this file descriptor, or nowhere for -1."""
        self._library.set_log(file)

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Set the (port, instance) copies of a multicast group. An empty list removes the group."""
        self._library.set_group(group, _replica_array(replicas), len(replicas))

    def set_session(
        self,
        session: int,
        replicas: Sequence[tuple[int, int]],
        max_bytes: int = 0,
        class_of_service: int = 0,
    ) -> None:
        """Set the (port, instance) copies of a clone session. An empty list removes the session.

        A clone is cut to `max_bytes`, unless this is 0. A class of service other than 0 becomes the
        clone's priority.
        """
        self._library.set_session(
            session, _replica_array(replicas), len(replicas), max_bytes, class_of_service
        )

    def set_learning(self, number: int, *, on: bool) -> None:
        """Switch the samples for one kind of digest on or off."""
        self._library.set_learning(number, on)

    def set_wakeup(self, eventfd: int) -> None:
        """Set the eventfd that is written to when there are new samples."""
        self._library.set_wakeup(eventfd)

    def learned(self) -> list[tuple[int, bytes]]:
        """Take the samples since the last call, each as the kind of digest and its bytes."""
        return [sample for take in self._library.on_each("learned") for sample in _samples(take)]

    def drops(self) -> dict[str, int]:
        """Return the number of packets dropped so far for each reason in :data:`DROPS`."""
        raw = (ctypes.c_uint64 * len(DROPS))()
        self._library.drops(raw, len(DROPS))
        return dict(zip(DROPS, raw, strict=True))

    def port_counts(self, number: int) -> PortCounts:
        """Return the counts of a port so far."""
        raw = PortCountsStruct()
        self._library.port_counts(number, ctypes.byref(raw))
        return PortCounts(raw.received.value(), raw.sent.value(), raw.send_failures)

    def core_of(self, port: int, frame: bytes) -> int:
        """Return the core that processes a frame."""
        return int(self._library.core(port, frame, len(frame)))

    def processor_seconds(self) -> list[float]:
        """Return the processor time that each core has taken since the start."""
        clocks = [time.pthread_getcpuclockid(each.ident) for each in self._threads if each.ident]
        return [time.clock_gettime(clock) for clock in clocks]

    def exercise(self, port: int, frame: bytes, times: int, core: int = 0) -> None:
        """Run a frame through the program on one core `times` times, with the core's lock held.

        It is for measurements.
        """
        self._library.on_each("exercise")[core](port, frame, len(frame), times)


def _cores(program: ir.Program, wanted: int, *, tracing: bool) -> int:
    """Return the number of cores that run a program, and log the reason if it is not `wanted`."""
    if wanted == 1:
        return 1
    split = partition(program)
    reason = "a trace shows one packet after the other" if tracing else split.reason
    if reason:
        _log.warning("the program runs on one core", reason=reason)
        return 1
    _log.info("the program runs on several cores", cores=wanted, by=split.fields or "port")
    return wanted


def _samples(take: Callable[[Any, int], int]) -> Iterator[tuple[int, bytes]]:
    """Take the samples of one core."""
    room = ctypes.create_string_buffer(_SAMPLES_BYTES)
    while size := take(room, len(room)):
        data, at = room.raw[:size], 0
        while at < size:
            number, count = _SAMPLE.unpack_from(data, at)
            at += _SAMPLE.size
            yield number, data[at : at + count]
            at += count


def _replica_array(replicas: Sequence[tuple[int, int]]) -> ctypes.Array[ReplicaStruct]:
    return (ReplicaStruct * max(1, len(replicas)))(*(ReplicaStruct(*each) for each in replicas))
