"""How fast the embedded switch is, beside BMv2: the same JSON, entries, veth pairs and traffic.

Run as root, with simple_switch_grpc on the PATH::

    python -m benchmarks.switch

Two workers send contributions through two veth pairs, each with at most a window of them unanswered,
and every pair of contributions becomes a sum that goes to both. What counts is contributions per
second while that lasts, with the window that suits the switch best (a larger one may overflow its
queues, and then something is lost), and the time until a lone contribution of a one-worker job is
answered.
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
from pathlib import Path
from typing import Annotated

import grpc
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from innet.controller.aggregation import AggregationSwitch, Attachment, JobKey
from innet.errors import InnetError
from innet.p4.artifacts import artifact
from innet.switch.engine import Engine
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import Kind, Operation
from innet.wire.records import Records, blank, packet_bytes
from topologies import namespaces

WINDOWS = (32, 64, 128, 256)
SWITCHES = {"innet-switch": [str(Path(sys.executable).with_name("innet-switch"))],
            "BMv2": ["simple_switch_grpc"]}  # fmt: skip
SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254")
EPOCH = 1
_SOL_PACKET, _STATISTICS, _TX_RING, _VERSION, _QDISC_BYPASS = 263, 6, 13, 10, 20
_TPACKET_V2, _TPACKET_V2_DATA = 1, 32
_FRAME_ROOM, _BLOCK = 2048, 1 << 16
_CLONE_NEWNET = 0x40000000
_GIVE_UP = 1.0


class Station:
    """One worker: a ring of contributions that one system call sends, and a count of answers."""

    def __init__(self, namespace: str, records: Records) -> None:
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
        offset = _TPACKET_V2_DATA + records.dtype.fields["sequence"][1]
        self._sequences = frames[:, offset : offset + 4]
        self.answers = 0

    def send(self, part: slice, sequence: int) -> None:
        """Send some of the ring's contributions, for the next use of their slots."""
        self._sequences[part] = np.frombuffer(sequence.to_bytes(4, "big"), np.uint8)
        self._status[part] = 1
        self._socket.send(b"")

    def wait(self, answers: int) -> None:
        """Return when so many answers have come since the beginning. Raises InnetError."""
        deadline = time.monotonic() + _GIVE_UP
        while self.answers < answers:
            # The kernel counts what comes, and forgets the count when it is read.
            statistics = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8)
            self.answers += struct.unpack("II", statistics)[0]
            if time.monotonic() > deadline:
                raise InnetError(f"{answers - self.answers} answers are missing")

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()


def best_throughput(
    rack: namespaces.Rack, switch: AggregationSwitch, seconds: float
) -> tuple[float, int]:
    """Contributions per second that two workers get through, and the window that this takes."""
    found = []
    for number, window in enumerate(WINDOWS, start=1):
        with contextlib.suppress(InnetError):  # lost some
            job = JobKey(number, number, 256 * number, window, 2)
            found.append((throughput(rack, switch, job, seconds), window))
    return max(found)


