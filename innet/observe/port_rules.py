"""Rules about a port of the job's switch: what the data plane did not let in there."""

from collections.abc import Mapping

from innet.observe.cases import PortCase
from innet.observe.findings import Severity
from innet.observe.rules import Rule


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"`{name}` {count}" for name, count in counts.items())


PORT_RULES: tuple[Rule[PortCase], ...] = (
    Rule(
        "stranger",
        Severity.WARNING,
        lambda it: it.grown() and not it.taken,
        "the switch drops packets that come in at a port where no worker of the job is",
        "they belong to another job, to a worker that has left, or to somebody who has no business "
        "there: `innet capture` shows them",
        lambda it: [f"counters grew in {it.view.seconds:.1f} s: {_counts(it.grown())}"],
    ),
    Rule(
        "history",
        Severity.NOTE,
        lambda it: it.counted() and not it.grown(),
        "the switch has dropped packets that came in here, but none just now",
        evidence=lambda it: [f"counters stand at: {_counts(it.counted())}"],
    ),
)
