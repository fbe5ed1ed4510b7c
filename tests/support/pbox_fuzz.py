"""A fuzzer for a parameter server, beside a job that must go on undisturbed.

``python tests/support/pbox_fuzz.py SEED ROUNDS``, with the address sanitizer's library preloaded, runs it
with a server that was compiled with sanitizers. Any error ends it.
"""

import contextlib
import json
import random
import socket
import struct
import sys
import threading
from pathlib import Path

import numpy as np
from sanitizers import FLAGS, preload_no_further

from innet.errors import InnetError
from innet.servers import pbox
from innet.servers.pbox import native
from innet.servers.pbox.connections import open_connections
from innet.servers.pbox.messages import Registration
from innet.servers.pbox.protocol import MAGIC

HEADER = struct.Struct("<IB3sIIQd")
FLOATS = 40_000
WITHIN = 30.0


class Healthy(threading.Thread):
    """A worker of the job that must go on. `problem` is the error that stopped it."""

    def __init__(self, address: str, rank: int, ended: threading.Event) -> None:
        super().__init__()
        self._address, self._rank, self._ended = address, rank, ended
        self.steps, self.problem = 0, None

    def run(self) -> None:
        """Push until worker 0 pushes a NaN, so that both workers end after the same step."""
        try:
            with pbox.connect(
                self._address, job="healthy", rank=self._rank, workers=2, keys=[FLOATS],
                reduction="sum", chunk_bytes=4096, timeout=WITHIN,
            ) as client:  # fmt: skip
                mine, out = [np.empty(FLOATS, np.float32)], [np.empty(FLOATS, np.float32)]
                while True:
                    last = self._rank == 0 and self._ended.is_set()
                    mine[0][:] = np.nan if last else self.steps + self._rank
                    client.push_pull(mine, out)
                    if np.isnan(out[0]).all():
                        return
                    assert (out[0] == 2 * self.steps + 1).all()
                    self.steps += 1
        except BaseException as problem:  # noqa: BLE001 - the test raises it
            self.problem = problem


def frame(chance: random.Random, *, hello: bytes = b"") -> bytes:
    """Return a frame in which some fields are right and some are not, or no frame at all."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(1, 200))
    odd = chance.choice([0, 1, 2**31, 2**32 - 1, chance.getrandbits(32)])
    fields = [MAGIC, chance.choice([2, 2, 3, 3, 4]), bytes(3), chance.randrange(3), 4096, 0, 0.1]
    if fields[1] == 3:
        fields[4] = 0
    if chance.random() < 0.3:
        where = chance.randrange(len(fields))
        fields[where] = {
            0: odd, 1: odd & 255, 2: chance.randbytes(3), 3: odd, 4: odd, 5: odd * odd,
            6: chance.choice([float("nan"), float("inf"), -1.0]),
        }[where]  # fmt: skip
    content = chance.randbytes(min(fields[4], 4096) if chance.random() < 0.9 else 100)
    return hello + HEADER.pack(*fields) + content


def registration(chance: random.Random, number: int) -> Registration:
    """Return the registration of a small job for a worker that will misbehave."""
    asynchronous = chance.random() < 0.4
    workers = chance.choice([1, 2, 3])
    return Registration(
        job=f"fuzz {number}", token="", rank=0, workers=workers,
        quorum=workers if asynchronous else chance.randint(1, workers), asynchronous=asynchronous,
        mean=True, names=("a",), sizes=(3 * 1024,), chunk_bytes=4096, cores=(1,), server=0,
        timeout_s=WITHIN, optimizer=pbox.Adam().settings() if asynchronous else None,
    )  # fmt: skip


def misbehave(address: str, chance: random.Random, number: int) -> None:
    """Join a job, then send anything, and read the answers or not."""
    connections, cores = open_connections([address], registration(chance, number), WITHIN)
    with contextlib.suppress(OSError):
        for core in cores:
            core.sock.setblocking(True)
            core.sock.settimeout(0.2)
            core.sock.sendall(b"".join(frame(chance) for _ in range(chance.randrange(1, 12))))
            if chance.random() < 0.5:
                core.sock.recv(1 << 16)
    connections.close(goodbye=chance.random() < 0.5)


def knock(address: tuple[str, int], chance: random.Random) -> None:
    """Connect to a core without having joined a job."""
    with socket.create_connection(address, WITHIN) as sock, contextlib.suppress(OSError):
        odd = chance.choice([16, 15, 0, 2**32 - 1])
        hello = HEADER.pack(
            MAGIC, 1, bytes(3), chance.getrandbits(2), odd, chance.getrandbits(3), 0
        )
        sock.sendall(frame(chance, hello=hello + chance.randbytes(16)))
        if chance.random() < 0.5:
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(WITHIN)
            while sock.recv(4096):
                pass


def talk(address: tuple[str, int], chance: random.Random, number: int) -> None:
    """Send damaged JSON, wrong values and false lengths to the control port."""
    with socket.create_connection(address, WITHIN) as sock, contextlib.suppress(OSError):
        hello = json.dumps({"pbox": chance.choice([1, 1, 1, 2, None])}).encode()
        values = registration(chance, number).message()
        name = chance.choice([*values])
        values[name] = chance.choice(
            [None, -1, 2**70, "x" * 300, [], [[]], {}, 1e308, True, [2**41]]
        )
        body = bytearray(json.dumps(values).encode())
        if chance.random() < 0.3:
            body[chance.randrange(len(body))] = chance.randrange(256)
        if chance.random() < 0.1:
            body = bytearray(b"[" * 100_000)
        size = len(body) if chance.random() < 0.9 else chance.getrandbits(32)
        sock.sendall(struct.pack(">I", len(hello)) + hello + struct.pack(">I", size) + body)
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(WITHIN)
        while sock.recv(4096):
            pass


def run(seed: int, rounds: int) -> int:
    """Run all rounds. Return how many connections the cores have refused; raise any error."""
    chance = random.Random(seed)
    ended = threading.Event()
    with pbox.Server(cores=1, memory_bytes=1 << 26) as server:
        workers = [Healthy(server.address, rank, ended) for rank in range(2)]
        for each in workers:
            each.start()
        control = ("127.0.0.1", server.port)
        core = ("127.0.0.1", server._cores[0].port)
        for number in range(rounds):
            knock(core, chance)
            talk(control, chance, number)
            with contextlib.suppress(InnetError):
                misbehave(server.address, chance, number)
        ended.set()
        for each in workers:
            each.join(WITHIN)
            if each.problem:
                raise each.problem
            assert each.steps > 0
        for _ in range(1000):
            if not server.stats().reserved_bytes:
                break
            threading.Event().wait(0.01)
        assert server.stats().reserved_bytes == 0
        assert server.stats().jobs == {}
        return int(server.stats().cores["refused"].sum())


if __name__ == "__main__":
    preload_no_further()
    native.FLAGS = (*native.FLAGS, *FLAGS)
    refused = run(int(sys.argv[1]), int(sys.argv[2]))
    Path("/dev/stdout").write_text(f"clean: {refused} refused\n")
