"""Speed of the embedded switch on one core and on several: the pipeline alone, and over rings.

``python -m benchmarks.cores`` needs no root. The workers of one-worker jobs send contributions, and
every contribution is answered. Without ports, each core runs a contribution to a slot of its own. Over
rings, the workers first fill the rings of cables in shared memory, and then the switch empties them.

The figures are contributions per second of processor time of the busiest core of the switch. The
workers' own time does not count. So this is the speed on a machine that has cores for the workers,
too. Each measurement takes the best of many short runs, because other programs disturb only some of
them.
"""

import contextlib
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from innet.controller.jobs.records import Assignment, SlotRange
from innet.errors import InnetError
from innet.host.link import Link, open_link, own_address
from innet.p4.artifacts import artifact
from innet.switch.engine import Engine
from innet.switch.ports import open_port
from innet.wire.check import seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import UDP_PORT, Flag, Kind, Operation
from innet.wire.records import Records, blank, packet_bytes, set_field

SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254", UDP_PORT)
TERM = 1
SLOTS = 256
_NUMBERS = range(1, 5)  # of workers, their ports, and their jobs
_FRAMES = {64: 2000, 256: 600}  # of a worker at a time: they fit into its rings
_TIMES = 50_000
_GIVE_UP = 10.0


def pipeline(lanes: int, seconds: float, cores: int = 1, *, bare: bool = False) -> float:
    """Return the contributions per second that the program answers without ports.

    If they are `bare`, contributions and answers lack their lanes.
    """
    own = Address("02:00:00:00:00:01", "10.0.0.1", 4000)
    with contextlib.closing(Engine(artifact(lanes).json, cores=cores)) as engine:
        _serve(engine)
        records = admitted(engine, 1, own, 0 if bare else lanes)
        records["sequence"] = 1
        seal(records, own.ip_number, own.udp_port)
        frames = {engine.core_of(1, each.tobytes()): each.tobytes() for each in records}
        rates, took = [], 0.0
        with ThreadPoolExecutor(cores) as threads:
            while took < seconds:
                running = [
                    threads.submit(_timed, engine, frame, core) for core, frame in frames.items()
                ]
                busiest = max(each.result() for each in running)
                rates.append(cores * _TIMES / busiest)
                took += busiest
    return max(rates)


def _timed(engine: Engine, frame: bytes, core: int) -> float:
    """Run a frame many times. Returns the seconds of processor time."""
    before = time.thread_time()
    engine.exercise(1, frame, _TIMES, core)
    return time.thread_time() - before


def rings(lanes: int, seconds: float, cores: int = 1) -> float:
    """Return the contributions per second that the switch answers over cables in shared memory."""
    with cables(lanes, cores) as (engine, workers):
        _answered(engine, workers)  # from now on the links know the cores of the slots
        rates, took = [], 0.0
        while took < seconds:
            frames, busiest = _answered(engine, workers)
            rates.append(frames / busiest)
            took += busiest
    return max(rates)


