"""Pauses that cost a job only the waiting time, and ends that are known at once.

INNET_PAUSE is the length of a pause in seconds. If it is set, all combinations are tried.
"""

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator

import pytest
from outages import CONTROLLER, Cluster, Shell, cluster, continued, needs_root, stopped
from working_job import eventually

pytestmark = needs_root

WORKERS, STEPS, LEASE = 3, 40, 5.0
PAUSE = float(os.environ.get("INNET_PAUSE") or 6.5)
"""Longer than the lease."""

WORKER = """
import ctypes, logging, time
import numpy as np
import innet
logging.basicConfig()
fallback = None
if {fallback}:
    import torch.distributed as dist
    dist.init_process_group("gloo", "tcp://10.89.0.11:29500", rank={rank}, world_size={workers})
    fallback = dist.group.WORLD
agent = innet.join("{controller}", "{job}", {rank}, "{link}", token="{token}", fallback=fallback)
def steps(count):
    for step in range(count):
        got = agent.all_reduce(np.full(1000, {rank} + step, np.int32), op="sum")
        assert (got == sum(each + step for each in range({workers}))).all()
        time.sleep(0.01)
def hold(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # with the interpreter lock
"""

_jobs = itertools.count()


@pytest.fixture(scope="module")
def racks(tmp_path_factory) -> Iterator[Cluster]:
    with cluster(WORKERS, tmp_path_factory.mktemp("racks"), LEASE) as running:
        yield running


@contextlib.contextmanager
def training(racks: Cluster, *, fallback: bool) -> Iterator[tuple[str, list[Shell]]]:
    """Yield the workers of a job after their first steps, each on a machine of its own."""
    name = f"job-{next(_jobs)}"
    token = racks.admin.do(f"result = create('{name}', {WORKERS})")
    with contextlib.ExitStack() as stack:
        shells = [
            stack.enter_context(Shell(machine, GLOO_SOCKET_IFNAME="data"))
            for machine in racks.machines
        ]
        for rank, (shell, link) in enumerate(zip(shells, racks.links, strict=True)):
            shell.start(
                WORKER.format(
                    controller=CONTROLLER, job=name, rank=rank, link=link, token=token,
                    fallback=fallback, workers=WORKERS,
                )
                + "\nsteps(3)"
            )  # fmt: skip
        for shell in shells:
            shell.done()
        yield name, shells


def all_connected(racks: Cluster, job: str) -> bool:
    """Return whether the controller hears all workers of a job."""
    members = racks.admin.do(f"result = show('{job}')")["members"]
    return not any(each["disconnected"] or each["unreachable_s"] > LEASE / 2 for each in members)


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


@contextlib.contextmanager
def held(racks: Cluster, shells: list[Shell]) -> Iterator[None]:
    """Let one worker hold its interpreter lock before it continues."""
    shells[0].start(f"hold({PAUSE}); steps({STEPS})")
    yield
    wait(PAUSE / 2)


@contextlib.contextmanager
def halted(racks: Cluster, shells: list[Shell]) -> Iterator[None]:
    """Stop one worker in the middle of its steps."""
    shells[0].start(f"steps({STEPS})")
    stopped(shells[0])
    yield
    wait(PAUSE / 2)
    continued(shells[0])


@contextlib.contextmanager
def cut_off(racks: Cluster, shells: list[Shell]) -> Iterator[None]:
    """Disconnect the controller from its network."""
    shells[0].start(f"steps({STEPS})")
    racks.cut(racks.controlled, "ctl")
    yield
    wait(PAUSE / 2)
    racks.cut(racks.controlled, "ctl", up=True)


ALL = list(itertools.product([held, halted, cut_off], [False, True], [False, True]))
FEW = [(held, False, False), (halted, False, True), (halted, True, False), (cut_off, True, True)]


@pytest.mark.parametrize(
    ("pause", "fallback", "recovery"), ALL if os.environ.get("INNET_PAUSE") else FEW
)
def test_a_pause_costs_nothing_but_the_wait(racks: Cluster, pause, fallback: bool, recovery: bool):
    before = len(racks.log.read_text())
    with training(racks, fallback=fallback) as (job, shells):
        for shell in shells[1:]:
            shell.start(f"steps({STEPS})")
        with pause(racks, shells):
            wait(PAUSE / 2)
            if recovery:
                racks.switch.kill()
                racks.switch.start()
        for shell in shells:
            shell.done()
        for shell in shells:
            shell.start("steps(3)")
        for shell in shells:
            shell.done()
        if pause is cut_off:
            assert "no worker is heard any more" in racks.log.read_text()[before:]
            eventually(lambda: "workers are heard again" in racks.log.read_text()[before:])
        eventually(lambda: all_connected(racks, job))
        shown = racks.admin.do(f"result = show('{job}')")
        assert (shown["joined"], shown["departures"]) == ([0, 1, 2], [])


def test_a_process_that_is_killed_is_known_and_named_as_the_first(racks: Cluster):
    with training(racks, fallback=False) as (job, shells):
        for shell in shells:
            shell.start("steps(100000)")
        shells[1].process.kill()
        for rank in (0, 2):
            kind, text = shells[rank].ended()
            assert (kind, "worker 1: its process has ended" in text) == ("WorkersMissing", True)
        shells[2].process.kill()

        def departures() -> list[tuple[int, str]]:
            shown = racks.admin.do(f"result = show('{job}')")
            return [(each["rank"], each["reason"]) for each in shown["departures"]]

        eventually(lambda: len(departures()) == 2)
        assert departures() == [(1, "its process has ended"), (2, "its process has ended")]


def test_a_machine_that_is_dead_is_known_within_the_lease(racks: Cluster):
    with training(racks, fallback=True) as (_, shells):
        for shell in shells:
            shell.start("steps(100000)")
        racks.cut(racks.machines[2], "ctl", "data")
        try:
            for rank in (0, 1):
                kind, text = shells[rank].ended()
                assert kind == "WorkersMissing"
                assert f"worker 2: its machine was silent for {LEASE:g} s" in text
        finally:
            racks.cut(racks.machines[2], "ctl", "data", up=True)
