"""Rules about a port of one of the job's switches, from its counters of dropped packets."""

from collections.abc import Mapping

from innet.observe.findings import Severity
from innet.observe.ports import PortCase
from innet.observe.rules import Rule


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"`{name}` {count}" for name, count in counts.items())


PORT_RULES: tuple[Rule[PortCase], ...] = (
    Rule(
        "stranger",
        Severity.WARNING,
        lambda it: it.grown() and not it.taken,
        lambda it: (
            f"the switch drops packets that come in at {it.subject}, where no worker of the job is"
        ),
        "they belong to another job, to a worker that has left, or to somebody who has no business "
        "there: `innet capture` shows them",
        lambda it: [f"counters grew in {it.view.seconds:.1f} s: {_counts(it.grown())}"],
    ),
    Rule(
        "history",
        Severity.NOTE,
        lambda it: it.counted() and not it.grown(),
        lambda it: (
            f"the switch has dropped packets that came in at {it.subject}, but none just now"
        ),
        evidence=lambda it: [f"counters stand at: {_counts(it.counted())}"],
    ),
)
