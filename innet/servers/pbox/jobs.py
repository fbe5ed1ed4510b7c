"""A job on a server's control side: its workers, and its part of every core."""

import ctypes
import hashlib
import hmac
import secrets
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from innet.errors import (
    AlreadyExists,
    InnetError,
    NoCapacity,
    NotAuthorized,
    ParameterServerError,
    WorkerLost,
)
from innet.servers.pbox import messages, native
from innet.servers.pbox.cores import Core
from innet.servers.pbox.messages import Description, Registration
from innet.servers.pbox.optimizers import Optimizer
from innet.servers.pbox.placement import place
from innet.servers.pbox.protocol import KEY_BYTES, VIOLATIONS, CoreEvent

_TELL_WITHIN_S = 5.0
_NEW_CLIENTS = "make a new client in every worker"
_ALL_AGAIN = f"start it again, and {_NEW_CLIENTS}"


class Member:
    """A worker's control connection."""

    def __init__(self, sock: socket.socket) -> None:
        # A worker that does not read must not hold up the others.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 1, 0))
        self._sock = sock
        self._lock = threading.Lock()
        self.said_goodbye = False

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message, or hang up if the worker is gone."""
        with self._lock:
            try:
                messages.send(self._sock, message)
            except OSError:
                self.hang_up()

    def hang_up(self) -> None:
        """Close the server's direction of the connection. The worker then closes the other one."""
        try:
            self._sock.settimeout(_TELL_WITHIN_S)
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:  # the worker is gone
            pass


