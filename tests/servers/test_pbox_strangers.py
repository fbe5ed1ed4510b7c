"""A stranger, who is in no job, can do little to a parameter server, and not for long."""

import contextlib
import gc
import json
import select
import socket
import struct
import subprocess
import threading
import tracemalloc
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import BIN
from pbox_workers import WITHIN, together
from waiting import until

from innet.errors import NotAuthorized, ParameterServerError, UsageError
from innet.local.processes import announced
from innet.servers import pbox
from innet.servers.pbox import handshakes, jobs, lobby, messages
from innet.servers.pbox.metrics import serve_metrics

HELLO = {"pbox": messages.VERSION}
FEW = 4
GROWTH = 320 << 20
"""The bytes by which a server's memory may grow, whatever strangers send."""


@pytest.fixture(scope="module")
def server() -> Iterator[pbox.Server]:
    with pbox.Server(memory_bytes=1 << 28) as one:
        yield one


@contextlib.contextmanager
def stranger(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), WITHIN) as sock:
        yield sock


def hear(sock: socket.socket) -> dict[str, Any] | None:
    return messages.receive(sock, messages.MOST_ANSWER_BYTES)


def announce(sock: socket.socket, size: int) -> dict[str, Any] | None:
    """Send a length and nothing behind it. Return the answer."""
    sock.sendall(struct.pack(">I", size))
    return hear(sock)


def closed(sock: socket.socket) -> bool:
    """Return whether the server has hung up."""
    try:
        return not sock.recv(1)
    except ConnectionError:
        return True


def registration(**changes: Any) -> dict[str, Any]:
    return {
        "job": "test", "token": "", "rank": 0, "workers": 1, "quorum": 1, "asynchronous": False,
        "mean": True, "names": ["a"], "sizes": [1000], "chunk_bytes": 4096, "cores": [1], "server": 0,
        "timeout_s": WITHIN, "optimizer": None, **changes,
    }  # fmt: skip


def one_step(server: pbox.Server, job: str = "well") -> None:
    """Run one step of a job of two workers, which must succeed."""

    def push(client: pbox.Client) -> None:
        mine = [np.full(1000, client.rank, np.float32)]
        client.push_pull(mine)
        assert (mine[0] == 0.5).all()

    together([server.address], 2, push, job=job, keys=[1000])


def test_a_large_hello_is_refused_at_its_length(server: pbox.Server):
    with stranger(server.address) as sock:
        said = announce(sock, 15 << 20)
    assert said["message"] == "a message of 15728640 bytes: at most 1024 are allowed"


def test_a_worker_of_another_version_is_told_both_versions(server: pbox.Server):
    with stranger(server.address) as sock:
        messages.send(sock, {"pbox": 7})
        said = hear(sock)
    assert (
        f"speaks version {messages.VERSION} of PBox's protocol, and the worker '7'"
        in said["message"]
    )
    assert "install one version of innet" in said["message"]


def test_a_large_registration_is_refused_at_its_length(server: pbox.Server):
    with stranger(server.address) as sock:
        messages.send(sock, HELLO)
        hear(sock)
        said = announce(sock, 15 << 20)
    assert said["message"] == "a message of 15728640 bytes: at most 4194304 are allowed"


def test_a_worker_says_nothing_large_after_it_has_joined(server: pbox.Server):
    with stranger(server.address) as sock:
        messages.send(sock, HELLO)
        hear(sock)
        messages.send(sock, registration())
        assert [*hear(sock)] == ["job", "keys"]
        assert hear(sock) == {"ready": True}
        assert "at most 1024 are allowed" in announce(sock, 1025)["message"]


@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_a_greeting_that_comes_byte_by_byte_ends_at_its_deadline(
    server: pbox.Server, monkeypatch: pytest.MonkeyPatch, size: int
):
    monkeypatch.setattr(handshakes, "HANDSHAKE_WITHIN_S", 0.3)
    monkeypatch.setattr(handshakes, "LARGE_WITHIN_S", 0.3)
    with stranger(server.address) as sock:
        if size > messages.MOST_SMALL_BYTES:
            messages.send(sock, HELLO)
            hear(sock)
        sock.sendall(struct.pack(">I", size))
        sock.settimeout(0.01)
        for _ in range(999):
            try:
                sock.sendall(b" ")
                if closed(sock):
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    pytest.fail("the server has listened to the end")


