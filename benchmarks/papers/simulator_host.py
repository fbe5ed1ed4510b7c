"""Measurements on a host that the simulator is compared with.

``python -m benchmarks.papers.simulator_host`` takes what to measure, as JSON, and a folder in which
every host writes its measurements. All hosts of an emulation have the same monotonic clock.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import innet
from benchmarks.emulated.links import own_link
from innet.host.agent import Agent

_LANES = 256
_PAYLOAD = bytes(1000)
_PACKETS = 3  # as in benchmarks.papers.simulator
_DISCARD = 9  # the port that RFC 863 reserves for what nobody needs
_IDLE = 3.0  # seconds: several heartbeats

Times = list[list[float]]


def timed(
    repeats: int, agent: Agent, call: Callable[[], object], rest: float, late: float = 0.0
) -> Times:
    """Return the start and the end of each call, and the packets that it repeated.

    A first call does not count. All hosts begin together, when the links' buckets are full again.
    """
    found = []
    for _ in range(repeats + 1):
        agent.barrier()
        time.sleep(rest + late)
        repeated, started = agent.traffic.retransmissions, time.monotonic()
        call()
        ended = time.monotonic()
        found.append([started, ended, agent.traffic.retransmissions - repeated])
    return found[1:]


def control_traffic() -> float:
    """Return the bits per second on this host's link while it sums nothing, in the busier direction."""
    before = own_link()
    time.sleep(_IDLE)
    return max(8 * (now - then) / _IDLE for now, then in zip(own_link(), before, strict=True))


@contextmanager
def other_traffic(rank: int, hosts: int, period: float) -> Iterator[None]:
    """Send bursts of datagrams to the next host, at equal intervals, if the period is not 0."""
    done = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            target = (f"h{(rank + 1) % hosts + 1}", _DISCARD)
            due = time.monotonic() + period * rank / hosts
            while not done.wait(max(0.0, due - time.monotonic())):
                for _ in range(_PACKETS):
                    sender.sendto(_PAYLOAD, target)
                due += period

    sender = threading.Thread(target=send)
    if period:
        sender.start()
    try:
        yield
    finally:
        done.set()
        if period:
            sender.join()


def measured(agent: Agent, given: dict[str, Any], rank: int, hosts: int) -> dict[str, Any]:
    """Return the control traffic, and times of barriers without other traffic, and of sums with it."""
    repeats, rest = given["repeats"], given["rest"]
    late = given["late"] if rank == 0 else 0.0
    barrier = timed(repeats, agent, agent.barrier, rest)
    control = control_traffic()
    sums = {}
    with other_traffic(rank, hosts, given["period"]):
        for count in given["chunks"]:
            vector = np.ones(_LANES * count, np.int32)
            call = partial(agent.all_reduce, vector, "sum")
            sums[count] = timed(repeats, agent, call, rest, late)
        agent.barrier()
    return {"control": control, "barrier": barrier, "sums": sums}


def main(arguments: Sequence[str]) -> None:
    """Measure, and write the file of this host's rank."""
    rank, hosts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("", _DISCARD))  # so that no host answers that nobody listens
        with innet.join() as agent:
            found = measured(agent, json.loads(arguments[0]), rank, hosts)
    (Path(arguments[1]) / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
