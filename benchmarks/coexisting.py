"""The programs of :mod:`benchmarks.coexistence`: a worker, and the two ends of TCP flows.

Each works until it is ended. For every line of its input it prints its counts as JSON.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from innet.host.agent import Agent
from innet.host.join import join

PORT = 5201
_CONTROLLER = "10.0.0.3:9600"
_PIECE = 1 << 16


class Sums:
    """All-reduces of one vector, again and again, and the number of those that were wrong."""

    def __init__(self, agent: Agent, rank: int, elements: int) -> None:
        self._agent = agent
        vectors = np.random.default_rng(1).integers(-1000, 1000, (2, elements), np.int32)
        self._own, self._sum = vectors[rank], vectors.sum(0, np.int32)
        self.done = self.wrong = 0

    def run(self) -> None:
        """Sum until the process ends."""
        while True:
            result = self._agent.all_reduce(self._own, op="sum")
            self.wrong += not np.array_equal(result, self._sum)
            self.done += 1

    def counts(self) -> dict[str, Any]:
        """Return counts of sums and of chunks with a result, and the bytes of these chunks' frames."""
        traffic = self._agent.traffic
        frame = traffic.bytes_sent / max(1, traffic.packets_sent)
        return {
            "chunks": traffic.chunks, "bytes": traffic.chunks * frame,
            "repeated": traffic.retransmissions, "sums": self.done, "wrong": self.wrong,
        }  # fmt: skip


class Sink:
    """The receiving ends of TCP flows."""

    def __init__(self, flows: int) -> None:
        self._flows = flows
        self._taken = [0] * flows
        self._listener = socket.create_server(("", PORT))

    def run(self) -> None:
        """Accept the flows, and take what they bring."""
        for number in range(self._flows):
            end, _ = self._listener.accept()
            threading.Thread(target=self._take, args=(end, number), daemon=True).start()

    def counts(self) -> dict[str, Any]:
        """Return the bytes so far."""
        return {"bytes": sum(self._taken)}

    def _take(self, end: socket.socket, number: int) -> None:
        while data := end.recv(_PIECE):
            self._taken[number] += len(data)


def send(ip: str, kind: str) -> None:
    """Send on one TCP flow with this congestion control until the process ends."""
    piece = bytes(_PIECE)
    with socket.socket() as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, kind.encode())
        end.connect((ip, PORT))
        while True:
            end.sendall(piece)


def main(role: str, *arguments: str) -> None:
    """Do the work of a role."""
    if role == "worker":
        token, rank, elements = arguments
        agent = join(_CONTROLLER, "job", int(rank), "host", token=token)
        sums = Sums(agent, int(rank), int(elements))
        work([sums.run], sums.counts)
    elif role == "sink":
        sink = Sink(int(arguments[0]))
        work([sink.run], sink.counts)
    else:
        ip, flows, kind = arguments
        work([lambda: send(ip, kind)] * int(flows), dict)


def work(tasks: Sequence[Callable[[], None]], counts: Callable[[], dict[str, Any]]) -> None:
    """Run the tasks, each in a thread, and answer questions for counts."""
    for each in tasks:
        threading.Thread(target=each, daemon=True).start()
    for _ in sys.stdin:
        sys.stdout.write(json.dumps({"time": time.monotonic(), **counts()}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
