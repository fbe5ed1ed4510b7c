"""A node: the workers on one machine, which are connected by Unix sockets and share memory.

The workers of a node meet in shared memory (:mod:`innet.host.node_meetings`). They are also connected in
pairs. A worker that has failed tells the others on these connections. When a process ends, however it
ends, the kernel closes its connections, and the others notice at once. The memory has no name. The
kernel frees it with its last user, so a killed process leaves nothing behind.
"""

import contextlib
import fcntl
import json
import mmap
import os
import select
import socket
import struct
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from innet import errors
from innet.errors import AgentClosed, AllReduceError, NeighbourLost
from innet.host.job import WorkerInfo
from innet.host.node_meetings import DESCRIPTORS, Meetings, descriptors, memory_size
from innet.host.waker import Waker
from innet.machine.forks import close_in_children

PIECE_BYTES = 1 << 24
"""The bytes of shared memory for each worker, and for the result."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_HELLO = struct.Struct("<q")
_MOST_BYTES = 4096  # of a message
_LONGEST_TEXT = 300  # characters of an error, each of which takes up to twelve bytes


@dataclass(frozen=True)
class Place:
    """A worker's place in a group whose nodes have equally many workers.

    `ranks` are the ranks of the node's workers in the group, in order, and `index` is the position
    of this worker's. The group has `workers` in all. If there are several nodes, `carriers` are the
    workers of the job that carries this worker's slice: one of each node.
    """

    ranks: Sequence[int]
    index: int
    workers: int
    carriers: Sequence[int] = ()

    @property
    def has_all(self) -> bool:
        """Return whether the node has all workers of the group."""
        return len(self.ranks) == self.workers

    def info(self, job: WorkerInfo) -> WorkerInfo:
        """Return the worker's view of the group, given the job in which it carries its slice."""
        rank = self.ranks[self.index]
        return replace(
            job, rank=rank, workers=self.workers, min_workers=self.workers, group_ranks=()
        )


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
                    _dismiss(visitor)
            shared, eventfds = _memory(place, peers)
            stack.pop_all()
        for peer in peers.values():
            peer.setblocking(False)
        return Node(place, peers, shared, eventfds)


