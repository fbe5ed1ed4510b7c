"""Every failure is reported in time, with the worker's or the server's name."""

import _thread
import contextlib
import ctypes
import errno
import fcntl
import multiprocessing
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commands import BIN
from mortal import Mortal
from pbox_workers import WITHIN
from waiting import until

from innet.errors import (
    AlreadyExists,
    ClientClosed,
    InnetError,
    NoCapacity,
    NotAuthorized,
    ParameterServerError,
    ServerLost,
    UsageError,
    WorkerLost,
)
from innet.local.ports import free_tcp_port
from innet.machine import tcp
from innet.machine.packaged import read_folder
from innet.servers import pbox
from innet.servers.pbox import client as client_module
from innet.servers.pbox import native
from innet.servers.pbox.protocol import HEADER, KEY_BYTES, MAGIC, Kind, Violation

F = np.float32
TOKEN = "of the job"  # noqa: S105


@pytest.fixture(scope="module")
def server():
    with pbox.Server(cores=2, memory_bytes=1 << 24) as one:
        yield one


def joined(server, rank=0, workers=2, **options):
    given = {"job": "test", "keys": [20_000], "timeout": WITHIN, **options}
    return pbox.connect(server.address, rank=rank, workers=workers, **given)


def ones():
    return [np.ones(20_000, F)]


def die(client):
    """Break the connections as the death of a client's process does."""
    for sock in (*client._connections.cores, *client._connections.controls):
        sock.shutdown(socket.SHUT_RDWR)


class Pushing:
    """A push in a thread of its own."""

    def __init__(self, client):
        self.future = client.submit(ones())

    def fails_with(self, kind, why):
        problem = self.future.exception(WITHIN)
        assert type(problem) is kind, problem
        assert re.search(why, str(problem)), problem


def test_a_worker_that_leaves_is_missed_by_name(server):
    with joined(server) as first, joined(server, 1) as second:
        pushing = Pushing(first)
        second.close()
        pushing.fails_with(WorkerLost, "worker 1 has left the job, and others wait.*same number")
        with pytest.raises(
            ParameterServerError, match=r"cannot be used after an error, .*: worker 1"
        ):
            first.push_pull(ones())


def test_a_worker_that_left_before_is_missed_as_well(server):
    with joined(server) as first, joined(server, 1) as second:
        second.close()
        Pushing(first).fails_with(WorkerLost, "worker 1 has left")


def test_a_worker_that_dies_ends_the_job(server):
    with joined(server) as first, joined(server, 1) as second:
        pushing = Pushing(first)
        die(second)
        pushing.fails_with(WorkerLost, "worker 1('s connection broke| has left)")


def _push_for_ever(address):
    with pbox.connect(
        address, job="test", rank=1, workers=2, keys=[20_000], timeout=WITHIN
    ) as client:
        while True:
            client.push_pull(ones())


def test_a_process_that_is_killed_ends_the_job(server):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_push_for_ever, args=(server.address,))
    process.start()
    try:
        with joined(server, timeout=WITHIN) as first:
            first.push_pull(ones())
            process.kill()
            with pytest.raises(WorkerLost, match="worker 1"):  # noqa: PT012 - whenever it is
                while True:
                    first.push_pull(ones())
    finally:
        process.kill()
        process.join()
        process.close()


def test_the_workers_of_an_asynchronous_job_go_on_without_one_that_died(server):
    options = {"optimizer": pbox.SGD(lr=1.0), "mode": "async"}
    with joined(server, **options) as first, joined(server, 1, **options) as second:
        second.push_pull(ones())
        die(second)
        # The next test's job has this name, which is free only after both workers have left.
        until(lambda: server.stats().jobs["test"]["joined"] == 1)
        mine = ones()
        first.push_pull(mine)
        assert (mine[0] == -2).all()


def test_the_job_of_a_machine_that_is_gone_without_a_word_ends(server, monkeypatch):
    """The machine's kernel forgets the connections, as if it was started anew."""
    monkeypatch.setattr("innet.servers.pbox.server.notice_death", tcp._probe)  # every second
    client = joined(server, workers=1, optimizer=pbox.SGD(), mode="async")
    sockets = [*client._connections.cores, *client._connections.controls]

    def silent(sock):  # a late acknowledgement would find out
        info = tcp._INFO.unpack(
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, tcp._INFO.size)
        )
        return min(info[tcp._LAST_DATA_RECEIVED], info[tcp._LAST_ACK_RECEIVED]) > 500

    until(lambda: all(map(silent, sockets)))
    for sock in sockets:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, 19, 1)  # TCP_REPAIR: it is closed without a packet
        except PermissionError:
            pytest.skip("only root can close a connection without a word")
        sock.close()
    until(lambda: not server.stats().jobs)
    client.close()


