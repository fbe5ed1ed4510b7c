"""Sums in a tree of switches beside Gloo's ring and parameter servers, in an emulated network.

Run as root, with Mininet installed::

    python -m benchmarks.hierarchy --json hierarchy.json
    python -m benchmarks.hierarchy --only peers

Parts:

* ``peers``: the same sums in every way of :mod:`benchmarks.emulated.peers`, in two racks of four
  hosts, at 100 Mbit/s.
* ``slow``: the same with a quarter of the rate and of the vector.
* ``uplink``: the bytes on a rack's link to the spine, with sums in the rack and without.
* ``workers``: the time of a step, as hosts that compute nothing are added to one rack.
* ``scale``: the same in two racks below a spine, with the bytes on a rack's link to the spine. It
  ends with an error if, as hosts are added, these bytes or the time of up to 32 hosts change by
  more than 5 %.

All hosts and switches share the machine's processors. If these are the limit, and not the links,
"frames of the link" is well below 100 % for every peer.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.emulated.network import Case, Network, Outcome, measure
from benchmarks.emulated.report import command, compare

MBIT = 1_000_000
MIB = 1 << 20
FEW_MBIT = 5
"""A rate at which two cores can carry 16 hosts."""

_FLAT, _MOST = 0.05, 32  # the largest difference, and the most hosts whose times count


def peers(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare all peers at 100 Mbit/s."""
    return _peers(console, 100, 1 if quick else 16, 1 if quick else 3)


def slow(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare all peers at a rate so low that the links are certainly the limit."""
    return _peers(console, 25, 1 if quick else 4, 1 if quick else 3)


def uplink(console: Console, quick: bool) -> Sequence[Outcome]:
    """Measure the bytes from a rack to its parent."""
    found = []
    table = Table("hosts per rack", "over", "up the uplink, MB", "down, MB", "up, of one vector")
    table.add_column("up, of the server's")
    table.title = "uplink of one of two racks"
    for hosts in (2, 4) if quick else (2, 4, 8):
        mib = 0.5 if quick else 2
        cases = [Case(over, int(mib * MIB), 2) for over in ("central PS", "innet int32")]
        flat, tree = outcomes = measure(
            console, Network(2, hosts, 100 * MBIT, server=True), cases
        )  # fmt: skip
        for each in outcomes:
            table.add_row(
                str(hosts), each.case.over, f"{each.uplink_up_bytes / 1e6:.2f}",
                f"{each.uplink_down_bytes / 1e6:.2f}",
                f"{each.uplink_up_bytes / each.case.nbytes:.2f}",
                f"{each.uplink_up_bytes / flat.uplink_up_bytes:.3f}",
            )  # fmt: skip
        found += [flat, tree]
    console.print(table)
    return found


def workers(console: Console, quick: bool) -> Sequence[Outcome]:
    """Time a step of hosts that compute nothing, PBox's ZeroComputeEngine, as hosts are added."""
    found: list[Outcome] = []
    table = Table("hosts", "step, s", "of two hosts'", "frames of the link")
    table.title = f"one rack, {FEW_MBIT} Mbit/s"
    for hosts in (2, 4) if quick else (2, 4, 8, 16):
        case = Case("innet int32", MIB // 4 if quick else MIB, 3)
        found += measure(console, Network(1, hosts, FEW_MBIT * MBIT), [case])
        each = found[-1]
        table.add_row(
            str(hosts), f"{each.step_s:.3f}", f"{each.step_s / found[0].step_s:.3f}",
            f"{each.frame_share:.0%}",
        )  # fmt: skip
    console.print(table)
    return found


def scale(console: Console, quick: bool) -> Sequence[Outcome]:
    """Time a step, and count the bytes of an uplink, as hosts are added to two racks below a spine."""
    found: list[Outcome] = []
    table = Table("hosts", "step, s", "of two hosts'", "up the uplink, of one vector", "down")
    table.title = f"two racks below a spine, {FEW_MBIT} Mbit/s"
    for hosts in (1, 2) if quick else (1, 2, 4, 8, 16, 32):
        case = Case("innet int32", MIB // 4 if quick else MIB, 3)
        [each] = measure(console, Network(2, hosts, FEW_MBIT * MBIT), [case])
        found.append(each)
        table.add_row(
            str(2 * hosts), f"{each.step_s:.3f}", f"{each.step_s / found[0].step_s:.3f}",
            f"{each.uplink_up_bytes / case.nbytes:.3f}",
            f"{each.uplink_down_bytes / case.nbytes:.3f}",
        )  # fmt: skip
    console.print(table)
    if not quick:
        _check_scale(found)
    return found


def _check_scale(found: Sequence[Outcome]) -> None:
    """End with an error if bytes up the uplink, or times of up to 32 hosts, differ by more than 5 %."""
    first = found[0]
    for each in found:
        grown = each.uplink_up_bytes / first.uplink_up_bytes
        slower = each.step_s / first.step_s
        if abs(grown - 1) > _FLAT or (each.network.workers <= _MOST and abs(slower - 1) > _FLAT):
            raise SystemExit(
                f"{each.network.workers} hosts: {grown:.3f} times the bytes of two hosts up the uplink, "
                f"and {slower:.3f} times their step"
            )


def _peers(console: Console, mbit: int, mib: int, steps: int) -> Sequence[Outcome]:
    # A central server takes many times as long as the others, and always the same time.
    cases = [
        Case("innet int32", mib * MIB, steps + 2),
        Case("Gloo", mib * MIB, steps),
        Case("sharded PS", mib * MIB, steps),
        Case("central PS", mib * MIB, 1),
    ]
    outcomes = measure(console, Network(2, 4, mbit * MBIT, server=True), cases)
    title = f"two racks of four hosts, {mbit} Mbit/s, {mib} MiB of float32"
    longer = [each.step_s / outcomes[0].step_s for each in outcomes]
    compare(console, title, outcomes, "times as long as innet", longer)
    return outcomes


PARTS = {each.__name__: each for each in (peers, slow, uplink, workers, scale)}


if __name__ == "__main__":
    command(PARTS, "Compare sums in a tree of switches with other ways to sum.")
