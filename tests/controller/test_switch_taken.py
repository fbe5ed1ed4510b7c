"""A switch that another controller takes over comes back. `innet deploy` takes one only when told to."""

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bmv2 import BMV2
from bmv2 import running_switch as bmv2
from mortal import MortalSwitch, add_switch, mortal_switch, rack_of, serving_rack
from racks import WITHIN, means, rack
from scripted_worker import scripted
from waiting import until
from working_job import assert_sums, at_work, eventually, renew

from innet.controller.deploy import deploy
from innet.controller.server import ControllerServer
from innet.controller.state.registry import Policy
from innet.controller.switches.election import Candidate, SwitchTaken
from innet.controller.switches.p4runtime import SwitchConnection
from innet.p4.artifacts import artifact
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect


@pytest.fixture
def switch() -> Iterator[MortalSwitch]:
    with mortal_switch(2) as running:
        yield running


def deployed(address: str, *, force: bool = False, lanes: int = 64) -> list[str]:
    """Deploy to a switch, as `innet deploy` does. Returns the messages that were sent, as text."""
    request = pb.AddSwitchRequest(name="x", grpc_address=address, ports=[1, 2], lanes=lanes)
    sent: list[str] = []
    deploy(request, None, sent.append, dry_run=False, force=force)
    return sent


def refused(address: str) -> str:
    """Return why a switch is not deployed to."""
    with pytest.raises(SwitchTaken) as problem:
        deployed(address)
    return str(problem.value)


def test_deploy_refuses_a_switch_that_a_controller_manages_and_its_workers_notice_nothing(switch):
    with rack_of(switch, policy=Policy(lease_s=WITHIN)) as tor, at_work(tor) as workers:
        with pytest.raises(SwitchTaken, match=r"a controller is in charge .* or use --force"):
            deployed(switch.address)
        assert_sums(workers, 1)
        assert all(each.quiet() for each in workers)


def test_deploy_refuses_a_switch_with_entries_of_a_controller_that_has_gone(switch):
    server = ControllerServer("127.0.0.1:0", policy=Policy(lease_s=WITHIN))
    with contextlib.ExitStack() as stack:
        # The controller goes first: workers whose connections end before would leave the job.
        tor = stack.enter_context(serving_rack(f"127.0.0.1:{server.port}", switch))
        with contextlib.closing(server):
            add_switch(tor, switch)
            request = pb.CreateJobRequest(name="left", switch="tor", workers=2, slots=8)
            tor.tokens["left"] = tor.stub.CreateJob(request).token
            workers = [stack.enter_context(scripted(tor, "left", rank)) for rank in (0, 1)]
            for each in workers:
                each.settle()
        # The switch may notice a moment later that the controller has gone.
        until(lambda: "entries of 2 workers, and no controller is conn" in refused(switch.address))
        assert_sums(workers, 1)  # nothing on the switch has changed
        assert any("DELETE" in line for line in deployed(switch.address, force=True))

        def deployed_without_force() -> bool:
            try:
                deployed(switch.address)
            except SwitchTaken as problem:
                if "a controller is in charge" not in str(problem):
                    raise
                return False
            return True

        until(deployed_without_force)  # the last connection, too, may be forgotten a moment later


@pytest.mark.parametrize("lanes", [64, 256])
def test_what_deploy_takes_by_force_comes_back_and_running_workers_go_on(lanes: int):
    with rack(2) as tor, tor.workers(2) as agents:
        ones = np.ones(1000, np.float32)
        means(agents, ones, ones)
        first = agents[0].submit(ones)
        deployed(tor.switch.address, force=True, lanes=lanes)
        second = agents[1].submit(3 * ones)
        for future in (first, second):
            assert (future.result(WITHIN) == 2).all()
        for mean in means(agents, ones, 5 * ones):
            assert (mean == 3).all()


def test_a_switch_comes_back_when_a_controller_that_started_later_has_gone(switch):
    with rack_of(switch, policy=Policy(lease_s=WITHIN)) as tor, at_work(tor) as workers:
        program = artifact(64)
        later = SwitchConnection(switch.address, 0, program.p4info, lambda *_: None)
        later.run(program.device_config)  # the first program's entries are gone

        def told() -> pb.Switch:
            return tor.stub.GetSwitch(pb.GetSwitchRequest(name="tor"))

        eventually(lambda: told().taken)
        assert "has another controller, which started later" in told().problem
        later.close()
        renew(workers, 0, 0)
        for each in workers:
            each.hear("resume")
        assert not told().taken
        assert told().reachable
        assert_sums(workers, 1)


def test_bmv2_that_deploy_takes_by_force_comes_back_as_well(tmp_path: Path):
    if not shutil.which(BMV2):
        pytest.skip(f"there is no {BMV2} (BMv2) on the PATH")
    with (
        bmv2([], [BMV2], [], tmp_path) as address,
        contextlib.closing(ControllerServer("127.0.0.1:0")) as server,
        contextlib.ExitStack() as stack,
    ):
        channel, stub = connect(f"127.0.0.1:{server.port}")
        stack.callback(channel.close)
        stub.AddSwitch(pb.AddSwitchRequest(name="tor", grpc_address=address, ports=[1, 2]))
        with pytest.raises(SwitchTaken, match="a controller is in charge"):
            deployed(address)
        switches = server.controller.switches.views
        deployed(address, force=True, lanes=256)  # another program has nothing of the first
        eventually(lambda: not switches()[0].reachable)
        eventually(lambda: switches()[0].reachable)


# -- which id a controller shows ------------------------------------------------------------------


class Elections:
    """A switch that only knows election ids. `live` is the id of its primary."""

    def __init__(self) -> None:
        self.highest = self.live = (0, 0)

    def connect(self, election: tuple[int, int]) -> tuple[int, int]:
        if election <= self.highest:
            raise SwitchTaken("taken", self.highest, live=bool(self.live[0]))
        self.highest = self.live = election
        return election

    def cut(self) -> None:
        self.live = (0, 0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_that_started_earlier_takes_charge_only_when_the_other_has_been_gone_for_a_while():
    switch, clock = Elections(), Clock()
    early, late = (Candidate(started, itertools.count(), clock=clock) for started in (5, 9))
    early.take_charge(switch.connect, 3)
    late.take_charge(switch.connect, 3)
    for clock.now in (0.0, 100.0):
        with pytest.raises(SwitchTaken):
            early.take_charge(switch.connect, 3)
    switch.cut()
    for clock.now in (101.0, 103.9):
        with pytest.raises(SwitchTaken):
            early.take_charge(switch.connect, 3)
    clock.now = 104.0
    assert early.take_charge(switch.connect, 3) == (9, 1)
    switch.cut()
    early.take_charge(switch.connect, 3)  # its own connection broke, so it need not wait


def test_one_that_started_later_takes_its_switch_back_at_once_from_one_that_used_its_number():
    switch, clock = Elections(), Clock()
    early, late = (Candidate(started, itertools.count(), clock=clock) for started in (5, 9))
    late.take_charge(switch.connect, 3)
    switch.cut()
    early.take_charge(switch.connect, 0)
    assert switch.live == (9, 1)
    late.take_charge(switch.connect, 3)
    with pytest.raises(SwitchTaken):
        early.take_charge(switch.connect, 0)


def test_one_with_force_takes_charge_of_any_switch():
    switch = Elections()
    Candidate(9, itertools.count()).take_charge(switch.connect)
    assert Candidate(5, itertools.count(), forceful=True).take_charge(switch.connect) == (9, 1)
