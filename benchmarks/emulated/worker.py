"""The program of a host in an emulated benchmark: it runs all cases, one after the other.

All hosts join the emulation's job, so that the switches know every host's port and flood nothing.
The job's sums are the barriers between cases. If there is a host for a central server, it has no
vector, and the other hosts join a second job as well.
"""

import contextlib
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import innet
from benchmarks.emulated.links import link, own_counters, switch_processor_time
from benchmarks.emulated.network import Case, Network
from benchmarks.emulated.peers import PORT, Host, Vector, largest_error, prepare_ring, reducing
from innet.machine import environment
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, translated
from innet.servers import pbox

SEED = 7
JOB = "vectors"
BARRIERS = 4
"""The number of barriers in a case."""


def main(folder: Path) -> None:
    """Run the cases in the folder, and write the results there."""
    task = json.loads((folder / "task.json").read_text())
    network = Network(**task["network"])
    cases = [Case(**each) for each in task["cases"]]
    rank = int(os.environ["RANK"])
    if any(case.over.startswith("Gloo") for case in cases):
        import torch  # noqa: F401 - now, for a joined worker must not be silent during a slow import
    with innet.join() as everybody:

        def barrier() -> None:
            everybody.all_reduce(np.zeros(1, np.int32), op="sum")

        barrier()
        if rank == network.workers:
            with _serving(needed=any(case.over == "central PS" for case in cases)):
                barrier()  # all jobs and servers are ready now
                for _ in range(len(cases) * BARRIERS):
                    barrier()
            return
        with contextlib.ExitStack() as stack:
            stack.enter_context(_serving(needed=any(case.over == "sharded PS" for case in cases)))
            if network.server and rank == 0:
                (folder / "token").write_text(_second_job(network))
            barrier()
            agent = everybody
            if network.server:
                token = (folder / "token").read_text()
                agent = stack.enter_context(innet.join(job=JOB, rank=rank, token=token))
            host = Host(rank, network, agent)
            if any(case.over.startswith("Gloo") for case in cases):
                prepare_ring(host)
            noted = [_run(host, case, number, barrier) for number, case in enumerate(cases)]
    (folder / f"{rank}.json").write_text(json.dumps(noted))


def _run(host: Host, case: Case, number: int, barrier: Any) -> dict[str, Any]:
    floats = case.nbytes // 4
    # All vectors are multiples of one, so every host knows the sum without the others' vectors.
    common = np.random.default_rng(SEED).random(floats, np.float32) - np.float32(0.5)
    own = common * np.float32(host.rank + 1)
    seconds = []
    barrier()
    with reducing(host, case.over, floats, number) as reduce:
        reduce(own)  # opens connections and sets windows
        barrier()
        before = _counts(host)
        barrier()  # all hosts have counted before anyone sends
        busy, switch, machine = time.process_time(), _switch_time(host), _machine_time()
        for _ in range(case.steps):
            began = time.monotonic()
            total = reduce(own)
            seconds.append(time.monotonic() - began)
        busy = time.process_time() - busy
        switch = _switch_time(host) - switch
        machine = _machine_time() - machine
        barrier()
        after = _counts(host)
    _check(host, case, common, total)
    if host.rank == 0:
        size = f"{case.nbytes:,} B"
        sys.stdout.write(f"{case.over}, {size}: {1e3 * statistics.median(seconds):.2f} ms\n")
        sys.stdout.flush()
    crossed = {
        name: [late - early for late, early in zip(after[name], before[name], strict=True)]
        for name in after
    }
    return {
        "seconds": seconds, "processor": busy,
        "link": crossed["link"], "uplink": crossed.get("uplink"),
        "switch": switch, "busy": float(machine[0] / max(1.0, machine.sum())),
    }  # fmt: skip


def _check(host: Host, case: Case, common: Vector, total: Vector) -> None:
    workers = host.network.workers
    expected = common * np.float32(workers * (workers + 1) / 2)
    error = np.abs(total - expected).max() / (np.abs(common).max() * workers)
    if not error <= largest_error(case.over, workers):
        raise SystemExit(f"{case.over}: the sum is wrong by {error} of the largest element")


def _switch_time(host: Host) -> float:
    """Return the processor time so far of the first host's switch, in seconds; 0 for other hosts."""
    return switch_processor_time() if host.rank == 0 else 0.0


def _machine_time() -> npt.NDArray[np.float64]:
    """Return the time for which the machine's processors were busy and idle, in ticks, (2,)."""
    ticks = np.array(Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9], float)
    idle = ticks[3] + ticks[4]
    return np.array([ticks.sum() - idle, idle])


def _counts(host: Host) -> dict[str, tuple[int, int]]:
    """Return the bytes sent up and received: on this host's link, and for rank 0 on the rack's too."""
    found = {"link": own_counters()}
    uplink = host.network.uplink
    if uplink and host.rank == 0:
        found["uplink"] = link(*uplink)
    return {name: (counts.up_bytes, counts.down_bytes) for name, counts in found.items()}


@contextlib.contextmanager
def _serving(*, needed: bool) -> Iterator[None]:
    if not needed:
        yield
        return
    own = os.environ["GLOO_SOCKET_IFNAME"].removesuffix("-eth0")
    with pbox.Server(f"{socket.gethostbyname(own)}:{PORT}"):
        yield


def _second_job(network: Network) -> str:
    """Create the job of the hosts with vectors. Return its token."""
    channel, stub = connect(os.environ[environment.CONTROLLER])
    with contextlib.closing(channel), translated("create the job"):
        created = stub.CreateJob(
            pb.CreateJobRequest(
                name=JOB, switch=network.root, workers=network.workers, slots=network.slots
            )
        )
    return str(created.token)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
