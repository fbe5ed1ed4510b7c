"""The collectives of sharded training in one rack of eight hosts, through the switch and over Gloo.

Run as root, with Mininet installed::

    python -m benchmarks.sharded --json sharded.json
    python -m benchmarks.sharded --only large

Parts:

* ``large``: 16 MiB of float32 at 100 Mbit/s: a reduce-scatter, an all-gather, both at once, a broadcast.
* ``private``: an all-reduce of as many bytes, with and without private sums, and the ratio of their
  times.
* ``small``: a barrier and an all-reduce of 4 bytes.

"up" and "down" are the bytes on a host's link, as the kernel counts them, over the vector's bytes.
"expected" is what :mod:`innet.model.collectives` predicts. The measured bytes include the barriers
over Gloo between the steps, which matter for small vectors only.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.emulated.network import Network, emulate
from benchmarks.emulated.report import Timed, command, slowest
from benchmarks.emulated.sharded import Case
from innet.model.all_reduce import SlotParameters
from innet.model.collectives import link_bytes

HOSTS, MBIT = 8, 1_000_000
KIB, MIB = 1 << 10, 1 << 20
BOTH = "reduce-scatter and all-gather"
NETWORK = Network(1, HOSTS, 100 * MBIT, slots=128)


@dataclass(frozen=True)
class Outcome(Timed):
    """The result of a case: the slowest host's time of each step, and mean counters per step.

    The least bytes are those of each host's step with the fewest, since packets may be sent again. The
    processor time is that of a host's process in the median step, as the mean of all hosts.
    """

    up_bytes: float
    down_bytes: float
    up_packets: float
    down_packets: float
    least_up_bytes: float
    least_down_bytes: float
    processor_s: float

    @property
    def expected(self) -> Sequence[float]:
        """Return the bytes up and down that the model expects; nothing over Gloo."""
        if self.case.over == "Gloo":
            return ()
        calls = {"4-byte all-reduce": "all-reduce"}
        found = [0.0, 0.0]
        for call in self.case.what.split(" and "):
            collective = calls.get(call, call)
            moves = collective in ("all-gather", "broadcast")
            narrow = self.case.narrow if moves else "int16" in self.case.over
            size = self.case.nbytes / (2 if narrow else 1)
            both = link_bytes(collective, HOSTS, size, SlotParameters(NETWORK.slots))
            found = [a + b for a, b in zip(found, both, strict=True)]
        return found


def large(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare the collectives of a vector of 16 MiB."""
    size, steps = (MIB, 2) if quick else (16 * MIB, 5)
    calls = ("reduce-scatter", "all-gather", BOTH, "broadcast")
    cases = [Case(what, over, size, steps) for what in calls for over in ("Gloo", "innet int32")]
    cases.append(Case(BOTH, "innet int16", size, steps, narrow=True))
    return measured(console, cases, f"{size // KIB:,} KiB of float32")


def small(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare the collectives that carry at most one number."""
    steps = 5 if quick else 50
    calls = ("barrier", "4-byte all-reduce")
    cases = [Case(what, over, 4, steps) for what in calls for over in ("Gloo", "innet int32")]
    return measured(console, cases, "small")


def private(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare an all-reduce with private sums to one without."""
    size, steps = (MIB, 3) if quick else (16 * MIB, 9)
    ways = ("Gloo", "innet int32", "innet int32 private")
    cases = [Case("all-reduce", over, size, steps) for over in ways]
    found = measured(console, cases, f"{size // KIB:,} KiB of float32")
    _, public, hidden = found
    console.print(f"private sums take {hidden.step_s / public.step_s:.3f} times as long")
    return found


def measured(console: Console, cases: Sequence[Case], title: str) -> Sequence[Outcome]:
    """Run cases in the emulated rack, and show their outcomes."""
    program = [sys.executable, "-m", "benchmarks.emulated.sharded"]
    noted = emulate(console, NETWORK, program, {"cases": [asdict(case) for case in cases]})
    found = [
        _outcome(case, hosts) for case, hosts in zip(cases, zip(*noted, strict=True), strict=True)
    ]
    gloo = {each.case.what: each.step_s for each in found if each.case.over == "Gloo"}
    table = Table(
        "call", "over", "step, ms", "times as fast as Gloo", "up", "down", "expected", "packets up",
        "packets down", "CPU, ms",
    )  # fmt: skip
    table.title = f"{HOSTS} hosts, 100 Mbit/s, {title}"
    for each in found:
        size = each.case.nbytes
        table.add_row(
            each.case.what, each.case.over, f"{1e3 * each.step_s:.2f}",
            f"{gloo[each.case.what] / each.step_s:.2f}" if each.case.what in gloo else "",
            f"{each.up_bytes / size:.2f}", f"{each.down_bytes / size:.2f}",
            " ".join(f"{nbytes / size:.2f}" for nbytes in each.expected),
            f"{each.up_packets:,.0f}", f"{each.down_packets:,.0f}",
            f"{1e3 * each.processor_s:.2f}",
        )  # fmt: skip
    console.print(table)
    return found


def _outcome(case: Case, hosts: Sequence[dict[str, Any]]) -> Outcome:
    steps = slowest(hosts)
    up_bytes, down_bytes, up_packets, down_packets = (
        statistics.mean(each) for each in zip(*(host["counters"] for host in hosts), strict=True)
    )
    least_up, least_down = (statistics.mean(host["least"][way] for host in hosts) for way in (0, 1))
    processor = statistics.mean(host["processor_s"] for host in hosts)
    return Outcome(
        case, steps, up_bytes, down_bytes, up_packets, down_packets, least_up, least_down, processor
    )


PARTS = {each.__name__: each for each in (large, private, small)}


if __name__ == "__main__":
    command(PARTS, "Compare the collectives of sharded training through the switch with Gloo's.")