def throughput(
    rack: namespaces.Rack, switch: AggregationSwitch, job: JobKey, seconds: float
) -> float:
    """Contributions per second, with one window. Raises InnetError if something is lost."""
    stations = [_station(rack, switch, job, rank) for rank in range(2)]
    halves = slice(0, job.slots // 2), slice(job.slots // 2, job.slots)
    sent, started = 0, time.perf_counter()
    for sequence in range(1, 1 << 30):
        for half in halves:
            for station in stations:
                # The other half is still under way, so that the switch is never idle.
                station.wait(max(0, sent - job.slots // 2))
                station.send(half, sequence)
            sent += job.slots // 2
        if time.perf_counter() - started > seconds:
            break
    for station in stations:
        station.wait(sent)
        station.close()
    return 2 * sent / (time.perf_counter() - started)


def latency(rack: namespaces.Rack, switch: AggregationSwitch, times: int) -> float:
    """Median seconds from a lone contribution to its result."""
    station = _station(rack, switch, JobKey(10, 10, 0, WINDOWS[0], 1), 0)
    took = []
    for number in range(times):
        use, slot = divmod(number, WINDOWS[0])  # a ring is sent in order
        started = time.perf_counter()
        station.send(slice(slot, slot + 1), use + 1)
        station.wait(number + 1)
        took.append(time.perf_counter() - started)
    station.close()
    return statistics.median(took)


def pipeline(lanes: int, seconds: float) -> float:
    """Contributions per second that the compiled program answers in one thread, without ports."""
    engine, job = Engine(artifact(lanes).json), JobKey(1, 0, 0, WINDOWS[0], 1)
    own = Address("02:00:00:00:00:01", "10.0.0.1", 4000)
    _enter(engine, "service", [_number(SERVICE.ip_bytes)], "serve", [_number(SERVICE.mac_bytes)])
    key = [1, _number(own.ip_bytes), own.udp_port, job.job, EPOCH, 0]
    _enter(engine, "workers", key, "admit", [1, job.workers, job.group, job.index])
    frame = _contributions(own, job, lanes)[:1]
    frame["sequence"] = 1
    times, took = 10_000, 0.0
    while took < seconds:
        times *= 2
        started = time.perf_counter()
        engine.exercise(1, frame.tobytes(), times)
        took = time.perf_counter() - started
    engine.close()
    return times / took


def _enter(engine: Engine, table: str, key: list[int], action: str, args: list[int]) -> None:
    """Add an exact entry by the last parts of the names."""
    layout = next(each for each in engine.program.tables if each.name.endswith(f".{table}"))
    names = {each.id: each.name for each in engine.program.actions}
    number = next(each for each in layout.actions if names[each].endswith(f".{action}"))
    masks = [(1 << field.bits) - 1 for field in layout.keys]
    engine.insert(layout.name, key, masks, 1, number, args)


def main(
    seconds: Annotated[float, typer.Option(help="How long each measurement lasts.")] = 3.0,
    rounds: Annotated[int, typer.Option(help="Measurements of each; the median is shown.")] = 3,
    only: Annotated[int, typer.Option(help="Only this many lanes.")] = 0,
) -> None:
    """Compare the embedded switch with BMv2 over veth pairs."""
    if reason := namespaces.unavailable():
        raise SystemExit(reason)
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
                with namespaces.rack(2) as rack, running(rack, start, lanes) as switch:
                    rate, windows[name] = best_throughput(rack, switch, seconds)
                    rates[name].append(rate)
                    times[name].append(latency(rack, switch, 1000))
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
def running(rack: namespaces.Rack, start: list[str], lanes: int) -> Iterator[AggregationSwitch]:
    """A switch in the rack, with the aggregation program."""
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
                switch = AggregationSwitch(
                    address, 0, artifact(lanes), SERVICE, [1, 2], lambda *_: None
                )
                yield switch
                switch.close()
            finally:
                process.terminate()


def _station(rack: namespaces.Rack, switch: AggregationSwitch, job: JobKey, rank: int) -> Station:
    """A worker of the job, admitted, with a ring of contributions to all its slots."""
    if rank == 0:
        switch.open_job(job)
        switch.clear(job)
    own = Address(f"02:00:00:00:00:0{rank + 1}", f"10.0.0.{rank + 1}", 4000 + job.job)
    switch.admit(job, EPOCH, rank, Attachment(rank + 1, own))
    switch.set_members(job, [(each, each + 1) for each in range(rank + 1)])
    return Station(rack.workers[rank], _contributions(own, job, switch.lanes))


def _contributions(own: Address, job: JobKey, lanes: int) -> Records:
    """One to every slot of the job."""
    prefix = encapsulation(own, SERVICE, packet_bytes(lanes))
    records = blank(job.slots, lanes, Kind.CONTRIBUTION, prefix)
    records["operation"], records["job"], records["epoch"] = Operation.SUM, job.job, EPOCH
    records["slot"] = job.first_slot + np.arange(job.slots)
    return records


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


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
