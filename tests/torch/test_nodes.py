"""Groups over several nodes: the ranks of a node sum in shared memory first, with the same bits."""

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import Group, process_group
from racks import Rack, rack
from waiting import WITHIN

from innet.controller.state.registry import Policy
from innet.errors import NeighbourLost, UsageError, WorkersMissing
from innet.local.rack import local_rack
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
    links = ["+".join(tor.links[rank::SIZE]) for rank in range(SIZE)]
    environments = [
        {
            "INNET_CONTROLLER": tor.controller, "INNET_LINK": links[rank], "LOCAL_RANK": str(rank),
            "GROUP_RANK": node, **more,
        }
        for rank, node in enumerate(nodes)
    ]  # fmt: skip
    with process_group(len(nodes), prepare, "innet", environments) as running:
        yield running


@pytest.fixture(scope="module")
def group(tor: Rack) -> Iterator[Group]:
    with ranks(tor) as running:
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
        assert sum(slots) == int(more.get("INNET_SLOTS", "128"))


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
    return [line for line in said if "contributes for itself" in line]


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
        mine, agent = values.clone(), group._membership.agent
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


def test_a_node_sends_its_ranks_share_of_the_bytes(group: Group):
    group.run(both_ways, torch.float32, dist.ReduceOp.SUM, 64)
    found = group.run(both_ways, torch.float32, dist.ReduceOp.SUM, 400_000)
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


@pytest.mark.parametrize("victim", [0, 3])
def test_a_killed_rank_ends_the_calls_of_all_others(victim: int):
    others = [rank for rank in range(SIZE) if rank != victim]
    with rack(SIZE) as tor, ranks(tor) as group:
        group.run(summed)
        group.start(with_a_child, ranks=[victim])
        [child] = group.results([victim])
        try:
            group.start(failing, ranks=others)
            group.processes[victim].kill()
            errors = dict(zip(others, group.results(others), strict=True))
        finally:
            os.kill(child, signal.SIGKILL)
    assert type(errors[victim ^ 1]) is NeighbourLost
    assert all(isinstance(each, WorkersMissing) for each in errors.values())


def test_without_the_switch_the_bits_stay_the_same():
    with local_rack(SIZE * CABLES, slots=32) as rack:
        links = ["+".join(rack.links[rank::SIZE]) for rank in range(SIZE)]
        environments = [
            {
                **rack.environment, "INNET_JOB": "", "INNET_LINK": link, "GROUP_RANK": str(rank // 2)
            }
            for rank, link in enumerate(links)
        ]  # fmt: skip
        with process_group(SIZE, prepare, "innet", environments) as group:
            first = group.run(trained, 3)
            rack.switch.kill()
            second = group.run(trained, 3)
            assert group.run(fallbacks) == [True] * SIZE
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
    return dist.group.WORLD._membership.agent.fallbacks["switch"] > 0


def test_nodes_of_equal_size_are_found_by_name():
    nodes, reason = Nodes.of(["a", "b", "c", "b", "c", "a"])
    assert (nodes, reason) == (Nodes([[0, 5], [1, 3], [2, 4]]), "")
    assert [nodes.carriers(index) for index in range(nodes.slices)] == [[0, 1, 2], [5, 3, 4]]
    assert (nodes.number(4), nodes.place(4).index, nodes.place(4).workers) == (2, 1, 6)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a", "a", "b"], "the nodes have between 1 and 2 ranks"),
        (["a", "a"], "all ranks are on one node"),
        (["a", "b"], ""),
    ],
)
def test_otherwise_there_is_a_reason(names: list[str], reason: str):
    assert Nodes.of(names) == (None, reason)
