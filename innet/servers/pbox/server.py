"""A parameter server: cores that aggregate and optimize, and a control side that admits workers."""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from innet.errors import InnetError, NoCapacity, ServerLost, UsageError
from innet.machine.forks import Owner, close_in_children
from innet.machine.tcp import notice_death
from innet.machine.threads import start
from innet.servers.pbox import messages, native
from innet.servers.pbox.cores import Core, Events, usable_cpus
from innet.servers.pbox.handshakes import MOST_HANDSHAKES, Handshakes
from innet.servers.pbox.job_table import MOST_MEMBERS, JobTable
from innet.servers.pbox.jobs import Member, ServedJob
from innet.servers.pbox.secured import Front, ServerTls
from innet.servers.pbox.sockets import listen, parse_address, shut

_log = logging.getLogger("innet")
_BREATHER_S = 0.1
_SHOWN = 20  # characters of a version, which an unknown peer has sent


def _ignore(_event: str, **_values: object) -> None:
    """Report nothing. This is a server's default."""


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
    called with an event and its values, like a structlog logger's methods. The server's threads call
    it while they hold locks, so it must not call the server. Its errors are logged. Raises UsageError,
    NotAuthorized (the certificate has expired), NoCapacity (too many files are open, or there are too
    many threads) and CompilerError.
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
        for each in data_hosts:
            parse_address(f"{each}:0", "--data-host")
        native.library()
        self._host, self._data_hosts = host, tuple(data_hosts)
        self._report = report = partial(_report, report)
        self._lock = threading.Lock()
        self._handshakes = Handshakes()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._closed = threading.Event()
        self._tls = ServerTls(tls) if tls else None
        self._cores: list[Core] = []
        self._jobs = JobTable(self._cores, memory_bytes or _half_of_memory(), report)
        with contextlib.ExitStack() as stack:
            self._listener, self.port = self._listen(stack, host, port, "--address", _refusal)
            stack.callback(self._listener.close)
            self._events = Events(self._jobs.handle_event)
            stack.callback(self._events.close)
            cpus = usable_cpus(cores)
            hosts = self._data_hosts or (host,)
            for number in range(cores):
                where = hosts[number % len(hosts)]
                # Only the control side tells a client why TLS has refused it.
                listener, at = self._listen(stack, where, 0, "--data-host", lambda _: b"")
                listener.setblocking(False)
                cpu = cpus[number] if pin else None
                self._cores.append(Core(listener, at, self._events.into, cpu))
                stack.callback(self._cores[-1].close)
            self._accepting = threading.Thread(target=self._accept, name=f"pbox {self.port}")
            start(self._accepting)
            self._opened = stack.pop_all()
        self._owner = Owner(self)

    @property
    def address(self) -> str:
        """Return the control side's address, HOST:PORT."""
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    def stats(self) -> Stats:
        """Return a snapshot of the server."""
        jobs, reserved = self._jobs.stats()
        cores = np.array([core.counts() for core in self._cores], native.CORE_COUNTS)
        return Stats(cores, jobs, reserved)

    def close(self) -> None:
        """Tell the workers of all jobs, end the jobs, and end all threads.

        In a forked child this does nothing: the server belongs to the parent.
        """
        if not self._owner.here:
            return
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            connections = dict(self._connections)
        self._jobs.close(
            ServerLost(f"the parameter server at {self.address} was stopped: {messages.RESTART}")
        )
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for sock in connections:
            shut(sock)
        for thread in connections.values():
            thread.join()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(
        self,
        stack: contextlib.ExitStack,
        host: str,
        port: int,
        setting: str,
        refusal: Callable[[InnetError], bytes],
    ) -> tuple[socket.socket, int]:
        """Return a listening socket and its port. With TLS, a :class:`Front` is before the socket.

        The caller closes the socket, and `stack` the front.
        """
        outer = listen(host, port, setting)
        number: int = outer.getsockname()[1]
        if not self._tls:
            return outer, number
        front = Front(outer, self._tls, refusal, self._report)
        stack.callback(front.close)
        return front.listener, number

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except OSError:
                if self._closed.wait(_BREATHER_S):  # if it is not closed, too many files are open
                    return
                continue
            close_in_children(sock)
            if not self._start_handling(sock, address[0] if address else ""):
                sock.close()

    def _start_handling(self, sock: socket.socket, address: str) -> bool:
        """Start a thread that handles a connection. Return False if there is no room for it."""
        thread = threading.Thread(target=self._handle_connection, args=(sock,), name="pbox worker")
        with self._lock:
            if (
                self._closed.is_set()
                or len(self._connections) >= MOST_MEMBERS + 2 * MOST_HANDSHAKES
            ):
                return False
            self._handshakes.add(sock, address)
            try:
                start(thread)
            except NoCapacity as why:
                self._handshakes.remove(sock)
                self._report("refused", why=str(why))
                return False
            self._connections[sock] = thread
        return True

    def _handle_connection(self, sock: socket.socket) -> None:
        """Handle one control connection from its greeting to its end."""
        member = Member(sock)
        try:
            notice_death(sock)
            if (greeting := self._handshakes.hello(sock)) is None:
                return
            if greeting.get("pbox") != messages.VERSION:
                raise UsageError(
                    f"this server speaks version {messages.VERSION} of PBox's protocol, and the worker "
                    f"{str(greeting.get('pbox'))[:_SHOWN]!r}: install one version of innet on both"
                )
            member.tell({"pbox": messages.VERSION, "cores": self._core_addresses()})
            joined = self._handshakes.join(
                sock,
                lambda registration: (self._jobs.join(registration, member), registration.rank),
            )
            if joined:
                self._handle_messages(*joined, member, sock)
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

    def _core_addresses(self) -> list[list[Any]]:
        """Return host and port of every core. An empty host means that of the control side."""
        hosts = self._data_hosts or ("",)
        return [[hosts[number % len(hosts)], core.port] for number, core in enumerate(self._cores)]

    def _handle_messages(
        self, job: ServedJob, rank: int, member: Member, sock: socket.socket
    ) -> None:
        """Handle the messages of a worker that has joined a job, until it leaves."""
        try:
            self._handshakes.remove(sock)
            # A worker may compute for as long as it likes.
            sock.settimeout(None)
            while (message := messages.receive(sock, messages.MOST_SMALL_BYTES)) is not None:
                self._jobs.handle_message(message, job, rank, member)
        finally:
            self._jobs.leave(job, rank)


def _report(to: Callable[..., None], event: str, **values: object) -> None:
    """Report an event to a function of the caller, whose errors must not end a server's thread."""
    try:
        to(event, **values)
    except Exception:  # noqa: BLE001 - whatever it is
        _log.exception("the report of an event failed: %s", event)


def _refusal(why: InnetError) -> bytes:
    return messages.encoded(messages.problem(why))


def _half_of_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
