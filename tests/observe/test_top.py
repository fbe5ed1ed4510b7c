"""The tables of `innet top` for made-up samples."""

import contextlib
import io
import itertools
import re
import signal
import time
from collections.abc import Iterator

import pytest
from mortal import MortalController
from rich.console import Console

from innet.errors import ControllerUnreachable
from innet.observe import overview, top
from innet.observe.overview import Overview, read_overview
from innet.observe.rates import Rates, RateTracker
from innet.observe.sample import Sample, sample_job
from innet.observe.screen import Screen
from innet.rpc import innet_pb2 as pb
from innet.terminal.console import PlainConsole
from innet.wire.layout import MOST_WORKERS


def sample(at: float, silent: float = 0.0, workers: int = 2, **progress: float) -> Sample:
    """Return a sample of a job whose workers all report the same."""
    fields = {"busy": True, "chunks": 391, "remaining": 100, "round_trip_s": 0.0002, "window": 32}
    members = [
        pb.WorkerStatus(
            rank=rank, port=rank + 1, silent_s=silent,
            address=pb.Address(ip=f"10.0.0.{rank + 1}", udp_port=20_000),
            progress=pb.Progress(**{**fields, **progress}),
        )
        for rank in range(workers)
    ]  # fmt: skip
    job = pb.Job(
        name="train", switch="tor", term=7, workers=2, quorum=2, lanes=256, slots=32,
        joined=range(workers), path=pb.PATH_SWITCH, members=members,
        worker_lease_s=3.0,
    )  # fmt: skip
    return Sample(at, job, pb.Switch(name="tor"))


def switch(refused: int) -> pb.Switch:
    counters = [pb.PortCounters(port=1), pb.PortCounters(port=2, refused=refused, spoofed=3)]
    return pb.Switch(name="tor", slots=1024, free_slots=992, reachable=True, port_counters=counters)


def lines(screen: Screen, overview: Overview) -> list[list[str]]:
    """Return the cells of each line on the screen, without lines that have no cells."""
    paper = io.StringIO()
    Console(file=paper, width=300).print(screen.show(overview))
    rows = [re.split("[│┃]", line) for line in paper.getvalue().splitlines()]
    return [[cell.strip() for cell in row[1:-1]] for row in rows if len(row) > 2]


def test_a_rate_is_what_grew_between_two_heartbeats():
    tracker = RateTracker()
    tracker.update(sample(10.0, silent=0.9, exchange=40, chunks_done=1000, packets_sent=1100))
    assert tracker.of_worker("train", 0) is None
    tracker.update(
        sample(12.0, 0.4, exchange=45, chunks_done=6000, packets_sent=6350, retransmissions=250)
    )
    assert tracker.of_worker("train", 0) == Rates(2.0, 2000.0, 2100.0, 100.0, 100.0)
    assert tracker.of_worker("train", 0).payload(lanes=256) == 2000 * 1024


def test_a_heartbeat_that_is_seen_again_changes_no_rate():
    tracker = RateTracker()
    tracker.update(sample(10.0, silent=0.5, chunks_done=1000))
    tracker.update(sample(11.0, silent=0.5, chunks_done=3000))
    tracker.update(sample(11.3, silent=0.801, chunks_done=3000))
    assert tracker.of_worker("train", 1) == Rates(chunks=2000.0)


def test_a_heartbeat_is_the_same_one_although_the_controller_answers_late():
    tracker = RateTracker()
    for at, silent, done in ((10.0, 1.0, 1000), (26.0, 1.0, 17_000), (28.4, 3.0, 17_000)):
        read = sample(at, silent=silent, chunks_done=done)
        read.job.heartbeat_s = 16.0
        tracker.update(read)
    assert tracker.of_worker("train", 0) == Rates(chunks=1000.0)


def test_the_time_that_switches_take_does_not_count_as_a_workers(monkeypatch: pytest.MonkeyPatch):
    class Controller:
        def ListSwitches(self, _: pb.ListSwitchesRequest, **_more) -> pb.ListSwitchesResponse:  # noqa: N802
            return pb.ListSwitchesResponse(switches=[pb.Switch(name="tor")])

        def GetSwitch(self, _: pb.GetSwitchRequest, **_more) -> pb.Switch:  # noqa: N802
            return pb.Switch(name=f"tor{next(takes)}")

        def GetJob(self, _: pb.GetJobRequest, **_more) -> pb.Job:  # noqa: N802
            job = sample(0.0, silent=now[0] - 100.0).job
            next(takes)
            return job

    def take() -> Iterator[int]:
        while True:
            now[0] += 5.0
            yield 0

    now, takes = [101.0], take()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for read in (lambda: read_overview(Controller(), "train").samples[0],
                 lambda: sample_job(Controller(), "train")):  # fmt: skip
        assert read().heard_at(0) == 100.0


