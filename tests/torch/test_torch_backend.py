"""The backend innet of torch.distributed: every collective is right, whatever carries it."""

import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import Group, process_group
from racks import Rack, rack
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

import innet.torch
from innet.errors import SumOverflow, TimedOut
from innet.local.ports import free_tcp_port
from innet.rpc import innet_pb2 as pb

SIZE = 2
CABLES = 3
ReduceOp = dist.ReduceOp
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE * CABLES) as running:
        yield running


@pytest.fixture(scope="module")
def group(tor: Rack) -> Iterator[Group]:
    metrics = f"127.0.0.1:{successive_ports(SIZE)}"
    with process_group(
        SIZE, prepare, "innet", tor.environments(SIZE, INNET_METRICS=metrics)
    ) as running:
        running.run(initialized)
        yield running


def successive_ports(count: int) -> int:
    """Return the first of so many free ports: every process serves at the next one."""
    ports = [free_tcp_port() for _ in range(count)]
    while ports != [*range(ports[0], ports[0] + count)]:
        ports = [*ports[1:], free_tcp_port()]
    return ports[0]


def prepare() -> None:
    pass


def initialized(rank: int) -> bool:
    return dist.is_initialized()


def jobs(tor: Rack) -> list[pb.Job]:
    return list(tor.stub.ListJobs(pb.ListJobsRequest()).jobs)


def ways(before: Any) -> dict[str, int]:
    """Return the number of collectives since then, by carrier."""
    after = innet.torch.carried()
    return {
        "/".join(way): n - before.get(way, 0) for way, n in after.items() if n != before.get(way)
    }


# -- all-reduces by the switch -----------------------------------------------------------------


def reduced(rank: int, dtype: torch.dtype, op: Any, shape: tuple[int, ...]) -> Any:
    """Reduce seeded values in place; return the ranks' values, the result, and the carrier."""
    count = int(torch.Size(shape).numel())
    generator = torch.Generator().manual_seed(5)
    values = torch.randint(-1000, 1000, (SIZE, count), generator=generator).to(dtype)
    mine = values[rank].reshape(shape).clone()
    before = innet.torch.carried()
    assert dist.all_reduce(mine, op) is None
    assert mine.dtype == dtype
    return values, mine.reshape(-1), ways(before)


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (1000,)], ids=str)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64], ids=str)
def test_sums_go_through_the_switch(group: Group, dtype: torch.dtype, shape: tuple[int, ...]):
    for values, result, carried in group.run(reduced, dtype, ReduceOp.SUM, shape):
        exact = values.double().sum(0).to(dtype)
        torch.testing.assert_close(result, exact, rtol=1e-6, atol=0)
        assert carried == {"allreduce/switch/": 1}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_means_go_through_the_switch(group: Group, dtype: torch.dtype):
    for values, result, carried in group.run(reduced, dtype, ReduceOp.AVG, (300,)):
        torch.testing.assert_close(result, values.double().mean(0).to(dtype), rtol=1e-6, atol=0)
        assert carried == {"allreduce/switch/": 1}


@pytest.mark.parametrize("op", [ReduceOp.MAX, ReduceOp.MIN], ids=["max", "min"])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
def test_maxima_and_minima_are_exact(group: Group, dtype: torch.dtype, op: Any):
    for values, result, carried in group.run(reduced, dtype, op, (300,)):
        exact = values.max(0).values if op == ReduceOp.MAX else values.min(0).values
        assert torch.equal(result, exact)
        assert carried == {"allreduce/switch/": 1}


def special(rank: int, op: Any) -> list[float]:
    mine = torch.tensor([[torch.nan, 1.0, -torch.inf, -1e-45], [2.0, -torch.nan, torch.inf, -0.0]])
    dist.all_reduce(mine[rank], op)
    return mine[rank].tolist()


def test_a_nan_wins_and_infinities_are_numbers(group: Group):
    assert [str(found) for found in group.run(special, ReduceOp.MAX)] == [
        "[nan, nan, inf, -0.0]"
    ] * SIZE
    assert [str(found[:3]) for found in group.run(special, ReduceOp.MIN)] == [
        "[nan, nan, -inf]"
    ] * SIZE


def strided_and_large(rank: int) -> tuple[list[int], bool]:
    whole = torch.arange(12, dtype=torch.int64).reshape(3, 4) + (1 << 55) * rank
    column = whole[:, 1]
    dist.all_reduce(column)
    parameter = torch.nn.Parameter(torch.full((2,), float(rank)))
    dist.all_reduce(parameter, ReduceOp.AVG)
    untouched = whole[:, 0].tolist() == [n + (1 << 55) * rank for n in (0, 4, 8)]
    return column.tolist(), untouched and parameter.tolist() == [0.5, 0.5]