class ServedJob:
    """A job of one server. Call its methods, but not its constructor, under the server's lock.

    The constructor reserves the job's memory: the gradients of every worker, the parameters, and
    the optimizer's state. It raises UsageError, and NoCapacity beyond `most_bytes`.
    """

    def __init__(
        self, number: int, first: Registration, on: Sequence[Core], most_bytes: int
    ) -> None:
        self.number = number
        self.registration = replace(first, names=(), sizes=())  # these may be large
        self._described = first.described()
        self.members: dict[int, Member] = {}
        self.joined: set[int] = set()
        self.ready = first.optimizer is None
        self.ended = False
        self.cores_left = len(on)
        self._token = _digest(first.token)
        self._check_room(first, len(on), most_bytes)
        self._cores = on
        self._counts = np.zeros(len(on), native.JOB_COUNTS)
        self._keys = [[secrets.token_bytes(KEY_BYTES) for _ in range(first.workers)] for _ in on]
        placement = place(first.sizes, first.cores, first.chunk_bytes)
        before = sum(first.cores[: first.server])
        lengths = [
            np.ascontiguousarray(placement.length[placement.of_core(before + core)], np.uint32)
            for core in range(len(on))
        ]
        self.bytes = self._reserve(lengths, most_bytes)

    def join(self, worker: Registration, described: Description, member: Member) -> list[str]:
        """Admit a worker, which has described the job so. Return its keys, one for each core.

        Raises NotAuthorized, UsageError and AlreadyExists.
        """
        if not hmac.compare_digest(_digest(worker.token), self._token):
            raise NotAuthorized(
                f"the token is not that of the job {worker.job!r}: use the same as its first worker"
            )
        self._described.check_same_job(described)
        if worker.rank in self.joined:
            raise AlreadyExists(
                f"worker {worker.rank} of the job {worker.job!r} has joined already: give every worker "
                "a rank of its own"
            )
        self.joined.add(worker.rank)
        self.members[worker.rank] = member
        return [keys[worker.rank].hex() for keys in self._keys]

    def set_ready(self) -> None:
        """Tell all workers that the parameters have their initial values."""
        self.ready = True
        for member in self.members.values():
            member.tell({"ready": True})

    def leave(self, rank: int) -> None:
        """Remove a worker whose control connection has ended; end the job if it cannot go on."""
        member = self.members.pop(rank)
        if not self.members:
            self.end(None)
        elif not member.said_goodbye and not self.ended and not self._goes_on():
            self.end(
                WorkerLost(
                    f"worker {rank}'s connection broke: it has died, or its network has: {_ALL_AGAIN}"
                )
            )
        elif rank == 0 and not self.ready:
            self.end(WorkerLost("worker 0 has left before the parameters had their initial values"))

    def handle_event(self, event: np.void) -> None:
        """React to an event of a core."""
        rank = int(event["rank"])
        match int(event["kind"]):
            case CoreEvent.MISSED:
                self.end(self._missed(rank))
            case CoreEvent.SILENT:
                self.end(self._silent(rank))
            case CoreEvent.BROKE:
                self._broke(rank, VIOLATIONS[int(event["rule"])])

    def end(self, why: InnetError | None) -> None:
        """Tell all workers why, if there is a reason, and free the job's memory."""
        if self.ended:
            return
        self.ended = True
        for member in self.members.values():
            if why:
                member.tell(messages.problem(why))
            member.hang_up()
        for core in self._cores:
            core.remove(self.number)

    def counts(self) -> dict[str, int]:
        """Return the cores' counts for this job, summed up."""
        names = native.JOB_COUNTS.names or ()
        found = {name: int(self._counts[name].sum()) for name in names}
        return {**found, "most_stale": int(self._counts["most_stale"].max())}

    def stats(self) -> dict[str, int]:
        """Return the numbers of workers and of those that have joined, the bytes, and `counts`."""
        there = {"workers": self.registration.workers, "joined": len(self.members)}
        return {**there, "bytes": self.bytes, **self.counts()}

    def _goes_on(self) -> bool:
        """Return whether the job can go on without the workers that have left."""
        there = self.registration.workers - (len(self.joined) - len(self.members))
        return self.registration.asynchronous or there >= self.registration.quorum

    def _missed(self, rank: int) -> InnetError:
        return WorkerLost(
            f"worker {rank} has left the job, and others wait for it: let all workers take the same "
            f"number of steps, or, if it failed, {_ALL_AGAIN}"
        )

    def _silent(self, rank: int) -> InnetError:
        timeout = self.registration.timeout_s
        if rank not in self.joined:
            return WorkerLost(
                f"worker {rank} has not joined, and others have waited {timeout:g} s: start it "
                f"sooner, or connect with a longer timeout=, and {_NEW_CLIENTS}"
            )
        return WorkerLost(
            f"worker {rank} has kept the others waiting for {timeout:g} s: if it is stuck, {_ALL_AGAIN}; "
            "if its steps take so long, connect with a longer timeout="
        )

    def _broke(self, rank: int, rule: str) -> None:
        error = ParameterServerError(f"worker {rank} was removed from the job: {rule}")
        if not self.registration.asynchronous:
            self.end(error)
        elif rank in self.members:
            self.members[rank].tell(messages.problem(error))
            self.members[rank].hang_up()

    def _check_room(self, mine: Registration, cores: int, most_bytes: int) -> None:
        """Raise NoCapacity for a far too large job before its chunks are counted."""
        share = sum(mine.sizes) * 4 * (1 + mine.workers) * cores // sum(mine.cores)
        if share > 2 * most_bytes:
            raise NoCapacity(_too_large(mine.job, share, most_bytes))

    def _reserve(self, lengths: Sequence[np.ndarray], most_bytes: int) -> int:
        library, mine = native.library(), self.registration
        optimizer = Optimizer.of(mine.optimizer)
        record = optimizer.record() if optimizer else native.OptimizerRecord()
        needed = sum(
            library.job_bytes(mine.workers, record.rule, len(each), native.address(each))
            for each in lengths
        )
        if needed > most_bytes:
            raise NoCapacity(_too_large(mine.job, needed, most_bytes))
        made = [
            library.job_new(
                self.number, mine.workers, mine.quorum, mine.asynchronous, mine.mean,
                ctypes.byref(record), mine.timeout_s, len(each), native.address(each),
                b"".join(self._keys[core]), native.address(self._counts[core:]),
            )
            for core, each in enumerate(lengths)
        ]  # fmt: skip
        added = 0
        while all(made) and added < len(made) and self._cores[added].add(made[added]):
            added += 1
        if added < len(made):
            for core in self._cores[:added]:
                core.remove(self.number)
            for job in filter(None, made[added:]):
                library.job_free(job)
            raise NoCapacity(
                f"this server cannot allocate {needed:,} bytes for the job {mine.job!r}: use more servers"
            )
        return int(needed)


def _too_large(job: str, needed: int, left: int) -> str:
    return (
        f"the job {job!r} needs {needed:,} bytes of this server, which has {left:,} left: "
        "use more servers, or give it more with --memory"
    )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
