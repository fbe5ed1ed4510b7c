"""Speed of the embedded switch beside BMv2: the same JSON, entries, veth pairs and traffic.

Run as root, with simple_switch_grpc on the PATH::

    python -m benchmarks.switch

Two workers send contributions through two veth pairs, each with at most a window of unanswered
ones. Every pair of contributions becomes a sum that goes to both workers. Two figures are measured.
One is the contributions per second, with the window that suits the switch best; a larger one may
overflow its queues and lose packets. The other is the time until a lone contribution of a
one-worker job is answered.
"""

import contextlib
import ctypes
import mmap
import os
import platform
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import grpc
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.cores import SERVICE, TERM, contributions, pipeline
from innet.controller.jobs.records import Assignment, Attachment, SlotRange, SwitchRecord
from innet.controller.jobs.trees import Tree, shares
from innet.controller.switches.aggregation import AggregationSwitch
from innet.errors import InnetError, UsageError
from innet.p4.artifacts import artifact
from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES, Address
from innet.wire.layout import HEADER_BYTES, Kind
from innet.wire.records import Records, blank
from topologies import namespaces

WINDOWS = (32, 64, 128, 256)
SWITCHES = {"innet-switch": [str(Path(sys.executable).with_name("innet-switch"))],
            "BMv2": ["simple_switch_grpc"]}  # fmt: skip
_SOL_PACKET, _STATISTICS, _TX_RING, _VERSION, _QDISC_BYPASS = 263, 6, 13, 10, 20
_TPACKET_V2, _TPACKET_V2_DATA = 1, 32
_FRAME_ROOM, _BLOCK = 2048, 1 << 16
_CLONE_NEWNET = 0x40000000
_GIVE_UP = 1.0


