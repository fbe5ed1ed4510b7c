"""One contribution per host against one per rank: all-reduces of hosts with several ranks each.

Run as root, with Mininet installed::

    python -m benchmarks.per_host --json per_host.json

Part ``large``: 4 ranks on each of 8 hosts, 16 MiB of float32, links of 100 Mbit/s. The groups are in
the same processes: over innet with every rank for itself (``INNET_LOCAL_SUM=0``), over innet with one
contribution per host, and over Gloo.

"up" and "down" are the bytes on a host's link, as the kernel counts them, over the vector's bytes. The
benchmark ends with an error unless both groups of innet give the same bits on all ranks.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.emulated.network import Network, emulate
from benchmarks.emulated.per_host import ALONE, GLOO, TOGETHER, Case
from benchmarks.emulated.report import Timed, command, slowest

KIB, MIB = 1 << 10, 1 << 20
RANKS = 4
NETWORK = Network(1, 8, 100_000_000, slots=64)


@dataclass(frozen=True)
class Outcome(Timed):
    """The result of a case: the slowest rank's time of each step, and a host's mean bytes per step."""

    up_bytes: float
    down_bytes: float
    digests: Sequence[str]


def large(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare the ways for a vector of 16 MiB."""
    size, steps = (MIB, 2) if quick else (16 * MIB, 5)
    cases = [Case(over, size, steps, RANKS) for over in (ALONE, TOGETHER, GLOO)]
    return compared(console, NETWORK, cases)


def compared(console: Console, network: Network, cases: Sequence[Case]) -> Sequence[Outcome]:
    """Measure the cases in one emulated network, and show them. The first is the yardstick."""
    program = [sys.executable, "-m", "benchmarks.emulated.per_host"]
    noted = emulate(console, network, program, {"cases": [asdict(case) for case in cases]})
    found = [
        _outcome(case, hosts) for case, hosts in zip(cases, zip(*noted, strict=True), strict=True)
    ]
    if len({each for one in found if one.case.over != GLOO for each in one.digests}) != 1:
        raise SystemExit("the results of innet's groups differ")
    first, table = found[0], Table("over", "step, ms", "times as fast", "up", "down", "bytes")
    table.title = (
        f"{network.hosts} hosts of {first.case.ranks} ranks, {network.rate / 1e6:g} Mbit/s, "
        f"{first.case.nbytes // KIB:,} KiB of float32"
    )
    for each in found:
        table.add_row(
            each.case.over, f"{1e3 * each.step_s:,.0f}", f"{first.step_s / each.step_s:.2f}",
            f"{each.up_bytes / each.case.nbytes:.2f}", f"{each.down_bytes / each.case.nbytes:.2f}",
            f"{(each.up_bytes + each.down_bytes) / (first.up_bytes + first.down_bytes):.3f}",
        )  # fmt: skip
    console.print(table)
    return found


def _outcome(case: Case, hosts: Sequence[dict[str, Any]]) -> Outcome:
    steps = slowest(hosts)
    up, down = (
        statistics.mean(each) for each in zip(*(host["bytes"] for host in hosts), strict=True)
    )
    return Outcome(
        case, steps, up, down, sorted({one for host in hosts for one in host["digests"]})
    )


PARTS = {"large": large}


if __name__ == "__main__":
    command(PARTS, "Compare one contribution per host with one per rank.")
