"""Groups over several nodes: the ranks of a node sum in shared memory first, with the same bits."""

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from commands import run
from processes import Group, process_group
from racks import Rack, rack
from structlog.testing import capture_logs
from waiting import WITHIN, until

import innet.torch
from innet.controller.state.registry import Policy
from innet.errors import NeighbourLost, UsageError, WorkersMissing
from innet.host.agent import leave_jobs
from innet.host.node import Place
from innet.local.rack import local_rack
from innet.observe.overview import read_overview
from innet.rpc import innet_pb2 as pb
from innet.torch.nodes import Nodes

SIZE, NODES = 4, 2
CABLES = 2


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE * CABLES) as running:
        yield running


@contextlib.contextmanager
def ranks(tor: Rack, nodes: str = "0011", **more: str) -> Iterator[Group]:
    """Yield a group. `nodes` has the number of each rank's node, as torchrun gives it."""
    links = ["+".join(tor.links[rank :: len(nodes)]) for rank in range(len(nodes))]
    environments = [
        {
            "INNET_CONTROLLER": tor.controller, "INNET_LINK": links[rank], "LOCAL_RANK": str(rank),
            "GROUP_RANK": node, **more,
        }
        for rank, node in enumerate(nodes)
    ]  # fmt: skip
    with process_group(len(nodes), prepare, "innet", environments) as running:
        yield running


SEVERAL, ONE, NONE = "0011", "0000", "0123"


@pytest.fixture(scope="module", params=[SEVERAL, ONE])
def group(tor: Rack, request: pytest.FixtureRequest) -> Iterator[Group]:
    with ranks(tor, request.param) as running:
        yield running


def prepare() -> None:
    pass


def summed(rank: int, size: int = 300) -> list[float]:
    tensor = torch.full((size,), rank + 1.0)
    dist.all_reduce(tensor)
    return tensor.unique().tolist()


def workers_of_jobs(tor: Rack) -> list[int]:
    """Return the number of workers of each job that has any."""
    return [job.workers for job in tor.stub.ListJobs(pb.ListJobsRequest()).jobs if job.joined]


@pytest.mark.parametrize(
    ("nodes", "more", "workers"),
    [
        ("0011", {}, [2, 2]),
        ("0101", {}, [2, 2]),
        ("0011", {"INNET_LOCAL_SUM": "1", "INNET_SLOTS": "32"}, [2, 2]),
        ("0011", {"INNET_LOCAL_SUM": "0"}, [4]),
        ("0000", {}, [4]),
        ("0001", {}, [4]),
        ("0123", {}, [4]),
    ],
)
def test_a_group_has_a_job_for_each_slice_if_that_saves_anything(
    nodes: str, more: dict[str, str], workers: list[int]
):
    with rack(SIZE) as tor, ranks(tor, nodes, **more) as group:
        assert group.run(summed) == [[10.0]] * SIZE
        assert workers_of_jobs(tor) == workers
        slots = [job.slots for job in tor.stub.ListJobs(pb.ListJobsRequest()).jobs]
        every = int(more.get("INNET_SLOTS", "128"))
        assert sum(slots) == (1 if nodes == ONE else every)


def test_a_job_that_the_user_created_has_a_worker_for_each_rank():
    with rack(SIZE) as tor, tor.job(SIZE) as job:
        token = {"INNET_JOB": job, "INNET_TOKEN": tor.tokens[job]}
        with ranks(tor, **token) as group:
            assert group.run(summed) == [[10.0]] * SIZE
            assert workers_of_jobs(tor) == [SIZE]


def test_without_room_for_a_job_for_each_slice_there_is_one():
    policy = Policy(lease_s=WITHIN, most_jobs=1)
    with rack(SIZE, policy=policy) as tor, ranks(tor) as group:
        assert group.run(summed) == [[10.0]] * SIZE
        assert workers_of_jobs(tor) == [SIZE]


def logged(_: int, **more: str) -> list[str]:
    """Return what the log says while another group of these ranks is made."""
    said: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    log, handler = logging.getLogger("innet"), Lines()
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    os.environ.update(more)
    try:
        dist.new_group(backend="innet")
    finally:
        log.removeHandler(handler)
        for name in more:
            del os.environ[name]
    return [line for line in said if "contributes for itself" in line or "one node" in line]