def test_silent_connections_keep_nobody_out(server: pbox.Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(handshakes, "MOST_HANDSHAKES", FEW)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(stranger(server.address)) for _ in range(5 * FEW)]
        assert all(closed(each) for each in silent[: -2 * FEW])
        one_step(server)


def test_large_registrations_that_do_not_come_keep_no_other_out(
    server: pbox.Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshakes, "LARGE_BYTES", 100)
    monkeypatch.setattr(handshakes, "LARGE_WITHIN_S", 1.0)
    with contextlib.ExitStack() as stack:
        for _ in range(handshakes.MOST_LARGE):
            sock = stack.enter_context(stranger(server.address))
            messages.send(sock, HELLO)
            hear(sock)
            sock.sendall(struct.pack(">I", 1000))
        one_step(server)


def test_a_small_registration_does_not_wait_for_a_large_one(
    server: pbox.Server, monkeypatch: pytest.MonkeyPatch
):
    parsing, go_on = threading.Event(), threading.Event()
    parsed = messages.parsed

    def slowly(body: bytes) -> dict[str, Any]:
        if len(body) > handshakes.LARGE_BYTES:
            parsing.set()
            assert go_on.wait(WITHIN)
        return parsed(body)

    monkeypatch.setattr(messages, "parsed", slowly)
    body = b"{}" + b" " * handshakes.LARGE_BYTES
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(flood, server.address, body)
        try:
            assert parsing.wait(WITHIN)
            one_step(server)
        finally:
            go_on.set()
        coming.result(WITHIN)


def test_one_large_registration_at_a_time_is_in_memory_until_its_worker_has_joined(
    server: pbox.Server, monkeypatch: pytest.MonkeyPatch
):
    there: list[int] = []
    join, lock, most = server._jobs.join, threading.Lock(), [0]

    def counted(*arguments: Any) -> Any:
        with lock:
            there.append(1)
            most[0] = max(most[0], len(there))
        try:
            return join(*arguments)
        finally:
            with lock:
                there.pop()

    monkeypatch.setattr(server._jobs, "join", counted)
    monkeypatch.setattr(handshakes, "LARGE_BYTES", 10)

    def come(number: int) -> None:
        with stranger(server.address) as sock:
            messages.send(sock, HELLO)
            hear(sock)
            messages.send(sock, registration(job=f"job {number}"))
            assert "keys" in hear(sock)

    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(come, range(16))]) == 16
    assert most[0] == 1


def test_a_job_keeps_no_list_of_its_keys(server: pbox.Server):
    """Its other workers have to describe the same keys nevertheless."""
    names = [f"key {number}" for number in range(20_000)]
    given = {"workers": 2, "quorum": 2, "names": names, "sizes": [1] * len(names)}

    def traced() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        with contextlib.ExitStack() as stack:
            before = traced()
            for number in range(4):
                sock = stack.enter_context(stranger(server.address))
                messages.send(sock, HELLO)
                hear(sock)
                messages.send(sock, registration(job=f"job {number}", **given))
                assert "keys" in hear(sock)
            # A worker has its answer before the server has forgotten what it has said.
            until(lambda: traced() - before < sum(map(len, names)))
            other = stack.enter_context(stranger(server.address))
            messages.send(other, HELLO)
            hear(other)
            changed = {**given, "names": [*names[:-1], "another"]}
            messages.send(other, registration(job="job 0", rank=1, **changed))
            assert "describe the job 'job 0' in different ways: names is" in hear(other)["message"]
    finally:
        tracemalloc.stop()


