"""The findings of `innet doctor` for made-up samples."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.observe.diagnosis import diagnose
from innet.observe.findings import Finding, Severity
from innet.observe.job_rules import JOB_RULES, UNEXPLAINED
from innet.observe.port_rules import PORT_RULES
from innet.observe.sample import Observation, Sample, sample_twice
from innet.observe.tree_rules import TREE_RULES
from innet.observe.worker_rules import WORKER_RULES
from innet.rpc import innet_pb2 as pb

WORKERS, SLOTS, CHUNKS = 3, 32, 391
SECONDS = 1.0


def progress(exchange: int = 42, **changes) -> pb.Progress:
    """Return the progress of a worker in the middle of an exchange without problems."""
    fields = {
        "busy": True, "chunks": CHUNKS, "remaining": 100, "stuck_s": 0.001, "chunk": 291,
        "slot": 3, "sequence": 55, "packets_sent": 10_000, "packets_received": 9_900,
        "chunks_done": 9_000, "round_trip_s": 0.0002, "timeout_s": 0.05, "window": SLOTS,
    }  # fmt: skip
    return pb.Progress(exchange=exchange, **{**fields, **changes})


def member(rank: int) -> pb.WorkerStatus:
    address = pb.Address(mac=f"02:00:00:00:00:0{rank}", ip=f"10.0.0.{rank}", udp_port=20_000)
    return pb.WorkerStatus(
        rank=rank, port=rank + 1, address=address, silent_s=0.1, progress=progress()
    )


def healthy() -> tuple[pb.Job, pb.Switch]:
    members = [member(rank) for rank in range(WORKERS)]
    job = pb.Job(
        name="train", switch="tor", id=1, term=7, workers=WORKERS, quorum=WORKERS, lanes=64,
        slots=SLOTS, joined=range(WORKERS), path=pb.PATH_SWITCH, members=members,
        worker_lease_s=3.0,
    )  # fmt: skip
    switch = pb.Switch(
        name="tor", grpc_address="10.0.9.1:9559", ports=range(1, 5), lanes=64, slots=8192,
        free_slots=8160, reachable=True, service=pb.Address(ip="10.255.255.254"),
        port_counters=[pb.PortCounters(port=port) for port in range(1, 5)],
    )  # fmt: skip
    return job, switch


@dataclass
class Situation:
    """Two samples of a job that runs well. Tests spoil them with `now`, `both` and `gets_on`."""

    before: tuple[pb.Job, pb.Switch]
    after: tuple[pb.Job, pb.Switch]
    others: tuple[pb.Switch, ...] = ()

    @classmethod
    def well(cls) -> "Situation":
        return cls(healthy(), healthy())

    @property
    def observation(self) -> Observation:
        return Observation(
            Sample(10.0, *self.before), Sample(10.0 + SECONDS, *self.after, self.others)
        )

    @property
    def job(self) -> pb.Job:
        return self.after[0]

    @property
    def switch(self) -> pb.Switch:
        return self.after[1]

    def says(self, rank: int, **changes) -> None:
        """Change a worker's progress in both samples."""
        for job, _ in (self.before, self.after):
            for name, value in changes.items():
                setattr(job.members[rank].progress, name, value)

    def stalls(self, *ranks: int, lacking: int = 0, **changes) -> None:
        """Let workers wait for long at one chunk, for those in the bitmap `lacking`."""
        for rank in ranks:
            self.says(rank, stuck_s=12.3, missing=lacking, **changes)

    def racks(self, **growth: int) -> None:
        """Put the job's switch above two racks, and let counters of the right one grow."""
        for job, _ in (self.before, self.after):
            job.tree.add(switch="tor")
            job.tree.add(switch="left", parents=["tor"], workers=[0])
            job.tree.add(switch="right", parents=["tor"], workers=[1, 2])
            for each in job.members:
                each.switch = "right" if each.rank else "left"
        for name, by in growth.items():
            setattr(self.job.tree[2].counters, name, by)

    def counts(self, port: int, **growth: int) -> None:
        """Let counters of a port grow."""
        for name, by in growth.items():
            counters = self.switch.port_counters[port - 1]
            setattr(counters, name, getattr(counters, name) + by)

    def works(self, rank: int, **growth: int) -> None:
        """Let a worker's own counters grow."""
        for name, by in growth.items():
            found = self.job.members[rank].progress
            setattr(found, name, getattr(found, name) + by)

    def without(self, rank: int, *, from_the_start: bool = True) -> None:
        """Remove a worker."""
        for job, _ in (self.before, self.after) if from_the_start else (self.after,):
            kept = [each for each in job.members if each.rank != rank]
            del job.members[:]
            job.members.extend(kept)