def test_the_log_of_rank_0_tells_why_every_rank_contributes_for_itself():
    policy = Policy(lease_s=WITHIN, most_jobs=3)
    with rack(SIZE, policy=policy) as tor, ranks(tor) as group:
        [line], *others = group.run(partial(logged, INNET_LOCAL_SUM="0"))
        assert line.endswith("INNET_LOCAL_SUM is 0")
        assert others == [[]] * (SIZE - 1)
    with rack(SIZE, policy=policy) as tor, ranks(tor) as group:
        # The first group has two jobs, so there is room for one.
        [line], *others = group.run(logged)
        assert "there is no room for a job for each slice" in line
        assert others == [[]] * (SIZE - 1)


def test_the_log_of_rank_0_tells_that_one_node_has_all_ranks():
    with rack(SIZE * CABLES) as tor, ranks(tor, ONE) as group:
        [line], *others = group.run(logged)
        assert "all ranks are on one node" in line
        assert others == [[]] * (SIZE - 1)


def carriers(rank: int) -> set[str]:
    """Return the carriers of the calls that this process has made."""
    summed(rank, 100_000)
    dist.barrier()
    found = [torch.zeros(50_000) for _ in range(SIZE)]
    dist.all_gather(found, torch.full((50_000,), float(rank)))
    assert [each.unique().tolist() for each in found] == [[0.0], [1.0], [2.0], [3.0]]
    return {way.by for way in innet.torch.carried()}


def sent(rank: int) -> int:
    return innet.torch.backend_of(dist.group.WORLD)._membership.agent.traffic.packets_sent


@pytest.mark.parametrize(
    ("nodes", "carrier", "jobs"), [(SEVERAL, "switch", [2] * 4), (ONE, "node", [4])]
)
def test_one_node_with_all_ranks_sends_nothing_and_needs_no_second_job(
    nodes: str, carrier: str, jobs: list[int]
):
    with rack(SIZE * CABLES) as tor, ranks(tor, nodes, INNET_GATHER_JOB="1") as group:
        assert group.run(carriers) == [{carrier}] * SIZE
        assert [packets > 0 for packets in group.run(sent)] == [nodes == SEVERAL] * SIZE
        assert workers_of_jobs(tor) == jobs


def refused(rank: int) -> str:
    os.environ["INNET_LOCAL_SUM"] = "yes"
    try:
        dist.new_group(backend="innet")
    except UsageError as problem:
        return str(problem)
    finally:
        del os.environ["INNET_LOCAL_SUM"]
    return ""


def test_a_wrong_setting_is_refused_on_every_rank(group: Group):
    for said in group.run(refused):
        assert "INNET_LOCAL_SUM is 'yes': it has to be 0 or 1" in said


_plain: list[Any] = []


def plain_group() -> Any:
    """Return a group of the same ranks in which each contributes for itself."""
    if not _plain:
        os.environ["INNET_LOCAL_SUM"] = "0"
        _plain.append(dist.new_group(backend="innet"))
        del os.environ["INNET_LOCAL_SUM"]
    return _plain[0]