@contextlib.contextmanager
def cables(lanes: int, cores: int) -> Iterator[tuple[Engine, list[tuple[Link, Records]]]]:
    """Yield a switch, and the links of its workers, each with contributions."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = stack.enter_context(contextlib.closing(Engine(artifact(lanes).json, cores=cores)))
        _serve(engine)
        ports = [open_port(f"{number}@shm:{folder / str(number)}") for number in _NUMBERS]
        for port in ports:
            stack.callback(port.close)
        engine.start(ports)
        stack.callback(engine.stop)  # before the ports are closed
        stack.enter_context(_placed())
        workers = []
        for number in _NUMBERS:
            spec = f"shm:{folder / str(number)}"
            link = stack.enter_context(contextlib.closing(open_link(spec, SERVICE, lanes)))
            records = admitted(engine, number, own_address(spec), lanes)
            workers.append((link, records[np.arange(_FRAMES[lanes]) % SLOTS]))
        yield engine, workers


@contextlib.contextmanager
def _placed() -> Iterator[None]:
    """Keep the workers on one processor, and the switch's first core on another one.

    A worker's frames then come out of another processor's cache, as they do in real use.
    """
    before = os.sched_getaffinity(0)
    processors = sorted(before)
    os.sched_setaffinity(0, processors[:1])
    cores = [each for each in threading.enumerate() if each.name == "innet-switch"]
    for number, core in enumerate(cores, start=1):
        os.sched_setaffinity(core.native_id or 0, {processors[number % len(processors)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _answered(engine: Engine, workers: list[tuple[Link, Records]]) -> tuple[int, float]:
    """Fill the rings, and empty them. Returns the frames, and the seconds of the busiest core."""
    before, started = _received(engine), engine.processor_seconds()
    with engine.held():
        for link, records in workers:
            records["sequence"] = 1
            link.send(records)
    frames, until = sum(len(records) for _, records in workers), time.monotonic() + _GIVE_UP
    while _received(engine) < before + frames:
        if time.monotonic() > until:
            raise InnetError("the switch has not taken all contributions")
        time.sleep(0.001)
    took = [now - then for now, then in zip(engine.processor_seconds(), started, strict=True)]
    answers = sum(_drained(link) for link, _ in workers)
    if answers != frames:
        raise InnetError(f"{frames - answers} answers are missing")
    return frames, max(took)


def _received(engine: Engine) -> int:
    return sum(engine.port_counts(number).received.packets for number in _NUMBERS)


def _drained(link: Link) -> int:
    """Take all packets. Returns their number."""
    number = 0
    while batch := len(link.receive()):
        number += batch
    return number


def admitted(engine: Engine, number: int, own: Address, lanes: int) -> Records:
    """Make a job of one worker at the port with the job's number. Returns a contribution to each slot."""
    first = SLOTS * number
    job = Assignment(number, SlotRange(number, first, SLOTS), TERM)
    engine.set_group(number, [(number, 1)])
    for slot in range(first, first + SLOTS):
        key = [number, own.ip_number, own.udp_port, number, TERM, slot]
        _enter(engine, "workers", key, "admit", [1, 1, number, 0])
    return contributions(own, job, lanes)


def contributions(own: Address, job: Assignment, lanes: int) -> Records:
    """Return a contribution to every slot of the job, without sequence number and check.

    Those without lanes do not want the result's either.
    """
    prefix = encapsulation(own, SERVICE, packet_bytes(lanes))
    records = blank(job.slot_range.slots, lanes, Kind.CONTRIBUTION, prefix)
    set_field(records, "operation", Operation.SUM)
    records["job"], records["term"] = job.job, TERM
    records["slot"] = job.slot_range.first_slot + np.arange(job.slot_range.slots)
    records["flags"] = Flag.CARRIED | Flag.WANTED if lanes else 0
    return records


def _serve(engine: Engine) -> None:
    """Give the switch its address."""
    mac = int.from_bytes(SERVICE.mac_bytes)
    _enter(engine, "service", [SERVICE.ip_number], "serve", [mac])
    _enter(engine, "own_addresses", [SERVICE.ip_number], "expose", [])


def _enter(engine: Engine, table: str, key: list[int], action: str, args: list[int]) -> None:
    """Add an exact entry. Names are given as the last parts of the full names."""
    layout = next(each for each in engine.program.tables if each.name.endswith(f".{table}"))
    names = {each.id: each.name for each in engine.program.actions}
    number = next(each for each in layout.actions if names[each].endswith(f".{action}"))
    masks = [(1 << field.bits) - 1 for field in layout.keys]
    engine.entries.insert(layout.name, key, masks, 1, number, args)


def main(
    seconds: Annotated[float, typer.Option(help="Processor time of each measurement.")] = 0.5,
    rounds: Annotated[int, typer.Option(help="Measurements of each; the median is shown.")] = 5,
    cores: Annotated[int, typer.Option(help="The number of cores to compare with one.")] = 2,
) -> None:
    """Compare one core of the embedded switch with several."""
    table = Table("lanes", "over", "cores", "contributions/s", "times one core",
                  title=f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; "
                  f"median of {rounds}")  # fmt: skip
    for lanes in _FRAMES:
        for name, measure in (("the pipeline alone", pipeline), ("rings", rings)):
            pairs = [
                (measure(lanes, seconds), measure(lanes, seconds, cores)) for _ in range(rounds)
            ]
            ratio = statistics.median(several / one for one, several in pairs)
            for used, rates, times in ((1, 0, 1.0), (cores, 1, ratio)):
                rate = statistics.median(pair[rates] for pair in pairs)
                table.add_row(str(lanes), name, str(used), f"{rate:,.0f}", f"{times:.2f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
