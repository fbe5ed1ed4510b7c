"""A parameter server: cores that aggregate and optimize, and a control side that admits workers."""

import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from innet.errors import InnetError, NoCapacity, NotAuthorized, ServerLost, UsageError
from innet.servers.pbox import messages, native
from innet.servers.pbox.cores import Core, Events, listen, parse_address, usable_cpus
from innet.servers.pbox.handshakes import MOST_HANDSHAKES, Handshakes, shut
from innet.servers.pbox.jobs import Job, Member
from innet.servers.pbox.messages import Registration
from innet.servers.pbox.protocol import CoreEvent
from innet.servers.pbox.secured import Front, ServerTls

MOST_MEMBERS = 1024
"""The limit of workers in all jobs. Connections beyond these and the handshakes under way are refused."""
_BREATHER_S = 0.1


def _ignore(_event: str, **_values: object) -> None:
    """Report nothing: the default of a server."""


@dataclass(frozen=True)
class Stats:
    """A snapshot of a server: ``CORE_COUNTS`` per core, and the workers and counts of every job."""

    cores: np.ndarray
    jobs: dict[str, dict[str, int]]
    reserved_bytes: int


class Server:
    """A parameter server that runs in threads of this process until it is closed.

    `address` is HOST:PORT of the control side; port 0 picks a free one. Cores listen at ports of
    their own, at the same host. With `data_hosts`, the addresses of interfaces, they listen there
    in turn. `memory_bytes` is the limit for all jobs together, by default half of the machine's
    memory. With `pin`, every core has a CPU of its own as long as there are enough. With
    `tls`, a folder with a controller's certificates, all connections use mutual TLS. `report` is
    called with an event and its values, like a structlog logger's methods. Raises UsageError,
    NotAuthorized (the certificate has expired) and CompilerError.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:0",
        cores: int = 1,
        *,
        data_hosts: Sequence[str] = (),
        memory_bytes: int = 0,
        pin: bool = False,
        tls: Path | None = None,
        report: Callable[..., None] = _ignore,
    ) -> None:
        if not 1 <= cores <= messages.MOST_CORES:
            raise UsageError(f"{cores} cores: a server can have 1 to {messages.MOST_CORES}")
        host, port = parse_address(address, "--address")
        native.library()
        self._host, self._data_hosts = host, tuple(data_hosts)
        self._report = report
        self._memory = memory_bytes or _half_of_memory()
        self._lock = threading.Lock()
        self._creating = threading.Lock()  # taken before _lock
        self._handshakes = Handshakes()
        self._jobs: dict[str, Job] = {}
        self._freeing: dict[int, Job] = {}  # by number, until the cores have freed their parts
        self._last_number = 0
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._closed = threading.Event()
        self._tls = ServerTls(tls) if tls else None
        self._fronts: list[Front] = []
        self._listener, self.port = self._listen(host, port, "--address", _refusal)
        self._cores: list[Core] = []
        self._events = Events(self._heard)
        try:
            cpus = usable_cpus(cores)
            hosts = self._data_hosts or (host,)
            for number in range(cores):
                where = hosts[number % len(hosts)]
                listener, at = self._listen(where, 0, "--data-host", lambda _: b"")
                listener.setblocking(False)
                cpu = cpus[number] if pin else None
                self._cores.append(Core(listener, at, self._events.into, cpu))
        except BaseException:
            self._stop_cores()
            self._listener.close()
            raise
        self._accepting = threading.Thread(target=self._accept, name=f"pbox {self.port}")
        self._accepting.start()

    @property
    def address(self) -> str:
        """Return the control side's address, HOST:PORT."""
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    def stats(self) -> Stats:
        """Return a snapshot of the server."""
        with self._lock:
            jobs = {name: job.stats() for name, job in self._jobs.items()}
            reserved = self._reserved()
        cores = np.array([core.counts() for core in self._cores], native.CORE_COUNTS)
        return Stats(cores, jobs, reserved)

    def close(self) -> None:
        """Tell the workers of all jobs, end the jobs, and end all threads."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            why = ServerLost(
                f"the parameter server at {self.address} was stopped: {messages.RESTART}"
            )
            for job in self._jobs.values():
                job.end(why)
            connections = dict(self._connections)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for sock in connections:
            shut(sock)
        for thread in connections.values():
            thread.join()
        self._stop_cores()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(
        self, host: str, port: int, setting: str, refusal: Callable[[InnetError], bytes]
    ) -> tuple[socket.socket, int]:
        """Return a listening socket, with a front before it if there is TLS, and the port."""
        outer = listen(host, port, setting)
        number: int = outer.getsockname()[1]
        if not self._tls:
            return outer, number
        self._fronts.append(Front(outer, self._tls, refusal, self._report))
        return self._fronts[-1].listener, number

    def _stop_cores(self) -> None:
        for core in self._cores:
            core.close()
        self._events.close()
        for front in self._fronts:
            front.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._closed.wait(_BREATHER_S):  # if it is not closed, too many files are open
                    return
                continue
            thread = threading.Thread(target=self._attend, args=(sock,), name="pbox worker")
            with self._lock:
                refused = (
                    self._closed.is_set()
                    or len(self._connections) >= MOST_MEMBERS + 2 * MOST_HANDSHAKES
                )
                if not refused:
                    self._connections[sock] = thread
                    self._handshakes.add(sock)
            if refused:
                sock.close()
            else:
                thread.start()

    def _attend(self, sock: socket.socket) -> None:
        """Handle one control connection from its greeting to its end."""
        member = Member(sock)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if (greeting := self._handshakes.hello(sock)) is None:
                return
            if greeting.get("pbox") != messages.VERSION:
                raise UsageError(
                    f"this server speaks version {messages.VERSION} of PBox's protocol"
                )
            member.tell({"pbox": messages.VERSION, "cores": self._where()})
            if (who := self._handshakes.registration(sock)) is not None:
                job, rank = self._join(who, member), who.rank
                del who  # it may be large
                self._work_for(job, rank, member, sock)
        except InnetError as why:
            self._report("refused", why=str(why))
            member.tell(messages.problem(why))
            member.hang_up()
        except OSError:
            pass  # the worker is gone, or was silent for too long
        finally:
            self._handshakes.remove(sock)
            with self._lock:
                self._connections.pop(sock, None)
            sock.close()

    def _where(self) -> list[list[Any]]:
        """Return host and port of every core. An empty host means the control side's."""
        hosts = self._data_hosts or ("",)
        return [[hosts[number % len(hosts)], core.port] for number, core in enumerate(self._cores)]

    def _work_for(self, job: Job, rank: int, member: Member, sock: socket.socket) -> None:
        try:
            self._handshakes.remove(sock)
            # A worker may compute for as long as it likes. TCP keepalive notices when its machine
            # has died.
            sock.settimeout(None)
            while (message := messages.receive(sock, messages.MOST_SMALL_BYTES)) is not None:
                with self._lock:
                    self._obey(message, job, rank, member)
        finally:
            with self._lock:
                job.leave(rank)
                self._file_away(job)

    def _join(self, who: Registration, member: Member) -> Job:
        """Add a worker to its job. Jobs are created one at a time; the others go on meanwhile."""
        if who.cores[who.server] != len(self._cores):
            raise UsageError(
                f"this server has {len(self._cores)} cores, not {who.cores[who.server]}"
            )
        if job := self._add(who, member):
            return job
        with self._creating:
            return self._add(who, member) or self._create(who, member)

    def _add(self, who: Registration, member: Member, new: Job | None = None) -> Job | None:
        with self._lock:
            if self._closed.is_set():
                raise UsageError("the parameter server is being closed")
            if sum(len(each.members) for each in self._jobs.values()) >= MOST_MEMBERS:
                raise NoCapacity(f"this server is full, with {MOST_MEMBERS} workers: use another")
            job = self._jobs.get(who.job) or new
            if not job:
                return None
            if new:
                self._jobs[who.job] = new
                self._report("job", job=who.job, workers=who.workers, bytes=new.bytes)
            keys = job.join(who, member)
            member.tell({"job": job.number, "keys": keys})
            if job.ready:
                member.tell({"ready": True})
            return job

    def _create(self, who: Registration, member: Member) -> Job:
        with self._lock:
            left = self._memory - self._reserved()
        self._last_number += 1
        job = Job(self._last_number, who, self._cores, left)
        try:
            self._add(who, member, job)
        except InnetError:
            job.end(None)
            raise
        return job

    def _obey(self, message: dict[str, Any], job: Job, rank: int, member: Member) -> None:
        match message:
            case {"initialised": True} if rank == 0 and not job.ready:
                job.set_ready()
            case {"goodbye": True}:
                member.said_goodbye = True
            case {"counts": True}:
                member.tell({"counts": job.counts()})
            case _:
                raise NotAuthorized(f"worker {rank} may not send this request: {str(message)[:80]}")

    def _heard(self, event: np.void) -> None:
        number = int(event["job"])
        with self._lock:
            if int(event["kind"]) == CoreEvent.REMOVED:
                job = self._freeing.get(number)
                if job:
                    job.cores_left -= 1
                    if not job.cores_left:
                        del self._freeing[number]
                return
            for job in [*self._jobs.values()]:
                if job.number == number:
                    job.hear(event)
                    self._file_away(job)

    def _file_away(self, job: Job) -> None:
        """Free an ended job's name at once; its memory is free when the cores have let go of it."""
        if job.ended and self._jobs.get(job.registration.job) is job:
            del self._jobs[job.registration.job]
            self._freeing[job.number] = job
            self._report("job ended", job=job.registration.job, **job.counts())

    def _reserved(self) -> int:
        return sum(job.bytes for job in (*self._jobs.values(), *self._freeing.values()))


def _refusal(why: InnetError) -> bytes:
    return messages.encoded(messages.problem(why))


def _half_of_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
