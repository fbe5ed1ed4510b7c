"""A parameter server above racks: a switch's exact sums, and the optimizer's steps bit by bit."""

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from c_arrays import pointers
from paths import SUPPORT
from racks import WITHIN, problem
from trees import Forest, forest, integers, sums

from innet.errors import (
    ParameterServerError,
    ServerLost,
    UsageError,
    WorkersDisagree,
    WorkersMissing,
)
from innet.host.agent import Agent
from innet.host.parameters import RackedParameters
from innet.host.quantizers import fixed_point
from innet.local.faults import DOWN, LOST, Faults
from innet.servers.pbox import SGD, Adam, Momentum, Optimizer
from innet.servers.pbox.native import library
from innet.wire import parameters

LANES = 64
WIDTH = LANES - 8
AT = ["left", "left", "right"]
SIZES = [(7, 30), (1000,)]


@pytest.fixture(scope="module")
def racks():
    parents = {"left": ["pbox"], "right": ["pbox"]}
    hosts = {"pbox": 0, "left": 2, "right": 2}
    with forest(hosts, parents, servers=["pbox"]) as made:
        yield made


def together(agents: Sequence[Agent], do) -> list:
    """Run `do(rank, agent)` for all workers at the same time, and return the results."""
    with ThreadPoolExecutor(len(agents)) as pool:
        running = [pool.submit(do, rank, agent) for rank, agent in enumerate(agents)]
        return [each.result(WITHIN) for each in running]


def begun(agents: Sequence[Agent], optimizer: Optimizer) -> list[RackedParameters]:
    """Return every worker's parameters: worker 0's, whatever the others begin with."""
    return together(agents, lambda rank, agent: RackedParameters(agent, values(rank), optimizer))


def values(seed: int) -> list[np.ndarray]:
    chance = np.random.default_rng(seed)
    return [chance.standard_normal(size, np.float32) for size in SIZES]


