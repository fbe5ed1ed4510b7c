"""Speed of the embedded switch's ways to use interfaces, beside BMv2 and beside loops without a program.

Run as root, with simple_switch_grpc on the PATH::

    python -m benchmarks.switch

All use the same veth pairs and the same traffic. Both switches also have the same JSON and entries.
Two workers send contributions through two veth pairs, each with at most a window of unanswered
ones. As agents do, they give the kernel many contributions at once. Every pair of contributions
becomes a sum that goes to both workers. A loop sends every contribution back instead, so it handles
as many frames. With *super-frames*, workers have their offloads on, and send and receive through UDP
sockets, in C.

The switch and the workers have a core each. Three figures are measured. The first is the contributions
per second, with the window that suits the switch best; a larger one may overflow its queues and lose
packets. The second is the contributions for each second of the switch's own processor time, which
depends less on what else the machine does. It includes what the kernel does when the switch calls it,
and not what the kernel does when a worker sends. The third is the time until a lone contribution of a
one-worker job is answered.

On a machine that is busy with other work, ``--ahead`` lets workers and switch run before all other
programs while a rate is measured. The other programs then wait, so keep the measurements short.
"""

import contextlib
import ctypes
import math
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

import grpc
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.cores import SERVICE, TERM, contributions, pipeline
from benchmarks.reflector import Way
from benchmarks.super_stations import SuperStation, exchange
from innet.controller.jobs.records import Assignment, Attachment, SlotRange, SwitchRecord
from innet.controller.jobs.trees import Tree, shares
from innet.controller.switches.aggregation import AggregationSwitch
from innet.errors import InnetError, UsageError
from innet.p4.artifacts import artifact
from innet.wire.batch import word_sums
from innet.wire.check import bases, weights
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation, internet_checksum
from innet.wire.layout import HEADER_BYTES, LANE_BYTES
from innet.wire.records import Records, packet_dtype
from topologies import namespaces

WINDOWS = (32, 64, 128, 256)
_SOL_PACKET, _STATISTICS, _VNET_HDR = 263, 6, 15
_VNET, _NEEDS_CHECKSUM, _UDP_SEGMENTS = struct.Struct("=BBHHHH"), 1, 5
_UDP_BYTES = 8
_BURST = 32
"""The contributions that the kernel gets at once. Those of 256 lanes fit into an IP packet."""
_CLONE_NEWNET = 0x40000000
_GIVE_UP = 1.0


@dataclass(frozen=True)
class Contender:
    """A switch, or a loop that reflects frames."""

    name: str
    command: list[str]
    ports: str = ""
    """The prefix of an interface's name in an option. It chooses the kind of port."""
    way: Way | None = None
    offloads: bool = False
    """Whether workers send super-frames, and take them."""

    @property
    def cores(self) -> tuple[int, int]:
        """Return the cores for the workers and for the switch."""
        cores = sorted(_CORES)
        return cores[0], cores[-1]


_INNET = [str(Path(sys.executable).with_name("innet-switch"))]
_REFLECTOR = [sys.executable, "-m", "benchmarks.reflector"]
BASE = "innet-switch, packet sockets"
CONTENDERS = (
    Contender(BASE, _INNET, "packet:"),
    Contender("innet-switch, super-frames", _INNET, "packet:", offloads=True),
    Contender("innet-switch, AF_XDP", _INNET, "xdp:"),
    Contender("BMv2", ["simple_switch_grpc"]),
    Contender("loop, recvmmsg", _REFLECTOR, way=Way.RECVMMSG),
    Contender("loop, super-frames", _REFLECTOR, way=Way.SUPER_FRAMES, offloads=True),
    Contender("loop, TPACKET_V3 and a ring to send", _REFLECTOR, way=Way.TPACKET),
    Contender("loop, AF_XDP", _REFLECTOR, way=Way.AF_XDP),
    Contender("program in XDP", _REFLECTOR, way=Way.PROGRAM),
)
_CORES = os.sched_getaffinity(0)

_Measure = Callable[["Bench", int, int, float], "Rate"]


