"""Speed of a parameter server: aggregation, the optimizer in the same pass, and exchanges.

No root is needed::

    python -m benchmarks.pbox

There are four measurements, all on this machine:

- Adding up the workers' gradients, with the server's C on one core, against numpy's ``add`` of the
  same arrays on one core.
- A step of every optimizer in the same pass as the sum, against one pass for the sum and another
  for the optimizer, also on one core.
- Exchanges of workers that compute nothing with a server in a process of its own, over loopback,
  against the same bytes through bare sockets.
- The same exchanges over mutual TLS, against a server without it.

Rounds of the compared things alternate, so other changes on the machine affect both alike.
"""

import contextlib
import ctypes
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Json
from innet.local.processes import announced, spawned
from innet.rpc.certificates import make
from innet.servers.pbox import benchmark, native
from innet.servers.pbox.optimizers import BY_NAME, by_name
from innet.servers.pbox.placement import CHUNK_BYTES

CHUNK = CHUNK_BYTES // 4


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds that some work takes in this thread. Other programs do not count."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def alternate(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each, round by round. A first round is not counted."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            took = seconds(work)
            if number:
                found[name].append(took)
    return found


class Arrays:
    """Workers' gradients, parameters and optimizer states, and the C code over them, chunk by chunk."""

    def __init__(self, workers: int, floats: int) -> None:
        chance = np.random.default_rng(1)
        self.pushed = [chance.standard_normal(floats, np.float32) for _ in range(workers)]
        self.parameters, self.sum = np.zeros((2, floats), np.float32)
        self.states = np.ones((2, floats), np.float32)

    def add_with_numpy(self) -> None:
        """Add with numpy, one array after the other."""
        np.add(self.pushed[0], self.pushed[1], out=self.sum)
        for each in self.pushed[2:]:
            np.add(self.sum, each, out=self.sum)

    def add_chunks_with_numpy(self) -> None:
        """Add with numpy chunk by chunk, so that the partial sums stay in the cache."""
        for at in range(0, len(self.sum), CHUNK):
            part = self.sum[at : at + CHUNK]
            np.add(self.pushed[0][at : at + CHUNK], self.pushed[1][at : at + CHUNK], out=part)
            for each in self.pushed[2:]:
                np.add(part, each[at : at + CHUNK], out=part)

    def add(self) -> None:
        """Add with the server's C."""
        self._update(native.OptimizerRecord(), self.sum, self.pushed)

    def one_pass(self, rule: str) -> None:
        """Run aggregation and optimizer in one pass, as a server does it."""
        self._update(_record(rule), self.parameters, self.pushed)

    def two_passes(self, rule: str) -> None:
        """Run the whole sum, and then the whole optimizer."""
        self.add()
        self._update(_record(rule), self.parameters, [self.sum])

    def _update(
        self, record: native.OptimizerRecord, into: np.ndarray, pushed: Sequence[np.ndarray]
    ) -> None:
        update, count = native.library().update, len(pushed)
        divisor = 1 if record.rule == 0 else len(self.pushed)
        starts = [native.address(each) for each in (into, *self.states, *pushed)]
        for at in range(0, len(into), CHUNK):
            where = [start + 4 * at for start in starts]
            update(
                ctypes.byref(record), *where[:3], (ctypes.c_void_p * count)(*where[3:]), count,
                divisor, min(CHUNK, len(into) - at), 1, 1e-3,
            )  # fmt: skip


def _record(rule: str) -> native.OptimizerRecord:
    optimizer = by_name(rule)
    assert optimizer  # noqa: S101 - a name of BY_NAME
    return optimizer.record()


