"""The parameter server over mutual TLS: who is let in, and that sums and steps are the same."""

import contextlib
import errno
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from authorities import mixed
from commands import BIN, run
from pbox_workers import together
from waiting import WITHIN, until

from innet.errors import InnetError, NoCapacity, NotAuthorized, ServerLost, WorkerLost
from innet.local.processes import announced
from innet.rpc import tls
from innet.rpc.certificates import issue, make
from innet.rpc.issued import revoke
from innet.servers import pbox
from innet.servers.pbox import secured

SIZES = [100_000, 3]


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[pbox.Server]:
    with pbox.Server(cores=2, memory_bytes=1 << 26, tls=folder) as running:
        yield running


def settled_files(server: pbox.Server) -> int:
    """Return the number of open files when the server has closed what earlier tests had opened."""
    names = {"pbox handshake", "pbox tls", "pbox worker"}
    until(
        lambda: (
            not server.stats().cores["connections"].any()
            and not any(each.name in names for each in threading.enumerate())
        )
    )
    return files()


def files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def member(server: pbox.Server, folder: Path | None, rank: int = 0, **more: Any) -> pbox.Client:
    given = {"job": "job", "workers": 1, "keys": [100], "timeout": WITHIN, **more}
    return pbox.connect(server.address, rank=rank, tls=folder, **given)


def steps(client: pbox.Client) -> list[np.ndarray]:
    """Take three steps with gradients of the rank's own."""
    chance = np.random.default_rng(client.rank)
    out = [np.empty(size, np.float32) for size in SIZES]
    for _ in range(3):
        client.push_pull([chance.standard_normal(size, np.float32) for size in SIZES], out)
    return out


def test_steps_have_the_same_bits_with_tls_and_without(server: pbox.Server, folder: Path):
    job = {"keys": SIZES, "optimizer": pbox.Adam(lr=0.1)}
    with pbox.Server(cores=2, memory_bytes=1 << 26) as plain:
        expected = together([plain.address], 2, steps, **job)
    with pbox.Server(memory_bytes=1 << 26, tls=folder) as other:
        found = together([server.address, other.address], 2, steps, tls=folder, **job)
    for mine, others in zip(expected, found, strict=True):
        for key, parameters in zip(mine, others, strict=True):
            assert np.array_equal(key, parameters)


def test_a_server_that_is_killed_is_noticed_and_named_and_leaves_no_files(
    folder: Path, tmp_path: Path
):
    command = [
        str(BIN / "innet"),
        "pbox",
        "serve",
        "--address",
        "127.0.0.1:0",
        "--tls",
        str(folder),
    ]
    settings = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings) as process:
        try:
            address = announced(process, "pbox")
            given = {"job": "job", "rank": 0, "workers": 2, "keys": [1_000_000], "timeout": WITHIN}
            with pbox.connect(address, tls=folder, **given) as client:
                pushing = client.submit([np.ones(1_000_000, np.float32)])
                until(lambda: client.bytes_moved > 1_000_000)
                process.kill()
                problem = pushing.exception(WITHIN)
        finally:
            process.kill()
    assert type(problem) is ServerLost, problem
    assert f"{address} has closed the connection" in str(problem)
    assert not [*tmp_path.iterdir()]


def test_a_job_ends_as_without_tls(server: pbox.Server, folder: Path):
    for _ in range(2):  # a closed client has left its job, and the name is free
        with member(server, folder) as client:
            client.push_pull([np.ones(100, np.float32)])
            assert client.counts()["updates"] == 1
    until(lambda: not server.stats().jobs)


def test_nothing_can_be_read_on_the_way(server: pbox.Server, folder: Path):
    token = "a token that nobody else may read"  # noqa: S105
    with recording(server.port) as (port, heard):
        given = {"job": "read", "rank": 0, "workers": 1, "keys": [1], "token": token}
        with pbox.connect(f"127.0.0.1:{port}", tls=folder, timeout=WITHIN, **given):
            pass
        assert heard
        assert token.encode() not in heard
    with pbox.Server() as plain, recording(plain.port) as (port, heard):
        with pbox.connect(f"127.0.0.1:{port}", timeout=WITHIN, **given):
            pass
        assert token.encode() in heard


