"""The fallback: processes sum over their process group instead, with the switch's results."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import WITHIN, Group, process_group
from racks import Rack, rack

import innet
from innet.errors import UsageError, WorkersDisagree
from innet.host.fallback import ProcessGroupFallback
from innet.host.integers import Reduction
from innet.wire.layout import Flag, Operation

if TYPE_CHECKING:
    from concurrent.futures import Future

SIZE, LANES = 3, 8
MINE: dict[str, Any] = {}
"""The fallback of each process."""


def make_fallback() -> None:
    MINE["fallback"] = ProcessGroupFallback(dist.group.WORLD)


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with process_group(SIZE, make_fallback) as running:
        yield running


def fallback() -> ProcessGroupFallback:
    return MINE["fallback"]


def given(seed: int, chunks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return contributions: (workers, chunks, lanes) integers, and (workers, chunks) flags."""
    rng = np.random.default_rng(seed)
    most = (2**31 - 1) // SIZE
    lanes = rng.integers(-most, most, (SIZE, chunks, LANES), np.int32, endpoint=True)
    flags = rng.choice([0, 0, 0, Flag.NOT_FINITE, Flag.OVERFLOW], (SIZE, chunks))
    return lanes, flags.astype(np.uint16)


def start(
    rank: int, place: tuple[int, int], seed: int, chunks: int, operation: Operation
) -> "Future[Reduction]":
    lanes, flags = given(seed, chunks)
    return fallback().all_reduce(place, lanes[rank], operation, flags[rank])


def exchange(
    rank: int, place: tuple[int, int], seed: int, chunks: int, operation: Operation
) -> Reduction:
    return start(rank, place, seed, chunks, operation).result(WITHIN)


@pytest.mark.parametrize("chunks", [1, 2, 1000])
@pytest.mark.parametrize("operation", Operation)
def test_results_are_what_the_switch_would_give(group: Group, operation: Operation, chunks: int):
    lanes, flags = given(chunks, chunks)
    for result in group.run(exchange, (1, chunks), chunks, chunks, operation):
        exact = lanes.max(axis=0) if operation == Operation.MAX else lanes.sum(axis=0)
        assert result.lanes.tolist() == exact.tolist()
        assert result.flags.tolist() == np.bitwise_or.reduce(flags).tolist()
        assert set(result.counts.tolist()) == {SIZE}
        assert result.includes(np.arange(SIZE)[:, None], SIZE).all()


def abandon(rank: int, place: tuple[int, int]) -> bool:
    """Begin an exchange, and break it off before the other workers have begun it."""
    return start(rank, place, 0, 5, Operation.SUM).cancel()


@pytest.mark.parametrize("quitters", [[0], [2], [0, 1]])
def test_who_has_broken_off_an_exchange_is_in_the_next_with_the_others(group: Group, quitters):
    for term in range(10, 13):
        for number, rank in enumerate(quitters):
            group.start(abandon, (term - 1, 5 + number), ranks=[rank])
        assert group.results(quitters) == [True] * len(quitters)
        lanes, _ = given(term, 20)
        for result in group.run(exchange, (term, 5), term, 20, Operation.SUM):
            assert result.lanes.tolist() == lanes.sum(axis=0).tolist()


def test_who_comes_later_is_waited_for(group: Group):
    group.start(exchange, (20, 0), 1, 3, Operation.SUM, ranks=[0])
    group.start(abandon, (19, 9), ranks=[1])
    group.results([1])
    group.start(exchange, (20, 0), 1, 3, Operation.SUM, ranks=[1, 2])
    lanes, _ = given(1, 3)
    for result in group.results():
        assert result.lanes.tolist() == lanes.sum(axis=0).tolist()


def overwritten(rank: int, place: tuple[int, int]) -> None:
    """Begin an exchange, and change the arguments before the other workers have begun it."""
    lanes, flags = given(1, 3)
    MINE["running"] = fallback().all_reduce(place, lanes[rank], Operation.SUM, flags[rank])
    lanes[rank], flags[rank] = 77, 0
    tensor = torch.full((3,), rank + 1.0, dtype=torch.float64)
    MINE["combining"] = fallback().combine(tensor, mean=False)
    tensor.fill_(77)


