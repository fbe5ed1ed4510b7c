"""The acts that somebody can try at a parameter server."""

import contextlib
import socket
import urllib.request
from collections.abc import Callable

import numpy as np
from racks import WITHIN

from innet.errors import NotAuthorized
from innet.servers import pbox
from innet.servers.pbox.metrics import serve_metrics
from innet.servers.pbox.protocol import HEADER, MAGIC
from innet.servers.pbox.protocol import Kind as FrameKind


def member(server: pbox.Server, job: str, rank: int, token: str) -> pbox.Client:
    return pbox.connect(
        server.address, job=job, rank=rank, workers=64, quorum=1, keys=[100], token=token,
        timeout=WITHIN,
    )  # fmt: skip


RANKS = iter(range(1, 64))


def becomes_a_member(job: str) -> Callable[[pbox.Server, str], bool]:
    def attempt(server: pbox.Server, token: str) -> bool:
        try:
            member(server, job, next(RANKS), token).close()
        except NotAuthorized:
            return False
        return True

    return attempt


def pushes(job: str) -> Callable[[pbox.Server, str], bool]:
    def attempt(server: pbox.Server, token: str) -> bool:
        with contextlib.suppress(NotAuthorized), member(server, job, next(RANKS), token) as client:
            client.push_pull([np.ones(100, np.float32)])
            return True
        # Without a rank there is no key. The only way left is to guess one at a core's port.
        [core] = server._cores
        with socket.create_connection(("127.0.0.1", core.port), WITHIN) as sock:
            number = server._jobs._jobs[job].number
            sock.sendall(
                HEADER.pack(MAGIC, FrameKind.HELLO, next(RANKS), 16, number, 0.0) + bytes(16)
            )
            with contextlib.suppress(ConnectionError):
                answer = sock.recv(1 << 10)
                assert not answer or answer[4] == 6  # a refusal
        return False

    return attempt


def creates_a_job(server: pbox.Server, token: str) -> bool:
    member(server, "new", 0, token).close()
    return True


def reads_metrics(server: pbox.Server, _: str) -> bool:
    with serve_metrics(server.stats, "127.0.0.1:0") as address:
        url = f"http://{address}/metrics"
        with urllib.request.urlopen(url, timeout=WITHIN) as answer:
            return b'job="a"' in answer.read()


PARAMETERS = {
    "read metrics": reads_metrics,
    "create a job": creates_a_job,
    "join job A": becomes_a_member("a"),
    "join job B": becomes_a_member("b"),
    "contribute to job A": pushes("a"),
    "contribute to job B": pushes("b"),
}