def mean(gradients: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Return the mean that a switch's workers would get, row by row of a chunk."""
    flat = [np.concatenate([part.reshape(-1) for part in each]) for each in gradients]
    rows = [fixed_point.blocks(each, WIDTH) for each in flat]
    own = [fixed_point.block_exponents(each) for each in rows]
    agreed, n = np.max(own, axis=0), len(rows)
    total = sum(fixed_point.quantize(r, o, agreed, n) for r, o in zip(rows, own, strict=True))
    return fixed_point.dequantize(total, agreed, n, np.uint8(n)).reshape(-1)[: flat[0].size]


class Reference:
    """The same optimizer of :mod:`innet.servers.pbox`, run on this machine with the mean."""

    def __init__(self, optimizer: Optimizer, start: np.ndarray) -> None:
        self.values = start.copy()
        self._optimizer = optimizer
        self._states = [np.zeros_like(start) for _ in range(2)]
        self._step = 0

    def step(self, gradient: np.ndarray, lr: float) -> None:
        self._step += 1
        n = self.values.size
        library().update(
            ctypes.byref(self._optimizer.record()),
            *(each.ctypes.data for each in (self.values, *self._states)),
            pointers([gradient]), 1, 1, n, self._step, lr,
        )  # fmt: skip


def flat(parameters: RackedParameters) -> bytes:
    return np.concatenate([each.reshape(-1) for each in parameters.values]).tobytes()


def check_steps(agents: Sequence[Agent], optimizer: Optimizer, steps: int = 4) -> None:
    held = begun(agents, optimizer)
    start = np.concatenate([each.reshape(-1) for each in values(0)])
    reference = Reference(optimizer, start)
    for each in held:
        assert flat(each) == start.tobytes()
    for step in range(1, steps + 1):
        gradients = [values(100 * step + rank) for rank in range(len(agents))]
        for each in held:
            each.lr = optimizer.lr / step
        together(agents, lambda rank, _, g=gradients: held[rank].step(g[rank]))
        reference.step(mean(gradients), optimizer.lr / step)
        for each in held:
            assert flat(each) == reference.values.tobytes()


@pytest.mark.parametrize(
    "optimizer", [SGD(lr=0.1, weight_decay=0.01), Momentum(lr=0.1), Adam(lr=0.01)], ids=repr
)
def test_a_step_is_pbox_s_with_the_mean_bit_by_bit(racks: Forest, optimizer: Optimizer):
    with racks.workers("pbox", AT) as agents:
        check_steps(agents, optimizer)


def test_sums_are_a_parent_switch_s(racks: Forest):
    vectors = integers(1, 3, 5000)
    with racks.workers("pbox", AT) as agents:
        for result in sums(agents, vectors):
            np.testing.assert_array_equal(result, vectors.astype(np.int64).sum(axis=0))


@pytest.mark.parametrize("seed", [1, 2])
def test_faults_between_racks_change_no_step(seed: int):
    parents = {"left": ["pbox"], "right": ["pbox"]}
    hosts = {"pbox": 0, "left": 2, "right": 2}
    with forest(hosts, parents, Faults.all(0.02), seed, servers=["pbox"]) as made:
        with made.workers("pbox", AT) as agents:
            check_steps(agents, Momentum(lr=0.1), steps=8)
        assert made.wiring.total().dropped


def test_a_server_on_several_cores_takes_the_same_steps():
    parents = {"left": ["pbox"], "right": ["pbox"]}
    hosts = {"pbox": 0, "left": 2, "right": 2}
    with (
        forest(hosts, parents, Faults.all(0.02), servers=["pbox"], cores=2) as made,
        made.workers("pbox", AT) as agents,
    ):
        for _ in range(2):
            check_steps(agents, Adam(lr=0.01), steps=6)


def test_servers_share_the_slots():
    parents = {"left": ["one", "two"], "right": ["one", "two"]}
    hosts = {"one": 0, "two": 0, "left": 2, "right": 2}
    with (
        forest(hosts, parents, servers=["one", "two"]) as made,
        made.workers("one", AT) as agents,
    ):
        check_steps(agents, Adam(lr=0.01))
        done = {each.switch: each.counters.completed for each in made.show().tree}
    assert done["one"] > 0
    assert done["two"] > 0


def test_a_step_that_is_done_again_is_taken_once():
    """The server has taken the step, but no worker hears of it before a rack's switch dies."""
    parents = {"left": ["pbox"], "right": ["pbox"]}
    hosts = {"pbox": 0, "left": 2, "right": 2}
    with (
        forest(hosts, parents, Faults(), servers=["pbox"]) as made,
        made.workers("pbox", AT) as agents,
    ):
        optimizer = Momentum(lr=0.1)
        held = begun(agents, optimizer)
        reference = Reference(optimizer, np.concatenate([each.ravel() for each in values(0)]))
        for step in range(3):
            gradients = [values(10 * step + rank) for rank in range(3)]
            before = made.show().term
            with ThreadPoolExecutor(3) as pool:
                lose_results(made, agents)
                running = [pool.submit(held[r].step, gradients[r]) for r in range(3)]
                await_lost_results(made)
                made.switches["left"].kill()
                for cable in (0, 1):
                    made.wiring.script(cable, DOWN, {})
                made.switches["left"].start()
                for each in running:
                    each.result(WITHIN)
            assert made.show().term != before
            reference.step(mean(gradients), optimizer.lr)
            for each in held:
                assert flat(each) == reference.values.tobytes()


def lose_results(made: Forest, agents: Sequence[Agent]) -> None:
    """Lose all further packets to the racks but the first one, which agrees on the scales."""
    for agent in agents:
        assert agent.term
    for cable in (0, 1):
        made.wiring.script(cable, DOWN, dict.fromkeys(range(1, 5000), LOST))


def await_lost_results(made: Forest) -> None:
    """Wait until the server has answered every row of a step."""
    rows = -(-sum(int(np.prod(size)) for size in SIZES) // WIDTH)
    over = time.monotonic() + WITHIN
    while made.wiring.counts(0, DOWN).dropped + made.wiring.counts(0, DOWN).scripted < rows:
        assert time.monotonic() < over
        time.sleep(0.01)


def test_a_server_that_was_started_anew_says_so_and_is_given_the_parameters_again():
    parents = {"left": ["pbox"], "right": ["pbox"]}
    hosts = {"pbox": 0, "left": 2, "right": 2}
    with (
        forest(hosts, parents, servers=["pbox"]) as made,
        made.workers("pbox", AT) as agents,
    ):
        optimizer = Momentum(lr=0.1)
        held = begun(agents, optimizer)
        gradients = [values(rank) for rank in range(3)]
        together(agents, lambda rank, _: held[rank].step(gradients[rank]))
        last = flat(held[0])
        made.switches["pbox"].kill()
        made.switches["pbox"].start()

        def lost(rank: int, _: Agent) -> str:
            with pytest.raises(ServerLost) as failed:
                held[rank].step(gradients[rank])
            with pytest.raises(ServerLost, match="begin"):
                held[rank].step(gradients[rank])
            return str(failed.value)

        assert all("does not have the parameters" in each for each in together(agents, lost))
        together(agents, lambda rank, _: held[rank].begin())
        assert {flat(each) for each in held} == {last}
        reference = Reference(optimizer, np.frombuffer(last, np.float32))
        together(agents, lambda rank, _: held[rank].step(gradients[rank]))
        reference.step(mean(gradients), optimizer.lr)
        assert {flat(each) for each in held} == {reference.values.tobytes()}


def test_a_worker_that_dies_is_named_by_this_step_and_all_later_ones(racks: Forest):
    with racks.workers("pbox", AT) as agents:
        held = begun(agents, SGD())
        gradients = [values(rank) for rank in range(3)]
        with ThreadPoolExecutor(2) as pool:
            running = {rank: pool.submit(held[rank].step, gradients[rank]) for rank in (0, 2)}
            agents[1].close(abandon=True, problem=MemoryError("no room"))
            named = "worker 1: its program has failed: MemoryError: no room"
            assert all(named in str(problem(each)) for each in running.values())
        for rank in running:
            held[rank]._lost = True  # as after a step that has failed halfway
            with pytest.raises(WorkersMissing, match=named):
                held[rank].step(gradients[rank])


def test_a_worker_whose_process_is_killed_is_named(racks: Forest):
    def step_on(agent: Agent) -> None:
        parameters = RackedParameters(agent, [np.zeros(1000, np.float32)], SGD(lr=0.1))
        while True:
            parameters.step([np.ones(1000, np.float32)])

    with (
        racks.job("pbox", 3) as (name, token),
        killable(racks, name, token) as process,
        racks.worker(name, token, 0, "left") as left,
        racks.worker(name, token, 2, "right") as right,
        ThreadPoolExecutor(2) as pool,
    ):
        running = [pool.submit(step_on, each) for each in (left, right)]
        assert process.stdout.readline() == "stepped\n"
        process.kill()
        for each in running:
            problem = each.exception(WITHIN)
            assert isinstance(problem, WorkersMissing)
            assert "worker 1: its process has ended" in str(problem)


@contextlib.contextmanager
def killable(racks: Forest, name: str, token: str) -> "Iterator[subprocess.Popen[str]]":
    """Yield worker 1 of a job, a process that takes steps."""
    link = racks.plan.links["left"].pop()
    known = {"CONTROLLER": racks.controller, "JOB": name, "TOKEN": token, "LINK": link}
    own = {f"INNET_{key}": value for key, value in known.items()}
    with subprocess.Popen(
        [sys.executable, SUPPORT / "racked_worker.py"], stdout=subprocess.PIPE, text=True,
        env={**os.environ, **own, "RANK": "1"},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            racks.plan.links["left"].append(link)


def test_where_nobody_keeps_parameters_it_is_said(racks: Forest):
    with racks.workers("pbox", ["left", "left"]) as agents:  # the job's topmost switch is left

        def refused(rank: int, agent: Agent) -> None:
            with pytest.raises(ParameterServerError, match="no rack server keeps the parameters"):
                RackedParameters(agent, values(rank), SGD())

        together(agents, refused)
        vectors = integers(2, 2, 500)
        for result in sums(agents, vectors):
            np.testing.assert_array_equal(result, vectors.sum(axis=0))


def test_workers_that_disagree_take_no_step(racks: Forest):
    with racks.workers("pbox", AT) as agents:
        held = begun(agents, SGD(lr=0.5))
        before = flat(held[0])

        def disagree(rank: int, _: Agent) -> None:
            held[rank].lr = 0.5 + rank
            with pytest.raises(WorkersDisagree, match="learning rates"):
                held[rank].step(values(rank))
            held[rank].lr = 0.5

        together(agents, disagree)
        assert {flat(each) for each in held} == {before}
        together(agents, lambda rank, _: held[rank].step(values(rank)))
        assert flat(held[0]) == flat(held[2]) != before


def test_more_parameters_than_there_is_room_for_are_refused():
    with (
        forest({"pbox": 0, "left": 1, "right": 1}, {"left": ["pbox"], "right": ["pbox"]},
               servers=["pbox"], memory=0.001) as made,
        made.workers("pbox", ["left", "right"]) as agents,
    ):  # fmt: skip

        def refused(_: int, agent: Agent) -> None:
            with pytest.raises(ParameterServerError, match="no room"):
                RackedParameters(agent, [np.zeros(300_000, np.float32)], SGD())

        together(agents, refused)
        check_steps(agents, SGD(lr=0.1), steps=1)


def test_steps_end_at_the_largest_number_that_all_workers_can_send(racks: Forest, monkeypatch):
    most = 30
    monkeypatch.setattr(parameters, "most", lambda _: most)
    with racks.workers("pbox", AT) as agents:
        held = begun(agents, SGD(lr=0.5))
        for _ in range(most):
            together(agents, lambda rank, _: held[rank].step(values(rank)))
        for rank, each in enumerate(held):
            with pytest.raises(ServerLost, match="again with begin"):
                each.step(values(rank))
        together(agents, lambda rank, _: held[rank].begin())
        together(agents, lambda rank, _: held[rank].step(values(rank)))


def test_a_gradient_that_is_not_finite_shows_in_the_parameters(racks: Forest):
    with racks.workers("pbox", AT) as agents:
        held = begun(agents, SGD(lr=0.5))
        gradients = [values(rank) for rank in range(3)]
        gradients[1][1][999] = np.inf
        together(agents, lambda rank, _: held[rank].step(gradients[rank]))
        for each in held:
            whole = np.concatenate([part.ravel() for part in each.values])
            assert np.isnan(whole[-(whole.size % WIDTH) :]).all()
            assert np.isfinite(whole[: -(whole.size % WIDTH)]).all()


def test_what_is_no_parameter_is_refused_before_anything_is_sent(racks: Forest):
    with racks.workers("pbox", ["left"]) as [agent]:
        for bad in ([np.zeros(3)], [np.zeros((4, 4), np.float32).T], []):
            with pytest.raises(UsageError):
                RackedParameters(agent, bad, SGD())
    with (
        racks.job("left", 2, min_workers=1) as (name, token),
        racks.worker(name, token, 0, "left") as agent,
        pytest.raises(UsageError, match="needs all workers"),
    ):
        RackedParameters(agent, values(0), SGD())