def test_a_worker_that_joined_again_counts_from_zero():
    tracker = RateTracker()
    tracker.update(sample(10.0, exchange=100, packets_sent=9000, chunks_done=9000))
    tracker.update(sample(12.0, exchange=4, packets_sent=800, chunks_done=600, retransmissions=2))
    assert tracker.of_worker("train", 0) == Rates(2.0, 300.0, 400.0, 1.0, 1.0)


def test_a_controller_that_has_just_taken_over_knows_no_counts_and_they_are_not_0():
    tracker, unknown = RateTracker(), sample(12.0)
    for each in unknown.job.members:
        each.ClearField("progress")
    for tracked in (sample(10.0, chunks_done=50_000), unknown, sample(13.0, chunks_done=50_030)):
        tracker.update(tracked)
    assert tracker.of_worker("train", 0) == Rates(chunks=10.0)
    tracker = RateTracker()
    for tracked in (unknown, sample(13.0, chunks_done=50_030)):
        tracker.update(tracked)
    assert tracker.of_worker("train", 0) is None


def test_of_a_worker_that_is_silent_no_rate_is_known():
    tracker = RateTracker()
    for at in (10.0, 11.0):
        tracker.update(sample(at, chunks_done=int(1000 * at)))
    tracker.update(sample(30.0, silent=19.0, chunks_done=11_000))
    assert tracker.of_worker("train", 0) is None
    assert tracker.of_job(sample(30.0)) is None


def test_a_job_is_as_fast_as_its_workers_and_repeats_what_all_of_them_do():
    tracker = RateTracker()
    for at in (10.0, 11.0):
        each = int(at - 10) * 100
        tracker.update(sample(at, chunks_done=each, retransmissions=each, packets_sent=2 * each))
    assert tracker.of_job(sample(11.0)) == Rates(0.0, 100.0, 400.0, 200.0, 200.0)


def test_rates_are_shown_from_the_second_moment_on():
    screen = Screen()
    first = Overview(10.0, (sample(10.0),), (switch(800),))
    [_, job, _, tor] = lines(screen, first)
    assert job[:7] == ["train", "tor", "switch", "7", "2 of 2", "2 of 2", "32"]
    assert job[7:] == ["-", "-", "-", "-", "0.20 ms", "0.0 s"]
    assert tor == ["tor", "yes", "32 of 1024", "2", "800", "0", "3"]
    later = sample(
        12.0, exchange=9, chunks_done=5000, packets_sent=6000, retransmissions=60, stuck_s=1.25
    )
    [_, job, _, tor] = lines(screen, Overview(12.0, (later,), (switch(820),)))
    assert job[7:] == ["4.5", "2,500", "2.6", "60 (1.0%)", "0.20 ms", "1.2 s"]
    assert tor == ["tor", "yes", "32 of 1024", "2", "820 (+10/s)", "0", "3"]


def test_counters_of_a_switch_that_answers_again_have_not_grown():
    screen = Screen()
    screen.show(Overview(10.0, (), (pb.Switch(name="tor"),)))
    [_, tor] = lines(screen, Overview(12.0, (), (switch(800),)))[1:]
    assert tor[3:] == ["2", "800", "0", "3"]


def test_one_job_is_shown_with_its_workers():
    shown = lines(Screen(), Overview(10.0, (sample(10.0, 0.3),), (switch(0),), detailed=True))
    worker = ["1", "2", "10.0.0.2:20000", "0", "100 of 391", "-", "-", "-", "-", "32"]
    assert [*worker, "0.20 ms", "0.0 s", "0.3 s ago"] in shown


def test_a_job_over_several_switches_is_shown_with_what_each_does_and_where_sums_wait():
    screen = Screen()
    for at, raised in (10.0, 1000), (12.0, 1009):
        shown = sample(at, stuck_s=5.0, silent_s=4.0)
        shown.job.tree.add(switch="pbox")
        counters = pb.Counters(completed=998, raised=raised)
        shown.job.tree.add(switch="left", parents=["pbox"], workers=[0, 1], counters=counters)
        overview = Overview(at, (shown,), (), detailed=True)
        rows = lines(screen, overview)
    assert ["left", "pbox", "0, 1", "998", "0", "1,009", "0",
            "left sends its sums up to pbox, and gets no answer"] in rows  # fmt: skip
    assert ["pbox", "-", "-", "-", "-", "-", "-", ""] in rows  # it has not answered


def test_the_tables_of_switches_are_on_the_screen_also_if_there_are_many_workers():
    many = sample(10.0, workers=64)
    many.job.tree.add(switch="tor")
    paper = io.StringIO()
    overview = Overview(10.0, (many,), (switch(800),), detailed=True)
    Console(file=paper, width=200).print(Screen().show(overview))
    first = "\n".join(paper.getvalue().splitlines()[:24])
    assert "switch of the job" in first
    assert "slots in use" in first


