"""The structs of a worker's C code, field by field as fastpath.h, round.h and scaling.h declare them."""

import ctypes

from innet.host.rounds import BATCHES

POINTER, SIZE, NUMBER = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
REAL = ctypes.c_double


class Format(ctypes.Structure):
    """The lengths of a format, the weights of its check, and the bytes that identify its sender."""

    _fields_ = [
        ("bytes", SIZE), ("front", SIZE), ("lanes", SIZE), ("words", SIZE),
        ("weights", POINTER), ("base", ctypes.c_uint64), ("checked", SIZE),
        ("places", SIZE * 2), ("sizes", SIZE * 2), ("sender", ctypes.c_uint8 * 8),
    ]  # fmt: skip


class Window(ctypes.Structure):
    """The arrays of a worker's window, by slot; see :class:`innet.host.window.Window`."""

    _fields_ = [
        ("slots", NUMBER), ("first_slot", NUMBER), ("sequence", POINTER), ("chunk", POINTER),
        ("attempts", POINTER), ("sent_at", POINTER), ("state", POINTER), ("suspect", POINTER),
        ("scratch", POINTER), ("job", ctypes.c_uint16), ("term", ctypes.c_uint16),
        ("has_quorum", ctypes.c_uint8),
    ]  # fmt: skip


class Vectors(ctypes.Structure):
    """The vectors of an exchange, by chunk: a worker's own, and the results."""

    _fields_ = [
        ("chunks", NUMBER), ("own_first", NUMBER), ("sums_first", NUMBER), ("lanes", SIZE),
        ("own", POINTER), ("own_flags", POINTER), ("sums", POINTER),
        ("flags", POINTER), ("counts", POINTER), ("members", POINTER), ("scaling", POINTER),
        ("order", POINTER),
    ]  # fmt: skip


class NativeScaling(ctypes.Structure):
    """The floats of an exchange, as a C struct; see :class:`innet.host.quantizers.scaling.Scaling`."""

    _fields_ = [
        ("lanes", NUMBER), ("values", POINTER), ("up", POINTER), ("kept", POINTER),
        ("is_kept", POINTER), ("fit", POINTER),
        ("down", POINTER), ("mean", NUMBER), ("first", NUMBER), ("count", NUMBER),
        ("results", POINTER), ("done", POINTER),
    ]  # fmt: skip


class Inbox(ctypes.Structure):
    """Buffers for packets of both lengths, bare and full, and the numbers of those that have arrived."""

    _fields_ = [
        ("formats", POINTER * 2), ("buffers", POINTER * 2), ("room", SIZE),
        ("packets", NUMBER * 2), ("corrupted", NUMBER),
    ]  # fmt: skip


class Outbox(ctypes.Structure):
    """The next packet of each slot, bare and full."""

    _fields_ = [("formats", POINTER * 2), ("packets", POINTER * 2)]


class Udp(ctypes.Structure):
    """The descriptors of a UDP connection."""

    _fields_ = [
        ("descriptor", ctypes.c_int), ("waker", ctypes.c_int), ("segmenting", ctypes.c_int),
        ("joined", ctypes.c_int),
        ("refused", ctypes.c_int),
    ]  # fmt: skip


class Network(ctypes.Structure):
    """The C functions that reach the switch and tell the time, with their context."""

    _fields_ = [
        ("context", POINTER), ("now", POINTER), ("wait", POINTER), ("send", POINTER),
        ("receive", POINTER), ("queued", POINTER), ("put", POINTER),
    ]  # fmt: skip


class Worker(ctypes.Structure):
    """The addresses of everything that an I/O round works on."""

    _fields_ = [
        ("window", POINTER), ("inbox", POINTER), ("outbox", POINTER), ("vectors", POINTER),
        ("answers", POINTER), ("finished", POINTER),
    ]  # fmt: skip


class IoRound(ctypes.Structure):
    """The limits of an I/O round, and its outcome; see :mod:`innet.host.rounds`."""

    _fields_ = [
        ("most", NUMBER), ("batches", NUMBER), ("until", REAL), ("idle", REAL),
        ("round_trip_began", REAL), ("steady", NUMBER), ("too_soon", REAL), ("reordering", REAL),
        ("quiet_until", REAL), ("remaining", NUMBER), ("most_queued", NUMBER),
        ("newest", REAL), ("owed_since", REAL), ("begins", NUMBER),
        ("sent", NUMBER), ("bare_sent", NUMBER), ("repetitions", NUMBER), ("limited", NUMBER),
        ("received", NUMBER), ("bare_received", NUMBER), ("corrupted", NUMBER),
        ("finished", NUMBER), ("first", NUMBER), ("lost", NUMBER),
        ("marked", NUMBER), ("unread", NUMBER), ("sent_at", REAL), ("result_at", REAL),
        ("now", REAL), ("samples", NUMBER), ("times", REAL * BATCHES), ("error", NUMBER),
    ]  # fmt: skip
