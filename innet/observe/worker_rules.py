"""Rules about one worker. The first rule that fits is the cause.

The rules follow a contribution on its way: whether the worker is there, whether it is admitted, whether
its packets arrive, whether it sends any, and whether it is slow.
"""

from collections.abc import Callable, Iterator

from innet.observe.findings import Severity
from innet.observe.rules import Rule
from innet.observe.stalls import STALLED_S
from innet.observe.subjects import ObservedWorker, ranks

_UNREACHABLE_S = 3.0
"""Seconds without an answer after which a machine counts as unreachable: it is asked every second."""

_NARROW = 8
"""A window is narrow if it is at most the number of the job's slots divided by this number."""


def _grows(counter: str) -> Callable[[ObservedWorker], Iterator[str]]:
    def evidence(it: ObservedWorker) -> Iterator[str]:
        observation, grown = it.job.observation, it.port_growth(counter)
        total = getattr(observation.now.ports[it.switch, it.member.port], counter)
        seconds = observation.seconds
        yield f"counter `{counter}` of {it.port} has grown by {grown} in {seconds:.1f} s, to {total}"

    return evidence


def _attached(it: ObservedWorker) -> str:
    address = it.member.address
    return (
        f"it is attached to {it.port}, with address {address.ip}:{address.udp_port} ({address.mac})"
    )


def _unanswered(it: ObservedWorker) -> Iterator[str]:
    yield _attached(it)
    yield f"it has asked for {it.progress.silent_s:.1f} s and got no answer"
    if others := [each for each in it.job.busy if not each.unanswered]:
        yield f"the switch does answer {ranks(others)}"


def _missing_told(it: ObservedWorker) -> Iterator[str]:
    told, seconds = it.job.observation.job_growth("pending"), it.job.observation.seconds
    if told:
        yield (
            f"the switch's counter `pending` has grown by {told} in {seconds:.1f} s: each time, it told "
            "a worker that others are missing"
        )


def _narrow(it: ObservedWorker) -> bool:
    """Return whether losses keep the window small. A new window is small even without losses."""
    small = 0 < it.progress.window * _NARROW <= it.job.now.slots
    progressing = it.progress.busy and it.progress.stuck_s < STALLED_S
    return small and progressing and it.growth("retransmissions") > 0


