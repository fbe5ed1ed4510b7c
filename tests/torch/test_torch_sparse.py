"""Sparse all-reduces of the backend innet: the results of Gloo, and training with sparse gradients."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import Group, process_group
from racks import Rack, rack
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import innet
import innet.torch
from innet.errors import UnsupportedTensor

SIZE = 3
MINE: dict[str, Any] = {}
"""What each process keeps."""


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(2 * SIZE) as running:
        yield running


@pytest.fixture(scope="module")
def group(tor: Rack) -> Iterator[Group]:
    environments = [
        {
            "INNET_CONTROLLER": tor.controller, "INNET_LINK": link, "LOCAL_RANK": "0",
            "INNET_LOCAL_SUM": "0",
        }
        for link in tor.links[:SIZE]
    ]  # fmt: skip
    with process_group(SIZE, prepare, "innet", environments) as running:
        running.run(ready)
        yield running


def prepare() -> None:
    torch.sparse.check_sparse_tensor_invariants.enable()
    MINE["gloo"] = dist.new_group(backend="gloo")


def ready(rank: int) -> None:
    pass


def sparse(rank: int, shape: tuple[int, ...], cut: int, dtype: torch.dtype) -> torch.Tensor:
    """Return whole numbers at random indices, some twice, some zeros. Rank 1 has nothing."""
    generator = torch.Generator().manual_seed(rank)
    count = 0 if rank == 1 else 20
    heads = [torch.randint(0, size, (count,), generator=generator) for size in shape[:cut]]
    values = torch.randint(-2, 3, (count, *shape[cut:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(torch.stack(heads), values, shape)


def carriers(before: Any) -> list[str]:
    after = innet.torch.carried()
    return [way.by for way, count in after.items() if count != before.get(way)]


def both_ways(rank: int, *recipe: Any) -> tuple[bool, Any]:
    ours, gloos = sparse(rank, *recipe), sparse(rank, *recipe)
    before = innet.torch.carried()
    dist.all_reduce(ours)
    by = carriers(before)
    dist.all_reduce(gloos, group=MINE["gloo"])
    same = (
        ours.is_coalesced() == gloos.is_coalesced()
        and ours.dtype == gloos.dtype
        and torch.equal(ours.coalesce().indices(), gloos.coalesce().indices())
        and torch.equal(ours.coalesce().values(), gloos.coalesce().values())
    )
    return same, by


@pytest.mark.parametrize("shape_and_cut", [((1000, 8), 1), ((9,), 1), ((30, 7), 2), ((7, 5, 3), 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64], ids=str)
def test_whole_numbers_have_glooss_sum(group: Group, shape_and_cut, dtype: torch.dtype):
    assert group.run(both_ways, *shape_and_cut, dtype) == [(True, ["switch"])] * SIZE


def test_float64_goes_over_gloo(group: Group):
    assert group.run(both_ways, (9, 2), 1, torch.float64) == [(True, ["gloo"])] * SIZE


def averaged(rank: int) -> tuple[bool, bool]:
    mine = sparse(rank, (50, 4), 1, torch.float32)
    whole = sum(sparse(each, (50, 4), 1, torch.float32).to_dense() for each in range(SIZE)) / SIZE
    work = dist.all_reduce(mine, dist.ReduceOp.AVG, async_op=True)
    [result] = work.get_future().wait()
    return result is mine, bool(torch.allclose(mine.to_dense(), whole, rtol=1e-6))


def test_the_average_goes_through_the_switch_too(group: Group):
    assert group.run(averaged) == [(True, True)] * SIZE


def halves(rank: int, dtype: torch.dtype) -> tuple[bool, bool]:
    mine = sparse(rank, (50, 4), 1, torch.float32).to(dtype)
    whole = sum(sparse(each, (50, 4), 1, torch.float32).to_dense() for each in range(SIZE))
    dist.all_reduce(mine)
    return mine.dtype == dtype, torch.equal(mine.float().to_dense(), whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_travel_as_float32_which_gloo_does_not_do(group: Group, dtype: torch.dtype):
    assert group.run(halves, dtype) == [(True, True)] * SIZE


def nothing(rank: int) -> tuple[int, list[int]]:
    mine = sparse(1, (50, 4), 1, torch.float32)
    dist.all_reduce(mine)
    return mine._nnz(), list(mine.shape)


def test_of_nothing_nothing_is_left(group: Group):
    assert group.run(nothing) == [(0, [50, 4])] * SIZE


def trained(rank: int, backend: str) -> list[float]:
    """Train an embedding with sparse gradients, and return the parameters."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.EmbeddingBag(500, 16, sparse=True), nn.Linear(16, 2))
    replica = DistributedDataParallel(model, process_group=MINE["gloo"] if backend else None)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(rank)
    before = innet.torch.carried()
    for _ in range(5):
        optimizer.zero_grad()
        words = torch.randint(0, 500, (8, 3), generator=generator)
        loss = nn.functional.cross_entropy(replica(words), words[:, 0] % 2)
        loss.backward()
        assert model[0].weight.grad.is_sparse
        optimizer.step()
    if not backend:
        assert set(carriers(before)) == {"switch"}, innet.torch.carried()
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()


