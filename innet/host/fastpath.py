"""A worker's exchange with the switch in C: one call for an I/O round of many batches of packets.

* :meth:`CompiledRounds.run` does the same as :meth:`innet.host.numpy_rounds.NumpyRounds.run` with
  ``Window`` and ``Link``, several times if necessary. It sends due packets, waits, receives, keeps
  the intact packets, and moves their results into the window and the vector.
* :class:`Connection` sends and receives for it, and for ``Link``.

:mod:`innet.host.quantizers.scaling` wraps the C code for floats.

The numpy code defines the correct behaviour. It also handles the rare cases: replies other than
results, timed retransmissions, probes. Without a compiler it does everything. Both work on the same
arrays, so that they can alternate (tests/host/test_fastpath.py compares them).

C trusts its arguments. So every address that it gets comes from :func:`at`, which checks dtype,
order and size. The holder of the address keeps the array alive.
"""

import ctypes
import errno
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from innet.errors import CompilerError
from innet.host.integers import Bitmaps, Flags, Integers, Reduction
from innet.host.numpy_socket import DATAGRAM_BYTES, MESSAGES
from innet.host.packets import Packets
from innet.host.rounds import BATCHES, RoundLimits, RoundOutcome
from innet.host.window import SlotState, Window
from innet.machine.packaged import read
from innet.machine.sockets import (
    LONG_QUEUE_BYTES,
    MOST_SEGMENTS,
    MOST_SENT_BYTES,
    UDP_GRO,
    UDP_SEGMENT,
)
from innet.native.compiler import compile_library
from innet.native.constants import Constants
from innet.wire.check import bases, weights
from innet.wire.constants import CONSTANTS
from innet.wire.layout import HEADER_BYTES, TRANSPORT_FLAGS, Flag
from innet.wire.records import Records

_log = logging.getLogger("innet")

Floats = npt.NDArray[np.float32]

FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-Wall")
_SOURCES = {
    **dict.fromkeys(("fastpath.h", "fastpath.c", "round.h", "round.c"), "innet.host"),
    **dict.fromkeys(("network.h", "network.c", "udp.c", "shared_memory.c"), "innet.host"),
    **dict.fromkeys(("words.h", "ring.h"), "innet.wire"),
}
_CONNECT_WITHIN = 5.0  # seconds

BATCH_PACKETS = 256
"""The most packets that are taken out of shared memory in one call."""

_CONSTANTS: Constants = {
    **CONSTANTS,
    "STATE": SlotState,
    "BATCHES": BATCHES,
    "MESSAGES": MESSAGES,
    "TRANSPORT_FLAGS": TRANSPORT_FLAGS,
    "BATCH_PACKETS": BATCH_PACKETS,
    "LONG_QUEUE_BYTES": LONG_QUEUE_BYTES,
    "MOST_SEGMENTS": MOST_SEGMENTS,
    "MOST_SENT_BYTES": MOST_SENT_BYTES,
    "UDP_SEGMENT": UDP_SEGMENT,
    "UDP_GRO": UDP_GRO,
}

_pointer, _size, _number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
_real = ctypes.c_double


class _Format(ctypes.Structure):
    _fields_ = [
        ("bytes", _size), ("front", _size), ("lanes", _size), ("words", _size),
        ("weights", _pointer), ("base", ctypes.c_uint64), ("checked", _size),
        ("places", _size * 2), ("sizes", _size * 2), ("sender", ctypes.c_uint8 * 8),
    ]  # fmt: skip


class _Window(ctypes.Structure):
    _fields_ = [
        ("slots", _number), ("first_slot", _number), ("sequence", _pointer), ("chunk", _pointer),
        ("attempts", _pointer), ("sent_at", _pointer), ("state", _pointer), ("suspect", _pointer),
        ("scratch", _pointer), ("job", ctypes.c_uint16), ("term", ctypes.c_uint16),
    ]  # fmt: skip


