"""A stand-by controller takes over when the first is killed under load, and no job ends.

``INNET_KILLS=20`` is the long mode.
"""

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import refuse
from mortal import MortalController, MortalSwitch, add_switch, mortal_switch, serving_rack
from preforked import Process
from racks import TIMEOUTS
from stored_records import SWITCH
from waiting import WITHIN, until

from innet.controller.standby import await_state
from innet.controller.state.store import Store
from innet.errors import ControllerUnreachable
from innet.host.agent import Agent
from innet.host.join import join
from innet.observe.overview import Overviews
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

KILLS = int(os.environ.get("INNET_KILLS", "3"))
ELEMENTS = 1000


@contextlib.contextmanager
def summing(agents: Sequence[Agent]) -> Iterator[list[int]]:
    """All-reduce without a pause. Yield how often each agent has; all results must be right."""
    done, stop, problems = [0] * len(agents), threading.Event(), []

    def work(rank: int, agent: Agent) -> None:
        values = np.full(ELEMENTS, rank + 1, np.float32)
        try:
            while not stop.is_set():
                assert (agent.all_reduce(values) == 1.5).all()
                done[rank] += 1
        except Exception as problem:  # noqa: BLE001 - the test shows it
            if not stop.is_set():  # afterwards the other one leaves first
                problems.append(problem)

    threads = [threading.Thread(target=work, args=each) for each in enumerate(agents)]
    for each in threads:
        each.start()
    try:
        yield done
    finally:
        stop.set()
        for agent in agents:
            agent.close(abandon=True)
        for each in threads:
            each.join()
        assert not problems


def progress(done: list[int]) -> None:
    """Return when every agent has summed once more."""
    before = [*done]
    until(lambda: all(now > was for now, was in zip(done, before, strict=True)))


@pytest.fixture
def switch() -> Iterator[MortalSwitch]:
    with mortal_switch(2) as running:
        yield running


def test_a_stand_by_takes_over_under_load_and_no_job_ends(switch: MortalSwitch, tmp_path: Path):
    options = ("--state", str(tmp_path / "state"), "--standby", "--lease", str(WITHIN))
    with contextlib.ExitStack() as stack:
        active, waiting = MortalController(*options), MortalController(*options)
        for each in (active, waiting):
            stack.callback(each.stop)
        both = f"{active.address},{waiting.address}"
        with serving_rack(active.address, switch) as rack:
            add_switch(rack, switch)
            request = pb.CreateJobRequest(name="train", switch="tor", workers=2, slots=32)
            token = rack.stub.CreateJob(request).token
        agents = [
            join(both, "train", rank, switch.links[rank], token=token, timeouts=TIMEOUTS)
            for rank in range(2)
        ]
        done = stack.enter_context(summing(agents))
        top = Overviews(both, None, "train")
        stack.callback(top.close)
        for _ in range(KILLS):
            progress(done)
            active.kill()
            assert said(waiting) == "controller"
            channel, stub = connect(both, WITHIN)
            with channel:
                until(lambda stub=stub: back(stub))
            until(lambda: not fails(top))
            active, waiting = waiting, active
            waiting.start()  # it prints that it stands by
        progress(done)
        channel, stub = connect(both, WITHIN)
        with channel:
            events = stub.GetJobHistory(pb.GetJobHistoryRequest(name="train")).events
        assert [each.event for each in events].count("job created") == 1
        assert [each.event for each in events].count("worker joined") == 2
        assert "worker left" not in [each.event for each in events]


def said(controller: MortalController) -> str:
    """Return the first word of the next line that a controller prints."""
    assert controller.process.stdout
    return controller.process.stdout.readline().split()[0]


def back(stub: Any) -> bool:
    """Return whether both workers are in the job, and connected."""
    job = stub.GetJob(pb.GetJobRequest(name="train"))
    return [*job.joined] == [0, 1] and not any(each.disconnected for each in job.members)


def test_a_stand_by_ends_at_once_when_it_is_told_to(tmp_path: Path):
    path = tmp_path / "state"
    with contextlib.closing(Store(path)):
        controller = MortalController("--state", str(path), "--standby")
        controller.stop()
    controller = MortalController("--state", str(path), "--standby")  # nobody has the state
    controller.stop()


def test_a_stand_by_does_not_begin_with_an_empty_state_when_the_file_is_gone(tmp_path: Path):
    path, away, looks = tmp_path / "state", tmp_path / "away", 0

    def pause(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            path.rename(away)  # as if a shared file system were not there
            first.close()
        elif looks == 3:
            away.rename(path)

    with contextlib.closing(Store(path)) as first:
        first.add_switch(SWITCH)
        with contextlib.closing(await_state(path, lambda: None, pause)) as second:
            assert second.load().switches == [SWITCH]
    assert looks == 3


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (Path.unlink, "there is no {}: copy it from where the certificates were made"),
        (lambda path: path.write_text(""), "{} and .* are no certificate in PEM and its key"),
    ],
)
def test_a_stand_by_tells_which_of_its_files_cannot_be_used_any_more(
    folder: Path, tmp_path: Path, spoil: Callable[[Path], Any], why: str
):
    path, certificates = tmp_path / "state", tmp_path / "certificates"
    shutil.copytree(folder, certificates)
    command = ["controller", "--address", "127.0.0.1:0", "--tls", str(certificates)]
    with contextlib.closing(Store(path)) as first:
        waiting = Process(
            "innet", *command, "--state", str(path), "--standby",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        with waiting:
            assert waiting.stdout.readline() == "standby\n"
            spoil(certificates / "controller.pem")
            first.close()
            said, problem = waiting.communicate(WITHIN)
    assert (waiting.returncode, said) == (2, "")
    last = problem.splitlines()[-1]
    assert re.match(f"error: {why.format(certificates / 'controller.pem')}", last), problem


def test_a_stand_by_needs_the_file_that_it_waits_for():
    refuse(
        "--standby needs --state", "innet", "controller", "--standby", "--address", "127.0.0.1:0"
    )


def fails(call: Callable[[], object]) -> bool:
    try:
        call()
    except ControllerUnreachable:
        return True
    return False