class Node:
    """The connections of a worker to the others of its `place`, their `meetings`, and their `memory`.

    `memory` has a piece of :data:`PIECE_BYTES` for each worker, and one more. Use a node from one
    thread.
    """

    def __init__(
        self,
        place: Place,
        peers: Mapping[int, socket.socket],
        shared: mmap.mmap,
        eventfds: Sequence[int],
    ) -> None:
        self.place = place
        workers = len(place.ranks)
        self._peers = dict(sorted(peers.items()))
        self.meetings = Meetings(shared, workers, place.index, eventfds)
        self.memory = memoryview(shared)[memory_size(workers) :]
        self._problems: dict[int, AllReduceError] = {}
        self._failed = False
        self._indices = {peer.fileno(): index for index, peer in self._peers.items()}
        self._polls = [self._polling(signal) for signal in self.meetings.signals]
        close_in_children(self)

    @property
    def late(self) -> Sequence[int]:
        """Return the ranks that have not arrived at the meeting."""
        return [self.place.ranks[index] for index in self._peers if not self.meetings.has(index)]

    def wait(self, waker: Waker, seconds: float) -> bool:
        """Wait until all have arrived, `waker` wakes, or so many seconds are over.

        Return whether all have arrived. Raises the error of a worker that has failed, or NeighbourLost if
        one has ended. If all have arrived, an end does not count before the next meeting.
        """
        poll = self._polls[self.meetings.turn]
        poll.register(waker.descriptor, select.POLLIN)
        if waker.descriptor in self._read(poll, 0 if self._problems else seconds):
            waker.reset()
        return self._all_here()

    def check_all(self) -> None:
        """Read from all, between two meetings. Raises the errors of :meth:`wait`.

        No worker gets past the next meeting without this one. So an end of any worker is an error.
        """
        self._read(self._polls[self.meetings.turn], 0)
        self._raise_problem()

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
            message = json.dumps(content).encode()
            for peer in self._peers.values():
                with contextlib.suppress(OSError):  # the next read notices a worker that has ended
                    peer.send(message, socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close the connections. The memory lasts as long as an array in it."""
        for peer in self._peers.values():
            peer.close()
        self.meetings.close()

    def _polling(self, signal: int) -> select.poll:
        poll = select.poll()
        for descriptor in (signal, *self._indices):
            poll.register(descriptor, select.POLLIN)
        return poll

    def _read(self, poll: select.poll, seconds: float) -> Sequence[int]:
        """Read what the others tell, within so many seconds. Return the descriptors that were ready."""
        ready = [descriptor for descriptor, _ in poll.poll(seconds * 1000)]
        for descriptor in ready:
            if (index := self._indices.get(descriptor, -1)) >= 0:
                with contextlib.suppress(BlockingIOError):
                    self._take(index, _received(self._peers[index]))
        return ready

    def _take(self, index: int, message: bytes) -> None:
        for poll in self._polls:
            poll.unregister(self._peers[index])
        if message:
            name, text = json.loads(message)
            kind = vars(errors).get(name, NeighbourLost)
            if issubclass(kind, AgentClosed) or not issubclass(kind, AllReduceError):
                kind = NeighbourLost
            self._problems = {index: kind(text), **self._problems}  # it says more than an end
        else:
            rank = self.place.ranks[index]
            text = f"worker {rank}, on the same node, has ended: join again"
            self._problems[index] = NeighbourLost(text)

    def _all_here(self) -> bool:
        """Return whether all have arrived. If not, raise the error of one that will not."""
        # One that has ended may have heard of the last arrival before this worker did.
        if not (complete := self.meetings.look()):
            self._raise_problem()
        return complete

    def _raise_problem(self) -> None:
        for problem in self._problems.values():
            raise problem


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


def _dismiss(visitor: socket.socket) -> None:
    """Close a stranger's connection. If it has brought files, they may take long to close."""
    threading.Thread(target=visitor.close, name="innet-stranger", daemon=True).start()


def _is_ours(peer: socket.socket) -> bool:
    """Return whether the process at the other end is the same user's. Any user can connect."""
    content = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(content)[1] == os.geteuid())


def _memory(place: Place, peers: Mapping[int, socket.socket]) -> tuple[mmap.mmap, Sequence[int]]:
    """Return the node's memory, and the descriptors of its meetings.

    The first worker makes both, and passes them to the others. The size of the memory is sealed, so that
    access to it never fails.
    """
    workers = len(place.ranks)
    size = memory_size(workers) + (workers + 1) * PIECE_BYTES
    with contextlib.ExitStack() as stack:
        files = []
        for each in _received_files(peers[0]) if place.index else _made_files(workers):
            stack.callback(os.close, each)
            files.append(each)
        if len(files) < 1 + DESCRIPTORS:
            raise ConnectionError("the first worker of the node has ended")
        memory, *eventfds = files
        if not place.index:
            os.ftruncate(memory, size)
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
            for peer in peers.values():
                socket.send_fds(peer, [b"M"], files)
        if os.fstat(memory).st_size != size:
            raise OSError("the node's memory has another size: the workers' versions differ")
        shared = mmap.mmap(memory, size)
        stack.pop_all()
    os.close(memory)
    return shared, eventfds


def _received_files(peer: socket.socket) -> Iterable[int]:
    """Return the files that the first worker passes, none if it has ended."""
    return socket.recv_fds(peer, 1, 1 + DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)[1]


def _made_files(workers: int) -> Iterator[int]:
    """Make and yield the memory, without content, and the descriptors of the meetings."""
    yield os.memfd_create("innet-node", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    yield from descriptors(workers)