class _Vectors(ctypes.Structure):
    _fields_ = [
        ("chunks", _number), ("own_first", _number), ("sums_first", _number), ("lanes", _size),
        ("own", _pointer), ("own_flags", _pointer), ("sums", _pointer),
        ("flags", _pointer), ("counts", _pointer), ("members", _pointer), ("scaling", _pointer),
    ]  # fmt: skip


class NativeScaling(ctypes.Structure):
    """The floats of an exchange, as a C struct; see :class:`innet.host.quantizers.scaling.Scaling`."""

    _fields_ = [
        ("lanes", _number), ("values", _pointer), ("up", _pointer), ("kept", _pointer),
        ("is_kept", _pointer), ("fit", _pointer),
        ("down", _pointer), ("mean", _number), ("first", _number),
        ("results", _pointer), ("done", _pointer),
    ]  # fmt: skip


class Inbox(ctypes.Structure):
    """Buffers for packets of both lengths, bare and full, and the numbers of those that have arrived."""

    _fields_ = [
        ("formats", _pointer * 2), ("buffers", _pointer * 2), ("room", _size),
        ("packets", _number * 2), ("corrupted", _number),
    ]  # fmt: skip


class _Outbox(ctypes.Structure):
    _fields_ = [("formats", _pointer * 2), ("packets", _pointer * 2)]


class _Udp(ctypes.Structure):
    _fields_ = [
        ("descriptor", ctypes.c_int), ("waker", ctypes.c_int), ("segmenting", ctypes.c_int),
    ]  # fmt: skip


class Network(ctypes.Structure):
    """The C functions that reach the switch and tell the time, with their context."""

    _fields_ = [
        ("context", _pointer), ("now", _pointer), ("pause", _pointer), ("wait", _pointer),
        ("send", _pointer), ("receive", _pointer),
    ]  # fmt: skip


class _Worker(ctypes.Structure):
    _fields_ = [
        ("window", _pointer), ("inbox", _pointer), ("outbox", _pointer), ("vectors", _pointer),
        ("answers", _pointer), ("finished", _pointer),
    ]  # fmt: skip


class _IoRound(ctypes.Structure):
    _fields_ = [
        ("most", _number), ("batches", _number), ("until", _real), ("pause", _real),
        ("round_trip_began", _real), ("steady", _number), ("too_soon", _real), ("reordering", _real),
        ("quiet_until", _real), ("remaining", _number),
        ("newest", _real), ("owed_since", _real),
        ("sent", _number), ("bare_sent", _number), ("repetitions", _number), ("limited", _number),
        ("received", _number), ("bare_received", _number), ("corrupted", _number),
        ("finished", _number), ("first", _number), ("lost", _number),
        ("marked", _number), ("others", _number), ("sent_at", _real), ("result_at", _real),
        ("now", _real), ("samples", _number), ("round_trips", _real * BATCHES), ("error", _number),
    ]  # fmt: skip


@cache
def compiled() -> ctypes.CDLL | None:
    """Return the compiled C, or None where it cannot be compiled, which is logged once.

    Raises IncompleteInstallation.
    """
    try:
        return compile_with({})
    except (CompilerError, OSError) as problem:
        _log.warning(
            "numpy makes the packets, which gives the same sums but takes longer: %s", problem
        )
        return None


def compile_with(more: Mapping[str, bytes]) -> ctypes.CDLL:
    """Compile the C, together with `more` files by name, which may use all of its functions.

    Raises CompilerError, IncompleteInstallation, OSError.
    """
    if sys.byteorder != "little" or ctypes.sizeof(_pointer) != 8:
        raise CompilerError("the C code needs a little-endian processor with 64 bits")
    sources = {**{name: read(package, name) for name, package in _SOURCES.items()}, **more}
    path = compile_library(FLAGS, sources.values(), lambda: sources, _CONSTANTS, ["-lm"])
    return bind(ctypes.CDLL(str(path)))


