"""All-gathers and sums under way at once: neither waits for the other without need."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from processes import Group, process_group
from racks import Rack, rack
from waiting import WITHIN

from innet.controller.state.registry import Policy
from innet.rpc import innet_pb2 as pb
from innet.torch.group import _backends

SIZE, SHARD = 3, 20_000
LANES = 64


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE * 2, policy=Policy(lease_s=WITHIN)) as running:
        yield running


@pytest.fixture(scope="module")
def group(tor: Rack) -> Iterator[Group]:
    environments = tor.environments(SIZE, INNET_GATHER_JOB="1")
    with process_group(SIZE, prepare, "innet", environments) as running:
        yield running


def prepare() -> None:
    pass


def gathered(rank: int, own: torch.Tensor) -> tuple[dist.Work, torch.Tensor]:
    whole = torch.empty(SIZE * own.numel())
    return dist.all_gather_into_tensor(whole, own, async_op=True), whole


def scattered(rank: int) -> tuple[dist.Work, torch.Tensor]:
    own = torch.empty(SHARD)
    work = dist.reduce_scatter_tensor(own, torch.full((SIZE * SHARD,), rank + 1.0), async_op=True)
    return work, own


def expected() -> torch.Tensor:
    return torch.arange(SIZE).float().repeat_interleave(SHARD)


def small(rank: int) -> bool:
    own = torch.full((4,), float(rank))
    found = torch.empty(4 * SIZE)
    dist.all_gather_into_tensor(found, own)
    return torch.equal(found, torch.arange(SIZE).float().repeat_interleave(4))


def test_small_all_gathers_need_no_job_of_their_own(tor: Rack, group: Group):
    assert group.run(small) == [True] * SIZE
    assert len(tor.stub.ListJobs(pb.ListJobsRequest()).jobs) == 1


def progress() -> list[pb.Progress]:
    """Return the counters of the group's job, and of the job of its all-gathers if it has one."""
    [group] = _backends
    memberships = group._membership, group._gathers._membership
    return [each.agent.progress() for each in memberships if each and each.agent]


def crossing(rank: int) -> tuple[bool, bool, bool]:
    """Gather while one rank has not begun the reduce-scatter that the others began before.

    Return whether the results are right, and whether the counters showed that both were under way.
    """
    own = torch.full((SHARD,), float(rank))
    if rank == 0:
        work, whole = gathered(rank, own)
        work.wait()
        at_once = True  # the others' counters tell
        sums, part = scattered(rank)
    else:
        sums, part = scattered(rank)
        work, whole = gathered(rank, own)
        work.wait()
        adding, gathering = progress()
        chunks = -(-whole.numel() // LANES)
        at_once = adding.chunks_done < chunks <= gathering.chunks_done
    sums.wait()
    return torch.equal(whole, expected()), bool((part == 6).all()), at_once


def test_an_all_gather_goes_on_while_an_earlier_sum_is_under_way(tor: Rack, group: Group):
    assert group.run(crossing) == [(True, True, True)] * SIZE
    names = sorted(job.name for job in tor.stub.ListJobs(pb.ListJobsRequest()).jobs)
    assert len(names) == 2
    assert any("gathers" in name for name in names)


def dependent(rank: int) -> bool:
    """Gather the result of a sum, and sum the result of a gather, without waiting in between."""
    own = torch.full((SHARD,), float(rank))
    first = dist.all_reduce(own, async_op=True)
    second, whole = gathered(rank, own)
    third = dist.all_reduce(whole, async_op=True)
    for work in (first, second, third):
        work.wait()
    return bool((own == 3).all()) and bool((whole == 9).all())


def test_a_call_waits_for_those_that_write_what_it_reads(group: Group):
    assert group.run(dependent) == [True] * SIZE


def over_the_switch(rank: int) -> bool:
    """Return whether none of the group's sums has taken the fallback."""
    [group] = _backends
    return not any(each.fallback_exchanges for each in progress()) and not group._membership.reason


def barred(rank: int) -> list[bool]:
    works = [gathered(rank, torch.full((SHARD,), float(rank)))[0], scattered(rank)[0]]
    dist.barrier()
    return [work.is_completed() for work in works]


def test_a_barrier_follows_both(group: Group):
    assert group.run(barred) == [[True, True]] * SIZE


@pytest.mark.parametrize("lack", ["cables", "slots"])
def test_without_another_job_all_gathers_share_that_of_the_group(lack):
    cables = 1 if lack == "cables" else 2
    with rack(SIZE * cables, policy=Policy(lease_s=WITHIN)) as tor:
        slots = str(tor.free_slots) if lack == "slots" else ""
        environments = tor.environments(SIZE, INNET_SLOTS=slots, INNET_GATHER_JOB="1")
        with process_group(SIZE, prepare, "innet", environments) as running:
            assert running.run(dependent) == [True] * SIZE
            assert len(tor.stub.ListJobs(pb.ListJobsRequest()).jobs) == 1
            assert running.run(over_the_switch) == [True] * SIZE


@pytest.mark.parametrize("lack", ["wish", "cables"])
def test_if_one_rank_has_no_other_job_all_gathers_share_that_of_the_group(lack):
    """Nodes may have different links, and so different defaults of INNET_GATHER_JOB."""
    with rack(SIZE * 2, policy=Policy(lease_s=WITHIN)) as tor:
        cables = [tor.links[rank::SIZE] for rank in range(SIZE)]
        wishes = ["1"] * SIZE
        if lack == "wish":
            wishes[1] = "0"
        else:
            cables[1].pop()
        common = {
            "INNET_CONTROLLER": tor.controller, "INNET_LINK": ",".join(map("+".join, cables)),
            "INNET_LOCAL_SUM": "0",
        }  # fmt: skip
        environments = [
            {**common, "INNET_GATHER_JOB": wish, "LOCAL_RANK": str(rank)}
            for rank, wish in enumerate(wishes)
        ]
        with process_group(SIZE, prepare, "innet", environments) as running:
            assert running.run(dependent) == [True] * SIZE
            assert running.run(over_the_switch) == [True] * SIZE
