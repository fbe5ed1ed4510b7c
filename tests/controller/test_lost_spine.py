"""A spine is killed while a job runs that has no fallback. The job goes on over the other spines."""

from pathlib import Path

import numpy as np
import pytest
from racks import WITHIN
from steady_sums import steady_sums
from trees import Forest, finish, forest, integers, submit
from working_job import eventually

from innet.controller.switches import p4runtime
from innet.rpc import innet_pb2 as pb

AT = ["left", "left", "right"]
SPINES = ("one", "two", "three")


@pytest.fixture(scope="module")
def state(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("controller") / "state.sqlite"


@pytest.fixture(scope="module")
def racks(state: Path):
    hosts = {**dict.fromkeys(SPINES, 0), "left": 2, "right": 1}
    with forest(hosts, {"left": SPINES, "right": SPINES}, state=state) as made:
        yield made


def summing(racks: Forest) -> set[str]:
    return {each.switch for each in racks.show().tree}


def exact(vectors: np.ndarray) -> np.ndarray:
    return vectors.astype(np.int64).sum(axis=0).astype(np.int32)


def check(agents, seed: int) -> None:
    vectors = integers(seed, len(agents), 3000)
    for result in finish(submit(agents, vectors)):
        np.testing.assert_array_equal(result, exact(vectors))


def test_a_job_goes_on_without_a_lost_spine_and_returns_to_it(racks: Forest):
    with racks.workers("two", AT) as agents, steady_sums(agents) as wait_for_more:
        wait_for_more()
        assert summing(racks) == {*SPINES, "left", "right"}
        for lost in ("one", "three"):
            racks.switches[lost].kill()
            eventually(lambda lost=lost: lost not in summing(racks), WITHIN)
            wait_for_more()
        assert summing(racks) == {"two", "left", "right"}
        assert racks.show().path == pb.PATH_SWITCH
        for lost in ("one", "three"):
            racks.switches[lost].start()
            eventually(lambda lost=lost: lost in summing(racks), WITHIN)
            wait_for_more()
        assert summing(racks) == {*SPINES, "left", "right"}


def test_the_last_spine_is_waited_for(racks: Forest):
    with racks.workers("two", AT) as agents:
        check(agents, 1)
        for lost in SPINES:
            racks.switches[lost].kill()
        running = submit(agents, vectors := integers(2, len(agents), 3000))
        racks.switches["three"].start()
        for result in finish(running):
            np.testing.assert_array_equal(result, exact(vectors))
        assert summing(racks) == {"three", "left", "right"}
        for lost in ("one", "two"):
            racks.switches[lost].start()
            eventually(lambda lost=lost: lost in summing(racks), WITHIN)
        check(agents, 3)


def test_the_next_controller_keeps_to_the_spines_that_are_left(
    racks: Forest, state: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(p4runtime, "_RECONNECT_WITHIN", WITHIN)  # no live switch is to be lost
    with racks.workers("two", AT) as agents:
        check(agents, 1)
        racks.switches["two"].kill()
        eventually(lambda: "two" not in summing(racks), WITHIN)
        check(agents, 2)
        before = racks.show().term
        racks.restart_controller(state=state)
        check(agents, 3)
        assert (racks.show().term, summing(racks)) == (before, {"one", "three", "left", "right"})
        racks.switches["two"].start()
        eventually(lambda: "two" in summing(racks), WITHIN)
        check(agents, 4)