def test_ddp_with_sparse_gradients_trains_as_over_gloo(group: Group):
    through_switch, over_gloo = group.run(trained, ""), group.run(trained, "gloo")
    assert through_switch[0] == through_switch[1] == through_switch[2]
    torch.testing.assert_close(
        torch.tensor(through_switch[0]), torch.tensor(over_gloo[0]), rtol=1e-5, atol=1e-6
    )


def hooked(rank: int, tor: str, job: str, token: str, link: str) -> dict[str, Any]:
    """Train an embedding with dense gradients by the hook. Return parameters and bytes by quantizer."""
    found = {}
    with innet.join(tor, job, rank, link, token=token) as agent:
        for quantizer in ("int32", "int32+blocks", "int32+topk:0.02"):
            torch.manual_seed(1)
            model = nn.Sequential(nn.EmbeddingBag(2000, 64), nn.Linear(64, 2))
            replica = DistributedDataParallel(model, process_group=MINE["gloo"])
            replica.register_comm_hook((agent, quantizer), innet.ddp_hook)
            optimizer = torch.optim.SGD(replica.parameters(), lr=0.5)
            generator = torch.Generator().manual_seed(rank)
            before = agent.traffic.bytes_sent
            for _ in range(4):
                optimizer.zero_grad()
                words = torch.randint(0, 2000, (8, 3), generator=generator)
                nn.functional.cross_entropy(replica(words), words[:, 0] % 2).backward()
                optimizer.step()
            parameters = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
            found[quantizer] = parameters.tolist(), agent.traffic.bytes_sent - before
    return found


def test_the_hook_sends_the_blocks_that_have_gradients(group: Group, tor: Rack):
    with tor.job(SIZE) as job:
        for rank, link in enumerate(tor.links[SIZE:]):
            arguments = tor.controller, job, tor.tokens[job], link
            group.start(hooked, *arguments, ranks=[rank])
        found = group.results()
    for each in found:
        assert not isinstance(each, Exception), each
        (dense, all_bytes), (sparse_ones, some_bytes), (_, fewer_bytes) = each.values()
        assert sparse_ones == dense  # the same bits
        assert some_bytes < all_bytes / 5
        assert fewer_bytes < some_bytes
        assert {name: parameters for name, (parameters, _) in each.items()} == {
            name: parameters for name, (parameters, _) in found[0].items()
        }


def hooked_sparse(rank: int, tor: str, job: str, token: str, link: str) -> tuple[bool, Any, Any]:
    """Return the sparse gradient of a model with the hook, and that of a model without."""
    found = []
    with innet.join(tor, job, rank, link, token=token) as agent:
        for with_hook in (True, False):
            torch.manual_seed(1)
            model = nn.Sequential(nn.EmbeddingBag(500, 16, sparse=True), nn.Linear(16, 2))
            replica = DistributedDataParallel(model, process_group=MINE["gloo"])
            if with_hook:
                replica.register_comm_hook(agent, innet.ddp_hook)
            words = torch.randint(0, 500, (8, 3), generator=torch.Generator().manual_seed(rank))
            nn.functional.cross_entropy(replica(words), words[:, 0] % 2).backward()
            found.append(model[0].weight.grad)
    return found[0].is_sparse, found[0].to_dense().tolist(), found[1].to_dense().tolist()


def test_the_hook_takes_sparse_gradients(group: Group, tor: Rack):
    with tor.job(SIZE) as job:
        for rank, link in enumerate(tor.links[SIZE:]):
            arguments = tor.controller, job, tor.tokens[job], link
            group.start(hooked_sparse, *arguments, ranks=[rank])
        for is_sparse, by_hook, over_gloo in group.results():
            assert is_sparse
            torch.testing.assert_close(torch.tensor(by_hook), torch.tensor(over_gloo))


def refused(rank: int, tor: str, job: str, token: str, link: str) -> str:
    with innet.join(tor, job, rank, link, token=token) as agent:
        try:
            agent.all_reduce(torch.eye(3).double().to_sparse())
        except UnsupportedTensor as problem:
            return str(problem)
    return ""


def test_without_a_fallback_other_dtypes_are_refused(group: Group, tor: Rack):
    with tor.job(SIZE) as job:
        for rank, link in enumerate(tor.links[SIZE:]):
            arguments = tor.controller, job, tor.tokens[job], link
            group.start(refused, *arguments, ranks=[rank])
        assert all("join with a fallback" in said for said in group.results())
