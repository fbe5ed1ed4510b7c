"""A cable between two racks is cut. The job waits, takes the fallback, or soon ends with an error."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from processes import process_group
from racks import WITHIN
from trees import Forest, finish, forest, integers, submit, sums

import innet
from innet.errors import SwitchUnreachable, WorkersMissing
from innet.host.agent import Agent
from innet.host.job import Timeouts
from innet.host.parameters import RackedParameters
from innet.local.faults import Faults
from innet.observe.diagnosis import diagnose
from innet.observe.findings import Finding, Severity
from innet.observe.sample import sample_job, sample_twice
from innet.rpc import innet_pb2 as pb
from innet.servers.pbox import Momentum

AT = ["left", "right", "right"]
LEFT = 0
"""The cable of the left rack's uplink. `AT`'s first worker is alone in that rack."""


@pytest.fixture(scope="module")
def racks() -> Iterator[Forest]:
    parents = {"left": ["pbox"], "right": ["pbox"]}
    hosts = {"pbox": 0, "left": 2, "right": 2}
    with forest(hosts, parents, Faults(), servers=["pbox"]) as made:
        yield made


@contextlib.contextmanager
def cut(made: Forest) -> Iterator[None]:
    """Cut the left rack off for the duration of the context."""
    made.wiring.cut(LEFT)
    try:
        yield
    finally:
        made.wiring.mend(LEFT)


def check(agents: Sequence[Agent], seed: int) -> None:
    vectors = integers(seed, len(agents), 2000)
    for result in sums(agents, vectors):
        np.testing.assert_array_equal(result, exact(vectors))


def exact(vectors: np.ndarray) -> np.ndarray:
    return vectors.astype(np.int64).sum(axis=0).astype(np.int32)


def until(condition) -> None:
    over = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < over, "it never came to hold"
        time.sleep(0.02)


def test_when_the_cable_is_mended_the_sum_is_made(racks: Forest):
    with racks.workers("pbox", AT) as agents:
        check(agents, 1)
        for seed in (2, 3):
            vectors = integers(seed, 3, 20_000)
            term = racks.show().term
            with cut(racks):
                running = submit(agents, vectors)
                # The left rack's worker notices: it gets no answers, and asks for another term.
                until(lambda before=term: racks.show().term != before)
                assert not any(each.done() for each in running)
            for result in finish(running):
                np.testing.assert_array_equal(result, exact(vectors))
        assert racks.show().path == pb.PATH_SWITCH
        check(agents, 4)


def test_a_cable_that_stays_cut_is_an_error_for_all_and_soon(racks: Forest):
    timeouts = Timeouts(switch=1.5, workers=10.0)
    with racks.job("pbox", 3) as (name, token), contextlib.ExitStack() as stack:
        agents = [
            stack.enter_context(racks.worker(name, token, rank, at, timeouts=timeouts))
            for rank, at in enumerate(AT)
        ]
        check(agents, 1)
        began = time.monotonic()
        with cut(racks):
            problems = [each.exception(WITHIN) for each in submit(agents, integers(2, 3, 2000))]
        assert isinstance(problems[0], SwitchUnreachable)
        for each in problems[1:]:  # they get PENDING, until the left rack's worker gives up
            assert isinstance(each, SwitchUnreachable | WorkersMissing)
        assert time.monotonic() - began < WITHIN / 2
    with racks.workers("pbox", AT) as agents:  # the failure has no effect on the next job
        check(agents, 3)


def test_parameters_take_every_step_once_whenever_the_cable_is_cut(racks: Forest):
    values, gradients = np.zeros(3000, np.float32), np.ones((3, 3000), np.float32)
    steps, cuts = 12, 2

    def work(agent: Agent, done: list[np.ndarray]) -> None:
        held = RackedParameters(agent, [values.copy()], Momentum(lr=1.0, momentum=1.0))
        for _ in range(steps):
            held.step([gradients[agent.info.rank]])
        done.append(held.values[0])

    with racks.workers("pbox", AT) as agents:
        done: list[np.ndarray] = []
        threads = [threading.Thread(target=work, args=(each, done)) for each in agents]
        for each in threads:
            each.start()
        for _ in range(cuts):
            term = racks.show().term
            with cut(racks):
                until(
                    lambda before=term: (
                        racks.show().term != before or not any(each.is_alive() for each in threads)
                    )
                )
        for each in threads:
            each.join(WITHIN)
    assert len(done) == len(AT)
    for each in done:  # velocity n in step n: minus the sum of 1 to 12
        assert (each == -steps * (steps + 1) / 2).all()


def test_the_doctor_says_at_which_switch_sums_wait_and_for_which(racks: Forest):
    with racks.workers("pbox", AT) as agents:
        check(agents, 1)

        def findings() -> dict[tuple[str, str], Finding]:
            observation = sample_twice(lambda: sample_job(racks.stub, racks.show().name), 1.0)
            return {(each.rule, each.subject): each for each in diagnose(observation)}

        with cut(racks):
            running = submit(agents, integers(2, 3, 2000))
            until(lambda: ("uplink_silent", "switch left") in findings())
        finish(running)
        running = submit(agents[1:], integers(3, 3, 2000)[1:])
        until(lambda: ("rack_missing", "switch left") in findings())
        last = findings()
        assert last["rack_missing", "switch left"].statement == "sums wait at pbox for that of left"
        assert last["idle", "worker 0"].severity == Severity.PROBLEM
        assert not {("idle", "worker 1"), ("idle", "worker 2")} & set(last)
        finish(running + submit(agents[:1], integers(3, 3, 2000)[:1]))


# -- with a fallback -----------------------------------------------------------------------------

MINE: dict[str, Any] = {}
"""The objects of a process, such as its agent."""


def join(rank: int, controller: str, job: str, token: str, links: list[str]) -> None:
    MINE["agent"] = innet.join(
        controller, job, rank, links[rank], token=token, fallback=dist.group.WORLD
    )


def all_reduce(rank: int, seed: int) -> np.ndarray:
    return MINE["agent"].all_reduce(integers(seed, 2, 2000)[rank], "sum")


def leave(_: int) -> int:
    MINE["agent"].close()
    return MINE["agent"].fallbacks.get("switch", 0)


def nothing() -> None:
    pass


def test_with_a_fallback_the_job_goes_on_and_comes_back_when_the_cable_is_mended(racks: Forest):
    links = [racks.plan.links[at].pop() for at in ("left", "right")]
    try:
        with process_group(2, nothing) as group, racks.job("pbox", 2) as (name, token):
            group.run(join, racks.controller, name, token, links)
            seeds = iter(range(1000))

            def sum_exactly() -> None:
                seed = next(seeds)
                for result in group.run(all_reduce, seed):
                    np.testing.assert_array_equal(result, exact(integers(seed, 2, 2000)))

            sum_exactly()
            assert racks.show(name).path == pb.PATH_SWITCH

            def on(path: int) -> bool:
                sum_exactly()
                return racks.show(name).path == path

            with cut(racks):
                # The switch is tried again after a second, so one look may come between two detours.
                until(lambda: on(pb.PATH_FALLBACK))
                sum_exactly()
            until(lambda: on(pb.PATH_SWITCH))
            sum_exactly()
            assert all(group.run(leave))
    finally:
        for at, link in zip(("left", "right"), links, strict=True):
            racks.plan.links[at].append(link)