def bind(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the functions' argument and result types."""
    pointer = ctypes.POINTER
    for prefix in ("innet", "innet_shared"):
        send, receive, wait = (
            getattr(library, f"{prefix}_{name}") for name in ("send", "receive", "wait")
        )
        send.argtypes = (_pointer, _pointer, _size, _size)
        receive.argtypes = (_pointer, pointer(Inbox))
        wait.argtypes = (_pointer, _real)
    library.innet_shared_create.argtypes = (ctypes.c_char_p, ctypes.c_int)
    library.innet_shared_create.restype = _pointer
    library.innet_shared_connect.argtypes = library.innet_shared_destroy.argtypes = (_pointer,)
    library.innet_shared_destroy.restype = None
    library.innet_io_round.argtypes = (pointer(Network), pointer(_Worker), pointer(_IoRound))
    library.innet_largest.argtypes = (_pointer, _size, _size, _pointer)
    scaled = (_pointer, _size, _size, _pointer, _pointer, _pointer)
    library.innet_quantize.argtypes = library.innet_dequantize.argtypes = scaled
    for name in ("io_round", "largest", "quantize", "dequantize"):
        getattr(library, f"innet_{name}").restype = None
    return library


class Format:
    """The format of packets of one dtype that carry the address of one sender.

    `told` gives the positions before the header that identify a packet's sender, each with the
    bytes expected there. In packets that are not `sealed` the check is 0: all weights are 0, and
    the address does not count.
    """

    def __init__(
        self,
        dtype: np.dtype[np.void],
        ip: int,
        port: int,
        told: tuple[tuple[int, bytes], ...] = (),
        *,
        sealed: bool = True,
    ) -> None:
        front = dtype.fields["version"][1] if dtype.fields else 0
        words = (dtype.itemsize - front) // 4
        self.dtype = dtype
        self._weights = weights(words) if sealed else np.zeros(words, np.uint64)
        self.native = _Format(
            dtype.itemsize, front, words - HEADER_BYTES // 4, words,
            at(self._weights, np.uint64, words), int(bases(ip, port)[0]) if sealed else 0, len(told),
            (_size * 2)(*(offset for offset, _ in told)),
            (_size * 2)(*(len(wanted) for _, wanted in told)),
            (ctypes.c_uint8 * 8)(*b"".join(wanted for _, wanted in told)),
        )  # fmt: skip


@dataclass(frozen=True)
class Formats:
    """The formats of one sender's packets, bare and with lanes."""

    bare: Format
    full: Format

    def __iter__(self) -> Iterator[Format]:
        return iter((self.bare, self.full))


class Buffers:
    """Room for the packets that arrive in one call, for each of these formats."""

    def __init__(self, formats: Formats, messages: int, room: int) -> None:
        self._formats = formats
        self._bytes = {each: np.empty((messages, room), np.uint8) for each in formats}
        self.inbox = Inbox(
            (_pointer * 2)(*(ctypes.addressof(each.native) for each in formats)),
            (_pointer * 2)(*(at(each, np.uint8) for each in self._bytes.values())), room,
        )  # fmt: skip

    @property
    def packets(self) -> Packets:
        """Return the packets that have arrived, valid until the next call."""
        bare, full = (
            self._bytes[each].reshape(-1)[: count * each.dtype.itemsize].view(each.dtype)
            for each, count in zip(self._formats, self.inbox.packets, strict=True)
        )
        return Packets(full, bare)


class Connection:
    """A connection to the switch, for packets, in C.

    `prefix` is that of the C functions, which take `context`.
    """

    def __init__(self, library: ctypes.CDLL, prefix: str, context: int, incoming: Formats) -> None:
        self._context = context
        self._send, self._receive, self._wait = (
            getattr(library, f"{prefix}_{name}") for name in ("send", "receive", "wait")
        )
        functions = (
            ctypes.cast(each, _pointer)
            for each in (
                library.innet_now, library.innet_pause, self._wait, self._send, self._receive
            )
        )  # fmt: skip
        self.network = Network(context, *functions)
        self.buffers = Buffers(incoming, MESSAGES, DATAGRAM_BYTES)

    def send(self, packets: Records) -> None:
        """Send packets that have their check, in order. Lost ones are no error. Raises OSError."""
        address = at(packets, packets.dtype)
        _raise(self._send(self._context, address, len(packets), packets.itemsize))

    def receive(self) -> tuple[Packets, int]:
        """Return the packets that have arrived, and the number of dropped ones.

        The packets are valid until the next call. Having received nothing is no error. Raises
        OSError.
        """
        number = self._receive(self._context, self.buffers.inbox)
        if number != errno.EAGAIN:
            _raise(number)
        return self.buffers.packets, self.buffers.inbox.corrupted

    def wait(self, seconds: float) -> None:
        """Return when a packet is there, when the waker is used, or after `seconds`."""
        self._wait(self._context, seconds)

    def close(self) -> None:
        """End the connection."""
        raise NotImplementedError


class UdpConnection(Connection):
    """A connected, non-blocking UDP socket. The eventfd `waker` ends a wait."""

    def __init__(
        self, library: ctypes.CDLL, sock: socket.socket, incoming: Formats, waker: int | None
    ) -> None:
        self._socket = sock
        self._udp = _Udp(sock.fileno(), -1 if waker is None else waker, True)
        super().__init__(library, "innet", ctypes.addressof(self._udp), incoming)

    @property
    def segmenting(self) -> bool:
        """Return whether the kernel cuts one buffer into packets."""
        return bool(self._udp.segmenting)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class SharedMemoryConnection(Connection):
    """A cable in shared memory to a switch that listens at the path of a Unix socket.

    If the switch ends, the next packet connects to its successor. Raises OSError.
    """

    def __init__(
        self, library: ctypes.CDLL, path: Path, incoming: Formats, waker: int | None
    ) -> None:
        self._library = library
        context = library.innet_shared_create(os.fsencode(path), -1 if waker is None else waker)
        if not context:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        super().__init__(library, "innet_shared", context, incoming)
        try:
            self._connect()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, unless it has ended."""
        context, self._context = self._context, 0
        if context:
            self._library.innet_shared_destroy(context)

    def _connect(self) -> None:
        until = time.monotonic() + _CONNECT_WITHIN
        while (number := self._library.innet_shared_connect(self._context)) == errno.EAGAIN:
            if time.monotonic() > until:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            self.wait(_CONNECT_WITHIN)
        _raise(number)


class NativeLink(Protocol):
    """The attributes of a link that C needs; see :class:`innet.host.link.Link`."""

    leaving: Formats
    native: Connection | None
    corrupted: int


class CompiledRounds:
    """A worker's I/O rounds in one term; see :class:`innet.host.rounds.IoRounds`."""

    def __init__(
        self,
        library: ctypes.CDLL,
        link: NativeLink,
        window: Window,
        identity: tuple[int, int, int],
        packets: Packets,
        answers: Bitmaps,
    ) -> None:
        """Set `identity` to job, term and first slot. `packets` and `answers` have an item for a slot."""
        job, term, first_slot = identity
        slots = window.slots
        if not link.native:
            raise AssertionError
        if not 0 <= first_slot <= (1 << 16) - slots:
            raise AssertionError
        self._library, self._link, self._state = library, link, window
        self._native = link.native
        self._scratch, finished = np.empty((2, slots), np.int64)
        arrays = window.arrays
        self._kept = [packets, answers, finished, *arrays.values()]
        self._window = _Window(
            slots, first_slot, *(at(each, each.dtype, slots) for each in arrays.values()),
            at(self._scratch, np.int64, slots), job, term,
        )  # fmt: skip
        self._vectors = _Vectors()
        self._outbox = _Outbox(
            (_pointer * 2)(*(ctypes.addressof(each.native) for each in link.leaving)),
            (_pointer * 2)(
                at(packets.bare, link.leaving.bare.dtype, slots),
                at(packets.full, link.leaving.full.dtype, slots),
            ),
        )
        self._worker = _Worker(
            *map(ctypes.addressof, (
                self._window, self._native.buffers.inbox, self._outbox, self._vectors)),
            at(answers, np.uint32, slots), at(finished, np.int64, slots),
        )  # fmt: skip
        self._results: list[object] = []

    def start(
        self,
        chunks: "Integers | NativeScaling",
        own_flags: Flags,
        result: Reduction,
        first: int = 0,
    ) -> None:
        """Begin an exchange; see :meth:`innet.host.rounds.IoRounds.start`.

        A scaling makes each chunk as it is sent, and floats of each result when it arrives.
        """
        count, lanes = len(own_flags), self._link.leaving.full.native.lanes
        own, scaling = None, None
        if isinstance(chunks, NativeScaling):
            scaling = ctypes.addressof(chunks)
            if lanes != chunks.lanes or first:
                raise AssertionError
        else:
            own = at(chunks, np.int32, len(chunks) * lanes)
            _check_rows(own_flags, Flag.CARRIED, first, len(chunks))
        _check_rows(own_flags, Flag.WANTED, result.first, len(result.lanes))
        if count != self._state.chunks:
            raise AssertionError
        fields = (
            count, first, result.first, lanes, own, at(own_flags, np.uint16, count),
            at(result.lanes, np.int32, len(result.lanes) * lanes),
            at(result.flags, np.uint16, count),
            at(result.counts, np.uint16, count), at(result.members, np.uint32, count),
            scaling,
        )  # fmt: skip
        self._results = [chunks, own_flags, result]
        self._let(fields)

    def stop(self) -> None:
        """Release the vectors of an exchange that is over."""
        self._let((0, 0, 0, 0, *[None] * 7))
        self._results = []

    def run(self, limits: RoundLimits) -> RoundOutcome:
        """Send and receive until there is something to decide. Raises OSError."""
        window = self._state
        done = _IoRound(
            limits.most, limits.batches, limits.until, limits.pause, limits.round_trip_began,
            limits.steady, limits.too_soon, limits.reordering, window.quiet_until,
            window.remaining, window.newest, limits.owed_since,
        )  # fmt: skip
        self._library.innet_io_round(self._native.network, self._worker, done)
        self._link.corrupted += done.corrupted
        _raise(done.error)
        window.taken(done.finished, done.newest)
        return RoundOutcome(
            sent=done.sent, bare_sent=done.bare_sent, repetitions=done.repetitions,
            limited=bool(done.limited), sent_at=done.sent_at, owed_since=done.owed_since,
            received=done.received, bare_received=done.bare_received,
            finished=done.finished, first=bool(done.first), lost=done.lost,
            marked=done.marked, result_at=done.result_at, now=done.now,
            round_trips=done.round_trips[: done.samples],
            others=self._native.buffers.packets if done.others else None,
        )  # fmt: skip

    @property
    def worker(self) -> int:
        """Return the address of the C struct of this worker, for other C code that drives it."""
        return ctypes.addressof(self._worker)

    def _let(self, fields: tuple[object, ...]) -> None:
        _Vectors.__init__(self._vectors, *fields)  # C has its address


def _check_rows(flags: Flags, flag: Flag, first: int, rows: int) -> None:
    """Raise AssertionError unless all chunks with a flag have one of the rows from `first` on."""
    chunks = np.flatnonzero(flags & flag)
    if chunks.size and not first <= chunks[0] <= chunks[-1] < first + rows:
        raise AssertionError(f"chunks {chunks[0]} to {chunks[-1]}: {rows} rows from {first} on")


def _raise(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))


def at(array: npt.NDArray[np.generic], dtype: npt.DTypeLike, size: int | None = None) -> int:
    """Return the address of an array, checked to have `size` elements of `dtype` for C."""
    if array.dtype != dtype or not array.flags.c_contiguous or size not in (None, array.size):
        raise AssertionError(f"C expects {size} {dtype} in order: {array.shape} {array.dtype}")
    return array.ctypes.data