def test_a_quorum_goes_on_without_one_that_died(server):
    options = {"workers": 3, "quorum": 2}
    with (
        joined(server, 0, **options) as first,
        joined(server, 1, **options) as second,
        joined(server, 2, **options) as third,
    ):
        die(third)
        pushing = Pushing(first)
        second.push_pull(ones())
        assert pushing.future.exception(WITHIN) is None
        pushing = Pushing(first)
        second.close()  # too few workers now
        pushing.fails_with(WorkerLost, "worker [12] has left")


def connecting_patiently(monkeypatch, then=WITHIN):
    """Let connecting take its time, whatever a job's timeout is. `then` is the clients' limit later."""
    opened = client_module.open_connections

    def open_connections(addresses, registration, _, security):
        connections, cores = opened(addresses, registration, WITHIN, security)
        connections._timeout = then
        return connections, cores

    monkeypatch.setattr(client_module, "open_connections", open_connections)


def test_a_worker_that_keeps_others_waiting_is_named(server, monkeypatch):
    connecting_patiently(monkeypatch)
    with joined(server, timeout=0.4) as first, joined(server, 1, timeout=0.4):
        Pushing(first).fails_with(
            WorkerLost, r"worker 1 has kept the others waiting for 0\.4 s.*timeout="
        )


def test_a_worker_that_never_comes_is_named(server, monkeypatch):
    connecting_patiently(monkeypatch)
    with joined(server, timeout=0.4) as first:
        Pushing(first).fails_with(WorkerLost, r"worker 1 has not joined, .* waited 0\.4 s")


def test_workers_that_disagree_on_the_learning_rate_are_told(server):
    options = {"optimizer": pbox.SGD(lr=0.5)}
    with joined(server, **options) as first, joined(server, 1, **options) as second:
        pushing = Pushing(first)
        second.lr = 0.25
        with pytest.raises(ParameterServerError, match="learning rate is not the other workers'"):
            second.push_pull(ones())
        pushing.fails_with(ParameterServerError, "worker [01] was removed from the job")


@pytest.mark.parametrize("rate", [-1.0, float("nan")])
def test_a_learning_rate_that_is_none_is_refused(server, rate):
    with joined(server, workers=1, optimizer=pbox.SGD(lr=1.0)) as client:
        client.lr = rate
        with pytest.raises(ParameterServerError, match="learning rate is not a number from 0 on"):
            client.push_pull(ones())


@pytest.mark.parametrize(
    ("options", "kind", "why"),
    [
        ({"rank": 0}, AlreadyExists, "worker 0 of the job 'test' has joined already"),
        ({"token": "guess"}, NotAuthorized, "the token is not that of the job 'test'"),
        ({"keys": [20_001]}, UsageError, r"sizes is \(20001,\) and \(20000,\)"),
        ({"workers": 3}, UsageError, "different ways: workers is 3 and 2"),
        ({"optimizer": pbox.SGD(lr=1)}, UsageError, "different ways: optimizer"),
        ({"reduction": "sum"}, UsageError, "different ways: mean"),
        ({"job": "large", "keys": [1 << 22]}, NoCapacity, "needs 50,3.*,... bytes of this server"),
        ({"job": ""}, UsageError, "the job has no name"),
        ({"rank": 2}, UsageError, "rank 2: it has to be 0 to 1"),
        ({"workers": 257}, UsageError, "257 workers: a job can have 1 to 256"),
        ({"mode": "both"}, UsageError, "mode is 'both'"),
        ({"mode": "async"}, UsageError, "asynchronous job needs an optimizer"),
        ({"keys": []}, UsageError, "a job needs at least one"),
        ({"initial": [np.zeros(3, F)]}, UsageError, "initial parameters need an optimizer"),
    ],
)
def test_who_does_not_fit_is_refused_and_the_job_goes_on(server, options, kind, why):
    with joined(server, token=TOKEN) as first:
        with pytest.raises(kind, match=why):
            joined(server, **{"rank": 1, "token": TOKEN, **options})
        with joined(server, 1, token=TOKEN) as second:
            pushing = Pushing(first)
            second.push_pull(ones())
            assert pushing.future.exception(WITHIN) is None


