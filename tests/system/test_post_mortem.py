"""Cause, time and rank of injected faults, found in the controller's JSON log alone."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from authorities import tls_options
from mortal import MortalController, MortalSwitch, add_switch, mortal_switch
from racks import Rack, problem
from switches import udp_socket
from waiting import WITHIN, until

from innet.errors import (
    ControllerError,
    NoCapacity,
    NotAuthorized,
    WorkersDisagree,
    WorkersMissing,
)
from innet.host.agent import Agent
from innet.host.transport import Timeouts
from innet.local.faults import Faults, faulty
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.certificates import issue
from innet.rpc.client import connect, translated
from innet.rpc.issued import revoke

if TYPE_CHECKING:
    from concurrent.futures import Future

VECTOR = np.ones(100, np.float32)
PATIENT = Timeouts(switch=WITHIN, workers=WITHIN)
FAILING = str(Path(__file__).parents[1] / "support" / "failing_worker.py")


class Log:
    """The controller's log at `path`. Lines count from the last call of :meth:`mark` on."""

    def __init__(self, path: Path) -> None:
        self.path, self._from, self._at = path, 0, datetime.now(UTC)

    def mark(self) -> None:
        """Note that a fault is injected now."""
        self._from, self._at = self.path.stat().st_size, datetime.now(UTC)

    def find(self, event: str, **facts: Any) -> dict[str, Any]:
        """Wait for the first line with this event and these facts. Its time is after the mark."""
        found: list[dict[str, Any]] = []
        until(lambda: found.extend(self._matching(event, facts)) or found)
        assert self._at <= datetime.fromisoformat(found[0]["timestamp"]) <= datetime.now(UTC)
        return found[0]

    def has(self, event: str) -> bool:
        """Return whether there is a line with this event."""
        return bool(self._matching(event, {}))

    def _matching(self, event: str, facts: dict[str, Any]) -> list[dict[str, Any]]:
        whole, _, _ = self.path.read_text()[self._from :].rpartition("\n")
        lines = map(json.loads, whole.splitlines())
        return [line for line in lines if line["event"] == event and facts.items() <= line.items()]


@dataclass(frozen=True)
class Scene:
    """A rack over TLS, its controller and switch as processes, and the controller's log."""

    rack: Rack
    controller: MortalController
    switch: MortalSwitch
    log: Log
    certificates: Path

    def worker(self, job: str, rank: int, link: str = "", **more: Any) -> Agent:
        """Join from this process."""
        more = {"tls": self.certificates, "timeouts": PATIENT, **more}
        return self.rack.join(job, rank, link, **more)

    @contextlib.contextmanager
    def pair(self) -> Iterator[tuple[str, Agent, "subprocess.Popen[str]"]]:
        """Yield a job, its worker 0 in this process, and its worker 1 as one of its own."""
        with self.rack.job(2) as job, self.worker(job, 0) as agent:
            known = {"CONTROLLER": self.rack.controller, "TLS": str(self.certificates), "JOB": job}
            known |= {"TOKEN": self.rack.tokens[job], "LINK": self.rack.links[1]}
            own = {f"INNET_{name}": value for name, value in known.items()}
            with subprocess.Popen(
                [sys.executable, FAILING], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, env={**os.environ, **own, "RANK": "1"},
            ) as other:  # fmt: skip
                try:
                    agent.all_reduce(VECTOR)
                    assert other.stdout.readline() == "summed\n"
                    self.log.mark()
                    yield job, agent, other
                finally:
                    other.kill()

    @contextlib.contextmanager
    def threads(self, links: list[str] | None = None) -> Iterator[tuple[str, ...]]:
        """Yield a job, and both of its workers in this process, after their first sum."""
        with self.rack.job(2) as job, contextlib.ExitStack() as stack:
            agents = [
                stack.enter_context(self.worker(job, rank, link))
                for rank, link in enumerate(links or self.rack.links[:2])
            ]
            for future in both(agents):
                future.result()
            self.log.mark()
            yield (job, *agents)


def both(agents: Any, *sizes: int) -> list["Future[np.ndarray]"]:
    """Let all agents reduce at once: vectors of 100 elements, or of these sizes."""
    vectors = [np.ones(size, np.float32) for size in sizes or [100] * len(agents)]
    return [agent.submit(each) for agent, each in zip(agents, vectors, strict=True)]