def found_by(situation: Situation) -> dict[tuple[str, str], Finding]:
    return {(each.rule, each.subject): each for each in diagnose(situation.observation)}


def all_text(finding: Finding) -> str:
    return "\n".join([finding.statement, *finding.evidence, finding.remedy])


# ---- one situation for every rule ---------------------------------------------------------------

Spoil = Callable[[Situation], None]
CASES: dict[str, tuple[Spoil, str, Severity, list[str]]] = {}
"""By rule and variant: how to spoil the samples, and the finding's subject, severity and words."""


def case(name: str, subject: str, severity: Severity, *words: str) -> Callable[[Spoil], Spoil]:
    def keep(spoil: Spoil) -> Spoil:
        CASES[name] = (spoil, subject, severity, list(words))
        return spoil

    return keep


@case("not_joined", "worker 2", Severity.PROBLEM, "worker 2 has not joined", "INNET_TOKEN")
def _(it: Situation) -> None:
    it.without(2)
    for rank in (0, 1):
        it.says(rank, exchange=0, busy=False, chunks=0)


@case("departed", "worker 2", Severity.PROBLEM, "worker 2 has left the job")
def _(it: Situation) -> None:
    it.without(2)


@case(
    "departed/just now", "worker 1", Severity.PROBLEM, "worker 1 has left the job",
    "worker 1 left 12 s ago: its process has ended",
)  # fmt: skip
def _(it: Situation) -> None:
    it.without(1, from_the_start=False)
    it.job.departures.add(rank=1, ago_s=12.0, reason="its process has ended")


@case("departed/with a quorum", "worker 2", Severity.WARNING, "worker 2 has left the job")
def _(it: Situation) -> None:
    it.job.quorum = 2
    it.without(2, from_the_start=False)


@case("no_hello", "worker 1", Severity.PROBLEM, "no hello packet", "10.255.255.254", "INNET_LINK")
def _(it: Situation) -> None:
    for job, _ in (it.before, it.after):
        job.members[1].ClearField("address")
        job.members[1].ClearField("progress")


@case("silent", "worker 1", Severity.WARNING, "no heartbeat for 2.5 s", "port 2 of tor")
def _(it: Situation) -> None:
    it.job.members[1].silent_s = 2.5


@case("silent/holding others up", "worker 1", Severity.PROBLEM, "no heartbeat for 2.5 s", "slot 3")
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=0b010)
    it.job.members[1].silent_s = 2.5


@case(
    "silent/waited for",
    "worker 1",
    Severity.PROBLEM,
    "have waited 7.5 s for it",
    "interpreter lock",
)
def _(it: Situation) -> None:
    it.job.members[1].silent_s = 60.0
    it.job.waiting_for.append(1)
    it.job.waiting_s = 7.5


@case(
    "unreachable", "worker 1", Severity.WARNING, "the machine of worker 1", "not answered for 4.0 s"
)
def _(it: Situation) -> None:
    it.job.members[1].silent_s = it.job.members[1].unreachable_s = 4.0


@case("unreachable/disconnected", "worker 1", Severity.WARNING, "its connection is lost")
def _(it: Situation) -> None:
    it.job.members[1].disconnected = True


@case("waited_for", "worker 2", Severity.PROBLEM, "the others wait for worker 2", "py-spy", "6.0 s")
def _(it: Situation) -> None:
    """Let a term begin while a worker is in its script: the switch is not to blame."""
    it.job.waiting_for.append(2)
    it.job.waiting_s = 6.0
    for job, _ in (it.before, it.after):
        job.path, job.term = pb.PATH_NONE, 8


