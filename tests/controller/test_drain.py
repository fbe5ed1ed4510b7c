"""A switch is drained while a job runs. The job goes on elsewhere, and every sum is exact."""

from pathlib import Path

import numpy as np
import pytest
from commands import run
from mortal import mortal_switch, rack_of
from scripted_worker import WITHIN
from steady_sums import steady_sums
from told import FABRIC, INVITATION, working
from trees import Forest, finish, forest, integers, submit, sums
from working_job import FALLBACK, SWITCH, assert_sums, at_work, eventually, renew

from innet.controller.jobs.history import Cause
from innet.controller.jobs.job import Job
from innet.controller.state.registry import Policy
from innet.controller.switches import p4runtime
from innet.errors import InnetError
from innet.rpc import innet_pb2 as pb

AT = ["left", "left", "right"]
SPINES = ("one", "two")


@pytest.fixture(scope="module")
def state(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("controller") / "state.sqlite"


@pytest.fixture(scope="module")
def racks(state: Path):
    hosts = {"one": 0, "two": 0, "left": 2, "right": 1}
    with forest(hosts, {"left": SPINES, "right": SPINES}, state=state) as made:
        yield made


def exact(vectors: np.ndarray) -> np.ndarray:
    return vectors.astype(np.int64).sum(axis=0).astype(np.int32)


def check(agents, seed: int) -> None:
    vectors = integers(seed, len(agents), 3000)
    for result in sums(agents, vectors):
        np.testing.assert_array_equal(result, exact(vectors))


def switch(racks: Forest, *arguments: str, code: int = 0) -> str:
    """Run a command about switches. Return what it prints, or the error that it ends with."""
    done = run("innet", "switch", *arguments, "--controller", racks.controller)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def causes(racks: Forest) -> list[str]:
    """Return what has ended terms of the last job."""
    request = pb.GetJobHistoryRequest(name=racks.show().name)
    events = racks.stub.GetJobHistory(request).events
    return [each.why for each in events if each.event == "term begins"]


def summing(racks: Forest) -> set[str]:
    return {each.switch for each in racks.show().tree}


def test_a_job_leaves_a_drained_switch_without_losing_a_sum(racks: Forest):
    with racks.workers("two", AT) as agents, steady_sums(agents) as wait_for_more:
        wait_for_more()
        job = racks.show().name
        assert summing(racks) == {"one", "two", "left", "right"}
        assert switch(racks, "drain", "one").splitlines() == [
            "switch one drained", f"job {job} goes on through other switches",
        ]  # fmt: skip
        assert racks.switch("one").drained
        assert "yes, drained" in switch(racks, "show", "one")
        assert "nothing is to be changed" in switch(racks, "set", "one", code=2)
        wait_for_more()
        assert summing(racks) == {"two", "left", "right"}
        assert switch(racks, "drain", "one") == "switch one drained\n"
        racks.switches["one"].kill()
        eventually(lambda: not racks.switch("one").reachable)
        wait_for_more()
        assert "undrain it once it answers" in switch(racks, "undrain", "one", code=2)
        racks.switches["one"].start()
        eventually(lambda: racks.switch("one").reachable)
        wait_for_more()
        switch(racks, "undrain", "one")
        wait_for_more()
        assert summing(racks) == {"one", "two", "left", "right"}
        # The death and the return of the drained switch have not touched the job.
        assert [each for each in causes(racks) if each.startswith("switch")] == [
            "switch_drained: the operator has drained one",
            "switch_usable: the operator has undrained one",
        ]


def test_a_job_without_another_path_keeps_its_switch_unless_it_is_forced(racks: Forest):
    with racks.workers("one", AT) as agents:
        check(agents, 1)
        name = racks.show().name
        said = switch(racks, "drain", "left", code=2)
        assert f"the job '{name}' has no other path, and no worker has a fallback" in said
        assert not racks.switch("left").drained
        check(agents, 2)
        assert not any("drained" in each for each in causes(racks))
        switch(racks, "drain", "left", "--force")
        running = submit(agents, vectors := integers(3, 3, 3000))
        assert racks.show().reason.startswith("the switch 'left' is drained")
        switch(racks, "undrain", "left")
        for result in finish(running):
            np.testing.assert_array_equal(result, exact(vectors))


def test_a_job_stays_away_from_a_dead_switch_that_is_drained(racks: Forest):
    with racks.workers("one", AT) as agents:
        check(agents, 1)
        racks.switches["two"].kill()
        running = submit(agents, vectors := integers(2, 3, 3000))
        for result in finish(running):
            np.testing.assert_array_equal(result, exact(vectors))
        assert switch(racks, "drain", "two") == "switch two drained\n"
        racks.switches["two"].start()
        eventually(lambda: racks.switch("two").reachable)
        check(agents, 4)
        assert summing(racks) == {"one", "left", "right"}
        switch(racks, "undrain", "two")
        # It counts as lost for a while yet: the longer, the more often it was.
        eventually(lambda: summing(racks) == {"one", "two", "left", "right"})
        check(agents, 3)


def test_uplinks_change_under_a_job_that_does_not_sum_over_them():
    hosts = {"one": 0, "two": 0, "left": 1, "right": 1}
    parents = {"left": (*SPINES, "two"), "right": SPINES}
    with forest(hosts, parents, add=False) as racks:
        links = racks.plan.uplinks["left"]
        for name in ("one", "two", "right"):
            racks.add(name)
        racks.add("left", uplinks=links[:2])
        first, second, third = (f"--uplink={x.parent}:{x.port}:{x.parent_port}" for x in links)
        with (
            racks.workers("one", ["left", "right"]) as agents,
            steady_sums(agents) as wait_for_more,
        ):
            wait_for_more()
            said = switch(racks, "set", "left", first, third, code=2)
            assert "needs links of 'left' that would change: first drain 'two'" in said
            assert "first drain 'one', 'two'" in switch(racks, "set", "left", second, first, code=2)
            switch(racks, "drain", "two")
            assert switch(racks, "set", "left", first, third) == "switch left: ports 1, 2, 3, 4\n"
            wait_for_more()
            assert summing(racks) == {"one", "left", "right"}
            switch(racks, "undrain", "two")
            wait_for_more()
            assert summing(racks) == {"one", "two", "left", "right"}
            shown = [(x.port, x.parent_port, x.found) for x in racks.switch("left").uplinks]
            assert shown == [(x.port, x.parent_port, "") for x in (links[0], links[2])]


def test_a_controller_that_dies_while_it_drains_goes_on_with_it():
    job = working(fallback=True).job
    after = Job.restored(job.record(), INVITATION, FABRIC, 0.0)
    assert after.agreement == job.agreement
    after.reports.drain({"tor", "elsewhere"}, 0.0)  # stored with the switch, not the job
    assert not after.agreement
    assert (after.terms.cause, after.term) == (Cause.SWITCH_DRAINED, job.term + 1)
    later = Job.restored(after.record(), INVITATION, FABRIC, 0.0)
    assert later.terms.cause == Cause.CONTROLLER_RESTARTED
    term = later.term
    assert not later.reports.drain({"tor"}, 0.0)
    assert later.term == term


def test_a_drained_switch_stays_drained_under_the_next_controller(
    racks: Forest, state: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(p4runtime, "_RECONNECT_WITHIN", WITHIN)  # no live switch is to be lost
    with racks.workers("one", AT) as agents:
        check(agents, 1)
        switch(racks, "drain", "two")
        check(agents, 2)
        racks.restart_controller(state=state)
        check(agents, 3)
        assert summing(racks) == {"one", "left", "right"}
        assert [each for each in causes(racks) if each.startswith("switch")] == [
            "switch_drained: the operator has drained two",
        ]  # fmt: skip
        with pytest.raises(InnetError, match="'two' is drained and takes no new jobs"):
            racks.job("two", 2).__enter__()
        eventually(lambda: racks.switch("two").reachable)
        switch(racks, "undrain", "two")
        check(agents, 4)
        assert summing(racks) == {"one", "two", "left", "right"}


def test_workers_go_to_their_fallback_and_come_back():
    policy = Policy(lease_s=WITHIN)
    with (
        mortal_switch(2) as tor,
        rack_of(tor, policy=policy) as rack,
        at_work(rack, fallback=True) as workers,
    ):
        assert_sums(workers, 1)
        [moved] = rack.stub.DrainSwitch(pb.DrainSwitchRequest(name="tor")).jobs
        assert moved.path == FALLBACK
        renew(workers, 1, 1)
        for each in workers:
            resume = each.hear("resume")
            assert (resume.path, resume.exchange) == (FALLBACK, 1)
            assert resume.reason == "the switch 'tor' is drained"
        rack.stub.UndrainSwitch(pb.UndrainSwitchRequest(name="tor"))
        renew(workers, 2, 2)
        for each in workers:
            assert each.hear("resume").path == SWITCH
        assert_sums(workers, 1)