@pytest.fixture(scope="module")
def scene(folder: Path, tmp_path_factory) -> Iterator[Scene]:
    path = tmp_path_factory.mktemp("post-mortem")
    log = path / "log"
    log.touch()
    options = [
        "--log-format",
        "json",
        "--tls",
        str(folder),
        "--state",
        str(path / "state"),
        "--lease",
        "60",
    ]
    with mortal_switch(4, *tls_options(folder)) as switch, contextlib.ExitStack() as stack:
        controller = MortalController(*options, log=log)
        stack.callback(controller.stop)
        channel, stub = connect(controller.address, identity=tls.load(folder, tls.ADMIN))
        stack.enter_context(channel)
        rack = Rack(switch, controller.address, stub, switch.links[:2])
        add_switch(rack, switch)
        yield Scene(rack, controller, switch, Log(log), folder)


@pytest.fixture(scope="module")
def still(scene: Scene) -> Iterator[tuple[Log, str, Agent, "subprocess.Popen[str]"]]:
    """Stop worker 1 of a job whose worker 0 waits for it. Yield a log, the job and both."""
    rack = replace(scene.rack, links=scene.switch.links[2:])
    own = replace(scene, rack=rack, log=Log(scene.log.path))
    with own.pair() as (job, agent, other):
        other.send_signal(signal.SIGSTOP)
        agent.submit(VECTOR)
        yield own.log, job, agent, other


# The wait takes seconds. It begins with the first test, and ends during the others.
pytestmark = pytest.mark.usefixtures("still")


# Workers.


def test_a_killed_worker(scene: Scene):
    with scene.pair() as (job, _, other):
        other.kill()
        line = scene.log.find("worker left", job=job, rank=1)
        assert line["why"] == "its process has ended"


def test_a_worker_whose_program_raises_an_exception(scene: Scene):
    with scene.pair() as (job, agent, other):
        other.stdin.write("\n")
        other.stdin.close()
        line = scene.log.find("worker left", job=job, rank=1)
        assert line["why"] == "its program has failed: ValueError: no more data"
        missing = problem(agent.submit(VECTOR))
        assert isinstance(missing, WorkersMissing)
        assert "ValueError: no more data" in str(missing)


def test_a_worker_that_sums_another_number_of_elements(scene: Scene):
    with scene.threads() as (job, *agents):
        found = [problem(each) for each in both(agents, 100, 200)]
        assert [type(each) for each in found] == [WorkersDisagree] * 2
        for agent, each in zip(agents, found, strict=True):
            agent.close(problem=each)
        for rank in range(2):
            why = scene.log.find("worker left", job=job, rank=rank)["why"]
            assert "WorkersDisagree: " in why
            assert f"has {100 * (rank + 1)} elements, others have between 100 and 200" in why


def test_a_link_to_the_switch_that_is_cut(scene: Scene):
    with (
        faulty(scene.rack.links[:2], seed=1) as wiring,
        scene.threads(wiring.links) as (job, *agents),
    ):
        wiring.cut(1)
        futures = both(agents)
        line = scene.log.find("term ends", job=job, rank=1)
        assert line["why"].startswith("worker_trouble: worker 1: the switch has not answered")
        wiring.mend(1)
        for each in futures:
            each.result()


@pytest.mark.parametrize(
    ("up", "down", "way"), [(0.2, 0, "to the switch"), (0, 0.2, "to the worker")]
)
def test_a_link_that_damages_packets(scene: Scene, up: float, down: float, way: str):
    link = scene.rack.links[1]
    faults = Faults(corrupt=up), Faults(corrupt=down)
    with (
        faulty([link], 3, *faults) as wiring,
        scene.threads([scene.rack.links[0], *wiring.links]) as (job, *agents),
    ):
        for _ in range(20):
            for each in both(agents, 20_000, 20_000):
                np.testing.assert_array_equal(each.result(), np.ones(20_000))
        line = scene.log.find("packets damaged", job=job, rank=1, way=way)
        assert (line["switch"], line["port"], line["level"]) == ("tor", 2, "warning")
        assert line["packets"] > 0


def test_a_worker_whose_link_does_not_lead_to_the_switch(scene: Scene):
    no_hello = "no hello packet has reached the controller"
    with udp_socket() as nowhere, udp_socket() as probe, scene.rack.job(2) as job:
        near, far = probe.getsockname()[1], nowhere.getsockname()[1]
        probe.close()
        scene.log.mark()
        said = ""
        while no_hello not in said:  # on a busy machine, even the invitation may be late
            with pytest.raises(ControllerError) as found:
                scene.worker(job, 1, f"udp:127.0.0.1:{near}/127.0.0.1:{far}", timeout=1)
            said = str(found.value)
        assert "the same version of innet" in said
        why = f"its program has failed: ControllerError: {said}"
        scene.log.find("worker not joined", job=job, rank=1, why=why)