def test_a_worker_that_has_not_been_admitted_has_no_port():
    one = sample(10.0)
    one.job.members[1].ClearField("address")
    shown = lines(Screen(), Overview(10.0, (one,), (), detailed=True))
    assert ["1", "-", "-"] in [row[:3] for row in shown]


def test_a_worker_between_two_all_reduces_is_not_stuck_however_long_it_takes():
    idle = sample(10.0, busy=False, stuck_s=60)
    [_, job, *_] = lines(Screen(), Overview(10.0, (idle,), (switch(0),)))
    assert job[-1] == "0.0 s"


def test_a_job_that_waits_shows_for_whom_and_that_is_no_fault_of_the_switch():
    one = sample(10.0)
    one.job.waiting_for.extend([1])
    one.job.waiting_s = 7.4
    [_, job, *_] = lines(Screen(), Overview(10.0, (one,), ()))
    assert job[2] == "switch; waits 7 s for worker 1"


def test_of_thousands_that_are_waited_for_the_first_are_named():
    one = sample(10.0)
    one.job.waiting_for.extend(range(1, MOST_WORKERS))
    one.job.waiting_s = 7.4
    [_, job, *_] = lines(Screen(), Overview(10.0, (one,), ()))
    assert job[2].startswith("switch; waits 7 s for workers 1, 2, 3, ")
    assert job[2].endswith(", 15, 16 and 4079 more")


@pytest.mark.parametrize("path", pb.Path.values())
def test_every_path_has_a_name_and_a_reason_is_shown_with_it(path: int):
    one = sample(10.0)
    one.job.path, one.job.reason = path, "no slots are free"
    [_, job, *_] = lines(Screen(), Overview(10.0, (one,), ()))
    assert re.fullmatch(r"(none|switch|fallback): no slots are free", job[2])


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_shows_the_columns_that_matter_most(width: int):
    screen = Screen()
    for at in (10.0, 12.0):
        done = int(at - 10) * 2500
        one = sample(at, chunks_done=done, packets_sent=done + 60, retransmissions=done // 50)
        overview = Overview(at, (one,), (switch(800),), detailed=True)
        paper = io.StringIO()
        Console(file=paper, width=width).print(screen.show(overview))
    shown = paper.getvalue().splitlines()
    assert max(map(len, shown)) <= width
    for column in ("worker", "path", "MB/s", "stuck", "heard"):
        assert any(column in line for line in shown), column
    assert any(re.search(r"train .* 2 of 2 .* 2\.6 .* 0\.0 s", line) for line in shown)
    hidden = [line for line in shown if line.startswith("on a wider terminal: quorum")]
    assert len(hidden) == 1


@pytest.mark.parametrize(
    ("slots", "kept", "words"), [(64, 4, "64, 60 borrowed"), (4, 4, "4, 60 lent"), (64, 64, "64")]
)
def test_the_slots_that_a_job_borrows_or_has_lent_are_shown(slots: int, kept: int, words: str):
    one = sample(10.0)
    one.job.slots, one.job.min_slots, one.job.asked_slots = slots, kept, 64
    heads, job, *_ = lines(Screen(), Overview(10.0, (one,), ()))
    assert job[heads.index("slots")] == words


def test_a_controller_that_hangs_is_given_up_and_found_again(monkeypatch: pytest.MonkeyPatch):
    """Its machine may be dead, and a stand-by controller in charge."""
    controller = MortalController()
    try:
        with contextlib.closing(overview.Overviews(controller.address, None, "")) as overviews:
            overviews()
            monkeypatch.setattr(overview, "_ANSWERS_WITHIN", 0.5)
            controller.process.send_signal(signal.SIGSTOP)
            with pytest.raises(ControllerUnreachable, match="does not answer"):
                overviews()
            controller.process.send_signal(signal.SIGCONT)
            monkeypatch.undo()
            assert overviews().switches == ()
    finally:
        controller.stop()


def test_a_screen_is_made_at_once_for_thousands_of_workers():
    class Enough(Exception):
        pass

    def take() -> Overview:
        if next(moments) == 4:
            raise Enough
        return Overview(1.0, (large,), (switch(0),), detailed=True)

    moments, large = itertools.count(1), sample(1.0, workers=MOST_WORKERS)
    console = PlainConsole(file=io.StringIO(), force_terminal=True, width=200, height=30)
    began = time.process_time()
    with pytest.raises(Enough):
        top.run(take, console, interval=0.0, once=False)
    assert time.process_time() - began < 5
    assert "10.0.0.1:20000" in console.file.getvalue()
