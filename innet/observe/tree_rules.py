"""Rules about a switch of a tree. The first rule that fits tells what holds sums up there."""

from collections.abc import Iterator

from innet.observe.findings import Severity
from innet.observe.rules import Rule
from innet.observe.stalls import in_words
from innet.observe.subjects import ObservedSwitch, ranks
from innet.rpc import innet_pb2 as pb
from innet.rpc.words import workers_text


def _workers(it: ObservedSwitch) -> str:
    return workers_text(it.below)


def _no_answer_from_above(it: ObservedSwitch) -> Iterator[str]:
    seconds = it.job.observation.seconds
    yield (
        f"its counter `raised` has grown by {it.growth('raised')} in {seconds:.1f} s, `completed` by "
        f"{it.growth('completed')}, `pending` by {it.growth('pending')}"
    )
    yield f"below it: {_workers(it)}"
    yield from in_words(it.held_up + it.stalls)


def _waited_for(it: ObservedSwitch) -> Iterator[str]:
    yield f"below it: {_workers(it)}"
    for stall in it.held_up:
        if missing := stall.missing & it.below:
            yield f"there worker {stall.rank} waits for {workers_text(missing)}"
    yield from in_words(it.stalls)


def _down(it: ObservedSwitch) -> bool:
    """Return whether the switch answers neither the controller nor workers."""
    needed = it.job.now.path == pb.PATH_NONE and bool(it.job.present)
    return not it.state.reachable and (needed or bool(it.unanswered_workers))


def _unreachable(it: ObservedSwitch) -> Iterator[str]:
    yield f"the controller cannot reach it at {it.state.grpc_address}"
    if it.job.now.reason:
        yield f"the controller says: {it.job.now.reason}"
    if it.unanswered_workers:
        yield f"the switch does not answer {ranks(it.unanswered_workers)}"
    yield from in_words(it.held_up + it.stalls)


TREE_RULES: tuple[Rule[ObservedSwitch], ...] = (
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
        _unreachable,
    ),
    Rule(
        "switch_unreachable",
        Severity.WARNING,
        lambda it: not it.state.reachable,
        lambda it: f"the controller cannot reach the switch {it.name}",
        "check that it runs, and that its P4Runtime service is at this address",
        _unreachable,
    ),
    Rule(
        "uplink_silent",
        Severity.PROBLEM,
        lambda it: it.unanswered_above,
        lambda it: f"{it.name} sends its sums up to {it.parents}, and gets no answer",
        "check the cable between them, and the ports at both ends; `innet switch show` shows where an "
        "uplink leads",
        _no_answer_from_above,
    ),
    Rule(
        "rack_missing",
        Severity.WARNING,
        lambda it: it.stalls,
        lambda it: f"sums wait at {it.parents} for that of {it.name}",
        "the findings about the workers below it name the cause; if there are none, check the link to it",
        _waited_for,
    ),
)