def test_without_an_address_it_is_said():
    with pytest.raises(UsageError, match="no parameter server: give the address of at least one"):
        pbox.connect([], job="test", rank=0, workers=1, keys=[1])


def test_after_counts_that_did_not_come_the_client_is_not_used_any_more():
    with pbox.Server() as server, joined(server, workers=1) as client:
        client._connections._timeout = 0.2
        with server._jobs._lock, pytest.raises(ServerLost, match="does not answer"):
            client.counts()
        with pytest.raises(ParameterServerError, match="cannot be used after an error"):
            client.push_pull(ones())


@pytest.mark.parametrize("function", ["client_new", "client_set_core"])
def test_a_client_without_memory_is_refused_and_leaves_the_job(server, monkeypatch, function):
    monkeypatch.setattr(native, "library", partial(Failing, native.library(), function))
    with pytest.raises(NoCapacity, match="no memory for a client"):
        joined(server, workers=1)
    monkeypatch.undo()
    with joined(server, workers=1) as client:
        client.push_pull(ones())


def test_a_job_without_memory_for_its_orders_is_refused(monkeypatch):
    with pbox.Server(cores=2, memory_bytes=1 << 24) as server:
        last = server._cores[-1]
        monkeypatch.setattr(last, "_library", Failing(native.library(), "core_add"))
        with pytest.raises(NoCapacity, match="cannot allocate"):
            joined(server, workers=1)
        monkeypatch.undo()
        with joined(server, workers=1) as client:
            client.push_pull(ones())


def test_orders_that_find_no_memory_are_given_again(monkeypatch):
    """Otherwise the memory of a job stays reserved, and a server that is closed waits for ever."""
    with pbox.Server(cores=1, memory_bytes=1 << 24) as server:
        [core] = server._cores
        with joined(server, workers=1):
            monkeypatch.setattr(core, "_library", Failing(native.library(), "core_remove", 2))
        until(lambda: not server.stats().reserved_bytes)
        monkeypatch.setattr(core, "_library", Failing(native.library(), "core_stop", 2))
        closing = threading.Thread(target=server.close, daemon=True)
        closing.start()
        closing.join(WITHIN)
        stopped = not closing.is_alive()
        if not stopped:
            native.library().core_stop(core._core)
        closing.join(WITHIN)
        assert stopped


def changed_library(monkeypatch, *changes):
    """Compile the C code after changes (file, text, its replacement)."""

    def changed(package, folder, suffixes):
        files = dict(read_folder(package, folder, suffixes))
        for name, text, new in changes:
            assert text in files[name]
            files[name] = files[name].replace(text, new)
        return files

    monkeypatch.setattr(native, "read_folder", changed)
    return native.library.__wrapped__()


@contextlib.contextmanager
def core_of(library):
    """Yield a core, its address, and the thread that runs it once started. Then stop it."""
    reports, into = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        core = library.core_new(listener.fileno(), into)
        running = threading.Thread(target=library.core_run, args=(core,), daemon=True)
        yield core, listener.getsockname(), running
        assert library.core_stop(core)
        running.join()
        library.core_free(core)
    for end in (reports, into):
        os.close(end)


def test_a_worker_of_a_job_that_has_ended_is_not_refused_for_being_slow(monkeypatch):
    """A core that ticks all the time notices workers that are still to be hung up on."""
    library = changed_library(
        monkeypatch,
        ("core.c", b"TICK_MS = 200", b"TICK_MS = 0"),
        ("state.h", b"HELLO_WITHIN_S = 10", b"HELLO_WITHIN_S = 0"),
    )
    key, lengths = bytes(KEY_BYTES), np.ones(1, np.uint32)
    counts, optimizer = np.zeros(1, native.JOB_COUNTS), native.OptimizerRecord()
    hello = HEADER.pack(MAGIC, Kind.HELLO, 0, KEY_BYTES, 7, 0.0) + key
    with core_of(library) as (core, address, running):
        job = library.job_new(
            7, 1, 1, False, True, ctypes.byref(optimizer), 60.0, 1, native.address(lengths), key,
            native.address(counts),
        )  # fmt: skip
        assert library.core_add(core, job)
        with socket.create_connection(address, WITHIN) as worker:
            worker.sendall(hello + HEADER.pack(MAGIC, Kind.PULL, 0, 0, 0, 0.0))
            running.start()
            assert HEADER.unpack(worker.recv(HEADER.size, socket.MSG_WAITALL))[1] == Kind.RESULT
            assert worker.recv(4, socket.MSG_WAITALL) == bytes(4)
            assert library.core_remove(core, 7)
            assert worker.recv(1) == b""  # a refusal would come first


