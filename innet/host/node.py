"""A node: the workers on one machine, which meet over Unix sockets and share memory.

The workers of a node are connected in pairs. A message on a connection says that its sender has
arrived at the next meeting point, or that it has failed. When a process ends, however it ends, the
kernel closes its connections, and the others notice at once. The memory has no name. The kernel
frees it with its last user, so a killed process leaves nothing behind.
"""

import contextlib
import fcntl
import json
import mmap
import os
import select
import socket
import struct
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import NamedTuple

from innet import errors
from innet.errors import AgentClosed, AllReduceError, NeighbourLost
from innet.host.job import WorkerInfo
from innet.host.waker import Waker
from innet.machine.forks import close_in_children

PIECE_BYTES = 1 << 24
"""The bytes of shared memory for each worker, and for the result."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_HELLO = struct.Struct("<q")
_ARRIVAL = struct.Struct("<3q")
_ARRIVED, _FAILED = b"A", b"F"
_MOST_BYTES = 4096  # of a message
_LONGEST_TEXT = 300  # characters of an error, each of which takes up to twelve bytes


class Arrival(NamedTuple):
    """The array that a worker brings to a meeting, (rows, lanes) int32, and its operation."""

    rows: int
    lanes: int
    operation: int


@dataclass(frozen=True)
class Place:
    """A worker's place in a group whose nodes have equally many workers.

    `ranks` are the ranks of the node's workers in the group, in order, and `index` is the position
    of this worker's. The group has `workers` in all.
    """

    ranks: Sequence[int]
    index: int
    workers: int

    def info(self, job: WorkerInfo) -> WorkerInfo:
        """Return the worker's view of the group, given the job in which it carries its slice."""
        rank = self.ranks[self.index]
        return replace(job, rank=rank, workers=self.workers, min_workers=self.workers)


class Entrance:
    """A socket at which the other workers of this node find this one, by its `name`."""

    def __init__(self) -> None:
        self.name = f"innet-{uuid.uuid4().hex}"
        self._socket = _unix_socket()
        self._socket.bind(_abstract(self.name))
        self._socket.listen()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def meet(self, place: Place, names: Sequence[str], seconds: float) -> "Node":
        """Connect to the node's other workers, given the names of all. All call this method at once.

        Raises OSError if they cannot be reached within so many seconds, or belong to other users.
        """
        deadline = monotonic() + seconds
        with contextlib.ExitStack() as stack:
            peers: dict[int, socket.socket] = {}
            for index in range(place.index):
                peers[index] = stack.enter_context(_connected(names[index], place.index, deadline))
            while len(peers) < len(place.ranks) - 1:
                self._socket.settimeout(_left(deadline))
                visitor, _ = self._socket.accept()
                index = _hello(visitor, deadline)
                if place.index < index < len(place.ranks):
                    peers[index] = stack.enter_context(visitor)
                else:
                    visitor.close()
            memory = _memory(place, peers)
            stack.pop_all()
        for peer in peers.values():
            peer.setblocking(False)
        return Node(place, peers, memory)