@case(
    "outage",
    "job train",
    Severity.WARNING,
    "hears no worker",
    "network of the controller's machine",
)
def _(it: Situation) -> None:
    it.job.outage = True


@case("spoofed", "worker 0", Severity.WARNING, "pretend to be from the switch", "--service-ip")
def _(it: Situation) -> None:
    it.counts(1, spoofed=4)


@case("refused", "worker 0", Severity.WARNING, "`refused` of port 1 of tor", "by 17 in 1.0 s")
def _(it: Situation) -> None:
    it.counts(1, refused=17)


@case(
    "refused/holding others up", "worker 1", Severity.PROBLEM,
    "refuses packets that come in at worker 1's port", "`refused` of port 2 of tor has grown by 99",
    "10.0.0.1:20000", "worker 0 has waited 12.3 s for chunk 17 of 391 in exchange 42",
    "slot 5 with sequence number 9",
)  # fmt: skip
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=0b010, chunk=17, slot=5, sequence=9)
    it.stalls(1, silent_s=12.0)
    it.counts(2, refused=99)


@case("offload", "worker 0", Severity.WARNING, "port 1 of tor", "`ethtool -K IFACE tx off`",
      "`refused` of port 1 of tor has grown by 30", "20 of them (2.0%)", "10.0.0.0:20000")  # fmt: skip
def _(it: Situation) -> None:
    it.works(0, packets_sent=1000, chunks_done=980, retransmissions=20)
    it.counts(1, refused=30)


@case("corrupted", "worker 2", Severity.WARNING, "damaged when they reach the switch", "by 3 in")
def _(it: Situation) -> None:
    it.counts(3, corrupted=3)


@case("corrupted/holding others up", "worker 2", Severity.PROBLEM, "damaged", "for chunk 291")
def _(it: Situation) -> None:
    it.stalls(0, 1, lacking=0b100)
    it.stalls(2, silent_s=8.0)
    it.counts(3, corrupted=3)


@case("corrupted_results", "worker 1", Severity.WARNING, "damaged when they reach worker 1", "6")
def _(it: Situation) -> None:
    it.works(1, corrupted=6)


@case("cut_off", "worker 1", Severity.PROBLEM, "its link is dead", "does answer workers 0, 2",
      "has asked for 9.5 s", "worker 2 has waited 12.3 s for chunk 291")  # fmt: skip
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=0b010)
    it.stalls(1, silent_s=9.5, lacking=0b111)


@case("cut_off/while nobody else asks", "worker 1", Severity.PROBLEM, "its link is dead")
def _(it: Situation) -> None:
    it.stalls(1, silent_s=9.5)
    for rank in (0, 2):
        it.says(rank, busy=False)


@case("behind", "worker 1", Severity.PROBLEM, "it is at exchange 41", "in exchange 42", "it is in")
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=0b010)
    it.says(1, exchange=41)


@case("behind/and not busy", "worker 1", Severity.PROBLEM, "at exchange 41", "it is not in an")
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=0b010)
    it.says(1, exchange=41, busy=False)


@case(
    "idle", "worker 1", Severity.PROBLEM, "worker 1 is not in an all-reduce", "exchange 42",
    "`pending` has grown by 40", "py-spy", "worker 0 has waited 12.3 s for chunk 291 of 391",
)  # fmt: skip
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=0b010)
    it.says(1, busy=False, chunks=0, remaining=0)
    it.job.counters.pending = 40


@case("idle/on the fallback", "worker 1", Severity.PROBLEM, "worker 1 is not in an all-reduce")
def _(it: Situation) -> None:
    it.job.path = pb.PATH_FALLBACK
    it.stalls(0, 2)
    it.says(1, busy=False)


@case("lost_on_the_way", "worker 1", Severity.PROBLEM, "get lost on their way", "sent 30 packets")
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=0b010)
    it.works(1, retransmissions=30, packets_sent=30)


