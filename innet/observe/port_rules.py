"""Rules about a port of one of the job's switches, from its counters of dropped packets."""

from collections.abc import Mapping

from innet.observe.findings import Severity
from innet.observe.ports import ObservedPort
from innet.observe.rules import Rule


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"`{name}` {count}" for name, count in counts.items())


PORT_RULES: tuple[Rule[ObservedPort], ...] = (
    Rule(
        "port_down",
        Severity.PROBLEM,
        lambda it: it.down and (it.has_worker or it.has_uplink),
        lambda it: (
            f"{it.label} is down, and {'a worker' if it.has_worker else 'an uplink'} needs it"
        ),
        "look at the cable and at the interfaces at both of its ends: the switch's log names the "
        "switch's interface",
    ),
    Rule(
        "stranger",
        Severity.WARNING,
        lambda it: it.grown_counters and not it.has_worker,
        lambda it: (
            f"the switch drops packets that come in at {it.label}, where no worker of the job is"
        ),
        "they belong to another job, to a worker that has left, or to a stranger: `innet capture` shows "
        "them",
        lambda it: [
            f"counters grew in {it.observation.seconds:.1f} s: {_counts(it.grown_counters)}"
        ],
    ),
    Rule(
        "history",
        Severity.NOTE,
        lambda it: it.nonzero_counters and not it.grown_counters,
        lambda it: f"the switch has dropped packets that came in at {it.label}, but none just now",
        evidence=lambda it: [f"counters stand at: {_counts(it.nonzero_counters)}"],
    ),
)