def test_silent_connections_at_a_core_keep_no_worker_out(monkeypatch):
    """When there is no room for another connection, the oldest one that is in no job loses its place."""
    most = b"MOST_CONNECTIONS = 4096", b"MOST_CONNECTIONS = 4"
    library = changed_library(monkeypatch, ("state.h", *most))
    key, lengths = bytes(KEY_BYTES), np.ones(1, np.uint32)
    counts, optimizer = np.zeros(1, native.JOB_COUNTS), native.OptimizerRecord()
    hello = HEADER.pack(MAGIC, Kind.HELLO, 0, KEY_BYTES, 7, 0.0) + key
    with core_of(library) as (core, address, running), ExitStack() as stack:
        job = library.job_new(
            7, 1, 1, False, True, ctypes.byref(optimizer), 60.0, 1, native.address(lengths), key,
            native.address(counts),
        )  # fmt: skip
        assert library.core_add(core, job)
        silent = [stack.enter_context(socket.create_connection(address, WITHIN)) for _ in range(12)]
        worker = stack.enter_context(socket.create_connection(address, WITHIN))
        worker.sendall(hello + HEADER.pack(MAGIC, Kind.PULL, 0, 0, 0, 0.0))
        running.start()
        assert HEADER.unpack(worker.recv(HEADER.size, socket.MSG_WAITALL))[1] == Kind.RESULT
        for each in silent[:9]:
            assert HEADER.unpack(each.recv(HEADER.size, socket.MSG_WAITALL))[1] == Kind.REFUSAL


def test_a_connection_that_a_core_cannot_watch_is_refused_at_once(monkeypatch):
    """A user's epolls may watch a limited number of files. Here the third file is one too many."""
    limit = b"""
static int limited(int epoll, int does, int file, struct epoll_event *event)
{
    static int added;
    return does == EPOLL_CTL_ADD && ++added == 3 ? -1 : epoll_ctl(epoll, does, file, event);
}
#define epoll_ctl limited
enum { TICK_MS"""
    library = changed_library(monkeypatch, ("core.c", b"enum { TICK_MS", limit))
    with core_of(library) as (_, address, running):
        running.start()
        for rule in (Violation.CROWD, Violation.MAGIC):
            with socket.create_connection(address, WITHIN) as worker:
                worker.sendall(bytes(HEADER.size))
                _, kind, why, *_ = HEADER.unpack(worker.recv(HEADER.size, socket.MSG_WAITALL))
                assert (kind, why) == (Kind.REFUSAL, rule)


def test_a_core_that_finds_no_memory_for_a_connection_waits_before_it_tries_again(monkeypatch):
    without_memory = b"""
int tries;
#define accept4(...) (tries++, errno = ENOMEM, -1)
enum { TICK_MS"""
    library = changed_library(monkeypatch, ("core.c", b"enum { TICK_MS", without_memory))
    tries = ctypes.c_int.in_dll(library, "tries")
    with core_of(library) as (_, address, running):
        running.start()
        with socket.create_connection(address, WITHIN):
            until(lambda: tries.value > 1)  # it tries again after the next tick
            running.join(0.5)
            assert tries.value < 20


@pytest.mark.parametrize("event", ["job", "job ended", "refused"])
def test_a_report_that_raises_changes_nothing(event):
    def report(what, **_):
        if what == event:
            raise ValueError(what)

    with pbox.Server(cores=1, memory_bytes=1 << 24, report=report) as server:
        with joined(server, workers=1) as client, pytest.raises(AlreadyExists):
            joined(server, workers=1)
        client = joined(server, workers=2)
        client._connections.cores[0].send(bytes(32))  # the job's end is an event of a core
        with pytest.raises(ParameterServerError, match="worker 0 was removed from the job"):
            client.push_pull(ones())
        client.close()
        with joined(server, workers=1) as client:
            client.push_pull(ones())
        until(lambda: not server.stats().reserved_bytes)


