"""The same calls through innet and over Gloo give the same results, in every form and dtype."""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gpus import has_gpu
from processes import Group, process_group
from racks import Rack, rack

import innet.torch
from innet.errors import UnsupportedTensor
from innet.rpc import innet_pb2 as pb

SIZE = 4
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
DTYPES = (
    *FLOATS, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool,
    torch.complex64,
)  # fmt: skip
TIME = re.compile(r"\[F\d+ [\d:.]+ ")
"""The time in the messages of Gloo's failed checks."""

SHAPES = ((), (0,), (5,), (3, 4), (2500,))
"""Shapes of a rank's part. The last does not fit into a few packets."""


FORMS = {"one node": (1, 0), "two nodes": (2, 1), "memory of one node": (1, 1)}
"""Groups, by name: their number of nodes, and whether a node's ranks sum in its memory."""


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE * 2) as running:
        yield running


@pytest.fixture(
    scope="module",
    params=[(device, *form) for device in ("cpu", "cuda") for form in FORMS.values()],
    ids=[name + end for end in ("", " with a GPU") for name in FORMS],
)
def group(tor: Rack, request: pytest.FixtureRequest) -> Iterator[Group]:
    """Yield ranks of one node that use the switch or their memory, or of two that use both."""
    device, nodes, local_sum = request.param
    if device == "cuda" and not has_gpu():
        pytest.skip("there is no GPU")
    environments = [
        {**each, "GROUP_RANK": str(rank * nodes // SIZE)}
        for rank, each in enumerate(
            tor.environments(SIZE, DEVICE=device, INNET_LOCAL_SUM=str(local_sum))
        )
    ]
    with process_group(SIZE, prepare, "innet", environments) as running:
        running.run(initialized)
        jobs = tor.stub.ListJobs(pb.ListJobsRequest()).jobs
        assert {job.workers for job in jobs if job.joined} == {SIZE // nodes}
        yield running


_groups: dict[str, Any] = {}


def prepare() -> None:
    torch.set_default_device(os.environ.get("DEVICE", "cpu"))  # all ranks share a GPU


def initialized(rank: int) -> bool:
    return dist.is_initialized()


def gloo() -> Any:
    """Return a group of Gloo's."""
    if not _groups:
        _groups["gloo"] = dist.new_group(backend="gloo")
    return _groups["gloo"]


def peers() -> Iterator[Any]:
    """Yield the groups to compare: innet's, and Gloo's, for which tensors are made on the CPU."""
    yield dist.group.WORLD
    with torch.device("cpu"):
        yield gloo()


def anything(shape: Any, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return small whole numbers, whose sums are exact in any dtype."""
    generator = torch.Generator().manual_seed(seed)
    most = 2 if dtype == torch.bool else 9
    values = torch.randint(0, most, shape, generator=generator, device=generator.device)
    return values.to(torch.get_default_device(), dtype)


def same(one: Any, other: Any) -> bool:
    """Return whether two lists of tensors have the same bits."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.cpu(), b.cpu())
        for a, b in zip(one, other, strict=True)
    )


Form = Callable[[int, Any, torch.dtype, Any, bool], tuple[Any, list[torch.Tensor]]]


def broadcast(rank: int, shape: Any, dtype: torch.dtype, group: Any, later: bool) -> Any:
    tensor = anything(shape, dtype, rank)
    return dist.broadcast(tensor, 1, group, async_op=later), [tensor]


def all_gather(rank: int, shape: Any, dtype: torch.dtype, group: Any, later: bool) -> Any:
    found = [torch.zeros(shape, dtype=dtype) for _ in range(SIZE)]
    return dist.all_gather(found, anything(shape, dtype, rank), group, later), found


def all_gather_tensor(rank: int, shape: Any, dtype: torch.dtype, group: Any, later: bool) -> Any:
    count = torch.Size(shape).numel()
    found = torch.zeros(SIZE * count, dtype=dtype)
    own = anything((count,), dtype, rank)
    return dist.all_gather_into_tensor(found, own, group, later), [found]


def gather_in_place(rank: int, shape: Any, dtype: torch.dtype, group: Any, later: bool) -> Any:
    """Gather into the tensor that this rank's part is a view of, as sharded training does."""
    count = torch.Size(shape).numel()
    found = torch.zeros(SIZE * count, dtype=dtype)
    own = found[rank * count : (rank + 1) * count]
    own.copy_(anything((count,), dtype, rank))
    return dist.all_gather_into_tensor(found, own, group, later), [found]


def objects(rank: int, shape: Any, dtype: torch.dtype, group: Any, later: bool) -> Any:
    found: list[Any] = [None] * SIZE
    dist.all_gather_object(found, (rank, anything(shape, dtype, rank)), group)
    assert [each[0] for each in found] == [*range(SIZE)]
    return None, [each[1] for each in found]


MOVES: list[Form] = [broadcast, all_gather, all_gather_tensor, gather_in_place, objects]


def reduce_scatter(rank: int, shape: Any, dtype: torch.dtype, group: Any, later: bool) -> Any:
    given = [anything(shape, dtype, 7 * rank + part) for part in range(SIZE)]
    before, own = [each.clone() for each in given], torch.zeros(shape, dtype=dtype)
    work = dist.reduce_scatter(own, given, group=group, async_op=later)
    return _unchanged(work, given, before), [own]


def reduce_scatter_tensor(
    rank: int, shape: Any, dtype: torch.dtype, group: Any, later: bool
) -> Any:
    count = torch.Size(shape).numel()
    given, own = anything((SIZE * count,), dtype, rank), torch.zeros(count, dtype=dtype)
    before = given.clone()
    work = dist.reduce_scatter_tensor(own, given, group=group, async_op=later)
    return _unchanged(work, [given], [before]), [own]


def reduce(rank: int, shape: Any, dtype: torch.dtype, group: Any, later: bool) -> Any:
    tensor = anything(shape, dtype, rank)
    return dist.reduce(tensor, 2, group=group, async_op=later), [tensor] if rank == 2 else []


SUMS: list[Form] = [reduce_scatter, reduce_scatter_tensor, reduce]


def _unchanged(work: Any, given: list[torch.Tensor], before: list[torch.Tensor]) -> Any:
    if work:
        work.wait()
    assert same(given, before), "the input has changed"
    return work


def compared(rank: int, form: Form, dtypes: Any) -> list[str]:
    """Run a form over both groups, sync and async. Return what differed, and what Gloo carried."""
    wrong = []
    for dtype, shape, later in itertools.product(dtypes, SHAPES, (False, True)):
        results, before = [], innet.torch.carried()
        for group in peers():
            try:
                work, found = form(rank, shape, dtype, group, later)
                if work:
                    work.wait()
                    assert work.is_completed() or group is not dist.group.WORLD
                results.append(found)
            except (RuntimeError, ValueError) as problem:
                results.append(str(problem))
        if isinstance(results[1], str):
            continue  # Gloo has no such dtype
        if isinstance(results[0], str) or not same(*results):
            wrong.append(f"{dtype} {shape} {later}: {results}")
        after = innet.torch.carried()
        wrong += [f"{way}" for way in after if way.by == "gloo" and after[way] != before.get(way)]
    return wrong


@pytest.mark.parametrize("form", MOVES, ids=lambda form: form.__name__)
def test_moves_have_the_same_bits_as_over_gloo(group: Group, form: Form):
    assert group.run(compared, form, DTYPES) == [[]] * SIZE


@pytest.mark.parametrize("form", SUMS, ids=lambda form: form.__name__)
def test_sums_are_the_same_as_over_gloo(group: Group, form: Form):
    dtypes = (*FLOATS, torch.int32, torch.int64)
    assert group.run(compared, form, dtypes) == [[]] * SIZE


def coalesced(rank: int) -> bool:
    results = []
    for each in peers():
        outputs = [torch.zeros(SIZE * n) for n in (3, 500)]
        parts = [torch.zeros(n) for n in (3, 500)]
        with dist._coalescing_manager(each, async_ops=True) as pending:
            for out in outputs:
                dist.all_gather_into_tensor(out, torch.full((len(out) // SIZE,), rank + 1.0), each)
        pending.wait()
        with dist._coalescing_manager(each, async_ops=True) as pending:
            for part, out in zip(parts, outputs, strict=True):
                dist.reduce_scatter_tensor(part, out, group=each)
        pending.wait()
        results.append(outputs + parts)
    return same(*results)


def test_coalesced_forms_are_the_same_as_over_gloo(group: Group):
    assert group.run(coalesced) == [True] * SIZE


def one_after_the_other(rank: int) -> list[float]:
    """Reduce the result of a sum that is still under way, of which each rank's rows are not in order."""
    whole = torch.full((2, SIZE * 500), rank + 1.0).t()
    parts = [torch.zeros(500, 2), torch.zeros(3)]
    dist.all_reduce(whole, async_op=True)
    with dist._coalescing_manager(dist.group.WORLD, async_ops=True) as pending:
        for part, given in zip(parts, (whole, torch.ones(SIZE * 3)), strict=True):
            dist.reduce_scatter_tensor(part, given)
    pending.wait()
    return [*parts[0].unique().tolist(), *parts[1].unique().tolist()]


def test_tensors_are_read_when_their_collective_begins(group: Group):
    assert group.run(one_after_the_other) == [[40.0, 4.0]] * SIZE


def signless(values: torch.Tensor) -> torch.Tensor:
    """Return a view of other memory that has these values with the other sign, as ``conj().imag`` may."""
    return torch._neg_view(-values)


def left_out(rank: int, dtype: torch.dtype) -> list[str]:
    """Return the collectives that get views like these wrong. Gloo drops their results."""
    parts = [torch.arange(6).to(dtype) + each for each in range(SIZE)]
    lists = [signless(torch.ones_like(each)) for each in parts]
    dist.all_gather(lists, signless(parts[rank]))
    whole = signless(torch.ones(6 * SIZE, dtype=dtype))
    dist.all_gather_into_tensor(whole, signless(parts[rank]))
    given, summed, reduced = (signless(parts[rank]) for _ in range(3))
    dist.broadcast(given, 1)
    dist.all_reduce(summed)
    dist.reduce(reduced, 2)
    scattered = signless(torch.ones(6, dtype=dtype))
    dist.reduce_scatter(scattered, [signless(each * (rank + 1)) for each in parts])
    found: dict[str, tuple[torch.Tensor, torch.Tensor]] = {
        "all-gather": (torch.cat(lists), torch.cat(parts)),
        "into a tensor": (whole, torch.cat(parts)),
        "broadcast": (given, parts[1]),
        "all-reduce": (summed, sum(parts, torch.zeros(6, dtype=dtype))),
        "reduce": (reduced, sum(parts, torch.zeros(6, dtype=dtype)) if rank == 2 else parts[rank]),
        "reduce-scatter": (scattered, parts[rank] * 10),
    }
    return [name for name, (one, other) in found.items() if not torch.equal(one, other)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_views_that_leave_out_a_sign_are_moved_and_summed_with_it(group: Group, dtype: torch.dtype):
    assert group.run(left_out, dtype) == [[]] * SIZE


def turned(values: torch.Tensor, way: int) -> torch.Tensor:
    """Return these values in memory of another order, in every second element, or as they are."""
    if way == 1:
        return values.t().contiguous().t()
    wide = torch.zeros(values.shape[0], 2 * values.shape[1], dtype=values.dtype)
    return wide[:, ::2].copy_(values) if way == 2 else values.clone()


def strided(rank: int, rows: int) -> list[str]:
    """Return the collectives that are wrong if each rank's tensors have strides of their own."""
    parts = [anything((rows, 3), torch.float64, each) for each in range(SIZE)]
    nothing = torch.zeros(rows, 3, dtype=torch.float64)
    given, own = (turned(parts[rank], (rank + more) % 3) for more in range(2))
    dist.broadcast(given, 1)
    lists = [turned(nothing, (rank + each) % 3) for each in range(SIZE)]
    dist.all_gather(lists, own)
    whole = turned(torch.cat([nothing] * SIZE), rank % 3)
    dist.all_gather_into_tensor(whole, own)
    found = {
        "broadcast": (given, parts[1]),
        "all-gather": (torch.cat(lists), torch.cat(parts)),
        "into a tensor": (whole, torch.cat(parts)),
    }
    return [name for name, (one, other) in found.items() if not torch.equal(one, other)]


@pytest.mark.parametrize("rows", [2, 1000])
def test_ranks_whose_tensors_have_different_strides_move_the_same_elements(group: Group, rows: int):
    """Gloo moves memory and not elements, and ranks that chose it would wait for the others."""
    assert group.run(strided, rows) == [[]] * SIZE


def shared_memory(rank: int) -> list[Any]:
    """Give rank 1 tensors whose elements share memory, and the others plain ones."""

    def own(size: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        one = torch.ones(1, dtype=dtype)
        return one.expand(size) if rank == 1 else one.repeat(size)

    found: list[Any] = []
    for dtype in (torch.float32, torch.float64):
        same, different, gathered = own(3, dtype), own(3, dtype), own(3 * SIZE, dtype)
        dist.all_reduce(same)
        found.append(same.tolist())
        for call in (
            lambda given=different: dist.broadcast(given, 0),
            lambda given=gathered: dist.all_gather_into_tensor(
                given, torch.full((3,), float(rank), dtype=given.dtype)
            ),
        ):
            if rank == 0:
                different.copy_(torch.arange(3))
            try:
                call()
                found.append("")
            except UnsupportedTensor as problem:
                found.append(str(problem).split(",")[0])
    # A tensor that is only read may have any memory.
    given = own()
    dist.broadcast(given, 1)
    dist.reduce(own(), 0)
    return [*found, given.tolist()]


def test_a_tensor_whose_elements_share_memory_fails_alone_and_only_if_it_has_to(group: Group):
    """Nobody refuses such a tensor before the collective: the others would wait for that rank."""
    refused = "a collective cannot write its result to a tensor whose elements share memory"
    for rank, found in enumerate(group.run(shared_memory)):
        said = refused if rank == 1 else ""
        assert found == [[float(SIZE)] * 3, said, said] * 2 + [[1.0] * 3]


def uneven(rank: int) -> list[float]:
    given = [torch.full((n + 1,), float(rank)) for n in range(SIZE)]
    own = torch.zeros(rank + 1)
    dist.reduce_scatter(own, given)
    return own.tolist()


def test_parts_of_a_reduce_scatter_may_be_uneven(group: Group):
    assert group.run(uneven) == [[6.0] * (rank + 1) for rank in range(SIZE)]


def sub_group(rank: int) -> list[float]:
    with torch.device("meta"):  # a script may choose a device for tensors that it creates
        pair = dist.new_group([0, 2], backend="innet")
    if rank not in (0, 2):
        return []
    tensor, found = torch.full((4,), float(rank)), torch.zeros(8)
    dist.all_gather_into_tensor(found, tensor, pair)
    dist.broadcast(tensor, 2, pair)
    dist.barrier(pair)
    return [*tensor.tolist(), *found.tolist()]


def test_a_sub_group_has_its_own_ranks(group: Group):
    found = [2.0] * 4 + [0.0] * 4 + [2.0] * 4
    assert group.run(sub_group) == [found, [], found, []]


def barriers(rank: int) -> list[dict[str, int]]:
    """Return the carriers of a barrier after nothing, and after a collective over Gloo."""
    found = []
    dist.barrier()  # settles what earlier tests owe
    for call in (lambda: None, lambda: dist.all_reduce(torch.ones(1, dtype=torch.float64))):
        call()
        before = innet.torch.carried()
        dist.barrier()
        work = dist.barrier(async_op=True)
        work.wait()
        assert work.is_success()
        after = innet.torch.carried()
        found.append(
            {way.by: n - before.get(way, 0) for way, n in after.items() if n > before.get(way, 0)}
        )
    return found


def test_the_switch_makes_a_barrier_unless_gloo_has_something_to_wait_for(
    group: Group, request: pytest.FixtureRequest
):
    _, nodes, local_sum = request.node.callspec.params["group"]
    carrier = "node" if nodes == local_sum else "switch"
    assert group.run(barriers) == [[{carrier: 2}, {"gloo": 1, carrier: 1}]] * SIZE


def wrong(rank: int) -> list[tuple[str, str]]:
    found = []
    calls: list[Callable[[Any], Any]] = [
        lambda group: dist.all_gather([torch.zeros(2)] * SIZE, torch.zeros(3), group),
        lambda group: dist.all_gather_into_tensor(torch.zeros(5), torch.zeros(2), group),
        lambda group: dist.reduce_scatter_tensor(torch.zeros(5), torch.zeros(6), group=group),
        lambda group: dist.broadcast(torch.zeros(4, 4)[:, 1], 0, group),
        lambda group: dist.all_reduce(torch.zeros(4, device="meta"), group=group),
        lambda group: dist.broadcast(torch.zeros(4, device="meta"), 0, group),
        lambda group: dist.all_reduce(torch.zeros(4), group=group),  # the group goes on
    ]
    for call in calls:
        said = []
        for group in (dist.group.WORLD, gloo()):
            try:
                call(group)
                said.append("done")
            except (RuntimeError, ValueError) as problem:
                said.append(f"{type(problem).__name__}: {problem}")
        found.append(tuple(said))
    return found


def test_wrong_arguments_have_gloos_errors(group: Group):
    for found in group.run(wrong):
        for innets, gloos in found:
            assert TIME.sub("", innets) == TIME.sub("", gloos)


def with_fewer(rank: int) -> list[str]:
    """Move something and wait for all in a job that goes on without some of its workers."""
    before = innet.torch.carried()
    tensor, found = torch.full((2,), float(rank)), torch.zeros(2 * SIZE)
    dist.broadcast(tensor, 1)
    dist.all_gather_into_tensor(found, tensor)
    dist.barrier()
    dist.reduce_scatter_tensor(tensor, torch.ones(2 * SIZE))
    assert (tensor.tolist(), found.tolist()) == ([4.0] * 2, [1.0] * 2 * SIZE)
    after = innet.torch.carried()
    return sorted(way.reason for way in after if after[way] != before.get(way))


def test_what_needs_all_workers_goes_over_gloo_if_the_job_does_not():
    with rack(SIZE) as tor, tor.job(SIZE, min_workers=2) as job:
        environments = tor.environments(SIZE, INNET_JOB=job, INNET_TOKEN=tor.tokens[job])
        with process_group(SIZE, prepare, "innet", environments) as running:
            reasons = ["", "order", "quorum", "quorum"]  # the barrier waits for Gloo's collectives
            assert running.run(with_fewer) == [reasons] * SIZE


def limited(rank: int) -> set[str]:
    dist.barrier()  # settles what earlier tests owe
    before = innet.torch.carried()
    dist.barrier()
    dist.barrier(timeout=timedelta(seconds=60))
    after = innet.torch.carried()
    return {way.reason for way in after if after[way] != before.get(way)}


def test_a_barrier_may_have_a_timeout_of_its_own(group: Group):
    assert group.run(limited) == [{""}] * SIZE