def both_ways(rank: int, dtype: torch.dtype, op: Any, size: int) -> list[Any]:
    """Return whether both groups give the same bits, and the bytes that each has sent for it."""
    generator = torch.Generator().manual_seed(rank)
    values = (torch.randn(size, generator=generator) * 1000).to(dtype)
    values[: size // 100] *= 10**6 if dtype.is_floating_point else 1
    results, sent = [], []
    for group in (dist.group.WORLD, plain_group()):
        mine, agent = values.clone(), innet.torch.backend_of(group)._membership.agent
        before = agent.traffic.bytes_sent
        dist.all_reduce(mine, op, group)
        results.append(mine)
        sent.append(agent.traffic.bytes_sent - before)
    return [torch.equal(*results), *sent]


@pytest.mark.parametrize("size", [1, 300, 100_000])
@pytest.mark.parametrize(
    ("dtype", "op"),
    [
        (torch.float32, dist.ReduceOp.SUM),
        (torch.float32, dist.ReduceOp.MAX),
        (torch.bfloat16, dist.ReduceOp.AVG),
        (torch.int64, dist.ReduceOp.SUM),
    ],
    ids=str,
)
def test_the_bits_are_those_of_every_rank_for_itself(
    group: Group, dtype: torch.dtype, op: Any, size: int
):
    assert [same for same, *_ in group.run(both_ways, dtype, op, size)] == [True] * SIZE


def test_a_node_sends_its_ranks_share_of_the_bytes(group: Group, request: pytest.FixtureRequest):
    group.run(both_ways, torch.float32, dist.ReduceOp.SUM, 64)
    found = group.run(both_ways, torch.float32, dist.ReduceOp.SUM, 400_000)
    if request.node.callspec.params["group"] == ONE:
        assert [with_it for _, with_it, _ in found] == [0] * SIZE
        return
    for node in (found[:2], found[2:]):
        with_it, without = (sum(sent) for sent in list(zip(*node, strict=True))[1:])
        assert with_it == pytest.approx(without / 2, rel=0.2)  # a lost packet is sent again


def with_a_child(rank: int) -> int:
    """Leave a child behind that has copies of this process's connections."""
    return os.fork() or signal.pause() or 0


def failing(rank: int) -> BaseException | None:
    try:
        summed(rank, 100_000)
    except Exception as problem:  # noqa: BLE001 - the test looks at it
        return problem
    return None


def over_gloo(rank: int) -> BaseException | None:
    """Make a call that Gloo carries."""
    parts = [torch.ones(1000) for _ in range(SIZE)]
    try:
        dist.all_to_all([torch.empty(1000) for _ in range(SIZE)], parts)
    except RuntimeError as problem:
        return problem
    return None


@pytest.mark.parametrize("nodes", [ONE, NONE])
def test_a_killed_rank_ends_the_calls_over_gloo_while_its_child_lives(nodes: str):
    with rack(SIZE) as tor, ranks(tor, nodes) as group:
        assert group.run(over_gloo) == [None] * SIZE
        group.start(with_a_child, ranks=[1])
        [child] = group.results([1])
        try:
            others = [0, 2, 3]
            group.start(over_gloo, ranks=others)
            group.processes[1].kill()
            assert all(group.results(others))
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("victim", [0, 3])
@pytest.mark.parametrize("nodes", [SEVERAL, ONE, NONE])
def test_a_killed_rank_ends_the_calls_of_all_others(nodes: str, victim: int):
    others = [rank for rank in range(SIZE) if rank != victim]
    with rack(SIZE) as tor, ranks(tor, nodes) as group:
        group.run(summed)
        group.start(with_a_child, ranks=[victim])
        [child] = group.results([victim])
        try:
            group.start(failing, ranks=others)
            group.processes[victim].kill()
            errors = dict(zip(others, group.results(others), strict=True))
        finally:
            os.kill(child, signal.SIGKILL)
    neighbours = [rank for rank in others if nodes[rank] == nodes[victim]]
    assert all(type(errors[rank]) is NeighbourLost for rank in neighbours)
    assert all(isinstance(each, WorkersMissing) for each in errors.values())
    assert all(f"worker {victim}" in str(each) for each in errors.values())


@pytest.mark.parametrize("victim", [1, 3])
def test_the_controller_names_a_killed_rank_as_the_other_ranks_do(victim: int):
    others = [rank for rank in range(SIZE) if rank != victim]
    with capture_logs() as log, rack(SIZE) as tor, ranks(tor) as group:
        group.run(summed)
        joined = {line["rank"]: line["job"] for line in log if line["event"] == "worker joined"}
        group.start(failing, ranks=others)
        group.processes[victim].kill()
        errors = group.results(others)
        job = joined[victim]
        until(lambda: left_first(log, job) is not None)
        shown = run("innet", "job", "show", job, "--json", "--controller", tor.controller)
        told = run("innet", "job", "history", job, "--json", "--controller", tor.controller)
        seen = read_overview(tor.stub, job)
    assert sorted(joined) == [*range(SIZE)]
    assert joined[0] == joined[2] != joined[1] == joined[3]
    assert all(f"worker {victim}" in str(error) for error in errors)
    assert left_first(log, job) == victim
    assert json.loads(shown.stdout)["departures"][0]["rank"] == victim
    left = [each for each in json.loads(told.stdout) if each["event"] == "worker left"]
    assert left[0]["ranks"] == [victim]
    assert seen.samples[0].job.departures[0].rank == victim


def left_first(log: list[Any], job: str) -> int | None:
    left = (line["rank"] for line in log if line["event"] == "worker left" and line["job"] == job)
    return next(left, None)


def ending(rank: int, pending: bool) -> None:
    """End as a script does that has raised an exception."""
    if pending:
        dist.all_reduce(torch.ones(100_000), async_op=True)
    sys.last_value = ValueError("no more data")
    leave_jobs()
    os._exit(1)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("nodes", [SEVERAL, ONE])
def test_all_ranks_see_the_exception_that_ended_a_ranks_program(nodes: str, pending: bool):
    others = [0, 1, 2]
    with rack(SIZE) as tor, ranks(tor, nodes) as group:
        group.run(summed)
        group.start(failing, ranks=others)
        group.start(ending, pending, ranks=[3])
        errors = group.results(others)
    for error in errors:
        assert "worker 3" in str(error)
        assert "ValueError" in str(error)
        assert "no more data" in str(error)


def ending_at_once(rank: int, folder: Path) -> None:
    """Note the error of a sum, and end at once."""
    problem = failing(rank)
    (folder / str(rank)).write_text(str(problem))
    os._exit(1)


def test_all_ranks_name_the_first_to_end_although_the_others_end_at_once(tmp_path: Path):
    nodes = "001122"
    with rack(len(nodes)) as tor, ranks(tor, nodes) as group:
        group.run(summed)
        others = [0, 1, 2, 4, 5]
        group.start(ending_at_once, tmp_path, ranks=others)
        group.processes[3].kill()
        for rank in others:
            group.processes[rank].join(WITHIN)
    for rank in others:
        assert "worker 3" in (tmp_path / str(rank)).read_text()


@pytest.mark.parametrize("nodes", [SEVERAL, ONE])
def test_without_the_switch_the_bits_stay_the_same(nodes: str):
    with local_rack(SIZE * CABLES, slots=32) as rack:
        links = ["+".join(rack.links[rank::SIZE]) for rank in range(SIZE)]
        environments = [
            {
                **rack.environment, "INNET_JOB": "", "INNET_LINK": link,
                "GROUP_RANK": nodes[rank], "INNET_LOCAL_SUM": "1",
            }
            for rank, link in enumerate(links)
        ]  # fmt: skip
        with process_group(SIZE, prepare, "innet", environments) as group:
            first = group.run(trained, 3)
            rack.switch.kill()
            second = group.run(trained, 3)
            assert group.run(fallbacks) == [nodes == SEVERAL] * SIZE
    assert first == second
    assert len(set(first)) == 1


def trained(rank: int, steps: int) -> bytes:
    """Return the bits of a few rounded sums, each of which depends on the one before."""
    tensor = torch.randn(20_000, generator=torch.Generator().manual_seed(rank))
    for _ in range(steps):
        own = tensor * (rank + 1)
        dist.all_reduce(own, dist.ReduceOp.AVG)
        tensor = own.sin()
    dist.barrier()
    return tensor.numpy().tobytes()


def fallbacks(rank: int) -> bool:
    return innet.torch.backend_of(dist.group.WORLD)._membership.agent.fallbacks.get("switch", 0) > 0


def test_nodes_of_equal_size_are_found_by_name():
    nodes, reason = Nodes.of(["a", "b", "c", "b", "c", "a"])
    assert (nodes, reason) == (Nodes([[0, 5], [1, 3], [2, 4]]), "")
    assert nodes.jobs == [[0, 1, 2], [5, 3, 4]]
    assert nodes.place(4) == Place([2, 4], 1, 6, [5, 3, 4])
    assert not nodes.place(4).has_all


def test_one_node_with_all_ranks_has_one_job():
    nodes, reason = Nodes.of(["a", "a", "a"])
    assert (nodes, reason) == (Nodes([[0, 1, 2]]), "")
    assert nodes.jobs == [[0, 1, 2]]
    assert nodes.place(1) == Place([0, 1, 2], 1, 3, [0, 1, 2])
    assert nodes.place(1).has_all


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a", "a", "b"], "the nodes have between 1 and 2 ranks"),
        (["a", "b"], ""),
    ],
)
def test_otherwise_there_is_a_reason(names: list[str], reason: str):
    assert Nodes.of(names) == (None, reason)