def test_a_failure_is_reported_whoever_leaves_meanwhile():
    """The reader of the cores' reports waits, as for a worker that does not read its error."""
    workers, cores = 24, 8
    with pbox.Server(cores=cores) as server, ExitStack() as stack:
        fcntl.fcntl(server._events.into, fcntl.F_SETPIPE_SZ, 4096)  # room for 170 reports

        def counted(name):
            return sum(int(core.counts()[name]) for core in server._cores)

        wrong = stack.enter_context(joined(server, job="wrong", workers=1))
        clients = [stack.enter_context(joined(server, rank, workers)) for rank in range(workers)]
        until(lambda: counted("connections") == cores * (1 + workers))
        with server._jobs._lock:
            for sock in [each for client in clients for each in client._connections.cores]:
                sock.shutdown(socket.SHUT_RDWR)
            until(lambda: counted("connections") == cores)
            wrong._connections.cores[0].send(bytes(32))
            until(lambda: counted("refused"))
        with pytest.raises(ParameterServerError, match="worker 0 was removed from the job"):
            wrong.push_pull(ones())


def test_the_memory_of_many_jobs_that_end_at_once_is_free():
    """The cores report more than the pipe has room for, before anyone reads it."""
    with pbox.Server(cores=8) as server, ExitStack() as stack:
        fcntl.fcntl(server._events.into, fcntl.F_SETPIPE_SZ, 4096)  # room for 170 reports
        for number in range(30):
            stack.enter_context(joined(server, job=f"job {number}", workers=1))
        with server._jobs._lock:
            for job in [*server._jobs._jobs.values()]:
                job.end(None)
                server._jobs._file_away(job)
            until(lambda: not select.select([], [server._events.into], [], 0)[1])
        until(lambda: not server.stats().reserved_bytes)


class Failing:
    """The compiled library, one of whose functions finds no memory, the first `times` times."""

    def __init__(self, library, function, times=1000):
        self._library, self._function, self._left = library, function, times

    def __getattr__(self, name):
        if name != self._function or not self._left:
            return getattr(self._library, name)
        self._left -= 1
        return lambda *_: 0


def test_the_initial_values_are_waited_for(server, monkeypatch):
    connecting_patiently(monkeypatch, then=0.3)
    with pytest.raises(WorkerLost, match="worker 0 has not sent the initial values in time: start"):
        joined(server, 1, optimizer=pbox.SGD(), timeout=0.3)


def test_a_server_that_is_closed_says_so():
    server = pbox.Server()
    with joined(server) as client:
        pushing = Pushing(client)
        server.close()
        pushing.fails_with(ServerLost, rf"{server.address} was stopped: start it again")
    server.close()  # again


