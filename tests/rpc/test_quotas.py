"""Quotas of owners, with a real controller, a switch, and mutual TLS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import refuse, run
from secured import SecuredRack, add_switch, secured_rack
from structlog.testing import capture_logs
from waiting import until

from innet.controller.metrics import ControllerCollector
from innet.errors import NoCapacity, NotAuthorized, UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import translated


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredRack]:
    with secured_rack(tmp_path_factory.mktemp("rack") / "tls") as made, made.serving():
        add_switch(made)
        yield made


@pytest.fixture
def rack(served: SecuredRack) -> Iterator[SecuredRack]:
    """Yield the rack, and take all jobs and quotas away afterwards."""
    yield served
    with served.client("root") as stub:
        for job in stub.ListJobs(pb.ListJobsRequest()).jobs:
            stub.DeleteJob(pb.DeleteJobRequest(name=job.name))
        for quota in stub.ListQuotas(pb.ListQuotasRequest()).quotas:
            stub.SetQuota(pb.SetQuotaRequest(name=quota.name))


def give(rack: SecuredRack, name: str, who: str = "root", **most: int) -> pb.Quota:
    with rack.client(who) as stub, translated("set the quota"):
        given: pb.Quota = stub.SetQuota(pb.SetQuotaRequest(name=name, **most))
    return given


def create(
    rack: SecuredRack, who: str, job: str, slots: int = 4, workers: int = 1, **more: Any
) -> None:
    request = pb.CreateJobRequest(name=job, switch="tor", workers=workers, slots=slots, **more)
    with rack.client(who) as stub, translated("create the job"):
        stub.CreateJob(request)


def delete(rack: SecuredRack, job: str) -> None:
    with rack.client("root") as stub, translated("delete the job"):
        stub.DeleteJob(pb.DeleteJobRequest(name=job))


def show(rack: SecuredRack, job: str) -> pb.Job:
    with rack.client("root") as stub, translated("show the job"):
        shown: pb.Job = stub.GetJob(pb.GetJobRequest(name=job))
    return shown


def quotas(rack: SecuredRack, who: str) -> dict[str, tuple[int, ...]]:
    """Return jobs, slots and workers in use, by owner."""
    with rack.client(who) as stub:
        found = stub.ListQuotas(pb.ListQuotasRequest()).quotas
    return {each.name: (each.jobs, each.slots, each.workers) for each in found}


@pytest.mark.parametrize(
    ("most", "first", "second", "why"),
    [
        ({"most_jobs": 1}, {}, {}, "1 jobs, and 1 are in use: there is no room for 1 more"),
        ({"most_slots": 8}, {}, {"slots": 8}, "8 slots, and 4 are in use: there is no room for 8 more"),
        ({"most_workers": 3}, {"workers": 2}, {"workers": 2},
         "3 workers, and 2 are in use: there is no room for 2 more"),
    ],
)  # fmt: skip
def test_a_job_above_a_quota_is_refused_with_the_quota_and_its_use(rack, most, first, second, why):
    give(rack, "alice", **most)
    create(rack, "alice", "one", **first)
    with pytest.raises(NoCapacity, match=f"the quota of 'alice' is {why}"):
        create(rack, "alice", "two", **second)
    create(rack, "bob", "others", **second)  # it is alice's alone
    delete(rack, "one")
    create(rack, "alice", "two", **second)


def test_a_job_within_its_quota_is_made_up_to_the_last_slot(rack: SecuredRack):
    give(rack, "alice", most_slots=8, most_jobs=2, most_workers=2)
    create(rack, "alice", "one")
    create(rack, "alice", "two")
    assert quotas(rack, "alice") == {"alice": (2, 8, 2)}


def test_a_job_that_queues_waits_for_room_in_its_quota_and_holds_up_nobody(rack: SecuredRack):
    give(rack, "alice", most_slots=4)
    create(rack, "alice", "one")
    create(rack, "alice", "two", queue=True)
    waits = show(rack, "two")
    assert (waits.slots, quotas(rack, "alice")) == (0, {"alice": (2, 4, 1)})
    assert waits.reason.startswith("the quota of 'alice' is 4 slots, and 4 are in use")
    create(rack, "bob", "others")
    assert show(rack, "others").slots == 4
    delete(rack, "one")
    assert (show(rack, "two").slots, quotas(rack, "alice")) == (4, {"alice": (1, 4, 1)})


def test_a_larger_quota_lets_a_waiting_job_go_on(rack: SecuredRack):
    give(rack, "alice", most_workers=1)
    create(rack, "alice", "one")
    with pytest.raises(NoCapacity, match="no room for 2 more"):
        create(rack, "alice", "never", workers=2, queue=True)
    create(rack, "alice", "two", queue=True)
    assert not show(rack, "two").slots
    give(rack, "alice", most_workers=2)
    assert show(rack, "two").slots == 4


def test_a_job_with_all_its_workers_that_waits_for_its_quota_holds_up_nobody(rack: SecuredRack):
    give(rack, "alice", most_slots=4)
    create(rack, "alice", "one")
    with rack.client("alice") as stub:
        request = pb.CreateJobRequest(name="two", switch="tor", workers=1, slots=4, queue=True)
        token = stub.CreateJob(request).token
    with rack.join("bob", "two", 0, token):
        assert [*show(rack, "two").joined] == [0]
        create(rack, "bob", "others")  # without --queue
        assert (show(rack, "two").slots, show(rack, "others").slots) == (0, 4)


def test_a_smaller_quota_ends_no_job(rack: SecuredRack):
    create(rack, "alice", "one", slots=8)
    given = give(rack, "alice", most_slots=4, most_jobs=1)
    assert (given.slots, given.most_slots) == (8, 4)
    assert show(rack, "one").slots == 8
    with pytest.raises(NoCapacity, match="1 jobs, and 1 are in use"):
        create(rack, "alice", "two", queue=True)


def test_owners_without_a_quota_of_their_own_have_the_default_one(rack: SecuredRack):
    give(rack, "*", most_slots=4)
    give(rack, "alice", most_jobs=2)
    create(rack, "alice", "large", slots=8)
    create(rack, "bob", "one")
    for who, slots in (("bob", 4), ("root", 8)):
        with pytest.raises(NoCapacity, match=f"the quota of '{who}' is 4 slots"):
            create(rack, who, "two", slots=slots)
    create(rack, "bob", "two", queue=True)
    assert not show(rack, "two").slots
    assert quotas(rack, "bob") == {"bob": (2, 4, 1)}
    give(rack, "bob", most_slots=8)
    assert show(rack, "two").slots == 4
    give(rack, "bob")
    with rack.client("root") as stub:
        found = {each.name: each for each in stub.ListQuotas(pb.ListQuotasRequest()).quotas}
    assert {name: each.by_default for name, each in found.items()} == {
        "*": False, "alice": False, "bob": True,
    }  # fmt: skip
    assert (found["bob"].slots, found["bob"].most_slots) == (8, 4)
    give(rack, "*")
    create(rack, "bob", "three", slots=8)


def test_a_quota_outlives_the_controller(tmp_path: Path):
    with secured_rack(tmp_path / "tls") as rack:
        with rack.serving(tmp_path / "state"):
            add_switch(rack)
            give(rack, "alice", most_slots=4)
            give(rack, "bob", most_slots=4)
            give(rack, "bob")
            give(rack, "*", most_jobs=1)
            create(rack, "alice", "one")
        with rack.serving(tmp_path / "state"):
            assert quotas(rack, "root") == {"*": (0, 0, 0), "alice": (1, 4, 1)}
            create(rack, "bob", "bobs")
            with pytest.raises(NoCapacity, match="the quota of 'bob' is 1 jobs, and 1 are in use"):
                create(rack, "bob", "another")
            with pytest.raises(NoCapacity, match="4 slots, and 4 are in use"):
                create(rack, "alice", "two")


def test_a_user_sees_its_own_quota_and_only_an_administrator_sets_one(rack: SecuredRack):
    give(rack, "alice", most_jobs=5)
    create(rack, "bob", "others")
    assert quotas(rack, "alice") == {"alice": (0, 0, 0)}
    everything = {"alice": (0, 0, 0), "bob": (1, 4, 1)}
    assert quotas(rack, "olivia") == quotas(rack, "root") == everything
    for who in ("alice", "olivia"):
        with pytest.raises(
            NotAuthorized, match="SetQuota needs the certificate of an administrator"
        ):
            give(rack, "alice", who)


def test_a_quota_is_in_the_audit_trail_and_in_the_log(rack: SecuredRack):
    with capture_logs() as said:
        give(rack, "alice", most_slots=4)
    [audit] = [each for each in said if each["event"] == "SetQuota"]
    assert (audit["name"], audit["who"]) == ("alice", "root (admin)")
    [line] = [each for each in said if each["event"] == "quota"]
    assert (line["owner"], line["jobs"], line["slots"], line["workers"]) == ("alice", 0, 4, 0)
    give(rack, "alice", most_slots=4)
    create(rack, "alice", "one")
    with capture_logs() as said, pytest.raises(NoCapacity):
        create(rack, "alice", "two")
    [refused] = [each for each in said if each["event"] == "CreateJob"]
    assert (refused["who"], refused["failed"]) == ("alice (user)", "RESOURCE_EXHAUSTED")
    assert "the quota of 'alice' is 4 slots" in refused["why"]


@pytest.mark.parametrize("name", ["", "a" * 65, "alice\n"])
def test_a_name_that_owns_no_jobs_gets_no_quota(rack: SecuredRack, name: str):
    with pytest.raises(UsageError, match="owns no jobs"):
        give(rack, name, most_jobs=1)


def test_metrics_have_quotas_and_their_use(rack: SecuredRack):
    give(rack, "alice", most_slots=8)
    create(rack, "alice", "one")
    assert rack.server
    found = {
        (metric.name, sample.labels["resource"]): sample.value
        for metric in ControllerCollector(rack.server.controller).collect()
        for sample in metric.samples
        if sample.labels.get("owner") == "alice"
    }
    use = "innet_controller_owner_use"
    assert found == {
        ("innet_controller_owner_quota", "slots"): 8,
        (use, "jobs"): 1, (use, "slots"): 4, (use, "workers"): 1,
    }  # fmt: skip


def test_the_commands_set_and_show_quotas(rack: SecuredRack):
    root = {"INNET_CONTROLLER": rack.address, "INNET_TLS": str(rack.folder / "root")}
    done = run("innet", "quota", "set", "alice", "--slots", "8", "--jobs", "2", **root)
    assert done.stdout == "quota of alice: jobs: 0 of 2, slots: 0 of 8, workers: 0, no limit\n"
    create(rack, "alice", "one")
    shown = run("innet", "quota", "list", **root).stdout
    assert [cell.strip() for cell in shown.splitlines()[-2].strip("│").split("│")] == [
        "alice", "1 of 2", "4 of 8", "1, no limit",
    ]  # fmt: skip
    assert json.loads(run("innet", "quota", "list", "--json", **root).stdout) == [
        {"name": "alice", "most_jobs": 2, "most_slots": 8, "most_workers": 0, "jobs": 1, "slots": 4,
         "workers": 1, "by_default": False}
    ]  # fmt: skip
    done = run("innet", "quota", "set", "--default", "--slots", "16", **root)
    assert done.stdout == "quota of all others: jobs: no limit, slots: 16 each, workers: no limit\n"
    assert "all others" in run("innet", "quota", "list", **root).stdout
    run("innet", "quota", "set", "--default", **root)
    refuse("either the name of an owner or --default", "innet", "quota", "set", "--jobs", "1")
    options = ["--controller", rack.address, "--tls", str(rack.folder / "alice")]
    create_job = ["job", "create", "two", "--switch", "tor", "--workers", "1", "--slots", "8"]
    refuse("the quota of 'alice' is 8 slots, and 4 are in use", "innet", *create_job, *options)
    run("innet", "quota", "set", "alice", **root)
    until(lambda: quotas(rack, "root") == {"alice": (1, 4, 1)})
    assert run("innet", *create_job, *options).returncode == 0