def test_the_address_with_most_connections_loses_its_oldest():
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(6)]
        for pair in pairs:
            for each in pair:
                stack.enter_context(each)
        full = lobby.Lobby()
        for (near, _), address in zip(pairs, "abbbcb", strict=True):
            full.enter(near, address, 4, WITHIN)
        ends = [far for _, far in pairs]
        assert [each in select.select(ends, [], [], 0)[0] for each in ends] == [
            False, True, True, False, False, False,
        ]  # fmt: skip
        assert [full.remove(near) for near, _ in pairs] == [True, False, False, True, True, True]


def test_while_a_job_is_placed_the_server_serves_all_others(
    server: pbox.Server, monkeypatch: pytest.MonkeyPatch
):
    placing, go_on = threading.Event(), threading.Event()
    place = jobs.place

    def slowly(*arguments: Any) -> Any:
        placing.set()
        assert go_on.wait(WITHIN)
        return place(*arguments)

    options = {"workers": 1, "rank": 0, "keys": [1000], "timeout": WITHIN}
    with pbox.connect(server.address, job="there", **options) as there:
        monkeypatch.setattr(jobs, "place", slowly)
        coming = threading.Thread(target=lambda: one_step(server, "slow"))
        coming.start()
        try:
            assert placing.wait(WITHIN)
            there.push_pull([np.ones(1000, np.float32)])
            assert there.counts()["updates"] > 0
            assert [*server.stats().jobs] == ["there"]
            with pytest.raises(NotAuthorized, match="the token is not that of the job 'there'"):
                pbox.connect(server.address, job="there", token="other", **options)  # noqa: S106
        finally:
            go_on.set()
            coming.join(WITHIN)
        assert "slow" not in server.stats().jobs


@pytest.mark.parametrize("field", ["job", "token", "names"])
def test_names_that_cannot_be_written_are_refused_and_metrics_are_served(
    server: pbox.Server, field: str
):
    bad = "a\ud800"
    with stranger(server.address) as sock, serve_metrics(server.stats, "127.0.0.1:0") as metrics:
        messages.send(sock, HELLO)
        hear(sock)
        messages.send(sock, registration(**{field: [bad] if field == "names" else bad}))
        said = hear(sock)
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=WITHIN) as answer:
            assert answer.status == 200
    assert said["error"] == "UsageError"
    assert "names and tokens are text that can be written as UTF-8" in said["message"]


def test_a_client_is_told_of_a_name_that_cannot_be_written(server: pbox.Server):
    with pytest.raises(UsageError, match="can be written as UTF-8"):
        pbox.connect(server.address, job="\udfff", rank=0, workers=1, keys=[1], timeout=WITHIN)


@pytest.mark.parametrize("name", ['"\\\n{}', "\0", "[/x]", "\u2028", "\U0010ffff", "x" * 200])
def test_metrics_are_served_whatever_a_job_is_called(server: pbox.Server, name: str):
    with (
        pbox.connect(server.address, job=name, rank=0, workers=1, keys=[1], timeout=WITHIN),
        serve_metrics(server.stats, "127.0.0.1:0") as metrics,
        urllib.request.urlopen(f"http://{metrics}/metrics", timeout=WITHIN) as answer,
    ):
        assert answer.status == 200


def flood(address: str, body: bytes) -> None:
    """Send an invalid registration of the largest size."""
    with stranger(address) as sock, contextlib.suppress(OSError, ParameterServerError):
        messages.send(sock, HELLO)
        hear(sock)
        sock.sendall(struct.pack(">I", len(body)) + body)
        assert "error" in hear(sock)


def test_what_strangers_send_takes_bounded_memory():
    most = messages.MOST_REGISTRATION_BYTES
    lists = b'{"names": [' + b"[]," * (most // 3 - 10) + b"[]]}"
    names = json.dumps(registration(names=["\u20ac" * 9] * (most // 60))).encode()
    command = [str(BIN / "innet"), "pbox", "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = announced(process, "pbox")
            flood(address, b"{}")
            before = peak_memory(process.pid)
            with ThreadPoolExecutor(8) as pool:
                assert len([*pool.map(lambda body: flood(address, body), (lists, names) * 4)]) == 8
            assert 0 < peak_memory(process.pid) - before < GROWTH
        finally:
            process.kill()


def peak_memory(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) << 10