def test_a_server_that_is_killed_is_noticed():
    command = [str(BIN / "innet"), "pbox", "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # fmt: skip  # noqa: E501
        try:
            name, address = process.stdout.readline().split()
            assert name == "pbox"
            with pbox.connect(address, job="test", rank=0, workers=2, keys=[20_000]) as client:
                pushing = Pushing(client)
                process.kill()
                pushing.fails_with(ServerLost, rf"{address} has closed the connection: if it has")
        finally:
            process.kill()


def test_training_goes_on_with_a_server_that_was_started_anew():
    address = f"127.0.0.1:{free_tcp_port()}"
    server = Mortal("innet", "pbox", "serve", "--address", address)
    try:
        held, gradient = ones(), ones()
        for steps in (1, 2):
            options = {"initial": held, "optimizer": pbox.SGD(lr=0.25), "timeout": WITHIN}
            with pbox.connect(
                address, job="test", rank=0, workers=1, keys=[20_000], **options
            ) as client:
                client.push_pull(gradient, held)
                assert (held[0] == 1 - 0.25 * steps).all()
                server.kill()
                with pytest.raises(ServerLost):
                    client.push_pull(gradient, held)
                assert (held[0] == 1 - 0.25 * steps).all()
            server.start()
    finally:
        server.stop()


def test_a_server_that_hangs_is_noticed():
    command = [str(BIN / "innet"), "pbox", "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # fmt: skip  # noqa: E501
        try:
            address = process.stdout.readline().split()[1]
            with pbox.connect(
                address, job="test", rank=0, workers=1, keys=[20_000], timeout=WITHIN
            ) as client:
                client._timeout = 0.5
                process.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # all threads have stopped
                Pushing(client).fails_with(ServerLost, "have sent nothing for 0.5 s")
        finally:
            process.kill()


def test_a_core_that_workers_cannot_reach_is_named_with_its_address():
    with pbox.Server(cores=1) as other:
        other._data_hosts = ("127.0.0.2",)  # where no core listens
        port = other._cores[0].port
        with pytest.raises(
            ServerLost,
            match=rf"{other.address}, at 127\.0\.0\.2:{port}, does not answer .*refused.*--data-host",
        ):
            joined(other, workers=1)


@pytest.mark.parametrize("late", [0, 1])
def test_servers_may_start_one_long_after_the_other(monkeypatch, late):
    """A server that has started waits for a registration for less time than a client for a server."""
    addresses = [f"127.0.0.1:{free_tcp_port()}" for _ in range(2)]
    with ExitStack() as stack:
        first = stack.enter_context(pbox.Server(addresses[1 - late], memory_bytes=1 << 24))

        def hello(sock):  # the first handshake, and only this one, is over 0.5 s later
            monkeypatch.undo()
            message = first._handshakes.hello(sock)
            first._handshakes._pending[sock] = time.monotonic() + 0.5
            return message

        if late:
            monkeypatch.setattr(first._handshakes, "hello", hello)

        def start():
            if late:
                until(lambda: first._connections)
                until(lambda: not first._connections)
            stack.enter_context(pbox.Server(addresses[late], memory_bytes=1 << 24))

        starting = threading.Thread(target=start)
        starting.start()
        given = {"job": "test", "keys": [20_000], "timeout": WITHIN}
        try:
            with pbox.connect(addresses, rank=0, workers=1, **given) as client:
                client.push_pull(ones())
        finally:
            starting.join()


def test_nobody_at_the_address():
    with pytest.raises(
        ServerLost, match=r"no parameter server answers at 127.*start one with `innet pbox serve`"
    ):
        pbox.connect(
            f"127.0.0.1:{free_tcp_port()}", job="test", rank=0, workers=1, keys=[1], timeout=0.3
        )


def test_a_client_says_at_once_that_a_server_does_not_answer_yet(caplog: pytest.LogCaptureFixture):
    address = f"127.0.0.1:{free_tcp_port()}"
    with pytest.raises(ServerLost):
        pbox.connect(address, job="test", rank=0, workers=1, keys=[1], timeout=0.3)
    [said] = [
        each for each in caplog.records if "yet" in each.message
    ]  # once, not for each attempt
    assert f"no parameter server answers at {address} yet" in said.message
    assert said.message.endswith("waiting for it, up to 0.3 s")


def test_another_service_at_the_address():
    with socket.create_server(("127.0.0.1", 0)) as other:

        def speak():
            with other.accept()[0] as sock:
                sock.sendall(b"SSH-2.0-x\r\n")

        speaking = threading.Thread(target=speak)
        speaking.start()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(InnetError, match=address):
            pbox.connect(address, job="test", rank=0, workers=1, keys=[1], timeout=WITHIN)
        speaking.join()


def test_a_client_can_be_closed_while_it_waits(server):
    before = server.stats().cores["chunks"].sum()
    client = joined(server)
    pushing = Pushing(client)
    while server.stats().cores["chunks"].sum() == before:
        time.sleep(0.001)
    client.close()
    pushing.fails_with(ClientClosed, "closed while")
    with pytest.raises(ClientClosed):
        client.push_pull(ones())


def test_the_last_step_may_close_the_client(server):
    client, closed = joined(server, workers=1, job="closes itself"), threading.Event()
    may_end = threading.Event()
    client._executor.submit(may_end.wait)  # so that the callback is there before the step has ended

    def close(_):
        client.close()
        closed.set()

    client.submit(ones()).add_done_callback(close)
    may_end.set()
    assert closed.wait(WITHIN)
    assert client.bytes_moved == 0
    joined(server, workers=1, job="closes itself").close()  # the name is free again


def test_a_step_that_is_not_made_any_more_may_close_the_client_again(server):
    client = joined(server)
    first, second = client.submit(ones()), client.submit(ones())
    second.add_done_callback(lambda _: client.close())
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(WITHIN)
    assert not closing.is_alive()
    for future in (first, second):
        with pytest.raises(ClientClosed):
            future.result(WITHIN)


def test_the_bytes_are_counted_while_another_thread_closes_the_client(server):
    client = joined(server, workers=1)
    client.push_pull(ones())
    library, freed = client._library, threading.Event()

    class Slow:
        def __getattr__(self, name):
            return getattr(library, name)

        def client_bytes(self, what):
            closing.start()
            assert not freed.wait(1), "the C client is freed while it is read"
            return library.client_bytes(what)

        def client_free(self, what):
            freed.set()
            library.client_free(what)

    closing = threading.Thread(target=client.close)
    client._library = Slow()
    try:
        assert client.bytes_moved > 0
    finally:
        closing.join()
    assert client.bytes_moved == 0


def interrupting(client, number):
    """Start a thread that sends the main thread a signal as soon as the client's push is under way."""

    def interrupt():
        until(lambda: client.bytes_moved)
        _thread.interrupt_main(number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


def test_ctrl_c_interrupts_an_exchange(server):
    with joined(server) as client:
        thread = interrupting(client, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            client.push_pull(ones())
        thread.join()


def test_a_signal_handler_may_close_the_client_whose_exchange_it_interrupts(server):
    client, problems = joined(server), []

    def handle(*_):
        with pytest.raises(UsageError, match="this thread") as found:
            client.pull(ones())
        problems.append(found.value)
        client.close()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        thread = interrupting(client, signal.SIGUSR1)
        with pytest.raises(ClientClosed, match="closed while"):
            client.push_pull(ones())
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert problems
    client.close()
    assert client.bytes_moved == 0


def test_a_server_without_files_for_its_reports_is_refused(monkeypatch):
    def full():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    port = free_tcp_port()
    monkeypatch.setattr(os, "pipe", full)
    with pytest.raises(NoCapacity, match="ulimit -n"):
        pbox.Server(f"127.0.0.1:{port}")
    monkeypatch.undo()
    pbox.Server(f"127.0.0.1:{port}").close()


def without_threads(monkeypatch, name):
    """Let no thread start whose name begins so, as if there were too many."""
    begin = threading._start_new_thread

    def start(run, arguments):
        if run.__self__.name.startswith(name):
            raise RuntimeError("can't start new thread")
        return begin(run, arguments)

    monkeypatch.setattr(threading, "_start_new_thread", start)


@pytest.mark.parametrize("name", ["pbox core", "pbox events", "pbox {port}"])
def test_a_server_without_threads_is_refused_and_nothing_is_left_of_it(monkeypatch, name):
    def resources() -> set[object]:
        """Return this process's threads and open files. Those of other servers may end at any moment."""
        found: set[object] = set(threading.enumerate())
        for each in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add((each.name, each.readlink()))
        return found

    port = free_tcp_port()
    before = resources()
    without_threads(monkeypatch, name.format(port=port))
    with pytest.raises(NoCapacity, match="ulimit -u"):
        pbox.Server(f"127.0.0.1:{port}", cores=2)
    assert not resources() - before


def test_a_server_that_finds_no_thread_for_a_worker_goes_on(monkeypatch):
    with pbox.Server(cores=1, memory_bytes=1 << 24) as server:
        without_threads(monkeypatch, "pbox worker")
        with pytest.raises(ServerLost):
            joined(server, workers=1)
        monkeypatch.undo()
        with joined(server, workers=1) as client:
            client.push_pull(ones())


def test_a_step_that_finds_no_thread_is_not_made_later(server, monkeypatch):
    with joined(server, workers=1) as client:
        without_threads(monkeypatch, "pbox client")
        with pytest.raises(NoCapacity, match="ulimit -u"):
            client.submit(ones())
        monkeypatch.undo()
        with pytest.raises(ParameterServerError, match="cannot be used after an error"):
            client.submit(ones())
        assert client.bytes_moved == 0


def test_nothing_is_left_of_a_server(server):
    def held():
        return set(threading.enumerate()), len([*Path("/proc/self/fd").iterdir()])

    def busy():  # includes the rest of earlier tests
        return server.stats().cores["connections"].any() or any(
            each.name == "pbox worker" for each in threading.enumerate()
        )

    while busy():
        time.sleep(0.001)
    threads, files = held()
    with pbox.Server(cores=3) as other:
        with joined(other) as client, joined(other, 1) as second:
            pushing = Pushing(client)
            second.push_pull(ones())
            pushing.future.result(WITHIN)
        left_open = joined(other, job="left open", workers=1)
    left_open.close()
    threads_left, files_left = held()
    assert not threads_left - threads  # a thread of an earlier test may have ended
    assert files_left == files