def test_a_view_and_a_parameter_are_reduced_in_place(group: Group):
    assert group.run(strided_and_large) == [([2 * n + (1 << 55) for n in (1, 5, 9)], True)] * SIZE


def freed(rank: int, size: int) -> list[str]:
    """Return the collectives after which the memory of a tensor cannot be freed, as FSDP frees it."""
    wrong = []
    calls: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
        "all-reduce": lambda whole, _: dist.all_reduce(whole),
        "half": lambda whole, _: dist.all_reduce(whole.view(torch.float16)),
        "coalesced": lambda whole, part: dist.all_reduce_coalesced([whole, part]),
        "strided": lambda whole, _: dist.all_reduce(whole.view(2, -1).t()),
        "reduce": lambda whole, _: dist.reduce(whole, 0),
        "broadcast": lambda whole, _: dist.broadcast(whole, 0),
        "all-gather": dist.all_gather_into_tensor,
        "reduce-scatter": lambda whole, part: dist.reduce_scatter_tensor(part, whole),
    }
    for name, call in calls.items():
        whole, part = torch.ones(SIZE * size), torch.ones(size)
        call(whole, part)
        if not all(each.untyped_storage().resizable() for each in (whole, part)):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("size", [10, 5000])
def test_the_callers_memory_remains_resizable(group: Group, size: int):
    """Tensor.numpy() makes it not resizable."""
    assert group.run(freed, size) == [[]] * SIZE


def with_power_sgd(rank: int) -> float:
    """Train with a hook of PyTorch's whose callbacks wait for all-reduces that they make."""
    torch.manual_seed(1)
    layers = torch.nn.Linear(300, 400), torch.nn.ReLU(), torch.nn.Linear(400, 200)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    state = PowerSGDState(dist.group.WORLD, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        given = torch.Generator().manual_seed(10 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(8, 300, generator=given)).pow(2).mean().backward()
        optimizer.step()
    return sum(each.double().sum().item() for each in model.parameters())


def test_a_callback_may_wait_for_an_all_reduce_of_its_own(group: Group):
    one, other = group.run(with_power_sgd)
    assert one == other


def overflowing(rank: int) -> tuple[BaseException | None, int]:
    tensor = torch.full((3,), 2**31 - 1, dtype=torch.int32)
    work = dist.all_reduce(tensor, async_op=True)
    problem = None
    try:
        work.wait()
    except SumOverflow as found:
        problem = found
    assert (work.is_completed(), work.is_success(), work.exception()) == (True, False, problem)
    assert tensor.tolist() == [2**31 - 1] * 3
    after = torch.ones(1, dtype=torch.int32)
    dist.all_reduce(after)
    return problem, int(after)


def test_a_sum_that_overflows_is_told_to_every_rank_and_the_group_goes_on(group: Group):
    for problem, after in group.run(overflowing):
        assert "do not fit int32" in str(problem)
        assert after == SIZE


# -- works -------------------------------------------------------------------------------------


def in_any_order(rank: int) -> bool:
    tensors = [torch.full((1 + 37 * number,), float(number + rank)) for number in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    future = works[7].get_future()
    for work in reversed(works):
        assert work.wait(timedelta(seconds=60))
        assert work.is_success()
    assert future.then(lambda done: done.value()[0]).wait() is not None
    assert works[3].result()[0] is tensors[3]
    return all(bool((tensor == 2 * n + 1).all()) for n, tensor in enumerate(tensors))


def test_many_at_once_are_served_in_order_and_waited_for_in_any(group: Group):
    assert group.run(in_any_order) == [True] * SIZE


def overlapping(rank: int, dtype: torch.dtype) -> list[list[float]]:
    """Reduce one tensor twice, one list twice, and a tensor of that list, all in flight at once."""
    lone, listed = torch.ones(5, dtype=dtype), [torch.ones(3, dtype=dtype) for _ in range(2)]
    works = [dist.all_reduce(lone, async_op=True) for _ in range(2)]
    works += [dist.all_reduce_coalesced(listed, async_op=True) for _ in range(2)]
    works.append(dist.all_reduce(listed[1], async_op=True))
    for work in works:
        work.wait()
    return [tensor.unique().tolist() for tensor in (lone, *listed)]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64], ids=str)
def test_all_reduces_of_one_tensor_at_once_are_made_in_order(group: Group, dtype: torch.dtype):
    assert group.run(overlapping, dtype) == [[[4.0], [4.0], [8.0]]] * SIZE


def early(rank: int) -> str:
    work = dist.all_reduce(torch.ones(5), async_op=True)
    try:
        work.wait(timedelta(seconds=0.2))
    except TimedOut as problem:
        assert not work.is_completed()
        _pending.append(work)
        return str(problem)
    return "done"


def late(rank: int) -> list[float]:
    work = _pending.pop() if _pending else dist.all_reduce(torch.ones(5), async_op=True)
    work.wait()
    return work.result()[0].tolist()