def test_a_worker_that_stands_still(still: tuple[Log, str, Agent, "subprocess.Popen[str]"]):
    log, job, agent, other = still
    line = log.find("workers wait", job=job)
    assert line["waited_for"] == [1]
    assert line["seconds"] > 0
    other.kill()
    assert isinstance(problem(agent.submit(VECTOR)), WorkersMissing)


# Refusals.


def test_a_wrong_token(scene: Scene):
    with scene.rack.job(2) as job:
        scene.log.mark()
        with pytest.raises(NotAuthorized):
            scene.worker(job, 1, token="wrong")  # noqa: S106
        line = scene.log.find("refused", job=job, rank=1)
        assert f"the token is not the job '{job}''s" in line["why"]


def test_a_certificate_for_another_role(scene: Scene):
    channel, stub = connect(
        scene.rack.controller, identity=tls.load(scene.certificates, tls.WORKER)
    )
    with channel, scene.rack.job(2) as job:
        scene.log.mark()
        with pytest.raises(NotAuthorized), translated("delete the job"):
            stub.DeleteJob(pb.DeleteJobRequest(name=job))
        line = scene.log.find("refused", method="DeleteJob", name=job)
        assert line["who"] == "innet worker (worker)"
        assert "needs the certificate of an administrator" in line["why"]


def test_a_certificate_that_is_revoked_while_its_worker_sums(scene: Scene):
    issue(scene.certificates, "mallory", [tls.WORKER])
    mallory, refusal = scene.certificates / "mallory", "this certificate has been revoked"
    with (
        scene.rack.job(2) as job,
        scene.worker(job, 0) as agent,
        scene.worker(job, 1, tls=mallory) as revoked,
    ):
        for future in both([agent, revoked]):
            future.result()
        scene.log.mark()
        revoke(scene.certificates, "mallory")
        missing = problem(agent.submit(VECTOR))
        line = scene.log.find("worker left", job=job, rank=1)
        assert line["why"] == "its certificate has been revoked"
        assert isinstance(missing, WorkersMissing)
        with pytest.raises(NotAuthorized, match=refusal):
            scene.worker(job, 1, tls=mallory)
        line = scene.log.find("refused", method="Join", who="mallory (worker)")
        assert line["why"].startswith(refusal)


def test_a_revoked_certificate_of_an_administrator(scene: Scene):
    issue(scene.certificates, "eve", [tls.ADMIN])
    revoke(scene.certificates, "eve")
    channel, stub = connect(
        scene.rack.controller, identity=tls.load(scene.certificates / "eve", tls.ADMIN)
    )
    with channel, scene.rack.job(2) as job:
        scene.log.mark()
        with pytest.raises(NotAuthorized), translated("delete the job"):
            stub.DeleteJob(pb.DeleteJobRequest(name=job))
        line = scene.log.find("refused", method="DeleteJob", name=job, who="eve (admin)")
        assert line["why"].startswith("this certificate has been revoked")


def test_a_job_with_more_slots_than_are_free(scene: Scene):
    with scene.rack.job(2, slots=4096):
        scene.log.mark()
        with pytest.raises(NoCapacity), scene.rack.job(2, slots=4096):
            pass
        line = scene.log.find("CreateJob", failed="RESOURCE_EXHAUSTED")
        assert line["who"] == "innet admin (admin)"
        assert "no 4096 neighbouring slots are free" in line["why"]


# Switch and controller.


def test_a_killed_switch_that_comes_back_without_its_state(scene: Scene):
    with scene.threads() as (job, *agents):
        scene.switch.kill()
        lost = scene.log.find("switch lost", switch="tor")
        assert f"no switch answers at {scene.switch.address}" in lost["problem"]
        ends = scene.log.find("term ends", job=job)
        assert ends["why"] == f"switch_lost: {lost['problem']}"
        scene.switch.start()
        for each in both(agents):
            each.result()
        scene.log.find("switch ready", switch="tor")
        scene.log.find("term begins", job=job, path="switch", why=ends["why"])


def test_a_killed_controller(scene: Scene):
    with scene.threads() as (job, *agents):
        scene.controller.kill()
        scene.controller.start()
        for each in both(agents):
            each.result()
        scene.log.find("state restored", switches=1, jobs=2)
        scene.log.find("the controller serves")
        assert not scene.log.has("the controller stops")
        for rank in range(2):
            scene.log.find("a worker's connection is back", job=job, rank=rank)
        scene.rack.stub.ListJobs(pb.ListJobsRequest(), wait_for_ready=True)