def test_only_a_worker_or_an_administrator_is_let_in(server, folder, foreign, tmp_path):
    issue(folder, "alice", [tls.USER])
    posing = tmp_path / "posing"
    posing.mkdir()
    for name in ("", "-key"):  # a user poses as a worker
        shutil.copy(folder / f"alice/user{name}.pem", posing / f"worker{name}.pem")
    (posing / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
    with pytest.raises(NotAuthorized, match=r"needs the certificate of .*, .* is for: user"):
        member(server, posing)
    with pytest.raises(NotAuthorized, match="has ended the TLS connection"):
        member(server, mixed(tmp_path, folder, foreign))
    with pytest.raises(NotAuthorized, match=r"a certificate that .*ca.pem does not stand for"):
        member(server, foreign)
    with pytest.raises(ServerLost, match=r"has closed the connection|broke"):
        member(server, None)
    with pbox.Server() as plain, pytest.raises(ServerLost, match="made no TLS connection"):
        member(plain, folder, timeout=5)
    assert not server.stats().jobs


def test_a_core_takes_no_plain_connection_and_nobody_without_a_certificate(server):
    [core, *_] = server._cores
    with socket.create_connection(("127.0.0.1", core.port), WITHIN) as sock:
        sock.sendall(b"PBX1" + bytes(28))
        with contextlib.suppress(ConnectionError):
            while received := sock.recv(1 << 10):
                assert received[0] == 21  # an alert of TLS
    assert core.counts()["connections"] == 0


def test_a_revoked_worker_is_out_and_comes_not_back(tmp_path: Path):
    make(tmp_path, [])
    for name in ("alice", "mallory"):
        issue(tmp_path, name, [tls.WORKER])
    said: list[dict[str, Any]] = []

    def report(event: str, **facts: Any) -> None:
        said.append({"event": event, **facts})

    with (
        pbox.Server(tls=tmp_path, report=report) as server,
        member(server, tmp_path / "alice", 0, workers=2) as alice,
        member(server, tmp_path / "mallory", 1, workers=2) as mallory,
    ):
        futures = [each.submit([np.ones(100, np.float32)]) for each in (alice, mallory)]
        for each in futures:
            each.result(WITHIN)
        revoke(tmp_path, "mallory")
        with pytest.raises(NotAuthorized, match="this certificate has been revoked"):
            member(server, tmp_path / "mallory", job="another")
        refused = [each for each in said if each["event"] == "refused"]
        assert {each["who"] for each in refused} == {"mallory"}
        with pytest.raises(WorkerLost, match="worker 1"):
            alice.push_pull([np.ones(100, np.float32)])
        with pytest.raises(InnetError):
            mallory.push_pull([np.ones(100, np.float32)])


def test_connections_that_say_nothing_keep_nobody_out(
    server: pbox.Server, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(secured, "_MOST_HANDSHAKES", 4)
    monkeypatch.setattr(secured, "_HANDSHAKE_WITHIN_S", 100 * WITHIN)
    address = "127.0.0.1", server.port
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address, WITHIN)) for _ in range(20)]
        for _ in range(3):
            with member(server, folder) as client:
                client.push_pull([np.ones(100, np.float32)])
        for each in silent[:16]:
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b""


def test_a_connection_that_says_nothing_ends_soon(
    server: pbox.Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(secured, "_HANDSHAKE_WITHIN_S", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), WITHIN) as silent:
        assert silent.recv(1) == b""


