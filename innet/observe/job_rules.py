"""Rules about a job as a whole: its switch, its slots, its path."""

from collections.abc import Iterator

from innet.observe.findings import Severity
from innet.observe.rules import Rule
from innet.observe.subjects import JobCase, departures, ranks
from innet.rpc import innet_pb2 as pb


def _lost(it: JobCase) -> bool:
    """Return whether the controller cannot reach the switch, although no other controller has it."""
    return not (it.switch.reachable or it.switch.taken)


def _down(it: JobCase) -> bool:
    """Return whether the switch answers neither the controller nor the workers."""
    needed = it.job.path == pb.PATH_NONE and bool(it.present)
    return _lost(it) and (it.switch_silent or needed)


def _waiting(it: JobCase) -> bool:
    """Return whether no term has begun between the two samples. Most take a moment."""
    before = it.before
    return it.job.path == pb.PATH_NONE == before.path and it.job.term == before.term


def _ready(it: JobCase) -> bool:
    """Return whether a term on the switch has all that it needs."""
    enough = len(it.present) >= max(1, it.job.quorum)
    return bool(it.job.slots) and it.reachable and enough


def _sizes_disagree(it: JobCase) -> bool:
    sizes = {(each.progress.exchange, each.progress.chunks) for each in it.busy}
    return len(sizes) > len({exchange for exchange, _ in sizes})


def _reason(it: JobCase) -> Iterator[str]:
    if it.job.reason:
        yield f"the controller says: {it.job.reason}"


def _slots(it: JobCase) -> Iterator[str]:
    if not it.job.slots:
        free, all_slots = it.switch.free_slots, it.switch.slots
        yield f"the job has no slots; {free} of {all_slots} on {it.switch.name} are free"


def _who_hears_nothing(it: JobCase) -> Iterator[str]:
    if it.unheard:
        yield f"without an answer from it: {ranks(it.unheard)}"


def _who_hears(it: JobCase) -> Iterator[str]:
    yield from _who_hears_nothing(it)
    if heard := [worker for worker in it.busy if not worker.hears_nothing]:
        yield f"not missing its answers: {ranks(heard)}"


def _asking(it: JobCase) -> Iterator[str]:
    for worker in it.unheard:
        yield f"worker {worker.rank} has asked for {worker.progress.silent_s:.1f} s"


def _stale(it: JobCase) -> Iterator[str]:
    grown, seconds = it.view.job_growth("stale"), it.view.seconds
    yield f"the job's counter `stale` has grown by {grown} in {seconds:.1f} s"
    yield f"{it.job.quorum} of {it.job.workers} contributions make a result"


JOB_RULES: tuple[Rule[JobCase], ...] = (
    Rule(
        "switch_taken",
        Severity.PROBLEM,
        lambda it: it.switch.taken,
        lambda it: f"another controller has taken charge of the switch {it.job.switch}",
        "stop the other one, or remove the switch there. A few seconds later this controller takes "
        "charge again and puts its entries back: the switch need not be started again",
        lambda it: [f"the controller says: {it.switch.problem}", *_who_hears(it)],
    ),
    Rule(
        "outage",
        Severity.WARNING,
        lambda it: it.job.outage,
        "the controller hears no worker of any job",
        "is the network of the controller's machine down? Nobody is given up before somebody is heard",
    ),
    Rule(
        "switch_down",
        Severity.PROBLEM,
        _down,
        lambda it: f"the switch {it.job.switch} is down",
        "start it again: the controller gives it its program, and the job goes on",
        lambda it: [
            f"the controller cannot reach it at {it.switch.grpc_address}",
            *_who_hears_nothing(it),
        ],
    ),
    Rule(
        "switch_unreachable",
        Severity.WARNING,
        lambda it: _lost(it) and not _down(it),
        lambda it: (
            f"the controller cannot reach the switch {it.job.switch}: nobody can join, and counters "
            "are old"
        ),
        "does its P4Runtime service run, and at this address?",
        lambda it: [f"P4Runtime address: {it.switch.grpc_address}", *_who_hears(it)],
    ),
    Rule(
        "switch_silent",
        Severity.PROBLEM,
        lambda it: it.switch.reachable and it.switch_silent,
        lambda it: f"the switch {it.job.switch} runs, but answers no worker",
        "are its ports up, and do the workers reach its service address? `innet capture` on a worker "
        "shows what leaves and what comes",
        _asking,
    ),
    Rule(
        "no_slots",
        Severity.PROBLEM,
        lambda it: not it.job.slots and it.job.path != pb.PATH_FALLBACK,
        "the job waits for slots",
        "delete a job that nobody needs any more, or create this one with fewer slots",
        lambda it: [*_slots(it), *_reason(it)],
    ),
    Rule(
        "no_path",
        Severity.PROBLEM,
        lambda it: _waiting(it) and _ready(it) and not it.job.waiting_for,
        "the workers wait for a term to begin",
        "one of them has not said that it is ready: its log says what it does",
        _reason,
    ),
    Rule(
        "fallback",
        Severity.WARNING,
        lambda it: it.job.path == pb.PATH_FALLBACK,
        "the workers sum among themselves, not in the switch",
        "results are the same but take longer; the job goes back to the switch by itself when it can",
        lambda it: [*_reason(it), *_slots(it)],
    ),
    Rule(
        "new_term",
        Severity.WARNING,
        lambda it: it.before.term not in (0, it.job.term),
        lambda it: f"a term has just ended: {it.before.term} was followed by {it.job.term}",
        "if it happens again and again, the controller's log says why",
        _reason,
    ),
    Rule(
        "nobody",
        Severity.WARNING,
        lambda it: not it.view.now.members,
        lambda it: f"none of the {it.job.workers} workers has joined",
        "start them with INNET_CONTROLLER, INNET_JOB and INNET_TOKEN set; `innet doctor` on their "
        "machines checks what they need",
        lambda it: departures(it.job),
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
        "is the switch overloaded? Fewer slots keep fewer packets under way; its metric "
        "innet_switch_drops_total tells what it loses, and why",
        lambda it: [worker.repeats for worker in it.lossy],
    ),
    Rule(
        "left_behind",
        Severity.WARNING,
        lambda it: it.view.job_growth("stale"),
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

UNEXPLAINED: Rule[JobCase] = Rule(
    "unexplained",
    Severity.PROBLEM,
    lambda it: it.stalls,
    "workers wait, and nothing says for what",
    "look again in a few seconds; if it stays so, `innet capture` on a worker shows what it sends and "
    "gets",
    lambda it: map(str, it.stalls),
)
"""The finding about stalls for which no rule has found a problem."""