@contextlib.contextmanager
def serving(cores: int, *options: str) -> Iterator[tuple[str, int]]:
    """Run a server in a process of its own. Yield its address and the process id."""
    command = [str(Path(sys.executable).with_name("innet")), "pbox", "serve"]
    command += ["--address", "127.0.0.1:0", "--cores", str(cores), *options]
    with spawned(command, stderr=subprocess.DEVNULL) as process:
        yield announced(process, "pbox"), process.pid


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds that a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def over_tls(
    counts: Sequence[int], cores: int, floats: int, steps: int, rounds: int
) -> dict[int, dict[str, list[float]]]:
    """Return the bytes per second of exchanges without TLS and with it, by the number of workers."""
    found: dict[int, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        make(folder, [])
        servers = {
            "plain": (stack.enter_context(serving(cores))[0], None),
            "TLS": (stack.enter_context(serving(cores, "--tls", name))[0], folder),
        }
        for count in counts:
            found[count] = {kind: [] for kind in servers}
            for _ in range(rounds):
                for kind, (address, tls) in servers.items():
                    rate = benchmark.measure(
                        [address], workers=count, floats=floats, steps=steps, warm_up=1, tls=tls
                    )
                    found[count][kind].append(rate.bytes_per_second)
    return found


def through_sockets(workers: int, nbytes: int, steps: int) -> float:
    """Return the bytes per second of bare connections over loopback that carry as much each way."""
    pairs = [_pair() for _ in range(workers)]
    threads = [
        threading.Thread(target=work, args=(end, nbytes * steps))
        for pair in pairs
        for end in pair
        for work in (_send, _receive)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    for end in (end for pair in pairs for end in pair):
        end.close()
    return workers * nbytes * steps / took


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        return near, listener.accept()[0]


def _send(end: socket.socket, nbytes: int) -> None:
    part = bytes(CHUNK_BYTES)
    for _ in range(nbytes // len(part)):
        end.sendall(part)


def _receive(end: socket.socket, nbytes: int) -> None:
    part = bytearray(CHUNK_BYTES)
    left = nbytes // len(part) * len(part)
    while left:
        left -= end.recv_into(part)


def main(
    megabytes: Annotated[int, typer.Option(help="Megabytes of parameters.")] = 32,
    workers: Annotated[int, typer.Option(min=2, help="Workers whose gradients are added.")] = 4,
    most_workers: Annotated[
        int, typer.Option(help="The most workers that exchange with the server.")
    ] = 8,
    cores: Annotated[int, typer.Option(help="Cores of the server.")] = 1,
    steps: Annotated[int, typer.Option(help="Exchanges in a round.")] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds of each measurement.")] = 7,
    output: Json = None,
) -> None:
    """Measure a parameter server."""
    console = Console()
    floats = megabytes * 1_000_000 // 4
    arrays = Arrays(workers, floats)
    found: dict[str, Any] = {"command": sys.argv, "machine": _machine()}

    adding = alternate(
        {
            "numpy, array by array": arrays.add_with_numpy,
            "numpy, chunk by chunk": arrays.add_chunks_with_numpy,
            "server": arrays.add,
        },
        rounds,
    )
    found["adding"] = adding
    table = Table("adding", "GB/s of gradients", "of numpy's", title=_machine())
    base = statistics.median(adding["numpy, array by array"])
    for name, times in adding.items():
        median = statistics.median(times)
        table.add_row(name, f"{workers * floats * 4 / median / 1e9:.1f}", f"{base / median:.0%}")
    console.print(table)

    table = Table("optimizer", "one pass, ms", "two passes, ms", "one of two")
    found["passes"] = {}
    for rule in BY_NAME:
        passes = {"one": partial(arrays.one_pass, rule), "two": partial(arrays.two_passes, rule)}
        found["passes"][rule] = of_rule = alternate(passes, rounds)
        one, two = (statistics.median(of_rule[name]) for name in passes)
        table.add_row(rule, f"{one * 1e3:.1f}", f"{two * 1e3:.1f}", f"{one / two:.0%}")
    console.print(table)

    table = Table(
        "workers", "ms per step", "MB/s pushed and pulled", "of bare sockets'",
        "MB per CPU second of the server",
    )  # fmt: skip
    found["exchanges"] = {}
    with serving(cores) as (address, process):
        count = 1
        while count <= most_workers:
            rates, bare, efficiency = [], [], []
            for _ in range(rounds):
                used = cpu_seconds(process)
                rate = benchmark.measure(
                    [address], workers=count, floats=floats, steps=steps, warm_up=1
                )
                rates.append(rate.bytes_per_second)
                used = cpu_seconds(process) - used
                efficiency.append(count * floats * 4 * (steps + 1) / max(used, 0.01))
                bare.append(through_sockets(count, floats * 4, 1))
            found["exchanges"][count] = {
                "server": rates,
                "sockets": bare,
                "per CPU second": efficiency,
            }
            median = statistics.median(rates)
            table.add_row(
                str(count), f"{count * floats * 4 / median * 1e3:.1f}", f"{median / 1e6:.0f}",
                f"{median / statistics.median(bare):.0%}", f"{statistics.median(efficiency) / 1e6:.0f}",
            )  # fmt: skip
            count *= 2
    console.print(table)

    counts = [count for count in (1, 2, 4, 8) if count <= most_workers]
    found["tls"] = over_tls(counts, cores, floats, steps, rounds)
    table = Table("workers", "MB/s without TLS", "MB/s with TLS", "with of without")
    for count, rates_of in found["tls"].items():
        plain, secured = (statistics.median(rates_of[kind]) for kind in ("plain", "TLS"))
        table.add_row(
            str(count), f"{plain / 1e6:.0f}", f"{secured / 1e6:.0f}", f"{secured / plain:.0%}"
        )
    console.print(table)
    if output:
        output.write_text(json.dumps(found, indent=2) + "\n")


def _machine() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line for line in lines if line.startswith("model name")).partition(":")[2]
        return f"{name.strip()}, {os.cpu_count()} CPUs"
    return f"{platform.machine()}, {os.cpu_count()} CPUs"


if __name__ == "__main__":
    typer.run(main)