def finished(rank: int) -> tuple[Reduction, torch.Tensor]:
    return MINE["running"].result(WITHIN), MINE["combining"].result(WITHIN)


def test_what_was_given_may_change_at_once(group: Group):
    lanes, flags = given(1, 3)
    for ranks in ([0], [1, 2]):
        group.start(overwritten, (25, 0), ranks=ranks)
        assert group.results(ranks) == [None] * len(ranks)
    for result, tensor in group.run(finished):
        assert result.lanes.tolist() == lanes.sum(axis=0).tolist()
        assert result.flags.tolist() == np.bitwise_or.reduce(flags).tolist()
        assert tensor.tolist() == [6.0] * 3


def of_its_own_size(rank: int) -> Reduction:
    return exchange(rank, (30, 0), 1, 4 + rank, Operation.SUM)


def test_workers_that_disagree_about_the_size_are_all_told_and_can_go_on(group: Group):
    group.start(of_its_own_size)
    for rank, problem in enumerate(group.results()):
        assert isinstance(problem, WorkersDisagree)
        assert str(problem) == f"this worker reduces {4 + rank} packets, others between 4 and 6"
    group.run(exchange, (31, 0), 1, 4, Operation.MAX)


DTYPES = [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128]


def combined(rank: int, kind: Any, mean: bool) -> tuple[bool, torch.Tensor]:
    tensor = torch.arange(12).reshape(3, 4) * (rank + 1)
    tensor = tensor.to_sparse().double() if kind == "sparse" else tensor.to(kind).t()
    before = tensor.clone()
    result = fallback().combine(tensor, mean=mean).result(WITHIN)
    assert result.dtype == tensor.dtype
    assert result.layout == tensor.layout
    unchanged = bool((tensor.to_dense() == before.to_dense()).all())
    return unchanged, result.to_dense() if kind == "sparse" else result.t()


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("kind", [*DTYPES, "sparse"], ids=str)
def test_other_tensors_are_combined_in_their_own_dtype(group: Group, kind: Any, *, mean: bool):
    right = torch.arange(12).reshape(3, 4) * (2 if mean else 6)
    for unchanged, result in group.run(combined, kind, mean):
        assert unchanged
        assert result.tolist() == right.to(result.dtype).tolist()


def mean_of_large(_: int) -> list[float]:
    large = torch.tensor([60_000.0, -65_504.0], dtype=torch.float16)
    return fallback().combine(large, mean=True).result(WITHIN).tolist()


def test_a_mean_fits_float16_even_if_the_sum_does_not(group: Group):
    assert group.run(mean_of_large) == [[60_000.0, -65_504.0]] * SIZE


def of_another_kind(rank: int, what: str) -> torch.Tensor:
    if what == "layout":
        dense = torch.eye(3, dtype=torch.float64)
        tensor = dense if rank == 1 else dense.to_sparse()
        return fallback().combine(tensor, mean=True).result(WITHIN)
    if what == "operation":
        return fallback().combine(torch.ones(3).half(), mean=rank == 1).result(WITHIN)
    size, dtype = (3, DTYPES[2 * (rank == 1)]) if what == "dtype" else (3 + rank, torch.float64)
    return fallback().combine(torch.ones(size, dtype=dtype), mean=True).result(WITHIN)


@pytest.mark.parametrize("what", ["dtype", "size", "layout", "operation"])
def test_tensors_that_do_not_match_are_told(group: Group, what: str):
    group.start(of_another_kind, what)
    for rank, problem in enumerate(group.results()):
        assert isinstance(problem, WorkersDisagree)
        told = f"{3 + rank} elements" if what == "size" else "different dtypes or layouts"
        assert told in str(problem)


def test_what_is_left_behind_does_not_hold_up_other_tensors(group: Group):
    group.start(abandon, (40, 0), ranks=[0])
    group.results([0])
    group.run(combined, torch.float64, True)


def test_when_one_dies_the_others_get_an_error():
    with process_group(2, make_fallback) as group:
        group.run(combined, torch.float64, True)
        group.start(exchange, (1, 0), 1, 3, Operation.SUM, ranks=[0])
        group.processes[1].kill()
        [problem] = group.results([0])
        assert isinstance(problem, RuntimeError)


