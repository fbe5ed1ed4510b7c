"""Rules about a switch of a tree. The first rule that fits tells what holds sums up there."""

from collections.abc import Iterator

from innet.observe.findings import Severity
from innet.observe.rules import Rule
from innet.observe.subjects import SwitchCase, ranks
from innet.rpc import innet_pb2 as pb


def _workers(it: SwitchCase) -> str:
    return ranks([it.whole.workers[rank] for rank in sorted(it.below)])


def _unheeded(it: SwitchCase) -> Iterator[str]:
    seconds = it.whole.view.seconds
    yield (
        f"its counter `raised` has grown by {it.grown('raised')} in {seconds:.1f} s, `completed` by "
        f"{it.grown('completed')}, `pending` by {it.grown('pending')}"
    )
    yield f"below it: {_workers(it)}"
    yield from map(str, it.held_up + it.stalls)


def _waited_for(it: SwitchCase) -> Iterator[str]:
    yield f"below it: {_workers(it)}"
    for stall in it.held_up:
        missing = [it.whole.workers[rank] for rank in sorted(stall.missing & it.below)]
        if missing:
            yield f"there worker {stall.rank} waits for {ranks(missing)}"
    yield from map(str, it.stalls)


def _down(it: SwitchCase) -> bool:
    """Return whether the switch answers neither the controller nor workers."""
    needed = it.whole.job.path == pb.PATH_NONE and bool(it.whole.present)
    return not it.state.reachable and (needed or bool(it.unheard))


def _unreached(it: SwitchCase) -> Iterator[str]:
    yield f"the controller cannot reach it at {it.state.grpc_address}"
    if it.whole.job.reason:
        yield f"the controller says: {it.whole.job.reason}"
    if it.unheard:
        yield f"without an answer from it: {ranks(it.unheard)}"
    yield from map(str, it.held_up + it.stalls)


TREE_RULES: tuple[Rule[SwitchCase], ...] = (
    Rule(
        "wrong_uplink",
        Severity.PROBLEM,
        lambda it: it.misplaced,
        lambda it: "; ".join(it.misplaced),
        "move the cables, or remove the switch and add it with the ports that its cables are at",
    ),
    Rule(
        "switch_down",
        Severity.PROBLEM,
        _down,
        lambda it: f"the switch {it.name} is down",
        "start it again: the controller gives it its program, and the job goes on",
        _unreached,
    ),
    Rule(
        "switch_unreachable",
        Severity.WARNING,
        lambda it: not it.state.reachable,
        lambda it: f"the controller cannot reach the switch {it.name}",
        "does it run, and its P4Runtime service, at this address?",
        _unreached,
    ),
    Rule(
        "uplink_silent",
        Severity.PROBLEM,
        lambda it: it.unheeded,
        lambda it: f"{it.name} sends its sums up to {it.parents}, and gets no answer",
        "the link between them is dead, or what is at its other end: look at its cable and at both "
        "ports; `innet switch show` says where an uplink leads",
        _unheeded,
    ),
    Rule(
        "rack_missing",
        Severity.WARNING,
        lambda it: it.stalls,
        lambda it: f"sums wait at {it.parents} for that of {it.name}",
        "what is said of the workers below it is the cause; if nothing is, the link to it",
        _waited_for,
    ),
)
