"""Below PyTorch's dispatcher: layouts, dtypes, roots, timeouts and tools are as over Gloo."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Self

import pytest
import torch
import torch.distributed as dist
from processes import Group, process_group
from racks import Rack, rack
from torch.distributed.tensor.debug import CommDebugMode

from innet.errors import AgentClosed, CompilerError, TimedOut, UnsupportedTensor, WorkersMissing
from innet.torch import extension

SIZE = 3
SUM, AVG, MAX, MIN = (getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "MAX", "MIN"))


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE * 2) as running:
        yield running


@pytest.fixture(scope="module")
def group(tor: Rack) -> Iterator[Group]:
    environments = tor.environments(SIZE, INNET_LOCAL_SUM="0")
    with process_group(SIZE, prepare, "innet", environments) as running:
        yield running


def prepare() -> None:
    pass


# -- layouts -------------------------------------------------------------------------------------

SHAPE = 2, 3, 4


def laid_out(values: torch.Tensor, kind: int) -> torch.Tensor:
    """Return values in memory of some layout: the kinds are those of the text beside each line."""
    match kind % 6:
        case 1:  # the last dimension first, as channels_last
            return values.movedim(-1, 0).contiguous().movedim(0, -1)
        case 2:  # others between the elements
            return torch.full((*values.shape, 2), 7).to(values.dtype)[..., 0].copy_(values)
        case 3:  # from the middle of a larger tensor
            wide = torch.full((values.shape[0] + 2, *values.shape[1:]), 7).to(values.dtype)
            return wide[1:-1].copy_(values)
        case 4 if values.dtype.is_signed and values.dtype != torch.float8_e5m2:
            return torch._neg_view(-values)  # a sign left out; PyTorch negates no float8
        case 5:  # strides of an element's own, as those of a slice of one element
            return values.clone().as_strided(values.shape, values.stride())
    return values.clone()


def numbers(seed: int, dtype: torch.dtype, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 9, shape, generator=generator).to(dtype)


def root_only(rank: int, tensors: Any) -> Any:
    return tensors if rank == 1 else None


def pairs(rank: int, into: list[torch.Tensor], own: list[torch.Tensor]) -> None:
    """Exchange tensors in one all-to-all of lists, and in one of whole tensors of this layout."""
    dist.all_to_all(into, own)
    size = torch.cat([each[:1] for each in own])
    whole = laid_out(torch.zeros_like(size), rank)
    dist.all_to_all_single(whole, laid_out(size, rank + 1))
    into[0].copy_(whole[:2])


def sent(rank: int, into: list[torch.Tensor], own: list[torch.Tensor]) -> None:
    if rank == 0:
        dist.send(own[0], 1)
    elif rank == 1:
        dist.recv(into[0], 0)


Call = Callable[[int, list[torch.Tensor], list[torch.Tensor]], Any]
CALLS: dict[str, Call] = {
    "all_reduce": lambda _, into, __: dist.all_reduce(into[0]),
    "all_reduce_max": lambda _, into, __: dist.all_reduce(into[0], MAX),
    "broadcast": lambda _, into, __: dist.broadcast(into[0], 1),
    "reduce": lambda _, into, __: dist.reduce(into[0], 1),
    "all_gather": lambda _, into, own: dist.all_gather(into, own[0]),
    "reduce_scatter": lambda _, into, own: dist.reduce_scatter(into[0], own),
    "gather": lambda rank, into, own: dist.gather(own[0], root_only(rank, into), dst=1),
    "scatter": lambda rank, into, own: dist.scatter(into[0], root_only(rank, own), src=1),
    "all_to_all": pairs,
    "send": sent,
}


def through(call: Call, rank: int, dtype: torch.dtype, kinds: list[int]) -> list[torch.Tensor]:
    """Return what tensors of these layouts, and the memory that they are part of, have after a call."""
    own = [laid_out(numbers(10 * rank + each, dtype), kinds[each]) for each in range(SIZE)]
    into = [laid_out(numbers(50 + each, dtype), kinds[-each]) for each in range(SIZE)]
    call(rank, into, own)
    bases = [each._base for each in into if each._base is not None]
    return [each.resolve_neg().contiguous() for each in [*into, *bases]]


def wrong_layouts(rank: int, dtype: torch.dtype) -> list[str]:
    """Return the collectives that are wrong if each rank has layouts of its own."""
    wrong = []
    wide = torch.int64 if not dtype.is_floating_point else torch.float64
    for name, call in CALLS.items():
        for turn in range(6):
            kinds = [rank + turn, rank + turn + 1, turn]
            found = through(call, rank, dtype, kinds)[:SIZE]
            plain = through(call, rank, wide, [0, 0, 0])[:SIZE]
            if name == "reduce" and rank != 1:
                continue  # undefined there
            if any(
                not torch.equal(one.to(wide), other.to(dtype).to(wide))
                for one, other in zip(found, plain, strict=True)
            ):
                wrong.append(f"{name} {turn}")
    return wrong


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bfloat16),
        *(torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.float8_e5m2),
    ],
    ids=str,
)
def test_ranks_with_layouts_of_their_own_get_the_same_elements(group: Group, dtype: torch.dtype):
    """The plain layout in a wide dtype is right, rounded once if the dtype lacks bits for the sum."""
    assert group.run(wrong_layouts, dtype) == [[]] * SIZE


def neighbours(rank: int) -> list[list[float]]:
    """Return the memory between the elements of a tensor after collectives of Gloo's and the switch's."""
    found = []
    for dtype in (torch.float32, torch.float64, torch.int16):
        for call in (
            dist.all_reduce,
            lambda given: dist.broadcast(given, 0),
            lambda given: dist.scatter(given, [given.clone()] * SIZE if rank == 0 else None),
            lambda given: dist.all_to_all_single(given, torch.ones(SIZE).to(given.dtype)),
        ):
            base = torch.tensor([1, 7] * SIZE).to(dtype)
            call(base[::2])
            found.append(base[1::2].tolist())
    return found


def test_memory_between_elements_stays(group: Group):
    assert group.run(neighbours) == [[[7.0] * SIZE] * 12] * SIZE


def one_element(rank: int) -> list[float]:
    one = torch.full((1,), float(rank)).as_strided((1,), (5,))
    whole = [torch.zeros(2)[:1].as_strided((1,), (3,)) for _ in range(SIZE)]
    dist.all_gather(whole, one)
    dist.broadcast(one, 2)
    return [*(each.item() for each in whole), one.item()]


def test_a_tensor_of_one_element_may_have_any_stride(group: Group):
    assert group.run(one_element) == [[0.0, 1.0, 2.0, 2.0]] * SIZE


# -- arguments -----------------------------------------------------------------------------------


def said_by(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as problem:  # noqa: BLE001 - that is the question
        return f"{type(problem).__name__}: {problem}"
    return ""


def roots(rank: int) -> tuple[list[str], list[float]]:
    said = [
        said_by(lambda call=call, root=root: call(torch.ones(4), root))
        for root in (SIZE, -1)
        for call in (dist.broadcast, dist.reduce)
    ]
    after = torch.ones(2)
    dist.all_reduce(after)
    return said, after.tolist()


def test_a_root_outside_of_the_group_is_refused_and_the_group_goes_on(group: Group):
    for said, after in group.run(roots):
        for each, root in zip(said, (SIZE, SIZE, -1, -1), strict=True):
            assert f"invalid root rank: {root}" in each
        assert after == [3.0] * 2


def forms(rank: int) -> list[Any]:
    world: Any = dist.group.WORLD
    one, other = torch.full((2,), rank + 1.0), torch.full((2,), 10.0)
    world.allreduce([one, other]).wait()
    root = torch.full((2,), float(rank))
    world.broadcast(root, root=2).wait()
    total = torch.ones(2)
    work = world.allreduce(total, op=MAX)
    work.wait()
    backend = world._get_backend(torch.device("cpu"))
    return [
        one.tolist(), other.tolist(), root.tolist(), [each.tolist() for each in work.result()],
        work.get_future().wait()[0].tolist(), type(backend.options._timeout).__name__,
        "non-empty" in said_by(lambda: world.allreduce([])),
    ]  # fmt: skip


def test_forms_of_a_call_are_those_of_gloo(group: Group):
    both = [36.0] * 2  # all tensors of all ranks
    expected = [both, both, [2.0] * 2, [[1.0] * 2], [1.0] * 2, "timedelta", True]
    assert group.run(forms) == [expected] * SIZE


def futures(rank: int) -> list[Any]:
    """Look at futures, in callbacks and right after the waits of their calls."""
    seen, done = [], []
    for _ in range(200):
        work = dist.all_reduce(torch.ones(2), async_op=True)
        future = work.get_future()

        def waits(future: Any, work: Any = work) -> list[torch.Tensor]:
            work.wait()
            seen.append(work.is_completed())
            return future.value()

        chained = future.then(waits)
        work.wait()
        done += [future.done(), chained.done(), work.get_future().done()]
        assert chained.value()[0].tolist() == [SIZE] * 2
    return [set(seen), set(done), len(seen)]


def test_after_a_wait_the_future_is_done_and_its_callbacks_have_waited(group: Group):
    assert group.run(futures) == [[{True}, {True}, 200]] * SIZE


# -- dtypes and operations -----------------------------------------------------------------------


def of_the_backend(rank: int) -> tuple[list[list[float]], float]:
    """Call methods of the backend itself, as PyTorch's tests of Gloo do."""
    backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))
    own = [torch.full((2,), rank + 0.0), torch.full((3,), rank + 0.5)]
    into = [[torch.empty_like(each) for _ in range(SIZE)] for each in own]
    gathered = backend.allgather(into, own).get_future().wait()
    options = dist.BroadcastOptions()
    options.rootTensor = 1
    with pytest.raises(RuntimeError, match="invalid root tensor: 1"):
        backend.broadcast(own[:1], options).wait()
    before = backend.options._timeout
    backend._set_default_timeout(timedelta(seconds=23))
    timeout = backend.options._timeout
    backend._set_default_timeout(before)
    return [[part[-1].item() for part in parts] for parts in gathered], timeout.total_seconds()


