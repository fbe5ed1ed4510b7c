"""The gradient of an embedding in one rack of four hosts: only the rows that were touched, or all.

Run as root, with Mininet installed::

    python -m benchmarks.sparse --json sparse.json
    python -m benchmarks.sparse --only wide

Every host touches 1 % of a table's rows in a step. They are *different* ones, at random; or
*popular* ones, of which row r is touched in proportion to 1 / r (Zipf's law); or the *same* as
those of the other hosts. The *union* is the rows that at least one host has touched. Parts:

* ``wide``: rows of 256 float32, as many as a packet carries.
* ``narrow``: rows of 64 float32.

Bytes are those on a host's link, as the kernel counts them, with all headers, over the bytes of the
union's rows. The benchmark fails if the hosts' bits differ, if a sum of integers is wrong, or if a
sparse sum takes more than 1.3 times the union's bytes. With rows that fill packets, it also fails
if a sparse sum and the dense sum differ in a bit.
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
from benchmarks.emulated.sparse import Case
from innet.errors import InnetError

HOSTS, MBIT = 4, 1_000_000
SHARE = 0.01
MOST = 1.3
TOUCHED = ("different", "popular", "same")
LANES = 256
NETWORK = Network(1, HOSTS, 100 * MBIT)


@dataclass(frozen=True)
class Outcome(Timed):
    """The result of a case: the slowest host's time of each step, and mean bytes of a step."""

    up_bytes: float
    down_bytes: float
    union: int
    error: float
    digest: str

    @property
    def only_union(self) -> bool:
        """Return whether the switch has summed the union's rows only."""
        return self.case.over != "Gloo" and (self.case.sparse or "+blocks" in self.case.over)

    @property
    def up(self) -> float:
        """Return the bytes that a host sends, over those of the union's rows."""
        return self.up_bytes / self._union_bytes

    @property
    def down(self) -> float:
        """Return the bytes that a host receives, over those of the union's rows."""
        return self.down_bytes / self._union_bytes

    @property
    def _union_bytes(self) -> int:
        return self.union * int(self.case.width) * 4

    def figures(self) -> dict[str, Any]:
        """Return the outcome as JSON has it."""
        return {**super().figures(), "up": self.up, "down": self.down}


def wide(console: Console, quick: bool) -> Sequence[Outcome]:
    """Sum gradients whose rows fill a packet."""
    return _measured(console, 4_000 if quick else 20_000, 256, 2 if quick else 5)


def narrow(console: Console, quick: bool) -> Sequence[Outcome]:
    """Sum gradients of which four rows fill a packet."""
    return _measured(console, 16_000 if quick else 80_000, 64, 2 if quick else 5)


def _measured(console: Console, rows: int, width: int, steps: int) -> Sequence[Outcome]:
    ways = [
        ("Gloo", True), ("Gloo", False), ("innet int32", True),
        (f"innet int32+blocks:{width}", False), ("innet int32", False),
    ]  # fmt: skip
    cases = [
        Case(over, sparse, touched, rows, width, SHARE, steps)
        for touched in TOUCHED
        for over, sparse in ways
    ]
    program = [sys.executable, "-m", "benchmarks.emulated.sparse"]
    noted = emulate(console, NETWORK, program, {"cases": [asdict(case) for case in cases]})
    found = [
        _outcome(case, hosts) for case, hosts in zip(cases, zip(*noted, strict=True), strict=True)
    ]
    _check(found)
    console.print(_table(found, rows, width))
    return found


def _outcome(case: Case, hosts: Sequence[dict[str, Any]]) -> Outcome:
    steps = slowest(hosts)
    up, down, *_ = (
        statistics.mean(each) for each in zip(*(host["counters"] for host in hosts), strict=True)
    )
    digests = {host["digest"] for host in hosts}
    if len(digests) > 1 and case.over != "Gloo":
        raise InnetError(f"{case}: the hosts have different sums")
    error = max(host["error"] for host in hosts)
    return Outcome(case, steps, up, down, hosts[0]["union"], error, digests.pop())


def _check(found: Sequence[Outcome]) -> None:
    """Raise InnetError if a sparse sum takes too many bytes, or has other bits than the dense one."""
    switched = [each for each in found if each.case.over != "Gloo"]
    for each in switched:
        if each.only_union and max(each.up, each.down) > MOST:
            raise InnetError(f"{each.case} takes {each.up:.2f} times the bytes of the union's rows")
    for touched in TOUCHED:
        alike = [each for each in switched if each.case.touched == touched]
        if alike[0].case.width % LANES == 0 and len({each.digest for each in alike}) > 1:
            raise InnetError("the sums of the union's rows differ from those of all rows")


def _table(found: Sequence[Outcome], rows: int, width: int) -> Table:
    table = Table(
        "touched", "union", "gradient", "over", "step, ms", "times as fast as Gloo, sparse",
        "up", "down", "largest error",
        title=f"{HOSTS} hosts, 100 Mbit/s, {rows:,} rows of {width} float32, {SHARE:.0%} touched by each",
    )  # fmt: skip
    gloo = {
        each.case.touched: each.step_s
        for each in found
        if each.case.over == "Gloo" and each.case.sparse
    }
    for each in found:
        table.add_row(
            each.case.touched, f"{each.union:,}",
            "sparse" if each.case.sparse else "dense", each.case.over, f"{1e3 * each.step_s:.1f}",
            f"{gloo[each.case.touched] / each.step_s:.2f}", f"{each.up:.2f}", f"{each.down:.2f}",
            f"{each.error:.1e}",
        )  # fmt: skip
    return table


PARTS = {each.__name__: each for each in (wide, narrow)}


if __name__ == "__main__":
    command(PARTS, "Compare sums of an embedding's touched rows through the switch with Gloo's.")
