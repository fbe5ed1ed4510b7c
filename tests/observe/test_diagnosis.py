"""The findings of `innet doctor` for made-up samples."""

import copy
import io
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_situations import JOB_CASES
from situations import SLOTS, WORKERS, Situation, all_text, found_by, healthy
from worker_situations import WORKER_CASES

from innet.observe.diagnosis import diagnose
from innet.observe.findings import Severity
from innet.observe.job_rules import JOB_RULES, UNEXPLAINED
from innet.observe.port_rules import PORT_RULES
from innet.observe.report import show_diagnosis
from innet.observe.sample import Observation, Sample, sample_twice
from innet.observe.tree_rules import TREE_RULES
from innet.observe.worker_rules import WORKER_RULES
from innet.rpc import innet_pb2 as pb
from innet.rpc.group_ranks import in_group
from innet.terminal.console import PlainConsole
from innet.wire.layout import MOST_WORKERS

CASES = {**WORKER_CASES, **JOB_CASES}


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
    assert "the switch does answer" not in all_text(found_by(it)["switch_down", "job train"])


def test_who_sums_over_the_fallback_does_not_know_whether_the_switch_answers():
    it = Situation.well()
    it.switch.reachable, it.job.path = False, pb.PATH_FALLBACK
    found = found_by(it)
    assert set(found) == {("switch_unreachable", "job train"), ("fallback", "job train")}
    assert "the switch does answer" not in all_text(found["switch_unreachable", "job train"])


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


def test_of_thousands_that_wait_for_one_worker_a_few_are_named():
    workers = MOST_WORKERS
    members = [
        pb.WorkerStatus(
            rank=rank, port=1, address=pb.Address(ip="10.0.0.1", udp_port=1),
            progress=pb.Progress(exchange=7, busy=bool(rank), stuck_s=9, chunk=rank, chunks=workers),
        )
        for rank in range(workers)
    ]  # fmt: skip
    job = pb.Job(
        name="large", switch="tor", workers=workers, quorum=workers, slots=SLOTS, term=3,
        path=pb.PATH_FALLBACK, members=members,
    )  # fmt: skip
    switch = pb.Switch(name="tor", reachable=True)
    began = time.process_time()
    found = diagnose(Observation(Sample(0, job, switch), Sample(1, job, switch)))
    assert time.process_time() - began < 30
    assert [each.rule for each in found] == ["idle", "fallback"]
    assert found[0].subject == "worker 0"
    assert len(found[0].evidence) < 12
    assert found[0].evidence[-1] == "and 4087 more workers wait"


def test_of_many_workers_with_the_same_trouble_the_first_ones_are_shown():
    situation = Situation.well()
    for job, _ in (situation.before, situation.after):
        job.workers = MOST_WORKERS
    situation.job.quorum, situation.job.counters.stale = 2, 5
    paper = io.StringIO()
    observation = situation.observation
    show_diagnosis(PlainConsole(file=paper, width=200), observation, diagnose(observation))
    said = paper.getvalue()
    assert said.count("has not joined") == 8
    assert "and 4085 more findings of the kind not_joined: --json lists them" in said
    assert "contributions come too late" in said


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


@pytest.mark.parametrize("name", CASES)
def test_the_workers_of_a_slice_are_named_by_their_ranks_in_the_group(name: str):
    spoil, *_ = CASES[name]
    situation = Situation.well()
    spoil(situation)
    own = diagnose(situation.observation)
    jobs = []
    for job, _ in (situation.before, situation.after):
        job.group_ranks[:] = range(70, 70 + job.workers)
        jobs.append(in_group(job))
    samples = situation.observation
    before, now = (
        replace(sample, job=job)
        for sample, job in zip((samples.before, samples.now), jobs, strict=True)
    )

    def shifted(text: str) -> str:
        said, controller, own_words = text.partition("the controller says: ")
        return re.sub(
            r"(?<=\bworker )\d+|(?<=\bworkers )\d+(?:, \d+)*",
            lambda found: re.sub(r"\d+", lambda each: str(70 + int(each[0])), found[0]),
            said,
        ) + (controller + own_words)

    assert [(each.subject, all_text(each)) for each in diagnose(Observation(before, now))] == [
        (shifted(each.subject), shifted(all_text(each))) for each in own
    ]


