"""The controller's service, asked over gRPC, in charge of a real switch."""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
from racks import Rack, rack

from innet.controller import innet_pb2 as pb
from innet.controller.client import translated
from innet.errors import (
    AlreadyExists,
    ControllerError,
    InnetError,
    NotFound,
    SwitchError,
    UsageError,
)

PORTS = 4
SLOTS = 8192  # of the program for 64 lanes
MILLION = 1_000_000


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(PORTS) as running:
        yield running


@contextlib.contextmanager
def refused(kind: type[InnetError], why: str) -> Iterator[None]:
    """The controller says no, with this very class of error."""
    with pytest.raises(kind, match=why) as caught, translated("do it"):
        yield
    assert caught.type is kind


def create(tor: Rack, name: str = "new", switch: str = "tor", workers: int = 2, slots: int = 8):
    request = pb.CreateJobRequest(name=name, switch=switch, workers=workers, slots=slots)
    return tor.stub.CreateJob(request)


def add_switch(tor: Rack, name: str, address: str, **fields) -> pb.Switch:
    request = pb.AddSwitchRequest(name=name, grpc_address=address, ports=[1], **fields)
    return tor.stub.AddSwitch(request)


def test_a_switch_is_listed_as_it_was_added(tor: Rack):
    [switch] = tor.stub.ListSwitches(pb.ListSwitchesRequest()).switches
    assert (switch.name, switch.grpc_address) == ("tor", tor.switch.address)
    assert list(switch.ports) == [1, 2, 3, 4]
    assert (switch.lanes, switch.slots, switch.free_slots) == (64, SLOTS, SLOTS)


def test_a_switch_runs_the_program_for_the_lanes_that_were_asked_for():
    with rack(1, lanes=256) as wide, wide.job(1) as job:
        assert wide.show(job).lanes == 256
        with wide.join(job, 0) as agent:
            assert agent.seat.lanes == 256
            assert agent.all_reduce(np.full(1000, 3, np.float32)).tolist() == [3.0] * 1000


def test_a_switch_that_is_not_there_is_an_error_and_not_kept(tor: Rack):
    with refused(SwitchError, r"no switch answers at 127\.0\.0\.1:1: is it running"):
        add_switch(tor, "ghost", "127.0.0.1:1")
    with refused(NotFound, "no switch 'ghost'; there is: tor"):
        create(tor, switch="ghost")


@pytest.mark.parametrize(
    ("fields", "kind", "why"),
    [
        ({"name": "tor"}, AlreadyExists, "there is a switch 'tor'"),
        ({}, AlreadyExists, "is the switch 'tor' already"),
        ({"name": ""}, UsageError, "'' is no name for a switch"),
        ({"lanes": 65}, UsageError, "no program for 65 lanes, only for 64 and 256"),
        ({"service": pb.Address(mac="02:00:00:00:00:fe", ip="10.0.0")}, UsageError, "'10.0.0'"),
        ({"service": pb.Address(mac="02:00", ip="10.0.0.1")}, UsageError, "'02:00'"),
    ],
)
def test_nonsense_about_a_switch_is_refused_before_it_is_touched(tor, fields, kind, why: str):
    with refused(kind, why):
        add_switch(tor, **{"name": "other", "address": tor.switch.address, **fields})
    assert tor.free_slots == SLOTS


@pytest.mark.parametrize("ports", [[1, 1], [510], [600]])
def test_ports_that_cannot_be_are_refused(tor: Rack, ports: list[int]):
    with refused(UsageError, "ports are numbers below 510, each once"):
        tor.stub.AddSwitch(pb.AddSwitchRequest(name="x", grpc_address="nowhere:1", ports=ports))


def test_a_switch_without_ports_is_refused(tor: Rack):
    with refused(UsageError, "which ports does the switch have"):
        tor.stub.AddSwitch(pb.AddSwitchRequest(name="x", grpc_address=tor.switch.address))


def test_a_job_is_shown_and_listed_until_it_is_deleted(tor: Rack):
    created = create(tor, "training", workers=3, slots=16)
    assert (created.switch, created.workers, created.lanes) == ("tor", 3, 64)
    assert (created.slots, created.first_slot % 16, list(created.joined)) == (16, 0, [])
    assert [job.name for job in tor.stub.ListJobs(pb.ListJobsRequest()).jobs] == ["training"]
    shown = tor.show("training")
    assert shown.counters == pb.Counters()
    shown.ClearField("counters")
    assert shown == created
    assert tor.free_slots == SLOTS - 16
    tor.delete("training")
    assert not tor.stub.ListJobs(pb.ListJobsRequest()).jobs
    assert tor.free_slots == SLOTS
    for gone in (tor.show, tor.delete):
        with pytest.raises(NotFound, match="no job 'training'; there is: none"):
            gone("training")


@pytest.mark.parametrize(
    ("wrong", "kind", "why"),
    [
        ({"switch": "spine"}, NotFound, "no switch 'spine'; there is: tor"),
        ({"workers": 0}, UsageError, "0 workers: a job on one switch has 1 to 32"),
        ({"workers": 33}, UsageError, "33 workers: .* 1 to 32, as many as the bitmap has bits"),
        ({"slots": 3}, UsageError, "3 slots: the number has to be a power of two"),
        ({"slots": 2 * SLOTS}, UsageError, f"16384 slots are more than the {SLOTS}"),
        ({"name": "a\nb"}, UsageError, "no name for a job"),
        ({"name": "x" * 65}, UsageError, "no name for a job"),
    ],
)
def test_a_job_that_cannot_be_is_refused_and_takes_no_slots(tor: Rack, wrong, kind, why: str):
    with refused(kind, why):
        create(tor, **wrong)
    assert tor.free_slots == SLOTS


def test_two_jobs_cannot_have_one_name_and_the_first_stays(tor: Rack):
    with tor.job(2) as job:
        with refused(AlreadyExists, f"there is a job '{job}'"):
            create(tor, job)
        assert tor.free_slots == SLOTS - 32
        assert tor.show(job).workers == 2


def test_jobs_have_slots_of_their_own_until_none_are_left(tor: Rack):
    with tor.job(2, SLOTS // 2) as first, tor.job(2, SLOTS // 2) as second:
        assert tor.show(first).first_slot != tor.show(second).first_slot
        assert tor.show(first).id != tor.show(second).id
        with refused(ControllerError, f"no 1 neighbouring slots are free .0 of {SLOTS}"):
            create(tor, slots=1)
    assert tor.free_slots == SLOTS
