"""One rack of eight hosts: sums in its switch beside Gloo's ring, in a network emulated in Mininet.

Run as root, with Mininet installed::

    python -m benchmarks.rack --json rack.json
    python -m benchmarks.rack --only rates

Parts:

* ``rates``: 16 MiB of float32 at 100 Mbit/s, by quantizers of 32, 16 and 8 bits.
* ``slow``: a quarter of the vector at 25 Mbit/s.
* ``sizes``: vectors of 4 B to 64 MiB at 100 Mbit/s.
* ``frames``: 16 MiB at 100 Mbit/s, in frames of 256 lanes, and of 1024 lanes with an MTU of 9000.

All hosts and the switch share the machine's processors. If these are the limit, and not the links,
"frames of the link" is well below 100 % for every peer.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.emulated.network import Case, Network, Outcome, measure
from benchmarks.emulated.report import command, compare

HOSTS = 8
MBIT = 1_000_000
KIB, MIB = 1 << 10, 1 << 20
PEERS = ("Gloo", "innet int32", "innet int16", "innet int8")
SIZES = (4, 64, KIB, 16 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)


def rates(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare quantizers at 100 Mbit/s."""
    return _rates(console, 100, 1 if quick else 16, 2 if quick else 5)


def slow(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare quantizers at a rate so low that the links are certainly the limit."""
    return _rates(console, 25, 1 if quick else 4, 2 if quick else 5)


def sizes(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare vectors of all sizes, from one element on."""
    some = SIZES[:5] if quick else SIZES
    repeated = {size: max(1, min(30, 8 * MIB // size)) for size in some}
    cases = [
        Case(over, size, steps)
        for size, steps in repeated.items()
        for over in ("Gloo", "innet int32")
    ]
    found = measure(console, Network(1, HOSTS, 100 * MBIT), cases)
    table = Table("bytes", "repeated", "Gloo, ms", "innet int32, ms", "times faster")
    table.title = f"one rack of {HOSTS} hosts, 100 Mbit/s"
    for ring, ours in zip(found[::2], found[1::2], strict=True):
        table.add_row(
            f"{ring.case.nbytes:,}", str(ring.case.steps), f"{1e3 * ring.step_s:.2f}",
            f"{1e3 * ours.step_s:.2f}", f"{ring.step_s / ours.step_s:.2f}",
        )  # fmt: skip
    console.print(table)
    return found


def frames(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare frames of usual size with large ones. As many bytes are in flight with either."""
    cases = [Case(over, (1 if quick else 16) * MIB, 2 if quick else 8) for over in PEERS[:2]]
    networks = [
        Network(1, HOSTS, 100 * MBIT, slots=s, lanes=n) for n, s in ((256, 256), (1024, 64))
    ]
    found = [outcome for network in networks for outcome in measure(console, network, cases)]
    table = Table("lanes", "over", "step, s", "vector of the link", "processor time of a host, s")
    table.title = f"one rack of {HOSTS} hosts, 100 Mbit/s, {cases[0].nbytes:,} bytes of float32"
    for each in found:
        table.add_row(
            str(each.network.lanes), each.case.over, f"{each.step_s:.2f}",
            f"{each.link_share:.0%}", f"{each.processor_s:.3f}",
        )  # fmt: skip
    console.print(table)
    return found


def _rates(console: Console, mbit: int, mib: int, steps: int) -> Sequence[Outcome]:
    outcomes = measure(
        console,
        Network(1, HOSTS, mbit * MBIT),
        [Case(over, mib * MIB, steps) for over in PEERS],
    )
    title = f"one rack of {HOSTS} hosts, {mbit} Mbit/s, {mib} MiB of float32"
    faster = [outcomes[0].step_s / each.step_s for each in outcomes]
    compare(console, title, outcomes, "times as fast as Gloo", faster)
    return outcomes


PARTS = {each.__name__: each for each in (rates, slow, sizes, frames)}


if __name__ == "__main__":
    command(PARTS, "Compare sums in one switch with Gloo's ring.")