# -- agents ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE) as running:
        yield running


def joined(rank: int, controller: str, job: str, token: str, links: list[str]) -> dict[str, int]:
    """Join as a worker that sums all kinds of tensors."""
    with innet.join(
        controller, job, rank, links[rank], token=token, fallback=dist.group.WORLD
    ) as agent:
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float32):
            mean = agent.all_reduce(torch.full((2, 3), rank, dtype=dtype))
            assert (mean.dtype, mean.tolist()) == (dtype, [[1.0] * 3] * 2)
        sums = agent.all_reduce(np.full((), rank, np.float64), op="sum")
        assert (type(sums), sums.dtype, sums.shape, sums) == (np.ndarray, np.float64, (), 3)
        assert agent.all_reduce(np.arange(3.0)[::-1]).tolist() == [2, 1, 0]
        for dtype in (torch.float32, torch.float64):
            sparse = agent.all_reduce(torch.eye(3, dtype=dtype).to_sparse())
            assert sparse.to_dense().tolist() == torch.eye(3).tolist()
        return dict(agent.fallbacks)


def test_what_the_switch_cannot_sum_goes_another_way_and_is_counted(group: Group, tor: Rack):
    with tor.job(SIZE) as job:
        arguments = tor.controller, job, tor.tokens[job], tor.links
        assert group.run(joined, *arguments) == [{"dtype": 5}] * SIZE
        assert tor.show(job).counters.completed > 0


def test_a_job_without_slots_goes_over_the_fallback(group: Group, tor: Rack):
    with tor.job(SIZE, slots=tor.free_slots), tor.job(SIZE, slots=512, queue=True) as job:
        arguments = tor.controller, job, tor.tokens[job], tor.links
        for fallbacks in group.run(joined, *arguments):
            # Two small vectors, and a sparse one: its call, its bitmap, its rows.
            assert fallbacks == {"dtype": 5, "no_slots": 2 + 3}


def files_after_joins(
    rank: int, controller: str, job: str, token: str, links: list[str]
) -> list[int]:
    """Join several times, sometimes in vain. Return the number of open files after each."""
    files = []
    for quantizer in ("int32", "int33") * 3:
        with contextlib.suppress(UsageError):
            arguments = controller, job, rank, links[rank]
            with innet.join(
                *arguments, token=token, fallback=dist.group.WORLD, quantizer=quantizer
            ) as agent:
                agent.all_reduce(torch.ones(3, dtype=torch.float64))
        dist.barrier()
        files.append(len(list(Path("/proc/self/fd").iterdir())))
    return files


def test_no_connections_of_a_fallback_are_left_when_its_agent_is_closed(group: Group, tor: Rack):
    with tor.job(SIZE) as job:
        arguments = tor.controller, job, tor.tokens[job], tor.links
        for first, *_, last in group.run(files_after_joins, *arguments):
            assert last < first + 2 * SIZE, "less than those of one fallback"


def test_a_fallback_over_a_part_of_the_process_group(group: Group):
    assert group.run(of_a_part) == [[[6.0]] * 2, None, [[6.0]] * 2]


def of_a_part(rank: int) -> list[list[float]] | None:
    part = dist.new_group([0, 2])
    if rank == 1:
        return None
    found = []
    for _ in range(2):
        own = ProcessGroupFallback(part)
        tensor = torch.full((1,), 2.0 + rank, dtype=torch.float64)
        found.append(own.combine(tensor, mean=False).result(WITHIN).tolist())
        own.close()
    return found


def outnumbered(rank: int, controller: str, job: str, token: str, links: list[str]) -> None:
    innet.join(controller, job, rank, links[rank], token=token, fallback=dist.group.WORLD)


def test_a_group_of_another_size_than_the_job_is_refused(group: Group, tor: Rack):
    with tor.job(SIZE + 1) as job:
        group.start(outnumbered, tor.controller, job, tor.tokens[job], tor.links)
        for problem in group.results():
            assert isinstance(problem, UsageError)
            assert str(problem).startswith("the fallback has 3 workers, and the job has 4")