def test_the_backends_own_methods_are_those_of_gloo(group: Group):
    for found in group.run(of_the_backend):
        assert found == ([[0.0, 1.0, 2.0], [0.5, 1.5, 2.5]], 23)


def with_nan(rank: int) -> list[bool]:
    found = []
    for dtype in (torch.float32, torch.float64, torch.float16, torch.float8_e5m2):
        for op in (MAX, MIN):
            for who in range(SIZE):
                given = torch.tensor([float("nan") if rank == who else -2.0, rank - 1.0]).to(dtype)
                dist.all_reduce(given, op)
                extreme = 1.0 if op == MAX else -1.0
                found.append(given[0].float().isnan().item() and given[1].float() == extreme)
    return list(map(bool, found))


def test_an_extreme_is_nan_wherever_the_nan_is(group: Group):
    assert group.run(with_nan) == [[True] * 24] * SIZE


def means(rank: int) -> list[Any]:
    found = []
    for dtype in (
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.int16,
        torch.float64,
        torch.complex64,
    ):
        given = torch.tensor([rank + 1, 200 if dtype == torch.uint8 else -rank]).to(dtype)
        dist.all_reduce(given, AVG) if not dtype.is_complex else dist.reduce(given, 0, AVG)
        found.append(given.tolist() if not dtype.is_complex or rank == 0 else [2, -1])
    return found