@case("loss", "worker 1", Severity.WARNING, "between worker 1 and the switch", "20 of them (2.0%)")
def _(it: Situation) -> None:
    for rank in range(WORKERS):
        it.works(rank, packets_sent=1000, chunks_done=980)
    it.works(1, retransmissions=20)


@case("loss/of all", "job train", Severity.WARNING, "packets of all workers get lost", "worker 2")
def _(it: Situation) -> None:
    for rank in range(WORKERS):
        it.works(rank, packets_sent=1000, chunks_done=980, retransmissions=20)


@case("wrong_uplink", "switch right", Severity.PROBLEM, "the uplink at port 5 of right was said to "
      "lead to port 2 of tor, and leads to port 1 of tor", "move the cables")  # fmt: skip
def _(it: Situation) -> None:
    it.racks()
    link = pb.Uplink(parent="tor", port=5, parent_port=2, found="port 1 of tor", probed=True)
    it.others = (pb.Switch(name="right", reachable=True, uplinks=[link]),)


@case("switch_down/in a rack", "switch right", Severity.PROBLEM, "the switch right is down",
      "10.0.9.2:9559", "right does not answer", "start it again")  # fmt: skip
def _(it: Situation) -> None:
    it.racks()
    it.others = (pb.Switch(name="right", grpc_address="10.0.9.2:9559"),)
    for job, _ in (it.before, it.after):
        job.path, job.reason = pb.PATH_NONE, "right does not answer"


@case(
    "switch_unreachable/in a rack",
    "switch right",
    Severity.WARNING,
    "cannot reach the switch right",
)
def _(it: Situation) -> None:
    it.racks()
    it.others = (pb.Switch(name="right", grpc_address="10.0.9.2:9559"),)


@case("corrupted/in a rack", "worker 1", Severity.WARNING, "at port 2 of right", "by 3 in 1.0 s")
def _(it: Situation) -> None:
    it.racks()
    counters = pb.PortCounters(port=2, corrupted=3)
    it.others = (pb.Switch(name="right", reachable=True, port_counters=[counters]),)


@case("congestion", "worker 2", Severity.WARNING, "window to 4 of 32 chunks", "0.20 ms")
def _(it: Situation) -> None:
    it.says(2, window=4)
    it.works(2, packets_sent=1000, retransmissions=5)


@case(
    "switch_down", "job train", Severity.PROBLEM, "tor is down", "10.0.9.1:9559", "workers 0, 1, 2"
)
def _(it: Situation) -> None:
    it.switch.reachable = False
    it.stalls(0, 1, 2, silent_s=4.0)


@case("switch_down/between terms", "job train", Severity.PROBLEM, "tor is down")
def _(it: Situation) -> None:
    it.switch.reachable = False
    it.job.path = pb.PATH_NONE


@case("switch_taken", "job train", Severity.PROBLEM, "another controller", "which started later")
def _(it: Situation) -> None:
    it.switch.reachable, it.switch.taken = False, True
    it.switch.problem = "the switch has another controller, which started later"
    it.job.path = pb.PATH_NONE


@case("switch_unreachable", "job train", Severity.WARNING, "cannot reach", "missing its answers: w")
def _(it: Situation) -> None:
    it.switch.reachable = False


@case(
    "switch_silent",
    "job train",
    Severity.PROBLEM,
    "answers no worker",
    "worker 2 has asked for 4.0",
)
def _(it: Situation) -> None:
    it.stalls(0, 1, 2, silent_s=4.0, lacking=0b111)


@case("no_slots", "job train", Severity.PROBLEM, "waits for slots", "8160 of 8192 on tor", "queued")
def _(it: Situation) -> None:
    it.job.slots, it.job.path, it.job.reason = 0, pb.PATH_NONE, "queued behind 2 jobs"


@case("no_path", "job train", Severity.PROBLEM, "wait for a term", "worker 1 is not ready")
def _(it: Situation) -> None:
    for job, _ in (it.before, it.after):
        job.path, job.reason = pb.PATH_NONE, "worker 1 is not ready"


@case("fallback", "job train", Severity.WARNING, "not in the switch", "the switch does not answer")
def _(it: Situation) -> None:
    it.job.path, it.job.reason = pb.PATH_FALLBACK, "the switch does not answer"


