"""The controller's service, called over gRPC, in charge of a real switch."""

import contextlib
from collections.abc import Iterator

import grpc
import pytest
from racks import Rack, rack
from scripted_worker import scripted
from working_job import eventually

from innet.controller.handlers import job_requests
from innet.controller.jobs.events import Actions
from innet.controller.jobs.job import Job
from innet.controller.state.registry import Policy
from innet.controller.state.store import Store
from innet.controller.switches import p4runtime
from innet.controller.switches.election import Id
from innet.controller.switches.supervisor import Supervisor
from innet.errors import (
    AlreadyExists,
    ControllerError,
    InnetError,
    NoCapacity,
    NotFound,
    SwitchOffline,
    UsageError,
)
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import translated

PORTS = 4
SLOTS = 8192  # of the program for 64 lanes
MILLION = 1_000_000


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(PORTS) as running:
        yield running


@contextlib.contextmanager
def refused(kind: type[InnetError], why: str) -> Iterator[None]:
    """Check that the controller refuses, with exactly this class of error."""
    with pytest.raises(kind, match=why) as caught, translated("do it"):
        yield
    assert caught.type is kind


def create(tor: Rack, name: str = "new", **fields) -> pb.Job:
    asked = {"switch": "tor", "workers": 2, "slots": 8, **fields}
    return tor.stub.CreateJob(pb.CreateJobRequest(name=name, **asked)).job


def add_switch(tor: Rack, name: str, address: str, **fields) -> pb.Switch:
    request = pb.AddSwitchRequest(name=name, grpc_address=address, ports=[1], **fields)
    return tor.stub.AddSwitch(request)


def test_a_switch_is_listed_as_it_was_added(tor: Rack):
    [switch] = tor.stub.ListSwitches(pb.ListSwitchesRequest()).switches
    assert (switch.name, switch.grpc_address) == ("tor", tor.switch.address)
    assert list(switch.ports) == [1, 2, 3, 4]
    assert (switch.lanes, switch.slots, switch.free_slots) == (64, SLOTS, SLOTS)
    assert switch.reachable
    shown = tor.stub.GetSwitch(pb.GetSwitchRequest(name="tor"))
    assert [each.port for each in shown.port_counters] == [1, 2, 3, 4]
    shown.ClearField("port_counters")
    assert shown == switch


def test_a_switch_runs_the_program_for_the_lanes_that_were_asked_for():
    with rack(1, lanes=256) as wide, wide.job(1) as job:
        assert wide.show(job).lanes == 256
        with scripted(wide, job, 0) as worker:
            assert worker.invited().lanes == 256


def test_a_switch_that_is_not_there_is_an_error_and_not_kept(tor: Rack):
    with refused(SwitchOffline, r"no switch answers at 127\.0\.0\.1:1: is it running"):
        add_switch(tor, "ghost", "127.0.0.1:1")
    with refused(NotFound, "no switch 'ghost'; the controller has: tor"):
        create(tor, switch="ghost")