def test_means_of_integers_are_rounded_towards_zero(group: Group):
    """As Lightning does it for Gloo. Sums of uint8 do not overflow on the way."""
    expected = [[2, -1], [2, -1], [2, 200], [2, -1], [2.0, -1.0], [2, -1]]
    assert group.run(means) == [expected] * SIZE


def unsupported(rank: int) -> str:
    try:
        dist.all_reduce(torch.ones(2).to(torch.uint64), AVG)
    except UnsupportedTensor as problem:
        return str(problem)
    return ""


def test_an_error_names_the_dtype_and_what_to_do(group: Group):
    for said in group.run(unsupported):
        assert "AVG of uint64: convert the tensor first" in said


# -- tensors that are more than memory -----------------------------------------------------------


class Wrapper(torch.Tensor):
    """A tensor without memory of its own."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Self:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = torch.utils._pytree.tree_map_only(cls, lambda each: each.inner, args)
        return function(*plain, **(kwargs or {}))


def special(rank: int) -> list[Any]:
    wrapped = Wrapper(torch.full((3,), rank + 1.0))
    dist.all_reduce(wrapped)
    with torch.inference_mode():
        inferred = torch.ones(3, dtype=torch.float64)[::2]
        dist.all_reduce(inferred)
    leaf = torch.ones(2, requires_grad=True)
    dist.all_reduce(leaf)
    return [wrapped.inner.tolist(), inferred.tolist(), leaf.tolist()]


def test_subclasses_inference_tensors_and_leaves_are_summed(group: Group):
    assert group.run(special) == [[[6.0] * 3, [3.0] * 2, [3.0] * 2]] * SIZE


# -- time ----------------------------------------------------------------------------------------


def late(rank: int, dtype: torch.dtype, end: Any) -> str:
    """Let rank 0 come only when the others have given up. Return the others' error."""
    own = dist.new_group(timeout=timedelta(seconds=200))
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=1)
    said = ""
    if rank:
        try:
            own.allreduce([torch.ones(2, dtype=dtype)], options).wait()
        except WorkersMissing:
            said = "missing"
        except RuntimeError:
            said = "timeout"
    dist.barrier()
    return said