WORKER_RULES: tuple[Rule[ObservedWorker], ...] = (
    Rule(
        "departed",
        Severity.WARNING,
        lambda it: not it.invited and it.was_present,
        lambda it: f"worker {it.rank} has left the job",
        "read the log of the worker that left first, then start all workers again",
        lambda it: it.job.departures,
    ),
    Rule(
        "not_joined",
        Severity.WARNING,
        lambda it: not it.invited and it.job.observation.now.members,
        lambda it: f"worker {it.rank} has not joined",
        "check that it runs, with RANK, INNET_JOB and INNET_TOKEN set; its log shows how far it got",
    ),
    Rule(
        "no_hello",
        Severity.WARNING,
        lambda it: it.invited and not it.joined,
        lambda it: (
            f"worker {it.rank} talks to the controller, but no hello packet of it has come through "
            "the switch"
        ),
        "does its INNET_LINK lead to a port of the job's switch? With `host`: is there a route to the "
        "switch's service address, and does UDP port 19790 pass? If the switch refuses packets at the "
        "worker's port, install one version of innet on all machines",
        lambda it: [
            f"{name} has the service address {each.service.ip}, and these ports, as the controller has "
            f"them: {', '.join(map(str, each.ports))}"
            for name, each in it.job.observation.now.switches.items()
        ],
    ),
    Rule(
        "unreachable",
        Severity.WARNING,
        lambda it: (
            it.joined and (it.member.disconnected or it.member.unreachable_s >= _UNREACHABLE_S)
        ),
        lambda it: f"the controller does not reach the machine of worker {it.rank}",
        "its machine is down or disconnected; the worker leaves the job when its lease runs out",
        lambda it: [
            "its connection is lost"
            if it.member.disconnected
            else f"its kernel has not answered for {it.member.unreachable_s:.1f} s",
            _attached(it),
        ],
    ),
    Rule(
        "silent",
        Severity.WARNING,
        lambda it: it.joined and it.member.silent_s >= it.job.observation.now.overdue_s,
        lambda it: f"worker {it.rank} has sent no heartbeat for {it.member.silent_s:.1f} s",
        "its machine answers, so the process is stopped, or something holds its interpreter lock: "
        "`py-spy dump --pid PID` there shows the cause. The others wait until their timeout",
        lambda it: [_attached(it)],
    ),
    Rule(
        "spoofed",
        Severity.WARNING,
        lambda it: it.port_growth("spoofed"),
        lambda it: (
            f"at worker {it.rank}'s port, {it.port}, come frames that pretend to be from the switch"
        ),
        "another machine has the switch's service address: change its address, or add the switch with "
        "another --service-ip",
        _grows("spoofed"),
    ),
    Rule(
        "offload",
        Severity.WARNING,
        lambda it: it.partly_refused,
        lambda it: (
            f"the switch cannot read many packets of worker {it.rank}, which come in at {it.port}: its "
            "machine leaves checksums and the cutting of packets to a network card"
        ),
        "behind a veth there is no such card: run `ethtool -K IFACE tx off` as root on the worker's "
        "machine, where IFACE has the worker's address",
        lambda it: [*_grows("refused")(it), it.loss_summary, _attached(it)],
    ),
    Rule(
        "refused",
        Severity.WARNING,
        lambda it: it.port_growth("refused"),
        lambda it: f"the switch refuses packets that come in at worker {it.rank}'s port, {it.port}",
        "they come from another sender, or belong to another job or term: look for a second or left-over "
        "process; `innet capture` shows who sends what. Behind a veth they may be too long: "
        "`ethtool -K IFACE tx off` makes the worker's machine split them",
        lambda it: [*_grows("refused")(it), _attached(it)],
    ),
    Rule(
        "corrupted",
        Severity.WARNING,
        lambda it: it.port_growth("corrupted"),
        lambda it: (
            f"packets of worker {it.rank} are damaged when they reach the switch, at {it.port}"
        ),
        "something on the path changes packets: replace the cable or card, and remove address "
        "translation from the path",
        _grows("corrupted"),
    ),
    Rule(
        "corrupted_results",
        Severity.WARNING,
        lambda it: it.growth("corrupted"),
        lambda it: f"packets from the switch are damaged when they reach worker {it.rank}",
        "something on the path changes packets: replace the cable or card",
        lambda it: [
            f"packets whose check did not fit: {it.growth('corrupted')} just now",
            f"and {it.progress.corrupted} since it joined",
        ],
    ),
    Rule(
        "cut_off",
        Severity.PROBLEM,
        lambda it: (
            it.unanswered
            and not it.job.switch_silent
            and not it.unanswered_above
            and not it.switch_unreachable
        ),
        lambda it: f"worker {it.rank} hears nothing from the switch: its link is dead",
        "check its cable, its interface and the switch's port; UDP port 19790 has to pass both ways",
        _unanswered,
    ),
    Rule(
        "behind",
        Severity.WARNING,
        lambda it: it.stalls and it.progress.exchange < it.waited_for,
        lambda it: (
            f"worker {it.rank} is behind: it is at exchange {it.progress.exchange}, and others wait "
            f"for it in exchange {it.waited_for}"
        ),
        "is it slower than the others, or does it lose results? `innet top` compares them",
        lambda it: [
            "it is in an all-reduce" if it.progress.busy else "it is not in an all-reduce",
        ],
    ),
    Rule(
        "idle",
        Severity.WARNING,
        lambda it: it.stalls and not it.progress.busy,
        lambda it: (
            f"worker {it.rank} is not in an all-reduce, and others wait for it in exchange "
            f"{it.waited_for}"
        ),
        "its script does something else, or hangs: `py-spy dump --pid PID` there shows where. Check that "
        "all workers call all-reduce equally often",
        _missing_told,
    ),
    Rule(
        "waited_for",
        Severity.WARNING,
        lambda it: it.awaited and not it.growth("retransmissions"),
        lambda it: f"the others wait for worker {it.rank}",
        "its script does something else, or hangs: `py-spy dump --pid PID` there shows where",
    ),
    Rule(
        "lost_on_the_way",
        Severity.WARNING,
        lambda it: it.stalls and it.growth("retransmissions"),
        lambda it: f"contributions of worker {it.rank} get lost on their way to the switch",
        "no counter at its port grows, so they do not arrive: look at the error and drop counters of its "
        "interface and of the switch's port",
        lambda it: [
            f"it has sent {it.growth('retransmissions')} packets again",
            _attached(it),
            *_missing_told(it),
        ],
    ),
    Rule(
        "loss",
        Severity.WARNING,
        lambda it: it.lossy and not it.job.loss_everywhere,
        lambda it: f"packets get lost between worker {it.rank} and the switch",
        "look at its cable and its interface's drop counters; are its socket buffers large enough? "
        "`innet doctor` there checks that",
        lambda it: [it.loss_summary],
    ),
    Rule(
        "congestion",
        Severity.WARNING,
        _narrow,
        lambda it: (
            f"congestion has shrunk worker {it.rank}'s window to {it.progress.window} of "
            f"{it.job.now.slots} chunks"
        ),
        "something shares its link or the switch; the window widens again when nothing gets lost",
        lambda it: [
            f"round trip: {it.progress.round_trip_s * 1e3:.2f} ms",
            f"retransmissions: {it.progress.retransmissions} so far",
        ],
    ),
)