@case("fallback/without slots", "job train", Severity.WARNING, "the job has no slots; 8160 of")
def _(it: Situation) -> None:
    it.job.slots, it.job.path = 0, pb.PATH_FALLBACK


@case("new_term", "job train", Severity.WARNING, "7 was followed by 8", "a link was down")
def _(it: Situation) -> None:
    it.job.term, it.job.reason = 8, "a link was down"


@case("nobody", "job train", Severity.WARNING, "none of the 3 workers has joined", "INNET_JOB")
def _(it: Situation) -> None:
    for rank in range(WORKERS):
        it.without(rank)


@case("sizes_disagree", "job train", Severity.PROBLEM, "different sizes", "worker 1: 17 chunks in")
def _(it: Situation) -> None:
    it.says(1, chunks=17)


@case("left_behind", "job train", Severity.WARNING, "too late", "`stale` has grown by 5", "2 of 3")
def _(it: Situation) -> None:
    it.job.quorum, it.job.counters.stale = 2, 5


@case(
    "between", "job train", Severity.NOTE, "no worker is in an all-reduce", "has done 42 exchanges"
)
def _(it: Situation) -> None:
    for rank in range(WORKERS):
        it.says(rank, busy=False)


@case("unexplained", "job train", Severity.PROBLEM, "no known cause fits", "worker 0 has waited")
def _(it: Situation) -> None:
    it.stalls(0)


@case(
    "uplink_silent", "switch right", Severity.PROBLEM, "right sends its sums up to tor", "no answer",
    "`raised` has grown by 9 in 1.0 s, `completed` by 0", "below it: workers 1, 2",
    "worker 2 has waited 12.3 s for chunk 291", "worker 0 has waited 12.3 s for chunk 291",
)  # fmt: skip
def _(it: Situation) -> None:
    it.racks(raised=9, pending=1)
    it.stalls(0, lacking=0b110)
    it.stalls(1, 2, lacking=0b111, silent_s=8.0)


@case("rack_missing", "switch right", Severity.WARNING, "sums wait at tor for that of right",
      "below it: workers 1, 2", "worker 0 has waited 12.3 s for chunk 291")  # fmt: skip
def _(it: Situation) -> None:
    it.racks()
    it.stalls(0, lacking=0b110)
    it.stalls(1, 2, lacking=0)


@case("stranger", "port 4 of tor", Severity.WARNING, "no worker of the job is", "`refused` 8")
def _(it: Situation) -> None:
    it.counts(4, refused=8)


@case("history", "port 2 of tor", Severity.NOTE, "none just now", "`refused` 800, `spoofed` 1")
def _(it: Situation) -> None:
    for _, switch in (it.before, it.after):
        switch.port_counters[1].refused, switch.port_counters[1].spoofed = 800, 1


def test_repetitions_that_came_too_soon_are_no_losses():
    """On a busy host 1.5 % are repeated, and the switch answers those packets as well."""
    it = Situation.well()
    for rank in range(WORKERS):
        it.works(
            rank,
            packets_sent=1000,
            packets_received=1000 - SLOTS,
            chunks_done=985,
            retransmissions=15,
        )
    assert not [each for each in diagnose(it.observation) if each.rule == "loss"]


def test_an_overloaded_switch_is_not_blamed_for_packets_that_it_cannot_read():
    it = Situation.well()
    for rank in range(WORKERS):
        it.works(rank, packets_sent=1000, chunks_done=980, retransmissions=20)
        it.counts(rank + 1, **{"corrupted" if rank else "refused": 30})
    assert {each.rule for each in diagnose(it.observation)} == {"offload", "corrupted"}


def test_nobody_hears_a_switch_that_is_down():
    it = Situation.well()
    it.switch.reachable = False
    it.job.path = pb.PATH_NONE
    assert "not missing its answers" not in all_text(found_by(it)["switch_down", "job train"])


