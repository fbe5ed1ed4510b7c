"""Rules about a job as a whole: its switch, its slots, its path."""

from collections.abc import Iterator

from innet.model.all_reduce import SlotParameters
from innet.model.capacity import aligned
from innet.observe.findings import Severity
from innet.observe.rules import Rule
from innet.observe.stalls import in_words
from innet.observe.subjects import ObservedJob, ObservedWorker, ranks
from innet.rpc import innet_pb2 as pb


def _unreachable(it: ObservedJob) -> bool:
    """Return whether the controller cannot reach the switch, for no known reason.

    Known reasons are another controller that is in charge of it, and an operator who has drained it.
    """
    return not (it.switch.reachable or it.switch.taken or it.switch.drained)


def _down(it: ObservedJob) -> bool:
    """Return whether the switch answers neither the controller nor the workers."""
    needed = it.now.path == pb.PATH_NONE and bool(it.present)
    return _unreachable(it) and (it.switch_silent or needed)


def _waiting(it: ObservedJob) -> bool:
    """Return whether both samples show the job waiting for the same term. Terms usually begin at once."""
    before = it.before
    return it.now.path == pb.PATH_NONE == before.path and it.now.term == before.term


def _ready(it: ObservedJob) -> bool:
    """Return whether a term on the switch has all that it needs."""
    enough = len(it.present) >= max(1, it.now.quorum)
    return bool(it.now.slots) and it.reachable and enough


def _sizes_disagree(it: ObservedJob) -> bool:
    sizes = {(each.progress.exchange, each.progress.chunks) for each in it.busy}
    return len(sizes) > len({exchange for exchange, _ in sizes})


def _reason(it: ObservedJob) -> Iterator[str]:
    if it.now.reason:
        yield f"the controller says: {it.now.reason}"


def _slots(it: ObservedJob) -> Iterator[str]:
    if not it.now.slots:
        free, all_slots = it.switch.free_slots, it.switch.slots
        yield f"the job has no slots; {free} of {all_slots} on {it.switch.name} are free"


def _unanswered_workers(it: ObservedJob) -> Iterator[str]:
    if it.unanswered_workers:
        yield f"the switch does not answer {ranks(it.unanswered_workers)}"


def _answered_workers(it: ObservedJob) -> Iterator[str]:
    yield from _unanswered_workers(it)
    if answered := [worker for worker in it.busy if not worker.unanswered]:
        yield f"the switch does answer {ranks(answered)}"


def _asking(it: ObservedJob) -> Iterator[str]:
    for worker in it.unanswered_workers:
        yield f"worker {worker.rank} has asked for {worker.progress.silent_s:.1f} s"


def _stale(it: ObservedJob) -> Iterator[str]:
    grown, seconds = it.observation.job_growth("stale"), it.observation.seconds
    yield f"the job's counter `stale` has grown by {grown} in {seconds:.1f} s"
    yield f"{it.now.quorum} of {it.now.workers} contributions make a result"


def _short_of_slots(it: ObservedJob) -> list[ObservedWorker]:
    """Return the workers whose links carry more than the job's slots can fill."""
    slots = it.now.asked_slots if it.now.path == pb.PATH_SWITCH else 0
    return [worker for worker in it.present if 0 < slots < worker.slots_needed]


def _link_and_round_trip(it: ObservedJob) -> Iterator[str]:
    frame = SlotParameters(lanes=it.now.lanes).frame
    for worker in _short_of_slots(it):
        rate, seconds = worker.progress.link_bits_per_s, worker.progress.least_round_trip_s
        yield (
            f"worker {worker.rank}: {rate / 1e9:g} Gb/s x {seconds * 1e6:.0f} us, its shortest round "
            f"trip, are {worker.slots_needed} packets of {frame} bytes"
        )


def _more_slots(it: ObservedJob) -> str:
    needed = aligned(max(worker.slots_needed for worker in _short_of_slots(it)))
    return f"the job has {it.now.asked_slots} slots, and needs {needed} to fill its workers' links"


