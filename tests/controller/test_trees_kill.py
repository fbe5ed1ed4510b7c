"""A tree loses a switch or its controller. Exact sums continue after the return, or end in an error."""

from pathlib import Path

import numpy as np
import pytest
from trees import Forest, finish, forest, integers, submit, sums
from waiting import WITHIN

from innet.controller.switches import p4runtime
from innet.errors import InnetError
from innet.host.transport import Timeouts
from innet.rpc import innet_pb2 as pb

AT = ["left", "left", "right"]


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    return tmp_path_factory.mktemp("controller") / "state.sqlite"


@pytest.fixture(scope="module")
def spine(state: Path):
    with forest(
        {"tor": 0, "left": 2, "right": 1}, {"left": ["tor"], "right": ["tor"]}, state=state
    ) as made:
        yield made


def check(agents, seed: int) -> None:
    vectors = integers(seed, len(agents), 3000)
    for result in sums(agents, vectors):
        np.testing.assert_array_equal(result, exact(vectors))


def exact(vectors: np.ndarray) -> np.ndarray:
    return vectors.astype(np.int64).sum(axis=0).astype(np.int32)


def test_switches_that_die_and_come_back_cost_no_sum(spine: Forest):
    with spine.workers("tor", AT) as agents:
        check(agents, 1)
        for seed, victim in enumerate(("left", "tor", "right"), 2):
            term = spine.show().term
            spine.switches[victim].kill()
            vectors = integers(seed, 3, 3000)
            running = submit(agents, vectors)
            spine.switches[victim].start()
            for result in finish(running):
                np.testing.assert_array_equal(result, exact(vectors))
            assert spine.show().path == pb.PATH_SWITCH
            assert spine.show().term > term or term > 65_000


def test_without_the_parent_there_is_an_error_for_all(spine: Forest):
    with spine.job("tor", 2) as (name, token):
        timeouts = Timeouts(switch=1.0, workers=5.0)
        with (
            spine.worker(name, token, 0, "left", timeouts=timeouts) as one,
            spine.worker(name, token, 1, "right", timeouts=timeouts) as other,
        ):
            check([one, other], 1)
            spine.switches["tor"].kill()
            for each in submit([one, other], integers(2, 2, 100)):
                assert isinstance(each.exception(60), InnetError)
    spine.switches["tor"].start()


def test_another_controller_goes_on_where_one_has_ended(spine: Forest, state: Path, monkeypatch):
    monkeypatch.setattr(p4runtime, "_RECONNECT_WITHIN", WITHIN)  # no live switch is to be lost
    with spine.workers("tor", AT) as agents:
        check(agents, 1)
        before = spine.show()
        spine.restart_controller(state=state)
        check(agents, 2)
        after = spine.show()
        check(agents, 3)
    assert [each.switch for each in after.tree] == [each.switch for each in before.tree]
    assert after.term == before.term