class Node:
    """The connections of a worker to the others of its `place`, and their `memory`.

    `memory` has a piece of :data:`PIECE_BYTES` for each worker, and one more. Use a node from one
    thread.
    """

    def __init__(self, place: Place, peers: Mapping[int, socket.socket], memory: mmap.mmap) -> None:
        self.place, self.memory = place, memory
        self._peers = peers
        self._arrivals: dict[int, deque[Arrival]] = {index: deque() for index in sorted(peers)}
        self._failed = False
        close_in_children(self)

    def arrive(self, arrival: Arrival) -> None:
        """Tell the others that this worker has arrived at the next meeting point."""
        self._tell(_ARRIVED + _ARRIVAL.pack(*arrival))

    def fail(self, problem: BaseException) -> None:
        """Tell the others that this worker has failed; only the first problem counts."""
        if not self._failed:
            self._failed = True
            text = str(problem) if isinstance(problem, AllReduceError) else repr(problem)
            content = [type(problem).__name__, text[:_LONGEST_TEXT]]
            self._tell(_FAILED + json.dumps(content).encode())

    @property
    def late(self) -> Sequence[int]:
        """Return the ranks that have not arrived at the meeting point, as of the last :meth:`check`."""
        return [self.place.ranks[index] for index in self._awaited]

    def check(self) -> None:
        """Read from those that have not arrived. Raises their error, or NeighbourLost if one has ended.

        Those that have arrived are not read: their next messages are for the time after the meeting, and
        they may have ended.
        """
        self._read(self._awaited)

    def check_all(self) -> None:
        """Read from all, between two meetings. Raises the errors of :meth:`check`.

        No worker gets past the next meeting without this one. So an end of any worker is an error.
        """
        self._read(self._arrivals)

    def wait(self, waker: Waker, seconds: float) -> None:
        """Return when there is something to read, when `waker` wakes, or after so many seconds."""
        poll = select.poll()
        poll.register(waker.descriptor, select.POLLIN)
        for index in self._awaited:
            poll.register(self._peers[index], select.POLLIN)
        poll.poll(seconds * 1000)
        waker.reset()

    def leave(self) -> Mapping[int, Arrival]:
        """Return the arrivals of the others, by rank, and leave the meeting point for the next."""
        ranks = self.place.ranks
        return {ranks[index]: queue.popleft() for index, queue in self._arrivals.items()}

    def close(self) -> None:
        """Close the connections. The memory lasts as long as an array in it."""
        for peer in self._peers.values():
            peer.close()

    @property
    def _awaited(self) -> Sequence[int]:
        return [index for index, queue in self._arrivals.items() if not queue]

    def _read(self, indices: Iterable[int]) -> None:
        for index in indices:
            with contextlib.suppress(BlockingIOError):
                self._take(index, _received(self._peers[index]))

    def _tell(self, message: bytes) -> None:
        for peer in self._peers.values():
            with contextlib.suppress(OSError):  # the next read notices a worker that has ended
                peer.send(message, socket.MSG_NOSIGNAL)

    def _take(self, index: int, message: bytes) -> None:
        rank = self.place.ranks[index]
        if not message:
            raise NeighbourLost(f"worker {rank}, on the same node, has ended: join again")
        if message.startswith(_ARRIVED):
            self._arrivals[index].append(Arrival(*_ARRIVAL.unpack(message[1:])))
            return
        name, text = json.loads(message[1:])
        kind = vars(errors).get(name, NeighbourLost)
        if issubclass(kind, AgentClosed) or not issubclass(kind, AllReduceError):
            kind = NeighbourLost
        raise kind(f"worker {rank}, on the same node: {text}")


def _abstract(name: str) -> str:
    """Return the address of a socket that is in no file system, and ends with its process."""
    return f"\0{name}"


def _unix_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)


def _left(deadline: float) -> float:
    """Return the seconds until a deadline, but at least 1 ms."""
    return max(0.001, deadline - monotonic())


def _received(peer: socket.socket) -> bytes:
    """Return the next message, empty at the end of the connection. Raises BlockingIOError."""
    try:
        return peer.recv(_MOST_BYTES)
    except ConnectionResetError:  # the other has ended, and its last messages are still there
        return peer.recv(_MOST_BYTES)


def _connected(name: str, index: int, deadline: float) -> socket.socket:
    """Return a connection to another worker, which knows this one's index."""
    peer = _unix_socket()
    try:
        peer.settimeout(_left(deadline))
        peer.connect(_abstract(name))
        if not _is_ours(peer):
            raise PermissionError(f"the socket {name} belongs to another user")
        peer.send(_HELLO.pack(index))
    except BaseException:
        peer.close()
        raise
    return peer


def _hello(visitor: socket.socket, deadline: float) -> int:
    """Return the index of a worker that has connected, or -1 if it is not one of ours."""
    if not _is_ours(visitor):
        return -1
    visitor.settimeout(_left(deadline))
    message = visitor.recv(_MOST_BYTES)
    return int(_HELLO.unpack(message)[0]) if len(message) == _HELLO.size else -1


def _is_ours(peer: socket.socket) -> bool:
    """Return whether the process at the other end is the same user's. Any user can connect."""
    content = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(content)[1] == os.geteuid())


def _memory(place: Place, peers: Mapping[int, socket.socket]) -> mmap.mmap:
    """Return memory that the node's first worker makes and passes to the others.

    Its size is sealed, so that access to it never fails.
    """
    size = (len(place.ranks) + 1) * PIECE_BYTES
    if place.index:
        _, files, *_ = socket.recv_fds(peers[0], 1, 1)
        if not files:
            raise ConnectionError("the first worker of the node has ended")
        memory = files[0]
    else:
        memory = os.memfd_create("innet-node", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        if not place.index:
            os.ftruncate(memory, size)
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
            for peer in peers.values():
                socket.send_fds(peer, [b"M"], [memory])
        if os.fstat(memory).st_size != size:
            raise OSError("the node's memory has another size: the workers' versions differ")
        return mmap.mmap(memory, size)
    finally:
        os.close(memory)