@pytest.mark.parametrize(
    ("dtype", "said"), [(torch.float32, "missing"), (torch.float64, "timeout")]
)
def test_a_call_has_a_timeout_of_its_own(group: Group, dtype: torch.dtype, said: str):
    assert group.run(late, dtype, None) == ["", said, said]


def impatient(rank: int) -> str:
    own = dist.new_group()
    said = ""
    if rank:
        work = dist.all_reduce(torch.ones(2), group=own, async_op=True)
        try:
            work.wait(timedelta(milliseconds=200))
        except TimedOut:
            said = "goes on"
        dist.barrier()
        work.wait()
    else:
        dist.barrier()
        dist.all_reduce(torch.ones(2), group=own)
    return said


def test_a_wait_that_ends_early_leaves_the_collective_alone(group: Group):
    assert group.run(impatient) == ["", "goes on", "goes on"]


def interrupted(rank: int, name: str) -> str:
    """Let a signal come while rank 1 waits for something that the others never send."""
    own, said = dist.new_group(), ""
    waits: dict[str, Callable[[], Any]] = {
        "recv": lambda: dist.recv(torch.ones(1), 0, group=own),
        "gloo": lambda: dist.all_reduce(torch.ones(2, dtype=torch.float64), group=own),
        "switch": lambda: dist.all_reduce(torch.ones(2), group=own, async_op=True).wait(),
    }
    if rank == 1:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            waits[name]()
        except KeyboardInterrupt:
            said = "interrupted"
    dist.barrier()
    return said


@pytest.mark.parametrize("name", ["recv", "gloo", "switch"])
def test_ctrl_c_ends_a_wait(group: Group, name: str):
    assert group.run(interrupted, name) == ["", "interrupted", ""]


def abandoned(rank: int) -> float:
    own = dist.new_group()
    dist.barrier(group=own)
    works = [dist.all_reduce(torch.ones(1 << 21), group=own, async_op=True) for _ in range(30)]
    begin = time.monotonic()
    dist.destroy_process_group(own)
    took = time.monotonic() - begin
    with contextlib.suppress(AgentClosed):
        works[-1].wait()
    return took


def test_a_group_with_many_outstanding_calls_ends_quickly(group: Group):
    """All of them would take longer, on any machine."""
    assert min(group.run(abandoned)) < 2


# -- tools ---------------------------------------------------------------------------------------


def seen(rank: int) -> tuple[Any, Any, Any]:
    given = torch.ones(4, 2)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        dist.all_reduce(given)
        dist.broadcast(given, 0)
        work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
        work.wait()
    events = profile.events()
    counts = {
        name: sum(each.name == name for each in events)
        for name in (
            "c10d::allreduce_",
            "innet:all_reduce",
            "c10d::broadcast_",
            "record_param_comms",
        )
    }
    shapes = [each.input_shapes for each in events if each.name == "innet:all_reduce"]
    durations = [each.time_range.elapsed_us() for each in events if each.name == "innet:all_reduce"]
    with CommDebugMode() as mode:
        dist.all_reduce(given)
        dist.reduce_scatter_tensor(torch.ones(1), torch.ones(SIZE))
    return counts, (shapes[0], max(durations) > 1), mode.get_total_counts()


def test_tools_see_the_collectives_with_their_sizes(group: Group):
    counts = {
        "c10d::allreduce_": 2,
        "innet:all_reduce": 2,
        "c10d::broadcast_": 1,
        "record_param_comms": 3,
    }
    for found, (shapes, lasts), total in group.run(seen):
        assert (found, shapes, lasts, total) == (counts, [[4, 2]], True, 2)


def devices(rank: int) -> list[str]:
    config = dist.distributed_c10d.BackendConfig(dist.Backend("innet"))
    return sorted(config.get_device_backend_map())


def test_without_cuda_the_backend_is_for_cpus(group: Group):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert group.run(devices) == [["cpu"]] * SIZE


# -- the compiler --------------------------------------------------------------------------------


def test_without_a_compiler_an_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("INNET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CompilerError, match=r"C\+\+ compiler and Python's headers"):
        extension.loaded.__wrapped__()
