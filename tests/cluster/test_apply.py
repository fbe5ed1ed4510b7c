"""``innet apply`` with a real controller and real switches."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from commands import refuse, run, run_on_full_disk, serving
from stored_records import SWITCH
from switches import running_switch
from told import Told

from innet.cluster.file import ClusterFile, load
from innet.cluster.plan import plan
from innet.controller.state.messages import job_view, switch_view
from innet.errors import UsageError
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import MOST_WORKERS

RING = """
switches:
  a: {address: x, ports: 1, uplinks: ["b:1:1"]}
  b: {address: x, ports: 1, uplinks: ["a:1:1"]}
"""
LOST_JOB = """
switches: {a: {address: x, ports: 1}}
jobs: {j: {switch: b, workers: 2, token_file: t}}
"""


@dataclass
class Cluster:
    """A controller, the addresses of two switches, and the file that describes them."""

    controller: str
    path: Path
    content: dict

    def write(self) -> None:
        self.path.write_text(yaml.safe_dump(self.content))

    def apply(self, *options: str) -> list[str]:
        """Return the lines that the command prints."""
        self.write()
        arguments = ["apply", str(self.path), *options, "--controller", self.controller]
        done = run("innet", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_switch(4) as spine, running_switch(4) as left, serving() as (_, controller):
        content = {
            "switches": {
                "left": {
                    "address": left.address, "ports": "1-4", "lanes": 64, "uplinks": ["spine:4:4"],
                },
                "spine": {"address": spine.address, "ports": "1,2,4", "lanes": 64},
            },
            "jobs": {
                "train": {
                    "switch": "spine", "workers": 2, "slots": 32,
                    "token_file": str(tmp_path / "train.token"),
                },
            },
        }  # fmt: skip
        yield Cluster(controller, tmp_path / "cluster.yaml", content)


def test_a_cluster_is_made_changed_and_taken_down_as_its_file_says(cluster: Cluster):
    path = cluster.path.parent / "train.token"
    made = cluster.apply("--dry-run")
    assert [line.split(" at ")[0] for line in made] == [
        "+ switch spine", "+ switch left",
        f"+ job train on spine: 2 workers, token in {path}",
    ]  # fmt: skip
    assert not path.exists()
    assert cluster.apply() == made
    assert len(path.read_text()) > 20
    assert path.stat().st_mode & 0o777 == 0o600
    assert cluster.apply() == ["all is as the file says"]

    cluster.content["switches"]["left"]["ports"] = [1, 4]
    changed = ["~ switch left: ports 1,2,3,4 become 1,4"]
    assert cluster.apply("--dry-run") == changed
    assert cluster.apply() == changed
    assert cluster.apply() == ["all is as the file says"]

    del cluster.content["jobs"], cluster.content["switches"]["left"]
    assert cluster.apply() == ["all is as the file says"]
    assert cluster.apply("--prune") == ["- job train", "- switch left"]
    assert cluster.apply("--prune") == ["all is as the file says"]


def test_quotas_are_set_changed_and_removed_as_the_file_says(cluster: Cluster):
    cluster.content = {
        "switches": {}, "quotas": {"alice": {"jobs": 4, "slots": 256}, "*": {"workers": 16}},
    }  # fmt: skip
    made = ["+ quota of *: 16 workers", "+ quota of alice: 4 jobs, 256 slots"]
    assert cluster.apply("--dry-run") == made
    assert cluster.apply() == made
    assert cluster.apply() == ["all is as the file says"]
    cluster.content["quotas"] = {"alice": {"jobs": 2}}
    assert cluster.apply() == ["~ quota of alice: 2 jobs"]
    assert cluster.apply("--prune") == ["- quota of *"]
    cluster.content["quotas"] = {"alice": {}}
    assert cluster.apply() == ["- quota of alice"]
    assert cluster.apply("--prune") == ["all is as the file says"]


def test_a_parent_is_removed_after_the_uplinks_to_it():
    """The steps only: what the controller has, and a file without two of the spines and the core."""
    uplinks = {
        "leaf": ["left", "right"],
        "left": ["core"],
        "right": ["core"],
        "core": [],
        "old": [],
    }
    switches = {
        name: pb.Switch(
            name=name, grpc_address=name, ports=[1, 2, 3], lanes=256, target="bmv2",
            uplinks=[pb.Uplink(parent=up, port=port, parent_port=port) for port, up in enumerate(ups, 1)],
        )
        for name, ups in uplinks.items()
    }  # fmt: skip
    kept = {name: {"address": name, "ports": "1-3"} for name in ("leaf", "left")}
    kept["leaf"]["uplinks"] = ["left:1:1"]
    file = ClusterFile.model_validate({"switches": kept})
    assert [step.line for step in plan(file, switches, {}, {}, prune=True)] == [
        "- switch old",
        "~ switch left: uplinks core:1:1 become none",
        "~ switch leaf: uplinks left:1:1,right:2:2 become left:1:1",
        "- switch right",
        "- switch core",
    ]


def test_what_cannot_be_changed_in_place_is_refused_before_anything_is_done(cluster: Cluster):
    cluster.apply()
    cluster.content["switches"]["left"]["lanes"] = 256
    cluster.content["switches"]["left"]["ports"] = [1]
    cluster.content["jobs"]["train"]["workers"] = 3
    cluster.write()
    arguments = ["apply", str(cluster.path), "--controller", cluster.controller]
    done = run("innet", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: the switch 'left' has lanes 64, not 256: remove it first with `innet switch remove left`",
        "the job 'train' has workers 2, not 3: delete it first with `innet job delete train`",
        "the job 'train' has quorum 2, not 3: delete it first with `innet job delete train`",
        "the job 'train' has min_workers 2, not 3: delete it first with `innet job delete train`",
    ]


def one_job(told: Told, switch: dict, **fields: object) -> list[str]:
    """Return the steps from a job at a switch to a file with the switch and the job."""
    found = pb.Switch(name="tor", grpc_address="x", ports=[1], lanes=64, target="bmv2")
    job = {"switch": "tor", "workers": 4, "min_workers": 2, "token_file": "t", **fields}
    switch = {"address": "x", "ports": 1, "lanes": 64, **switch}
    file = ClusterFile.model_validate({"switches": {"tor": switch}, "jobs": {"job": job}})
    steps = plan(file, {"tor": found}, {"job": job_view(told.job, 64, 8.0, told.now)}, {})
    return [step.line for step in steps]


def test_a_job_that_a_worker_has_left_is_as_the_file_says():
    told = Told(workers=4, min_workers=2)
    told.switch_changed(None)
    told.seat(0, 1, 2, 3)
    told.do("leave", 103, "it has left the job")
    assert told.job.roster.quorum == 3
    assert not one_job(told, {})


@pytest.mark.parametrize(
    ("switch", "job", "why"),
    [
        ({}, {"min_workers": 3}, "the job 'job' has min_workers 2, not 3"),
        ({}, {"min_workers": 0}, "the job 'job' has min_workers 2, not 4"),
        ({}, {"lease": 60}, "the job 'job' has lease 3600, not 60"),
        ({}, {"quorum": 3}, "the job 'job' has quorum 4, not 3"),
        ({"insecure": True}, {}, "the switch 'tor' has insecure False, not True"),
        ({"artifact": "/srv/new"}, {}, "the switch 'tor' has artifact none, not /srv/new"),
    ],
)
def test_no_difference_from_the_file_is_overlooked(switch: dict, job: dict, why: str):
    told = Told(workers=4, min_workers=2)
    with pytest.raises(UsageError, match=why):
        one_job(told, switch, **job)


def test_the_controller_tells_the_artifact_of_a_switch():
    record = replace(SWITCH, target="tofino", artifact="/srv/tofino")
    assert switch_view(record, 16, 16, reachable=True).artifact == "/srv/tofino"


def test_a_job_of_one_worker_is_announced_in_the_singular():
    job = {"switch": "tor", "workers": 1, "token_file": "t"}
    switch = {"address": "x", "ports": 1}
    file = ClusterFile.model_validate({"switches": {"tor": switch}, "jobs": {"job": job}})
    *_, step = plan(file, {}, {}, {})
    assert step.line == "+ job job on tor: 1 worker, token in t"


def test_a_job_that_waits_for_other_slots_than_the_files_is_no_match():
    told = Told(workers=4, min_workers=2, slot_range=None)
    assert not one_job(told, {}, slots=8)
    with pytest.raises(UsageError, match="the job 'job' has slots 8, not 16"):
        one_job(told, {}, slots=16)


def test_a_failing_step_leaves_those_before_it_and_no_token(cluster: Cluster):
    cluster.content["jobs"]["train"]["workers"] = MOST_WORKERS + 1
    cluster.write()
    arguments = ["apply", str(cluster.path), "--controller", cluster.controller]
    done = run("innet", *arguments)
    assert done.returncode == 2
    assert [line[:14] for line in done.stdout.splitlines()] == ["+ switch spine", "+ switch left "]
    assert "cannot carry out '+ job train on spine" in done.stderr
    assert not (cluster.path.parent / "train.token").exists()
    cluster.content["jobs"]["train"]["workers"] = 2
    [line] = cluster.apply()
    assert line.startswith("+ job train")


def test_a_job_whose_token_does_not_fit_the_disk_is_created_by_the_next_apply(cluster: Cluster):
    cluster.write()
    arguments = ["apply", str(cluster.path), "--controller", cluster.controller]
    done = run_on_full_disk("innet", *arguments)
    assert done.returncode == 2
    assert "train.token: File too large" in done.stderr
    [line] = cluster.apply()
    assert line.startswith("+ job train")


@pytest.mark.parametrize("lanes", [64, 256, 1024])
def test_a_switch_may_have_any_number_of_lanes_that_innet_switch_add_takes(lanes: int):
    switch = {"address": "x", "ports": 1, "lanes": lanes}
    assert ClusterFile.model_validate({"switches": {"tor": switch}}).switches["tor"].lanes == lanes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- a", "a cluster file has switches and jobs"),
        ("switches: {a: {address: x, ports: 1-0}}", r":1: .*ports.*write them as in 1-4,7"),
        ("switches:\n a: {address: x, ports: 1, colour: red}", r":2: .*colour: .*unknown"),
        ("switches: {'a b': {address: x, ports: 1}}", "'a b' is not a name"),
        ("switches: {a: {address: x, ports: 1, uplinks: [b]}}", "PARENT:PORT:PARENT_PORT"),
        ("switches: {a: {address: x, ports: 1, uplinks: ['b:1:1']}}", "'b', which is not in"),
        (
            "switches: {}\njobs:\n  j: {workers: 2}\n  j: {workers: 4}",
            ":4: 'j' is there twice: keep one",
        ),
        ("switches: {}\njobs: {}\nswitches: {}", ":3: 'switches' is there twice: keep one"),
        (RING, "the uplinks form a cycle"),
        (LOST_JOB, "'b', which is not in switches"),
        ("switches: {a: {address: x, ports: -1}}", "ports.*greater than or equal to 0"),
        ("switches: {a: {address: x, ports: [4294967296]}}", "ports.*less than 4294967296"),
        (LOST_JOB.replace("2", "4294967296"), "workers.*less than 4294967296"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(tmp_path: Path, text: str, why: str):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        load(path)


def test_a_file_that_is_not_there_ends_with_code_2(tmp_path: Path):
    refuse("cannot read", "innet", "apply", str(tmp_path / "none.yaml"))