def test_every_rule_has_its_situation():
    tables = (*JOB_RULES, *WORKER_RULES, *TREE_RULES, *PORT_RULES, UNEXPLAINED)
    assert {rule.name for rule in tables} == {name.partition("/")[0] for name in CASES}


def test_of_a_job_that_runs_well_nothing_is_found():
    assert diagnose(Situation.well().observation) == []


def test_a_job_that_has_just_stalled_for_a_moment_is_no_finding():
    situation = Situation.well()
    for rank in (0, 2):
        situation.says(rank, stuck_s=0.3, missing=(1,))
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
    situation.stalls(0, 2, lacking=(1,))
    situation.says(1, busy=False)
    situation.works(0, corrupted=1)
    severities = [each.severity for each in diagnose(situation.observation)]
    assert severities == [Severity.PROBLEM, Severity.WARNING, Severity.WARNING]


def test_a_worker_that_repeats_because_it_waits_is_not_taken_for_a_lossy_one():
    situation = Situation.well()
    situation.stalls(0, 2, lacking=(1,))
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
    situation.stalls(0, lacking=())
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


def test_counters_that_could_not_be_read_before_have_not_grown():
    """The controller had just been started again, and had not reached the switches yet."""
    situation = Situation.well()
    situation.racks(raised=1000, stale=7)
    situation.stalls(1, 2, lacking=(0,))
    situation.says(0, busy=False)
    situation.counts(1, refused=800)
    situation.job.counters.stale = 7
    before, switch = situation.before
    before.ClearField("counters")
    del switch.port_counters[:]
    for each in before.tree:
        each.ClearField("counters")
    found = found_by(situation)
    assert set(found) == {
        ("idle", "worker 0"), ("rack_missing", "switch left"), ("history", "port 1 of tor"),
    }  # fmt: skip


def test_counts_of_which_a_new_controller_has_not_heard_before_have_not_grown():
    situation = Situation.well()
    for rank in range(WORKERS):
        situation.works(rank, corrupted=700, retransmissions=700)
        situation.before[0].members[rank].ClearField("progress")
    assert diagnose(situation.observation) == []


def test_where_all_contributions_are_needed_none_comes_too_late():
    """A copy may: a worker has sent the packet twice, and the network has delayed the second one."""
    situation = Situation.well()
    situation.job.counters.stale = 5
    assert diagnose(situation.observation) == []


def test_two_workers_that_are_missing_are_both_named():
    situation = Situation.well()
    situation.stalls(0, lacking=(1, 2))
    situation.says(1, busy=False)
    situation.stalls(2, silent_s=5.0)
    assert set(found_by(situation)) == {("idle", "worker 1"), ("cut_off", "worker 2")}


def test_in_a_rack_that_is_waited_for_only_who_is_missing_there_is_blamed():
    situation = Situation.well()
    situation.racks(raised=1, pending=30)
    situation.stalls(0, lacking=(1, 2))
    situation.stalls(1, lacking=(2,))
    situation.says(2, busy=False)
    found = found_by(situation)
    assert set(found) == {("idle", "worker 2"), ("rack_missing", "switch right")}
    assert "there worker 1 waits for worker 2" in found["rack_missing", "switch right"].evidence
    assert found["idle", "worker 2"].severity == Severity.PROBLEM


def test_a_rack_that_waits_for_another_is_not_taken_for_one_that_is_not_answered():
    situation = Situation.well()
    situation.racks(raised=30, pending=30)
    situation.stalls(1, 2, lacking=(0,))
    situation.says(0, busy=False)
    assert set(found_by(situation)) == {("idle", "worker 0"), ("rack_missing", "switch left")}


# ---- arbitrary samples -------------------------------------------------------------------------

SMALL = st.integers(0, 5)
PROGRESS = st.builds(
    pb.Progress, exchange=SMALL, busy=st.booleans(), chunks=SMALL, remaining=SMALL,
    stuck_s=st.floats(0, 20), silent_s=st.floats(0, 20), missing=st.lists(SMALL, max_size=4),
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