JOB_RULES: tuple[Rule[ObservedJob], ...] = (
    Rule(
        "switch_taken",
        Severity.PROBLEM,
        lambda it: it.switch.taken,
        lambda it: f"another controller has taken charge of the switch {it.now.switch}",
        "stop the other one, or remove the switch there. A few seconds later this controller takes "
        "charge again and puts its entries back: the switch need not be started again",
        lambda it: [f"the controller says: {it.switch.problem}", *_answered_workers(it)],
    ),
    Rule(
        "outage",
        Severity.WARNING,
        lambda it: it.now.outage,
        "the controller hears no worker of any job",
        "check the network of the controller's machine; it removes no worker until it hears one again",
    ),
    Rule(
        "switch_down",
        Severity.PROBLEM,
        _down,
        lambda it: f"the switch {it.now.switch} is down",
        "start it again: the controller gives it its program, and the job goes on",
        lambda it: [
            f"the controller cannot reach it at {it.switch.grpc_address}",
            *_unanswered_workers(it),
        ],
    ),
    Rule(
        "switch_unreachable",
        Severity.WARNING,
        lambda it: _unreachable(it) and not _down(it),
        lambda it: (
            f"the controller cannot reach the switch {it.now.switch}: nobody can join, and counters "
            "are old"
        ),
        "check that its P4Runtime service runs at this address",
        lambda it: [f"P4Runtime address: {it.switch.grpc_address}", *_answered_workers(it)],
    ),
    Rule(
        "switch_silent",
        Severity.PROBLEM,
        lambda it: it.switch.reachable and it.switch_silent,
        lambda it: f"the switch {it.now.switch} runs, but answers no worker",
        "are its ports up, and do the workers reach its service address? `innet capture` on a worker "
        "shows what leaves and what comes",
        _asking,
    ),
    Rule(
        "no_slots",
        Severity.PROBLEM,
        lambda it: not it.now.slots and it.now.path != pb.PATH_FALLBACK,
        "the job waits for slots",
        "delete a job that nobody needs any more, or create this one with fewer slots",
        lambda it: [*_slots(it), *_reason(it)],
    ),
    Rule(
        "drained",
        Severity.PROBLEM,
        lambda it: _waiting(it) and bool(it.present and it.drained) and not it.now.waiting_for,
        lambda it: f"the workers wait for a drained switch: {', '.join(it.drained)}",
        "`innet switch undrain` lets the job use it again. A fallback would let the job go on meanwhile",
        _reason,
    ),
    Rule(
        "few_slots",
        Severity.NOTE,
        lambda it: bool(_short_of_slots(it)),
        _more_slots,
        "if the training waits for the network, create the job with that many --slots if they are "
        "free, or use a program with more lanes",
        _link_and_round_trip,
    ),
    Rule(
        "no_path",
        Severity.PROBLEM,
        lambda it: _waiting(it) and _ready(it) and not (it.now.waiting_for or it.drained),
        "the workers wait for a term to begin",
        "if the reason names a worker that is not ready, look at its log; otherwise look at the "
        "controller's log",
        _reason,
    ),
    Rule(
        "fallback",
        Severity.WARNING,
        lambda it: it.now.path == pb.PATH_FALLBACK,
        "the workers sum among themselves, not in the switch",
        "results are the same but take longer; the job goes back to the switch by itself when it can",
        lambda it: [*_reason(it), *_slots(it)],
    ),
    Rule(
        "new_term",
        Severity.WARNING,
        lambda it: it.before.term not in (0, it.now.term),
        lambda it: f"a term has just ended: {it.before.term} was followed by {it.now.term}",
        "if it happens again and again, the controller's log says why",
        _reason,
    ),
    Rule(
        "nobody",
        Severity.WARNING,
        lambda it: not it.observation.now.members,
        lambda it: f"none of the {it.now.workers} workers has joined",
        "start them with INNET_CONTROLLER, INNET_JOB and INNET_TOKEN set; `innet doctor` on their "
        "machines checks what they need",
        lambda it: it.departures,
    ),
    Rule(
        "sizes_disagree",
        Severity.PROBLEM,
        _sizes_disagree,
        "the workers sum vectors of different sizes",
        "do all run the same script with the same model, and call all-reduce in the same order?",
        lambda it: [
            f"worker {each.rank}: {each.progress.chunks} chunks in exchange {each.progress.exchange}"
            for each in it.busy
        ],
    ),
    Rule(
        "loss",
        Severity.WARNING,
        lambda it: it.loss_everywhere,
        "packets of all workers get lost",
        "the switch may be overloaded: with fewer slots, fewer packets are in flight. Its metric "
        "innet_switch_drops_total counts dropped packets by reason",
        lambda it: [worker.loss_summary for worker in it.lossy],
    ),
    Rule(
        "left_behind",
        Severity.WARNING,
        lambda it: it.now.quorum < it.now.workers and it.observation.job_growth("stale"),
        "contributions come too late to be counted",
        "a worker that is slower than the quorum ends with LeftBehind; a larger quorum waits for it",
        _stale,
    ),
    Rule(
        "between",
        Severity.NOTE,
        lambda it: it.present and not it.busy,
        "no worker is in an all-reduce just now",
        evidence=lambda it: [
            f"worker {each.rank} has done {each.progress.exchange} exchanges" for each in it.present
        ],
    ),
)

UNEXPLAINED: Rule[ObservedJob] = Rule(
    "unexplained",
    Severity.PROBLEM,
    lambda it: it.stalls,
    "workers wait, and no known cause fits",
    "run the command again in a few seconds; if the finding stays, `innet capture` on a worker shows its "
    "packets",
    lambda it: in_words(it.stalls),
)
"""The finding about stalls for which no rule has found a problem."""
