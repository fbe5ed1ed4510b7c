"""Eight emulated hosts, one of them with a slow link: sums that wait for it, and sums with deadlines.

Run as root, with Mininet installed::

    python -m benchmarks.stragglers --json stragglers.json
    python -m benchmarks.stragglers --only tenth

Parts:

* ``tenth``: the slow host's link has a tenth of the others' rate.
* ``half``: the slow host's link has half of the others' rate.
* ``even``: all links have the same rate. The table shows what deadlines cost then.

Each part has steps of a sum, and a training on handwritten digits with the same samples for each way. The
seconds of a step are the slowest host's. "Steps a second" counts all steps, with those at the beginning
that find out who is late. A sum of integers is checked against an oracle in every step.
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
from benchmarks.emulated.stragglers import DEADLINE, GLOO, WAITING, Case
from innet.errors import InnetError

HOSTS, MBIT = 8, 1_000_000
FAST = 10 * MBIT
WAYS = (WAITING, DEADLINE, GLOO)
SEEDS = 2


@dataclass(frozen=True)
class Outcome(Timed):
    """The result of a case. `accuracy` is of a training, and `stride` that of the late host's chunks."""

    slow_rate: int
    accuracy: float
    stride: int
    notes: Sequence[dict[str, Any]]

    @property
    def steps_per_s(self) -> float:
        """Return the steps a second over the whole case."""
        return len(self.steps_s) / sum(self.steps_s)


def tenth(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare the ways with a host whose link has a tenth of the others' rate."""
    return _measured(console, FAST // 10, "a tenth of the link", quick)


def half(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare the ways with a host whose link has half of the others' rate."""
    return _measured(console, FAST // 2, "half of the link", quick)


def even(console: Console, quick: bool) -> Sequence[Outcome]:
    """Compare the ways with links of the same rate."""
    return _measured(console, FAST, "the same link", quick)


def _measured(console: Console, slow_rate: int, title: str, quick: bool) -> Sequence[Outcome]:
    floats, steps, training, seeds = (1 << 14, 3, 20, 1) if quick else (1 << 17, 10, 200, SEEDS)
    cases = [
        Case("sums", WAITING, steps, floats),
        Case("sums", DEADLINE, 5 * steps, floats),
        Case("sums", GLOO, steps // 2, floats),
        Case("oracle", DEADLINE, 2 * steps, floats // 2),
        Case("digits", GLOO, training // 10),
        *(
            Case("digits", over, training, seed=seed)
            for seed in range(seeds)
            for over in (WAITING, DEADLINE)
        ),
    ]
    network = Network(1, HOSTS, FAST, slots=128, slow_rate=slow_rate)
    program = [sys.executable, "-m", "benchmarks.emulated.stragglers"]
    noted = emulate(console, network, program, {"cases": [asdict(case) for case in cases]})
    found = [
        _outcome(case, slow_rate, hosts)
        for case, hosts in zip(cases, zip(*noted, strict=True), strict=True)
    ]
    _show(console, found, f"{HOSTS} hosts, {FAST // MBIT} Mbit/s, one has {title}")
    return found


def _outcome(case: Case, slow_rate: int, hosts: Sequence[dict[str, Any]]) -> Outcome:
    if len({host.get("digest") for host in hosts}) > 1:
        raise InnetError(f"{case}: the hosts have different parameters")
    first = hosts[0]
    accuracy, stride = first.get("accuracy", 0.0), first.get("stride", 1)
    return Outcome(case, slowest(hosts), slow_rate, accuracy, stride, hosts)


def _show(console: Console, found: Sequence[Outcome], title: str) -> None:
    table = Table("what", "over", "step, ms", "steps/s", "times the waiting", "stride", "accuracy")
    table.title = title
    for what in ("sums", "digits"):
        rates = {}
        for over in WAYS:
            those = [each for each in found if (each.case.what, each.case.over) == (what, over)]
            rates[over] = statistics.median(each.steps_per_s for each in those)
            accuracies = [each.accuracy for each in those]
            table.add_row(
                what, over, f"{1e3 * statistics.median(each.step_s for each in those):.1f}",
                f"{rates[over]:.2f}", f"{rates[over] / rates[WAITING]:.2f}",
                " ".join(str(each.stride) for each in those) if over == DEADLINE else "",
                f"{statistics.mean(accuracies):.4f}" if what == "digits" and over != GLOO else "",
            )  # fmt: skip
    console.print(table)
    [oracle] = [each for each in found if each.case.what == "oracle"]
    notes = oracle.notes[0]
    console.print(
        f"oracle: {notes['checked']} sums exact; of all hosts' elements {notes['on_time']:,} were in the "
        f"sum of their step and {notes['late']:,} in a later one, each once"
    )


PARTS = {each.__name__: each for each in (tenth, half, even)}


if __name__ == "__main__":
    command(PARTS, "Compare sums that wait for a straggler with sums that have deadlines.")