class Station:
    """A worker: a ring of contributions that one system call sends, and a count of answers.

    The lanes are zero, so only the headers count in a new check.
    """

    def __init__(self, namespace: str, own: Address, records: Records) -> None:
        self._own = own
        with _entered(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            for option, value in ((_VERSION, _TPACKET_V2), (_QDISC_BYPASS, 1)):
                self._socket.setsockopt(_SOL_PACKET, option, value)
            size = len(records) * _FRAME_ROOM
            ring = struct.pack("IIII", _BLOCK, size // _BLOCK, _FRAME_ROOM, len(records))
            self._socket.setsockopt(_SOL_PACKET, _TX_RING, ring)
            self._socket.bind(("eth0", 3))
        self._socket.setblocking(False)
        self._memory = np.frombuffer(mmap.mmap(self._socket.fileno(), size), np.uint8)
        frames = self._memory.reshape(len(records), _FRAME_ROOM)
        self._status = frames.view(np.uint32)[:, 0]
        frames.view(np.uint32)[:, 1] = records.itemsize
        end = _TPACKET_V2_DATA + records.itemsize
        frames[:, _TPACKET_V2_DATA:end] = records.view(np.uint8).reshape(len(records), -1)
        start = _TPACKET_V2_DATA + ENCAPSULATION_BYTES
        self._headers = frames[:, start : start + HEADER_BYTES]
        self._blanks = blank(len(records), 0, Kind.CONTRIBUTION)
        self._blanks.view(np.uint8).reshape(self._headers.shape)[:] = self._headers
        self.answers = 0

    def send(self, part: slice, sequence: int) -> None:
        """Send some of the ring's contributions, for the next use of their slots."""
        headers = self._blanks[part]
        headers["sequence"] = sequence
        seal(headers, self._own.ip_number, self._own.udp_port)
        self._headers[part] = headers.view(np.uint8).reshape(len(headers), -1)
        self._status[part] = 1
        self._socket.send(b"")

    def wait(self, answers: int) -> None:
        """Return when `answers` answers have come since the beginning. Raises InnetError."""
        deadline = time.monotonic() + _GIVE_UP
        while self.answers < answers:
            # The kernel counts received packets, and resets the count when it is read.
            statistics = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8)
            self.answers += struct.unpack("II", statistics)[0]
            if time.monotonic() > deadline:
                raise InnetError(f"{answers - self.answers} answers are missing")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


@dataclass(frozen=True)
class Bench:
    """A switch that runs the aggregation program, and its rack."""

    rack: namespaces.Rack
    switch: AggregationSwitch
    lanes: int

    def stations(self, number: int, window: int, workers: int) -> list[Station]:
        """Return the workers of a new job, which replaces the last one."""
        own = [
            Address(f"02:00:00:00:00:0{rank + 1}", f"10.0.0.{rank + 1}", 4000 + number)
            for rank in range(workers)
        ]
        where = {rank: Attachment(rank + 1, address) for rank, address in enumerate(own)}
        slots = SlotRange(number, 256 * number, window)
        does = shares([Tree("", {})], slots, where, workers)
        job = Assignment(number, slots, TERM, where, does[""])
        if refused := self.switch.hold([job]):
            raise InnetError(refused[number])
        for _ in self.switch.clear(job.slot_range):
            pass
        return [
            Station(namespace, address, contributions(address, job, self.lanes))
            for namespace, address in zip(self.rack.workers, own, strict=False)
        ]


def best_throughput(bench: Bench, seconds: float) -> tuple[float, int]:
    """Return two workers' highest rate of contributions per second, and the window for it."""
    found = []
    for number, window in enumerate(WINDOWS, start=1):
        with contextlib.suppress(InnetError):  # some were lost
            found.append((throughput(bench, number, window, seconds), window))
    return max(found)


def throughput(bench: Bench, number: int, window: int, seconds: float) -> float:
    """Return the contributions per second with one window. Raises InnetError if something is lost."""
    stations = bench.stations(number, window, 2)
    halves = slice(0, window // 2), slice(window // 2, window)
    sent, started = 0, time.perf_counter()
    for sequence in range(1, 1 << 30):
        for half in halves:
            for station in stations:
                # The other half is still in flight, so the switch is never idle.
                station.wait(max(0, sent - window // 2))
                station.send(half, sequence)
            sent += window // 2
        if time.perf_counter() - started > seconds:
            break
    for station in stations:
        station.wait(sent)
        station.close()
    return 2 * sent / (time.perf_counter() - started)


def latency(bench: Bench, times: int) -> float:
    """Return the median seconds from a lone contribution to its result."""
    [station] = bench.stations(0, WINDOWS[0], 1)
    took = []
    for number in range(times):
        use, slot = divmod(number, WINDOWS[0])  # the ring is sent in order
        started = time.perf_counter()
        station.send(slice(slot, slot + 1), use + 1)
        station.wait(number + 1)
        took.append(time.perf_counter() - started)
    station.close()
    return statistics.median(took)


def main(
    seconds: Annotated[float, typer.Option(help="How long each measurement lasts.")] = 3.0,
    rounds: Annotated[int, typer.Option(help="Measurements of each; the median is shown.")] = 3,
    only: Annotated[int, typer.Option(help="Only this many lanes.")] = 0,
) -> None:
    """Compare the embedded switch with BMv2 over veth pairs."""
    if reason := namespaces.unavailable():
        raise UsageError(reason)
    console = Console()
    have = {name: start for name, start in SWITCHES.items() if shutil.which(start[0])}
    table = Table("lanes", "switch", "window", "contributions/s", "ratio", "lone packet, us",
                  title=f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; "
                  f"median of {rounds}")  # fmt: skip
    for lanes in [only] if only else [64, 256]:
        rates: dict[str, list[float]] = {name: [] for name in have}
        times: dict[str, list[float]] = {name: [] for name in have}
        windows: dict[str, int] = {}
        for _ in range(rounds):
            for name, start in have.items():
                with namespaces.rack(2) as rack, running(rack, start, lanes) as bench:
                    rate, windows[name] = best_throughput(bench, seconds)
                    rates[name].append(rate)
                    times[name].append(latency(bench, 1000))
        base = statistics.median(rates.get("BMv2", [float("nan")]))
        for name in have:
            rate, delay = statistics.median(rates[name]), statistics.median(times[name])
            table.add_row(
                str(lanes), name, str(windows[name]), f"{rate:,.0f}", f"{rate / base:.1f}",
                f"{delay * 1e6:.0f}",
            )  # fmt: skip
        alone = pipeline(lanes, seconds / 3)
        table.add_row(str(lanes), "innet-switch, pipeline alone", "", f"{alone:,.0f}", "", "")
    console.print(table)


@contextlib.contextmanager
def running(rack: namespaces.Rack, start: list[str], lanes: int) -> Iterator[Bench]:
    """Run a switch in the rack, with the aggregation program."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/p4runtime"
        command = [
            *namespaces.inside(rack.switch), *start, "--no-p4", "--device-id", "0",
            "-i", "1@eth1", "-i", "2@eth2", "--", "--grpc-server-addr", address, "--cpu-port", "510",
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                with grpc.insecure_channel(address) as channel:
                    grpc.channel_ready_future(channel).result(30)
                record = SwitchRecord("bench", address, 0, (1, 2), SERVICE, lanes)
                switch = AggregationSwitch(record, artifact(lanes), lambda *_: None)
                switch.start()
                yield Bench(rack, switch, lanes)
                switch.close()
            finally:
                process.terminate()


@contextlib.contextmanager
def _entered(namespace: str) -> Iterator[None]:
    libc = ctypes.CDLL(None)
    with Path("/proc/self/ns/net").open() as home, Path("/run/netns", namespace).open() as there:
        libc.setns(there.fileno(), _CLONE_NEWNET)
        try:
            yield
        finally:
            libc.setns(home.fileno(), _CLONE_NEWNET)


if __name__ == "__main__":
    typer.run(main)