def test_a_killed_leaf_is_named_and_no_worker_is_blamed_for_it():
    it = Situation.well()
    CASES["switch_down/in a rack"][0](it)
    assert [
        each.rule for each in diagnose(it.observation) if each.severity == Severity.PROBLEM
    ] == ["switch_down"]


@pytest.mark.parametrize("counter", ["refused", "corrupted", "spoofed"])
@pytest.mark.parametrize("port", [1, 4])
def test_findings_about_ports_name_switch_and_port_in_their_first_line(counter: str, port: int):
    it = Situation.well()
    it.counts(port, **{counter: 5})
    assert [each for each in diagnose(it.observation) if f"port {port} of tor" in each.statement]


@pytest.mark.parametrize("name", CASES)
def test_each_situation_is_found_for_what_it_is(name: str):
    spoil, subject, severity, words = CASES[name]
    situation = Situation.well()
    spoil(situation)
    found = found_by(situation)
    finding = found[name.partition("/")[0], subject]
    assert finding.severity == severity
    for word in words:
        assert word in all_text(finding)
    if severity < Severity.NOTE:
        assert finding.remedy


def test_every_rule_has_its_situation():
    tables = (*JOB_RULES, *WORKER_RULES, *TREE_RULES, *PORT_RULES, UNEXPLAINED)
    assert {rule.name for rule in tables} == {name.partition("/")[0] for name in CASES}


def test_of_a_job_that_runs_well_nothing_is_found():
    assert diagnose(Situation.well().observation) == []


def test_a_job_that_has_just_stalled_for_a_moment_is_no_finding():
    situation = Situation.well()
    for rank in (0, 2):
        situation.says(rank, stuck_s=0.3, missing=0b010)
    situation.says(1, busy=False)
    assert diagnose(situation.observation) == []


@pytest.mark.parametrize("name", CASES)
def test_a_worker_has_one_cause_and_the_others_are_blamed_for_nothing(name: str):
    spoil, subject, _, _ = CASES[name]
    situation = Situation.well()
    spoil(situation)
    of_workers = [
        each for each in diagnose(situation.observation) if each.subject.startswith("worker")
    ]
    assert [each.subject for each in of_workers] == [subject] * subject.startswith("worker")


def test_the_most_urgent_finding_comes_first():
    situation = Situation.well()
    situation.counts(4, refused=1)
    situation.stalls(0, 2, lacking=0b010)
    situation.says(1, busy=False)
    situation.works(0, corrupted=1)
    severities = [each.severity for each in diagnose(situation.observation)]
    assert severities == [Severity.PROBLEM, Severity.WARNING, Severity.WARNING]


def test_a_worker_that_repeats_because_it_waits_is_not_taken_for_a_lossy_one():
    situation = Situation.well()
    situation.stalls(0, 2, lacking=0b010)
    situation.says(1, busy=False)
    for rank in (0, 2):
        situation.works(rank, packets_sent=200, retransmissions=200)
    assert set(found_by(situation)) == {("idle", "worker 1")}


def test_a_window_that_is_still_small_is_not_taken_for_one_that_has_shrunk():
    situation = Situation.well()
    situation.says(2, window=4)
    assert diagnose(situation.observation) == []


def test_a_worker_that_was_not_told_who_is_missing_blames_nobody():
    situation = Situation.well()
    situation.stalls(0, lacking=0b111)
    situation.says(1, busy=False)
    assert set(found_by(situation)) == {("unexplained", "job train")}


def test_a_term_that_is_just_beginning_is_no_problem():
    situation = Situation.well()
    situation.job.path, situation.job.term = pb.PATH_NONE, 8
    assert set(found_by(situation)) == {("new_term", "job train")}


def test_counters_that_began_anew_count_from_zero():
    situation = Situation.well()
    situation.before[1].port_counters[0].refused = 1000
    situation.counts(1, refused=5)
    finding = found_by(situation)["refused", "worker 0"]
    assert "has grown by 5 in 1.0 s, to 5" in all_text(finding)


def test_two_workers_that_are_missing_are_both_named():
    situation = Situation.well()
    situation.stalls(0, lacking=0b110)
    situation.says(1, busy=False)
    situation.stalls(2, silent_s=5.0)
    assert set(found_by(situation)) == {("idle", "worker 1"), ("cut_off", "worker 2")}


