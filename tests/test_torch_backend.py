"""The backend innet of torch.distributed: every collective is right, whatever carries it."""

import contextlib
import gc
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import Group, process_group
from racks import Rack, rack

import innet.torch
from innet.errors import SumOverflow, TimedOut, UsageError, WorkersMissing
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


def environments(tor: Rack, **more: str) -> list[dict[str, str]]:
    links = ["+".join(tor.links[rank::SIZE]) for rank in range(SIZE)]
    common = {"INNET_CONTROLLER": tor.controller, "INNET_LINK": ",".join(links), **more}
    return [{**common, "LOCAL_RANK": str(rank)} for rank in range(SIZE)]


@pytest.fixture(scope="module")
def group(tor: Rack) -> Iterator[Group]:
    metrics = f"127.0.0.1:{free_tcp_port()}"
    with process_group(SIZE, prepare, "innet", environments(tor, INNET_METRICS=metrics)) as running:
        running.run(initialized)
        yield running


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
        assert "beyond int32" in str(problem)
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
        "the all-reduce is not done after 0.2 s: it goes on, and can be waited for again"
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


def test_all_other_collectives_are_right_and_go_over_gloo(group: Group):
    for carried in group.run(others):
        assert all(way.endswith("/gloo/collective") for way in carried)
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
    sparse = torch.eye(3).to_sparse()
    dist.all_reduce(sparse)
    assert torch.equal(sparse.to_dense(), 2 * torch.eye(3))
    small = torch.ones(3, dtype=torch.uint8)
    dist.all_reduce(small)
    assert small.tolist() == [2] * 3
    return ways(before)


def test_sums_that_the_switch_cannot_make_go_over_gloo_for_a_reason(group: Group):
    assert (
        group.run(other_sums)
        == [{"allreduce/gloo/dtype": 3, "allreduce/gloo/operation": 1, "allreduce/gloo/layout": 1}]
        * SIZE
    )


def scraped(rank: int) -> str:
    host, _, port = os.environ["INNET_METRICS"].partition(":")
    with urllib.request.urlopen(f"http://{host}:{int(port) + rank}/metrics") as page:
        return page.read().decode()


def test_what_went_which_way_is_a_metric(group: Group):
    group.run(other_sums)
    for page in group.run(scraped):
        line = (
            r'innet_torch_collectives_total{by="gloo",collective="allreduce",reason="layout"} [1-9]'
        )
        assert re.search(line, page)
        assert 'innet_agent_exchanges_total{job="torch-' in page


# -- groups ------------------------------------------------------------------------------------


def several(rank: int, count: int) -> tuple[dict[str, int], list[float]]:
    """Form several groups at once, and use them alternately."""
    before = innet.torch.carried()
    groups = [dist.new_group() for _ in range(count)]
    tensors = [torch.full((70,), number + rank + 0.0) for number in range(count)]
    for _ in range(2):
        works = [
            dist.all_reduce(tensor, group=group, async_op=True)
            for group, tensor in zip(groups, tensors, strict=True)
        ]
        for work in works:
            work.wait()
    for group in groups:
        dist.destroy_process_group(group)
    alone = dist.new_group([rank], use_local_synchronization=True)
    dist.all_reduce(tensors[0], group=alone)
    return ways(before), [tensor[0].item() for tensor in tensors]


def test_several_groups_at_once_have_jobs_of_their_own_while_there_are_cables(
    group: Group, tor: Rack
):
    assert len(jobs(tor)) == 1
    for carried, sums in group.run(several, CABLES):
        assert carried == {
            "allreduce/switch/": 2 * (CABLES - 1),
            "allreduce/gloo/refused": 2,
            "allreduce/gloo/one_worker": 1,
        }
        assert sums == [4.0 * number + 2 for number in range(CABLES)]
    assert len(jobs(tor)) == 1


def possessions() -> tuple[int, int, int]:
    """Return the numbers of Python threads, of the kernel's tasks, and of open files."""
    gc.collect()
    own = Path("/proc/self")
    tasks, files = (len(list((own / each).iterdir())) for each in ("task", "fd"))
    return threading.active_count(), tasks, files


def again_and_again(rank: int, times: int) -> tuple[Any, Any]:
    for number in range(times):
        group = dist.new_group()
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [SIZE] * 3
        dist.destroy_process_group(group)
        del group
        if number == 1:
            before = possessions()
    return before, possessions()


@pytest.mark.timeout(400)
def test_a_group_leaves_nothing_behind(group: Group, tor: Rack):
    free, times = tor.free_slots, int(os.environ.get("INNET_TEST_GROUPS", "8"))
    for before, after in group.run(again_and_again, times, within=60 + 2 * times):
        assert after == before
    assert (tor.free_slots, len(jobs(tor))) == (free, 1)


def idle(rank: int, seconds: float) -> float:
    before = time.process_time()
    time.sleep(seconds)  # during this nothing should happen
    return (time.process_time() - before) / seconds


def test_an_idle_worker_costs_next_to_nothing(group: Group):
    # Earlier work may still be cleaned up in the first seconds. A busy wait never ends.
    assert any(max(group.run(idle, 3.0)) < 0.01 for _ in range(4))


def slotless(rank: int) -> tuple[list[float], str]:
    group = dist.new_group()
    tensor = torch.full((100,), rank + 1.0)
    dist.all_reduce(tensor, group=group)
    fallbacks = group._membership.agent.fallbacks
    dist.destroy_process_group(group)
    return tensor[:2].tolist(), str(dict(fallbacks))


def test_a_group_for_which_there_are_no_slots_sums_over_the_fallback(group: Group, tor: Rack):
    with contextlib.ExitStack() as stack:
        while free := tor.free_slots:
            stack.enter_context(tor.job(1, slots=1 << free.bit_length() - 1))
        assert group.run(slotless) == [([3.0, 3.0], "{'no_slots': 2}")] * SIZE


# -- what goes wrong ---------------------------------------------------------------------------


def initialize(rank: int, port: int, changed: dict[str, str]) -> None:
    import innet.torch

    assert innet.torch
    os.environ.update(changed)
    where = f"tcp://127.0.0.1:{port}"
    timeout = timedelta(seconds=30)
    dist.init_process_group("innet", where, timeout, rank=rank, world_size=SIZE)


def failing(rank: int) -> list[float]:
    if rank == 1:
        os._exit(9)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    return tensor.tolist()


def test_what_the_environment_has_wrong_and_a_worker_that_dies_are_named_to_all(tor: Rack):
    with tor.cables(SIZE) as links:
        common = {"INNET_CONTROLLER": tor.controller, "INNET_LINK": ",".join(links)}
        own = [{**common, "LOCAL_RANK": str(rank)} for rank in range(SIZE)]
        del own[1]["INNET_CONTROLLER"]
        with process_group(SIZE, prepare, "", own) as group:
            group.start(initialize, free_tcp_port(), {})
            for problem in group.results():
                assert isinstance(problem, UsageError)
                assert "set INNET_CONTROLLER=HOST:PORT" in str(problem)
                assert "rank 1" in str(problem)
            common["INNET_QUANTIZER"] = "int8+feedback"
            group.start(initialize, free_tcp_port(), common)
            for problem in group.results():
                assert isinstance(problem, UsageError)
                assert "choose one without feedback, or register the hook" in str(problem)
            common["INNET_QUANTIZER"] = "int8"
            group.run(initialize, free_tcp_port(), common)
            group.start(failing)
            [problem] = group.results([0])
            assert isinstance(problem, WorkersMissing)
            assert "worker 1: " in str(problem)