class Station:
    """A worker: contributions that few system calls send, and a count of answers.

    Like an agent, it gives the kernel many contributions at once, which the kernel cuts into frames.
    The check is linear in the sequence number, so it is computed once and then only adjusted.
    """

    def __init__(self, namespace: str, own: Address, records: Records) -> None:
        with entered(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self._socket.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
            self._socket.bind(("eth0", 3))
        self._own = own
        frames = records.view(np.uint8).reshape(len(records), -1)
        self._packets = np.ascontiguousarray(frames[:, ENCAPSULATION_BYTES:])
        dtype = packet_dtype((self._packets.shape[1] - HEADER_BYTES) // LANE_BYTES)
        self._fields = self._packets.view(dtype)[:, 0]
        words = weights(dtype.itemsize // 4)
        self._sums = word_sums(self._fields, words) + bases(own.ip_number, own.udp_port)
        at = dtype.fields["sequence"][1] // 4 if dtype.fields else 0
        self._step = words[at : at + 1]
        self.answers = 0

    def send(self, part: slice, sequence: int) -> None:
        """Send some of the contributions, for the next use of their slots."""
        fields = self._fields[part]
        fields["sequence"] = sequence
        fields["check"] = self._sums[part] + self._step * np.uint64(sequence) >> np.uint64(32)
        for first in range(part.start, part.stop, _BURST):
            packets = self._packets[first : min(first + _BURST, part.stop)]
            self._socket.sendmsg([_header(self._own, *packets.shape), packets.data])

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


@cache
def _header(own: Address, count: int, packet_bytes: int) -> bytes:
    """Return what precedes packets for the kernel (struct virtio_net_hdr), and their first headers."""
    payload = count * packet_bytes
    head = encapsulation(own, SERVICE, payload)
    if count == 1:
        return bytes(_VNET.size) + head
    addresses = own.ip_bytes + SERVICE.ip_bytes
    pseudo_header = struct.pack("!8sHH", addresses, socket.IPPROTO_UDP, _UDP_BYTES + payload)
    checksum = struct.pack("!H", ~internet_checksum(pseudo_header) & 0xFFFF)
    start = ENCAPSULATION_BYTES - _UDP_BYTES
    about = _VNET.pack(
        _NEEDS_CHECKSUM,
        _UDP_SEGMENTS,
        ENCAPSULATION_BYTES,
        packet_bytes,
        start,
        len(head) - 2 - start,
    )
    return about + head[:-2] + checksum


@dataclass(frozen=True)
class Bench:
    """A switch that runs the aggregation program, or a loop, and its rack."""

    rack: namespaces.Rack
    process: int
    switch: AggregationSwitch | None
    lanes: int
    offloads: bool

    def tasks(self) -> list[Path]:
        """Return the folders of the switch's threads."""
        return list(Path(f"/proc/{self.process}/task").iterdir())

    def processor_seconds(self) -> float:
        """Return the processor time of the switch so far."""
        counts = ((each / "schedstat").read_text() for each in self.tasks())
        return sum(int(each.split()[0]) for each in counts) / 1e9

    def stations(self, number: int, window: int, workers: int) -> list[Station]:
        """Return the workers of a new job, which replaces the last one."""
        found = self._contributions(number, window, workers)
        return [
            Station(namespace, address, records)
            for namespace, (address, records) in zip(self.rack.workers, found, strict=False)
        ]

    def super_stations(self, number: int, window: int, workers: int) -> list[SuperStation]:
        """Return the same workers, with super-frames."""
        made = []
        found = self._contributions(number, window, workers)
        for namespace, (address, records) in zip(self.rack.workers, found, strict=False):
            with entered(namespace):
                made.append(SuperStation(address, SERVICE, records))
        return made

    def _contributions(
        self, number: int, window: int, workers: int
    ) -> list[tuple[Address, Records]]:
        """Start a job, and return its workers' addresses and contributions."""
        own = [
            Address(f"02:00:00:00:00:0{rank + 1}", f"10.0.0.{rank + 1}", 4000 + number)
            for rank in range(workers)
        ]
        where = {rank: Attachment(rank + 1, address) for rank, address in enumerate(own)}
        slots = SlotRange(number, 256 * number, window)
        does = shares([Tree("", {})], slots, where, workers)
        job = Assignment(number, slots, TERM, where, does[""])
        if self.switch:
            if refused := self.switch.hold([job]):
                raise InnetError(refused[number])
            for _ in self.switch.clear(job.slot_range):
                pass
        return [(address, contributions(address, job, self.lanes)) for address in own]


class Rate(NamedTuple):
    """Contributions per second, and for each second of the switch's processor time."""

    by_clock: float
    by_processor: float
    window: int


def best_throughput(bench: Bench, seconds: float, measure: _Measure) -> Rate:
    """Return two workers' highest rate, with the window for it."""
    found = []
    for number, window in enumerate(WINDOWS, start=1):
        with contextlib.suppress(InnetError):  # packets were lost
            found.append(measure(bench, number, window, seconds))
    return max(found, default=Rate(float("nan"), float("nan"), 0))


def throughput(bench: Bench, number: int, window: int, seconds: float) -> Rate:
    """Return the rate with one window. Raises InnetError if something is lost."""
    if bench.offloads:
        return _super_throughput(bench, number, window, seconds)
    stations = bench.stations(number, window, 2)
    halves = slice(0, window // 2), slice(window // 2, window)
    sent, started, used = 0, time.perf_counter(), bench.processor_seconds()
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
    took, used = time.perf_counter() - started, bench.processor_seconds() - used
    for station in stations:
        station.close()
    return Rate(2 * sent / took, 2 * sent / used if used > took / 100 else float("nan"), window)


def _super_throughput(bench: Bench, number: int, window: int, seconds: float) -> Rate:
    stations = bench.super_stations(number, window, 2)
    used = bench.processor_seconds()
    sent, took = exchange(stations, window, seconds)
    used = bench.processor_seconds() - used
    for station in stations:
        station.close()
    return Rate(2 * sent / took, 2 * sent / used, window)


def throughput_ahead(bench: Bench, number: int, window: int, seconds: float) -> Rate:
    """Return the rate as :func:`throughput` does, with workers and switch before all other programs."""
    tasks = [0, *(int(each.name) for each in bench.tasks())]
    try:
        for task in tasks:
            os.sched_setscheduler(task, os.SCHED_FIFO, os.sched_param(1))
        return throughput(bench, number, window, seconds)
    finally:
        for task in tasks:
            os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))


def latency(bench: Bench, times: int) -> float:
    """Return the median seconds from a lone contribution to its result."""
    [station] = bench.stations(0, WINDOWS[0], 1)
    took = []
    for number in range(times):
        use, slot = divmod(number, WINDOWS[0])
        started = time.perf_counter()
        station.send(slice(slot, slot + 1), use + 1)
        station.wait(number + 1)
        took.append(time.perf_counter() - started)
    station.close()
    return statistics.median(took)


def main(
    seconds: Annotated[float, typer.Option(help="Seconds of each measurement.")] = 3.0,
    rounds: Annotated[int, typer.Option(help="Measurements of each; the median is shown.")] = 3,
    only: Annotated[int, typer.Option(help="Measure only this many lanes.")] = 0,
    *,
    ahead: Annotated[bool, typer.Option(help="Run before all other programs.")] = False,
) -> None:
    """Compare ways to use interfaces over veth pairs."""
    if reason := namespaces.unavailable():
        raise UsageError(reason)
    console = Console()
    have = [each for each in CONTENDERS if shutil.which(each.command[0])]
    measure = throughput_ahead if ahead else throughput
    table = Table("lanes", "switch", "window", "contributions/s", "times packet sockets",
                  "of processor time", "times packet sockets", "lone packet, us",
                  title=f"{platform.processor() or platform.machine()}, {len(_CORES)} cores; "
                  f"median of {rounds}")  # fmt: skip
    for lanes in [only] if only else [64, 256]:
        rates: dict[str, list[Rate]] = {each.name: [] for each in have}
        times: dict[str, list[float]] = {each.name: [] for each in have}
        for _ in range(rounds):
            for each in have:
                made = namespaces.rack(2, offloads=each.offloads)
                with made as rack, running(rack, each, lanes) as bench:
                    rates[each.name].append(best_throughput(bench, seconds, measure))
                    with contextlib.suppress(InnetError):
                        times[each.name].append(latency(bench, 1000))
        for name, found in rates.items():
            pairs = list(zip(found, rates[BASE], strict=True))
            table.add_row(
                str(lanes), name, str(statistics.mode(rate.window for rate in found)),
                _median(",.0f", (rate.by_clock for rate in found)),
                _median(".3g", (rate.by_clock / base.by_clock for rate, base in pairs)),
                _median(",.0f", (rate.by_processor for rate in found)),
                _median(".3g", (rate.by_processor / base.by_processor for rate, base in pairs)),
                _median(".0f", (each * 1e6 for each in times[name])),
            )  # fmt: skip
        for name, bare in (("pipeline alone", False), ("pipeline alone, no lanes", True)):
            rate = pipeline(lanes, seconds / 3, bare=bare)
            table.add_row(str(lanes), name, "", "", "", f"{rate:,.0f}")
    console.print(table)


def _median(form: str, values: Iterable[float]) -> str:
    found = [value for value in values if not math.isnan(value)]
    return format(statistics.median(found), form) if found else ""


@contextlib.contextmanager
def running(rack: namespaces.Rack, contender: Contender, lanes: int) -> Iterator[Bench]:
    """Run a switch in the rack, with the aggregation program, or a loop."""
    workers_core, switch_core = contender.cores
    pinned = ["taskset", "-c", str(switch_core)]
    os.sched_setaffinity(0, {workers_core})
    with contextlib.ExitStack() as stack:
        if contender.way:
            if contender.way == Way.PROGRAM:
                for worker in rack.workers:
                    stack.enter_context(_reflecting(worker, pinned, Way.NOTHING, ["eth0"]))
            loop = _reflecting(rack.switch, pinned, contender.way, ["eth1", "eth2"])
            yield Bench(rack, stack.enter_context(loop), None, lanes, contender.offloads)
            return
        address = f"unix:{stack.enter_context(tempfile.TemporaryDirectory())}/p4runtime"
        command = [
            *pinned, *contender.command, "--no-p4", "--device-id", "0",
            "-i", f"1@{contender.ports}eth1", "-i", f"2@{contender.ports}eth2",
            "--", "--grpc-server-addr", address, "--cpu-port", "510",
        ]  # fmt: skip
        process = stack.enter_context(_started(rack.switch, command))
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(60)
        record = SwitchRecord("bench", address, 0, (1, 2), SERVICE, lanes)
        switch = AggregationSwitch(record, artifact(lanes), lambda *_: None)
        switch.start()
        stack.callback(switch.close)
        yield Bench(rack, process.pid, switch, lanes, contender.offloads)


@contextlib.contextmanager
def _reflecting(
    namespace: str, pinned: list[str], way: Way, interfaces: list[str]
) -> Iterator[int]:
    """Run a loop, and return its process."""
    with _started(namespace, [*pinned, *_REFLECTOR, way, *interfaces]) as process:
        if not process.stdout or not process.stdout.readline():
            raise InnetError(f"the loop {way} did not start: its error message is above")
        yield process.pid


@contextlib.contextmanager
def _started(namespace: str, command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command in a namespace, and end it."""
    whole = [*namespaces.inside(namespace), *command]
    errors = None if "benchmarks.reflector" in command else subprocess.DEVNULL
    with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=errors) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def entered(namespace: str) -> Iterator[None]:
    """Enter a namespace. Sockets that are made in the block stay in the namespace."""
    libc = ctypes.CDLL(None)
    with Path("/proc/self/ns/net").open() as home, Path("/run/netns", namespace).open() as there:
        libc.setns(there.fileno(), _CLONE_NEWNET)
        try:
            yield
        finally:
            libc.setns(home.fileno(), _CLONE_NEWNET)


if __name__ == "__main__":
    typer.run(main)