def test_in_a_rack_that_is_waited_for_only_who_is_missing_there_is_blamed():
    situation = Situation.well()
    situation.racks(raised=1, pending=30)
    situation.stalls(0, lacking=0b110)
    situation.stalls(1, lacking=0b100)
    situation.says(2, busy=False)
    found = found_by(situation)
    assert set(found) == {("idle", "worker 2"), ("rack_missing", "switch right")}
    assert "there worker 1 waits for worker 2" in found["rack_missing", "switch right"].evidence
    assert found["idle", "worker 2"].severity == Severity.PROBLEM


def test_a_rack_that_waits_for_another_is_not_taken_for_one_that_is_not_answered():
    situation = Situation.well()
    situation.racks(raised=30, pending=30)
    situation.stalls(1, 2, lacking=0b001)
    situation.says(0, busy=False)
    assert set(found_by(situation)) == {("idle", "worker 0"), ("rack_missing", "switch left")}


# ---- arbitrary samples -------------------------------------------------------------------------

SMALL = st.integers(0, 5)
PROGRESS = st.builds(
    pb.Progress, exchange=SMALL, busy=st.booleans(), chunks=SMALL, remaining=SMALL,
    stuck_s=st.floats(0, 20), silent_s=st.floats(0, 20), missing=st.integers(0, 2**32 - 1),
    packets_sent=st.integers(0, 10**6), retransmissions=st.integers(0, 10**6), chunks_done=SMALL,
    corrupted=SMALL, window=SMALL, sequence=SMALL,
)  # fmt: skip
MEMBER = st.builds(
    pb.WorkerStatus, rank=SMALL, port=SMALL, silent_s=st.floats(0, 60), progress=PROGRESS,
    address=st.none() | st.just(pb.Address(ip="10.0.0.1")),
)  # fmt: skip
JOB = st.builds(
    pb.Job, workers=st.integers(1, 32), quorum=st.integers(1, 32), slots=st.sampled_from([0, 32]),
    path=st.sampled_from(pb.Path.values()), members=st.lists(MEMBER, max_size=4),
    counters=st.builds(pb.Counters, pending=SMALL, stale=SMALL),
)  # fmt: skip
SWITCH = st.builds(
    pb.Switch, reachable=st.booleans(),
    port_counters=st.lists(st.builds(pb.PortCounters, port=SMALL, refused=SMALL, corrupted=SMALL)),
)  # fmt: skip


@given(st.tuples(JOB, SWITCH), st.tuples(JOB, SWITCH))
def test_whatever_is_said_a_diagnosis_comes_of_it_and_changes_nothing(before, after):
    kept = copy.deepcopy((before, after))
    found = diagnose(Observation(Sample(1.0, *before), Sample(2.0, *after)))
    assert (before, after) == kept
    workers = [each.subject for each in found if each.subject.startswith("worker")]
    assert len(set(workers)) == len(workers)
    assert all(each.statement and each.remedy for each in found if not each.healthy)


# ---- two samples --------------------------------------------------------------------------------


def test_the_second_sample_waits_for_every_workers_heartbeat():
    def sample(at: float, silent: float) -> Sample:
        job, switch = healthy()
        job.members[1].silent_s = silent
        return Sample(at, job, switch)

    samples = [sample(10, 0.5), sample(11, 1.5), sample(12, 2.5), sample(13, 0.2)]
    pauses: list[float] = []
    coming = iter(samples)
    observation = sample_twice(lambda: next(coming), 1.0, sleep=pauses.append)
    assert (observation.before.at, observation.now.at) == (10, 13)
    assert pauses == [1.0, 1.0, 1.0]


def test_for_a_worker_that_is_silent_nobody_waits_for_ever():
    def take() -> Sample:
        job, switch = healthy()
        take.at += 1
        job.members[1].silent_s = take.at
        return Sample(take.at, job, switch)

    take.at = 0
    observation = sample_twice(take, 1.0, sleep=lambda _: None)
    assert observation.seconds == 6.0