@pytest.mark.parametrize(
    ("fields", "kind", "why"),
    [
        ({"name": "tor"}, AlreadyExists, "a switch named 'tor' exists already"),
        ({}, AlreadyExists, "has been added already, as 'tor'"),
        ({"name": ""}, UsageError, "'' is not a name for a switch"),
        ({"lanes": 65}, UsageError, "no program for 65 lanes, only for 64, 256 and 1024"),
        ({"service": pb.Address(mac="02:00:00:00:00:fe", ip="10.0.0")}, UsageError, "'10.0.0'"),
        ({"service": pb.Address(mac="02:00", ip="10.0.0.1")}, UsageError, "'02:00'"),
        (
            {"service": pb.Address(mac="02:00:00:00:00:fe", ip="10.0.0.1", udp_port=4789)},
            UsageError,
            "UDP port 4789 cannot be used: the program serves 19790 only",
        ),
        ({"address": "x" * 301}, UsageError, "is not an address: write HOST:PORT"),
        ({"address": "a\nb"}, UsageError, "is not an address: write HOST:PORT"),
        ({"device_id": 1 << 63}, UsageError, "device id 9223372036854775808"),
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
    with refused(UsageError, "a switch needs ports"):
        tor.stub.AddSwitch(pb.AddSwitchRequest(name="x", grpc_address=tor.switch.address))


def test_a_job_is_shown_and_listed_until_it_is_deleted(tor: Rack):
    created = create(tor, "training", workers=3, slots=16)
    assert (created.switch, created.workers, created.lanes) == ("tor", 3, 64)
    assert (created.slots, created.first_slot % 16, list(created.joined)) == (16, 0, [])
    assert (created.quorum, created.path, created.reason) == (3, pb.PATH_NONE, "")
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
        with pytest.raises(NotFound, match="no job 'training'; the controller has: none"):
            gone("training")


@pytest.mark.parametrize(
    ("wrong", "kind", "why"),
    [
        ({"switch": "spine"}, NotFound, "no switch 'spine'; the controller has: tor"),
        ({"workers": 0}, UsageError, "0 workers: a job has 1 to 4096"),
        ({"workers": 65}, NoCapacity, "the switch 'tor' sums 64 contributions at most"),
        ({"slots": 3}, UsageError, "3 slots: give a power of two"),
        ({"slots": 2 * SLOTS}, UsageError, f"16384 slots are more than the {SLOTS}"),
        (
            {"quorum": 3},
            UsageError,
            "a quorum of 3 is more than the job's 2 workers: give fewer, or 0",
        ),
        ({"lease_s": 1 << 31}, UsageError, "a lease of 2147483648 s is too long: .* a year"),
        ({"name": "a\nb"}, UsageError, "not a name for a job"),
        ({"name": "x" * 65}, UsageError, "not a name for a job"),
    ],
)
def test_a_job_that_cannot_be_is_refused_and_takes_no_slots(tor: Rack, wrong, kind, why: str):
    with refused(kind, why):
        create(tor, **wrong)
    assert tor.free_slots == SLOTS


def test_two_jobs_cannot_have_one_name_and_the_first_stays(tor: Rack):
    with tor.job(2) as job:
        with refused(AlreadyExists, f"a job named '{job}' exists already"):
            create(tor, job)
        assert tor.free_slots == SLOTS - 32
        assert tor.show(job).workers == 2


def test_jobs_have_slots_of_their_own_until_none_are_left(tor: Rack):
    with tor.job(2, SLOTS // 2) as first, tor.job(2, SLOTS // 2) as second:
        assert tor.show(first).first_slot != tor.show(second).first_slot
        assert tor.show(first).id != tor.show(second).id
        with refused(NoCapacity, f"no 1 neighbouring slots are free .0 of {SLOTS}"):
            create(tor, slots=1)
    assert tor.free_slots == SLOTS


def test_a_job_without_a_number_of_slots_has_the_usual_one(tor: Rack):
    assert create(tor, slots=0).slots == 128
    tor.delete("new")


def test_jobs_that_queue_get_slots_in_the_order_of_their_creation(tor: Rack):
    with tor.job(2, SLOTS // 2) as first, tor.job(2, SLOTS // 2) as second:
        older = create(tor, "older", slots=SLOTS // 2, queue=True)
        newer = create(tor, "newer", slots=SLOTS // 2, queue=True)
        assert (older.slots, newer.slots) == (0, 0)
        tor.delete(first)
        assert (tor.show("older").slots, tor.show("newer").slots) == (SLOTS // 2, 0)
        tor.delete(second)
        assert tor.show("newer").slots == SLOTS // 2
    tor.delete("older")
    tor.delete("newer")
    assert tor.free_slots == SLOTS


def test_a_job_that_waits_for_slots_can_be_deleted(tor: Rack):
    with tor.job(2, SLOTS) as job:
        create(tor, "waiting", queue=True)
        tor.delete("waiting")
        assert tor.show(job).slots == SLOTS
    assert tor.free_slots == SLOTS


def test_as_many_workers_are_promised_entries_as_the_tables_have_room_for(tor: Rack):
    jobs = [create(tor, f"job-{number}", workers=32, slots=1) for number in range(128)]
    with refused(NoCapacity, "the switch's tables have room for 4096 workers, and 4096 are"):
        create(tor, workers=1, slots=1)
    for job in jobs:
        tor.delete(job.name)
    create(tor, workers=1, slots=1)
    tor.delete("new")


def test_a_switch_is_added_once_with_tls_or_without(tor: Rack):
    with refused(AlreadyExists, "has been added already, as 'tor'"):
        add_switch(tor, "other", f"insecure:{tor.switch.address}")
    assert tor.free_slots == SLOTS


def test_as_many_jobs_have_slots_as_can_be_counted_apart(tor: Rack):
    jobs = [create(tor, f"job-{number}", workers=1, slots=1) for number in range(256)]
    with refused(NoCapacity, "the switch has 256 jobs, as many as it can count"):
        create(tor, workers=1, slots=1)
    for job in jobs:
        tor.delete(job.name)


def test_what_the_operator_allows_is_not_exceeded():
    with rack(1, policy=Policy(most_slots_per_job=16, most_jobs=2)) as tor:
        with refused(NoCapacity, "32 slots are more than the 16 that a job may have"):
            create(tor, slots=32)
        assert create(tor, "one", slots=0).slots == 16
        create(tor, "two", slots=16, queue=True)
        with refused(NoCapacity, "the controller has 2 jobs, and no more are allowed: delete one"):
            create(tor, "three", queue=True)
        tor.delete("one")
        create(tor, "three")


def test_a_job_without_a_number_of_slots_gets_what_fits_the_operators_limit():
    with rack(1, policy=Policy(most_slots_per_job=100)) as tor, translated("create the job"):
        assert create(tor, slots=0).slots == 64


def test_a_switch_is_removed_when_no_job_uses_it_and_can_be_added_again():
    with rack(1) as tor:
        create(tor, "a-job")
        with refused(ControllerError, "the switch 'tor' is in use: delete 'a-job' first"):
            tor.stub.RemoveSwitch(pb.RemoveSwitchRequest(name="tor"))
        tor.delete("a-job")
        tor.stub.RemoveSwitch(pb.RemoveSwitchRequest(name="tor"))
        with refused(NotFound, "no switch 'tor'; the controller has: none"):
            tor.stub.GetSwitch(pb.GetSwitchRequest(name="tor"))
        again = add_switch(tor, "again", tor.switch.address)
        assert again.reachable
        assert create(tor, switch="again").slots == 8


def test_an_error_names_no_more_jobs_than_fit(tor: Rack):
    jobs = [create(tor, f"job-{number:02}", workers=1, slots=1).name for number in range(25)]
    with refused(NotFound, "the controller has: job-00, .*, job-19 and 5 more$"):
        tor.show("nowhere")
    with refused(UsageError, r"not a name for a job"):
        tor.show("x" * 10_000)
    for job in jobs:
        tor.delete(job)


def test_a_job_that_cannot_be_kept_is_not_created(monkeypatch):
    with rack(1) as tor:
        with monkeypatch.context() as broken:
            broken.setattr(Store, "save_job", out_of_space)
            broken.setattr(Store, "remove_job", out_of_space)
            with refused(
                ControllerError, "the job was not created, because its state cannot be written"
            ):
                create(tor)
        assert not tor.stub.ListJobs(pb.ListJobsRequest()).jobs
        assert tor.free_slots == SLOTS
        create(tor)


def test_a_switch_that_cannot_be_kept_is_let_go_and_can_be_added_later(monkeypatch):
    with rack(1) as tor:
        tor.stub.RemoveSwitch(pb.RemoveSwitchRequest(name="tor"))
        with monkeypatch.context() as broken:
            broken.setattr(Store, "add_switch", out_of_space)
            with refused(ControllerError, "cannot write to the disk"):
                add_switch(tor, "tor", tor.switch.address)
        assert add_switch(tor, "tor", tor.switch.address).reachable


def test_a_switch_that_is_added_again_gets_another_election_id(monkeypatch):
    """The switch may not have noticed yet that its first stream has ended."""
    ids = []

    class Client(p4runtime._Client):
        def __init__(self, channel: grpc.Channel, device_id: int, election_id: Id) -> None:
            ids.append(election_id)
            super().__init__(channel, device_id, election_id)

    monkeypatch.setattr(p4runtime, "_Client", Client)
    with rack(1) as tor:
        tor.stub.RemoveSwitch(pb.RemoveSwitchRequest(name="tor"))
        add_switch(tor, "tor", tor.switch.address)
    first, second = ids
    assert second > first


def test_a_job_that_has_expired_but_cannot_be_removed_holds_up_no_other(monkeypatch):
    removed = Store.remove_job

    def remove_job(store: Store, name: str, *events: object) -> None:
        if name == "first":
            out_of_space()
        removed(store, name, *events)

    def jobs(tor: Rack) -> list[str]:
        return [each.name for each in tor.stub.ListJobs(pb.ListJobsRequest()).jobs]

    with rack(1) as tor:
        with monkeypatch.context() as broken:
            broken.setattr(Store, "remove_job", remove_job)
            for name in ("first", "second"):
                create(tor, name, lease_s=1)
            eventually(lambda: jobs(tor) == ["first"])
        eventually(lambda: not jobs(tor))


def test_a_job_that_time_cannot_pass_for_holds_up_no_other(monkeypatch):
    tick = Job.tick

    def tick_others(job: Job, now: float) -> Actions:
        if job.spec.name == "first":
            raise ArithmeticError("a bug")
        return tick(job, now)

    with rack(1) as tor:
        monkeypatch.setattr(Job, "tick", tick_others)
        for name in ("first", "second"):
            create(tor, name, lease_s=1)
        eventually(
            lambda: (
                [each.name for each in tor.stub.ListJobs(pb.ListJobsRequest()).jobs] == ["first"]
            )
        )


def test_a_job_that_there_is_no_number_for_gets_no_slots(monkeypatch):
    with rack(1) as tor:
        with tor.job(1, 32), monkeypatch.context() as few:
            few.setattr(job_requests, "_LAST_ID", 1)
            with refused(NoCapacity, "there are 1 jobs, as many as there are numbers for"):
                create(tor)
        assert tor.free_slots == SLOTS


def test_a_switch_that_is_being_removed_cannot_be_added_meanwhile(monkeypatch):
    finish, tried = Supervisor.finish, []

    def try_to_add(supervisor: Supervisor) -> None:
        for name, address in ("tor", "127.0.0.1:1"), ("other", tor.switch.address):
            with refused(
                ControllerError, "the switch 'tor' at .* is being removed: try again soon"
            ):
                add_switch(tor, name, address)
            tried.append(name)
        finish(supervisor)

    with rack(1) as tor:
        with monkeypatch.context() as slow:
            slow.setattr(Supervisor, "finish", try_to_add)
            tor.stub.RemoveSwitch(pb.RemoveSwitchRequest(name="tor"))
        assert tried == ["tor", "other"]
        assert add_switch(tor, "other", tor.switch.address).reachable


def out_of_space(*_: object) -> None:
    raise ControllerError("cannot write to the disk")


def test_the_token_is_told_once_and_differs_from_job_to_job(tor: Rack):
    with tor.job(1) as one, tor.job(1) as other:
        assert len(tor.tokens[one]) >= 32
        assert tor.tokens[one] != tor.tokens[other]
        assert tor.tokens[one] not in str(tor.show(one))