_pending: list[Any] = []


def test_waiting_can_be_given_up_and_taken_up_again(group: Group):
    group.start(early, ranks=[0])
    assert group.results([0]) == [
        "the collective is not done after 0.2 s: it goes on, and can be waited for again"
    ]
    assert group.run(late) == [[2.0] * 5] * SIZE


def barred(rank: int) -> bool:
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    dist.barrier()
    return work.is_completed()


def test_a_barrier_comes_after_all_that_was_begun_before(group: Group):
    assert group.run(barred) == [True] * SIZE


# -- everything else ---------------------------------------------------------------------------


def others(rank: int) -> dict[str, int]:
    before = innet.torch.carried()
    mine, peer = torch.tensor([rank, 10.0 * rank]), 1 - rank
    both = [torch.tensor([0.0, 0.0]), torch.tensor([1.0, 10.0])]

    tensor = mine.clone()
    dist.broadcast(tensor, 1)
    assert torch.equal(tensor, both[1])
    found = [torch.empty(2) for _ in range(SIZE)]
    dist.all_gather(found, mine)
    assert torch.equal(torch.stack(found), torch.stack(both))
    flat = torch.empty(2 * SIZE)
    dist.all_gather_into_tensor(flat, mine)
    assert torch.equal(flat, torch.cat(both))
    own = torch.empty(2)
    dist.reduce_scatter_tensor(own, torch.arange(4.0))
    assert own.tolist() == [4.0 * rank, 4.0 * rank + 2]
    dist.reduce_scatter(own, list(torch.arange(4.0).split(2)))
    assert own.tolist() == [4.0 * rank, 4.0 * rank + 2]
    swapped = torch.empty(2)
    dist.all_to_all_single(swapped, mine)
    assert swapped.tolist() == [0.0, 10.0 if rank else 1.0]
    tensor = mine.clone()
    dist.reduce(tensor, 0)
    assert rank or torch.equal(tensor, both[0] + both[1])
    dist.gather(mine, found if rank == 0 else None)
    assert rank or torch.equal(found[1], both[1])
    dist.scatter(own, both if rank == 0 else None)
    assert torch.equal(own, both[rank])
    if rank:
        dist.send(mine, 0)
    else:
        dist.recv(own, 1)
        assert torch.equal(own, both[1])
    objects: list[Any] = [None] * SIZE
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]
    dist.broadcast_object_list(objects, 1)
    pair = dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, own, peer)
    for work in dist.batch_isend_irecv(list(pair)):
        work.wait()
    assert torch.equal(own, both[peer])
    return ways(before)


BY_SWITCH = {
    "allgather", "allgather_base", "all_gather_single", "broadcast", "reduce",
    "reduce_scatter", "reduce_scatter_base", "reduce_scatter_single",
}  # fmt: skip


def test_all_other_collectives_are_right_wherever_they_go(group: Group):
    for carried in group.run(others):
        ways_of = {way.partition("/")[0]: way for way in carried}
        for name, way in ways_of.items():
            assert way.endswith("/switch/" if name in BY_SWITCH else "/gloo/collective"), carried
        assert sum(carried.values()) >= 13


def other_sums(rank: int) -> dict[str, int]:
    before = innet.torch.carried()
    double = torch.full((3,), rank + 0.5, dtype=torch.float64)
    dist.all_reduce(double)
    assert double.tolist() == [2.0] * 3
    dist.all_reduce(double, ReduceOp.AVG)
    assert double.tolist() == [2.0] * 3
    product = torch.full((3,), rank + 2.0)
    dist.all_reduce(product, ReduceOp.PRODUCT)
    assert product.tolist() == [6.0] * 3
    sparse = torch.eye(3, dtype=torch.float64).to_sparse()
    dist.all_reduce(sparse)
    assert torch.equal(sparse.to_dense(), 2 * torch.eye(3, dtype=torch.float64))
    small = torch.ones(3, dtype=torch.uint8)
    dist.all_reduce(small)
    assert small.tolist() == [2] * 3
    return ways(before)


def test_sums_that_the_switch_cannot_make_go_over_gloo_for_a_reason(group: Group):
    assert (
        group.run(other_sums) == [{"allreduce/gloo/dtype": 4, "allreduce/gloo/operation": 1}] * SIZE
    )


def scraped(rank: int) -> str:
    host, _, port = os.environ["INNET_METRICS"].partition(":")
    with urllib.request.urlopen(f"http://{host}:{int(port) + rank}/metrics") as page:
        return page.read().decode()


def test_what_went_which_way_is_a_metric(group: Group):
    group.run(other_sums)
    for page in group.run(scraped):
        line = (
            r'innet_torch_collectives_total{by="gloo",collective="allreduce",reason="dtype"} [1-9]'
        )
        assert re.search(line, page)
        assert 'innet_agent_exchanges_total{job="torch-' in page
