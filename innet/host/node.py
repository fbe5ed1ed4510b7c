"""A node: the workers on one machine, which meet over Unix sockets and share memory.

The workers of a node are connected in pairs. The last of them to arrive at a meeting point tells
the others on these connections. A worker that has failed tells them, too. When a process ends,
however it ends, the kernel closes its connections, and the others notice at once. The memory has no
name. The kernel frees it with its last user, so a killed process leaves nothing behind.
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
from collections.abc import Mapping, Sequence
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
_ALL_HERE = struct.Struct("<cq")
_ARRIVED, _FAILED = b"A", b"F"
_LINE = 64  # bytes
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

    @property
    def has_all(self) -> bool:
        """Return whether the node has all workers of the group."""
        return len(self.ranks) == self.workers

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
            shared, tokens = _memory(place, peers)
            stack.pop_all()
        for peer in peers.values():
            peer.setblocking(False)
        return Node(place, peers, shared, tokens)


class Node:
    """The connections of a worker to the others of its `place`, and their `memory`.

    `memory` has a piece of :data:`PIECE_BYTES` for each worker, and one more. Use a node from one
    thread.
    """

    def __init__(
        self, place: Place, peers: Mapping[int, socket.socket], shared: mmap.mmap, tokens: int
    ) -> None:
        self.place = place
        self._peers, self._tokens = dict(sorted(peers.items())), tokens
        self._meetings = _Meetings(shared, len(place.ranks))
        self.memory = memoryview(shared)[_Meetings.size(len(place.ranks)) :]
        self._number = 0  # of the last meeting at which this worker has arrived
        self._told = 0  # the last meeting that is known to be complete
        self._problems: dict[int, AllReduceError] = {}
        self._failed = False
        self._indices = {peer.fileno(): index for index, peer in self._peers.items()}
        self._poll = select.poll()
        for descriptor in self._indices:
            self._poll.register(descriptor, select.POLLIN)
        close_in_children(self)

    def arrive(self, arrival: Arrival) -> None:
        """Arrive at the next meeting point. The last worker to arrive tells the others."""
        self._number += 1
        self._meetings.note(self._number, self.place.index, arrival)
        try:
            os.eventfd_read(self._tokens)  # one worker does not get a token: the last
        except BlockingIOError:
            os.eventfd_write(self._tokens, len(self._peers))
            self._meetings.complete(self._number)
            self._told = self._number
            self._tell(_ALL_HERE.pack(_ARRIVED, self._number))

    @property
    def complete(self) -> bool:
        """Return whether all workers are known to have arrived, as of the last :meth:`check`."""
        return self._told >= self._number

    @property
    def late(self) -> Sequence[int]:
        """Return the ranks that have not arrived at the meeting point."""
        return [
            self.place.ranks[index]
            for index in self._peers
            if not self._meetings.has(self._number, index)
        ]

    def check(self) -> None:
        """Read what the others tell. Raises their error, or NeighbourLost if one has ended.

        If all have arrived at the meeting point, an end does not count before the next meeting.
        """
        if not self.complete:
            self._read()
            # One that has ended may have heard of the last arrival before this worker did, or the last to
            # arrive may have ended or been stopped before it told this worker.
            if self._meetings.is_complete(self._number):
                self._told = self._number
            else:
                self._raise_problem()

    def check_all(self) -> None:
        """Read from all, between two meetings. Raises the errors of :meth:`check`.

        No worker gets past the next meeting without this one. So an end of any worker is an error.
        """
        self._read()
        self._raise_problem()

    def wait(self, waker: Waker, seconds: float) -> None:
        """Return when there is something to read, when `waker` wakes, or after so many seconds."""
        self._poll.register(waker.descriptor, select.POLLIN)
        ready = self._poll.poll(seconds * 1000)
        if any(descriptor == waker.descriptor for descriptor, _ in ready):
            waker.reset()

    @property
    def alike(self) -> bool:
        """Return whether all workers have brought the same to the meeting point."""
        return self._meetings.alike(self._number)

    def fail(self, problem: BaseException) -> None:
        """Tell the others that this worker has failed; only the first problem counts.

        A neighbour's problem is passed on in its own words. The others may only see that both have ended.
        """
        if not self._failed:
            self._failed = True
            text = str(problem) if isinstance(problem, AllReduceError) else repr(problem)
            if problem not in self._problems.values():
                text = f"worker {self.place.ranks[self.place.index]}, on the same node: {text}"
            content = [type(problem).__name__, text[:_LONGEST_TEXT]]
            self._tell(_FAILED + json.dumps(content).encode())

    def close(self) -> None:
        """Close the connections. The memory lasts as long as an array in it."""
        for peer in self._peers.values():
            peer.close()
        if self._tokens >= 0:
            os.close(self._tokens)
            self._tokens = -1

    def _read(self) -> None:
        for descriptor, _ in self._poll.poll(0):
            if (index := self._indices.get(descriptor, -1)) >= 0:
                with contextlib.suppress(BlockingIOError):
                    self._take(index, _received(self._peers[index]))

    def _tell(self, message: bytes) -> None:
        for peer in self._peers.values():
            with contextlib.suppress(OSError):  # the next read notices a worker that has ended
                peer.send(message, socket.MSG_NOSIGNAL)

    def _take(self, index: int, message: bytes) -> None:
        if message.startswith(_ARRIVED):
            self._told = max(self._told, _ALL_HERE.unpack(message)[1])
            return
        self._poll.unregister(self._peers[index])
        if message:
            name, text = json.loads(message[1:])
            kind = vars(errors).get(name, NeighbourLost)
            if issubclass(kind, AgentClosed) or not issubclass(kind, AllReduceError):
                kind = NeighbourLost
            self._problems = {index: kind(text), **self._problems}  # it says more than an end
        else:
            rank = self.place.ranks[index]
            text = f"worker {rank}, on the same node, has ended: join again"
            self._problems[index] = NeighbourLost(text)

    def _raise_problem(self) -> None:
        for problem in self._problems.values():
            raise problem


class _Meetings:
    """The meetings of a node's workers, in shared memory.

    The first word is the number of the last complete meeting. Behind it are the numbers of each
    worker's last two meetings, and what the worker has brought to them. Two are enough: a worker comes
    to a meeting only after all have come to the one before.
    """

    def __init__(self, shared: mmap.mmap, workers: int) -> None:
        self._workers = workers
        self._words = memoryview(shared)[: self.size(workers)].cast("q")

    @staticmethod
    def size(workers: int) -> int:
        """Return the bytes of memory for the meetings of so many workers."""
        return -(-(_LINE + 2 * workers * _LINE) // mmap.PAGESIZE) * mmap.PAGESIZE

    def note(self, number: int, index: int, arrival: Arrival) -> None:
        """Note what a worker brings to a meeting."""
        at = self._at(number, index)
        self._words[at + 1], self._words[at + 2], self._words[at + 3] = arrival
        self._words[at] = number

    def alike(self, number: int) -> bool:
        """Return whether all workers have brought the same to a meeting."""
        places = (self._at(number, index) for index in range(self._workers))
        brought = [self._words[at + 1 : at + 4] for at in places]
        return all(each == brought[0] for each in brought)

    def has(self, number: int, index: int) -> bool:
        """Return whether a worker has come to a meeting."""
        return self._words[self._at(number, index)] == number

    def complete(self, number: int) -> None:
        """Note that all workers have come to a meeting."""
        self._words[0] = number

    def is_complete(self, number: int) -> bool:
        """Return whether all workers have come to a meeting."""
        return self._words[0] >= number

    def _at(self, number: int, index: int) -> int:
        return (1 + 2 * index + number % 2) * _LINE // 8


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


def _memory(place: Place, peers: Mapping[int, socket.socket]) -> tuple[mmap.mmap, int]:
    """Return the node's memory and tokens, which its first worker makes and passes to the others.

    The size of the memory is sealed, so that access to it never fails.
    """
    workers = len(place.ranks)
    size = _Meetings.size(workers) + (workers + 1) * PIECE_BYTES
    with contextlib.ExitStack() as stack:
        if place.index:
            files = socket.recv_fds(peers[0], 1, 2, socket.MSG_CMSG_CLOEXEC)[1]
            for each in files:
                stack.callback(os.close, each)
            if len(files) < 2:
                raise ConnectionError("the first worker of the node has ended")
            memory, tokens = files
        else:
            memory = os.memfd_create("innet-node", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            stack.callback(os.close, memory)
            tokens = os.eventfd(workers - 1, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            stack.callback(os.close, tokens)
            os.ftruncate(memory, size)
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
            for peer in peers.values():
                socket.send_fds(peer, [b"M"], [memory, tokens])
        if os.fstat(memory).st_size != size:
            raise OSError("the node's memory has another size: the workers' versions differ")
        return mmap.mmap(memory, size), os.dup(tokens)