def test_a_refused_client_that_stays_is_sent_away(
    server: pbox.Server, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(secured, "_LEAVES_WITHIN_S", 0.2)
    issue(folder, "trickler", [tls.USER])
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    context.check_hostname = False
    own = folder / "trickler"
    context.load_cert_chain(own / "user.pem", own / "user-key.pem")
    with (
        socket.create_connection(("127.0.0.1", server.port), WITHIN) as plain,
        context.wrap_socket(plain) as client,
    ):
        assert b"needs the certificate of" in client.recv(1 << 12)
        ended = threading.Event()
        until = time.monotonic() + WITHIN
        with contextlib.suppress(OSError):
            while time.monotonic() < until:  # a byte at a time, which the server used to wait for
                client.sendall(b"x")
                ended.wait(0.01)
        assert time.monotonic() < until


def test_a_server_is_closed_at_once_also_during_a_handshake(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def do_handshake(sock: ssl.SSLSocket) -> None:
        begun.set()
        handshake(sock)

    begun, handshake = threading.Event(), ssl.SSLSocket.do_handshake
    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", do_handshake)
    monkeypatch.setattr(secured, "_HANDSHAKE_WITHIN_S", 2 * WITHIN)
    with pbox.Server(tls=folder) as server:
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port))):
            assert begun.wait(WITHIN)
            server.close()


@pytest.mark.parametrize("name", ["pbox front", "pbox handshake", "pbox tls"])
def test_a_server_that_finds_no_thread_goes_on_or_leaves_nothing(
    server: pbox.Server, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    def start(run: Any, arguments: Any) -> int:
        if run.__self__.name.startswith(name):
            raise RuntimeError("can't start new thread")
        return begin(run, arguments)

    begin, before = threading._start_new_thread, settled_files(server)
    if name == "pbox front":
        monkeypatch.setattr(threading, "_start_new_thread", start)
        with pytest.raises(NoCapacity, match="ulimit -u"):
            pbox.Server(tls=folder)
    else:
        with pbox.Server(memory_bytes=1 << 26, tls=folder) as other:
            monkeypatch.setattr(threading, "_start_new_thread", start)
            with pytest.raises(NoCapacity if name == "pbox tls" else ServerLost):
                member(other, folder)
            monkeypatch.undo()
            with member(other, folder) as client:
                client.push_pull([np.ones(100, np.float32)])
    assert files() == before


@pytest.mark.parametrize("room", [0, 1])
def test_a_server_without_files_for_its_cores_is_refused_and_nothing_is_left_of_it(
    server: pbox.Server, folder: Path, monkeypatch: pytest.MonkeyPatch, room: int
):
    def bind(listener: socket.socket) -> int:
        if len(bound) == room:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        bound.append(listener)
        return real(listener)

    bound: list[socket.socket] = []
    real, before = secured._bind, settled_files(server)
    monkeypatch.setattr(secured, "_bind", bind)
    with pytest.raises(NoCapacity, match="ulimit -n"):
        pbox.Server(tls=folder)
    assert files() == before


def test_the_commands_use_tls(folder: Path):
    command = [
        str(BIN / "innet"),
        "pbox",
        "serve",
        "--address",
        "127.0.0.1:0",
        "--tls",
        str(folder),
    ]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        address = announced(process, "pbox")
        bench = ["pbox", "bench", address, "--steps", "2", "--megabytes", "1"]
        done = run("innet", *bench, INNET_TLS=str(folder))
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"2 .* None .* \d+", done.stdout)
        assert run("innet", *bench, INNET_TLS="").returncode != 0


@contextlib.contextmanager
def recording(port: int) -> Iterator[tuple[int, bytearray]]:
    """Pass one connection on to a port. Yield another port that leads there, and the bytes sent."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def carry(source: socket.socket, sink: socket.socket, copy: bytearray) -> None:
            with contextlib.suppress(OSError):
                while content := source.recv(1 << 16):
                    copy.extend(content)
                    sink.sendall(content)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

        def serve() -> None:
            near, _ = listener.accept()
            with near, socket.create_connection(("127.0.0.1", port)) as far:
                back = threading.Thread(target=carry, args=(far, near, bytearray()))
                back.start()
                carry(near, far, heard)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], heard
        thread.join()
