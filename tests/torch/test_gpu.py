"""Tensors of a GPU that is shared by all ranks: streams, DDP and FSDP."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from gpus import has_gpu
from processes import Group, process_group
from racks import Rack, rack
from torch.nn.parallel import DistributedDataParallel

import innet.torch
from innet.host.ddp import ddp_hook
from innet.torch.group import backend_of

pytestmark = pytest.mark.skipif(not has_gpu(), reason="there is no GPU")

SIZE = 2
LONG = 6_000_000_000
"""Cycles for which a GPU is kept busy: seconds, and more than a sum on a busy machine takes."""

COUNT = 300_000


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE) as running:
        yield running


@pytest.fixture(scope="module")
def group(tor: Rack) -> Iterator[Group]:
    with process_group(SIZE, prepare, "innet", tor.environments(SIZE)) as running:
        yield running


def prepare() -> None:
    torch.set_default_device("cuda")


def keep_busy(cycles: int = LONG) -> torch.cuda.Event:
    """Keep the current stream busy, and return the event at the end of it."""
    torch.cuda._sleep(cycles)
    return torch.cuda.current_stream().record_event()


def ahead_of_the_stream(rank: int) -> list[bool]:
    """Return whether each call was done before the work that was queued after it."""
    found = []
    half = torch.full((COUNT,), rank, dtype=torch.float16)
    parts = torch.zeros(SIZE * COUNT)
    calls = [
        lambda: dist.all_reduce(torch.full((COUNT,), rank + 1.0), async_op=True),
        lambda: dist.all_reduce(half, async_op=True),
        lambda: dist.all_reduce(torch.full((COUNT,), rank), async_op=True),
        lambda: dist.broadcast(torch.full((COUNT,), rank + 1.0), 1, async_op=True),
        lambda: dist.all_gather_into_tensor(parts, torch.ones(COUNT), async_op=True),
        lambda: dist.reduce_scatter_tensor(
            torch.zeros(COUNT), torch.ones(SIZE * COUNT), async_op=True
        ),
    ]
    for call in calls:
        call().wait()  # compiles kernels, which waits for the device
    for call in calls:
        torch.cuda.synchronize()
        dist.barrier()
        work = call()
        end = keep_busy()
        work.wait()
        found.append(not end.query())
    torch.cuda.synchronize()
    return found


def test_collectives_do_not_wait_for_work_that_is_queued_later(group: Group):
    """A whole backward pass may be queued behind the first gradients of it."""
    assert group.run(ahead_of_the_stream) == [[True] * 6] * SIZE


def after_the_stream(rank: int) -> list[list[float]]:
    """Use tensors in a stream of the caller's own, in which they are written late."""
    stream, found = torch.cuda.Stream(), []
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.float64):
        with torch.cuda.stream(stream):
            summed, moved = (torch.zeros(COUNT, dtype=dtype) for _ in range(2))
            keep_busy(LONG // 20)
            summed += rank + 1
            moved += rank + 1
            works = [
                dist.all_reduce(summed, async_op=True),
                dist.broadcast(moved, 1, async_op=True),
            ]
            for work in works:
                work.wait()
            found.append([*summed.unique().tolist(), *moved.unique().tolist()])
    return found


def test_a_tensor_is_read_after_what_its_stream_had_to_do(group: Group):
    assert group.run(after_the_stream) == [[[3.0, 2.0]] * 4] * SIZE


def used_later(rank: int) -> bool:
    """Use results in a busy stream, and drop them before it has read them."""
    agent = group_agent()
    stream, copies = torch.cuda.Stream(), []
    for step in range(8):
        own = torch.full((COUNT,), float(step + rank))
        with torch.cuda.stream(stream):
            total = agent.all_reduce(own, "sum")
            gathered = agent.all_gather(own)
            keep_busy(LONG // 50)
            copies.append((total.clone(), gathered[::COUNT].clone()))
            del total, gathered
    torch.cuda.synchronize()
    return all(
        torch.equal(total, torch.full((COUNT,), 2.0 * step + 1))
        and gathered.tolist() == [step, step + 1]
        for step, (total, gathered) in enumerate(copies)
    )


def group_agent() -> Any:
    backend = backend_of(dist.group.WORLD)
    assert backend
    return backend._membership.agent


def test_results_stay_while_the_callers_stream_reads_them(group: Group):
    assert group.run(used_later) == [True] * SIZE


def quantized(rank: int, quantizer: str) -> bytes:
    """Return the sum of normal values, which is checked against the same sum on the CPU."""
    values = np.random.default_rng(rank).standard_normal(COUNT, np.float32)
    agent = group_agent()
    on_gpu = agent.all_reduce(
        torch.from_numpy(values).cuda(), "mean", quantizer=quantizer, key=("gpu", quantizer)
    )
    assert on_gpu.is_cuda
    on_cpu = agent.all_reduce(values, "mean", quantizer=quantizer, key=("cpu", quantizer))
    if "stochastic" not in quantizer:  # rounded with other random numbers
        assert on_gpu.cpu().numpy().tobytes() == on_cpu.tobytes()
    return on_gpu.cpu().numpy().tobytes()


@pytest.mark.parametrize(
    "quantizer",
    [
        "int32",
        "int16",
        "int8",
        "int8+stochastic",
        "int8+feedback",
        "int8+blocks:64+topk:0.1",
        "strom:0.5",
    ],
)
def test_a_gpu_gives_the_bits_of_the_cpu(group: Group, quantizer: str):
    [first, second] = group.run(quantized, quantizer)
    assert first == second


def of_every_kind(rank: int) -> list[str]:
    """Return the calls whose result differs from that of the same tensor on the CPU."""
    agent, size = group_agent(), dist.get_world_size()
    normal = torch.randn(
        3 * size, 700, generator=torch.Generator("cpu").manual_seed(rank), device="cpu"
    )
    damaged = normal.clone()
    damaged[rank, 5] = (torch.inf, torch.nan)[rank]
    long = torch.arange(16384.0, device="cpu") * (rank + 1)
    huge = torch.full_like(normal, 3e38)
    rows = torch.sparse_coo_tensor(
        torch.tensor([[rank, 7]], device="cpu"), normal[:2], (9, 700), device="cpu"
    )
    calls: dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]] = {
        "mean": (normal, agent.all_reduce),
        "mean of numbers that are not finite": (damaged, agent.all_reduce),
        "int8 mean of numbers that are not finite": (
            damaged, lambda each: agent.all_reduce(each, quantizer="int8"),
        ),
        "mean of numbers whose sum is not finite": (huge, agent.all_reduce),
        "sum of sparse rows": (rows, lambda each: agent.all_reduce(each, "sum").to_dense()),
        "sum of int64": ((1e12 * normal).long(), lambda each: agent.all_reduce(each, "sum")),
        "sum of float64": (normal.double(), lambda each: agent.all_reduce(each, "sum")),
        "max": (normal, lambda each: agent.all_reduce(each, "max")),
        "part": (normal, agent.reduce_scatter),
        "gathered": (normal.half(), agent.all_gather),
        "gathered of nothing": (normal[:0], agent.all_gather),
        "broadcast": (normal.t(), lambda each: agent.broadcast(each, 1)),
        "mean of every second number": (long, lambda each: agent.all_reduce(each[::2])),
        "mean of one number, expanded": (long, lambda each: agent.all_reduce(each[:1].expand(8192))),
        "mean of a view without its sign": (long, lambda each: agent.all_reduce(torch._neg_view(each))),
        "a few": (normal[0, :3], agent.all_reduce),
        "nothing": (normal[:0], agent.all_reduce),
    }  # fmt: skip
    wrong = []
    for name, (tensor, call) in calls.items():
        found, expected = call(tensor.cuda()), call(tensor)
        same = torch.equal(found.cpu().nan_to_num(7), expected.nan_to_num(7))
        if not (same and found.is_cuda and found.dtype == expected.dtype):
            wrong.append(name)
    return wrong


def test_all_calls_give_the_results_of_the_cpu(group: Group):
    assert group.run(of_every_kind) == [[]] * SIZE


def mixed(rank: int) -> list[bytes]:
    """Sum a CPU's tensor on rank 0 and a GPU's on the other rank."""
    values = np.random.default_rng(rank).standard_normal(3_000_000, np.float32)
    tensor = torch.from_numpy(values)
    reduced = group_agent().all_reduce(tensor.cuda() if rank else tensor, "mean")
    return [reduced.cpu().numpy().tobytes()]


def test_gpus_and_cpus_sum_together(group: Group):
    [first, second] = group.run(mixed)
    assert first == second


def model() -> torch.nn.Module:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(512, 512) for _ in range(6)]
    return torch.nn.Sequential(*(each for layer in layers for each in (layer, torch.nn.ReLU())))


def train(wrapped: torch.nn.Module, rank: int, steps: int = 8) -> list[float]:
    """Return the sum of each parameter after some steps."""
    from torch.distributed.tensor import DTensor  # slow to import

    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    generator = torch.Generator(device="cuda").manual_seed(rank)
    for _ in range(steps):
        inputs = torch.randn(64, 512, generator=generator)
        optimizer.zero_grad()
        loss = (wrapped(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
    whole = (
        each.full_tensor() if isinstance(each, DTensor) else each for each in wrapped.parameters()
    )
    return [each.double().sum().item() for each in whole]


def with_ddp(rank: int, quantizer: str) -> tuple[list[float], list[float]]:
    """Return sums of the parameters after training over Gloo and over innet."""
    over_gloo = DistributedDataParallel(
        model(), process_group=dist.new_group(backend="gloo"), bucket_cap_mb=1
    )
    expected = train(over_gloo, rank)
    ours = DistributedDataParallel(model(), bucket_cap_mb=1)
    if quantizer:
        ours.register_comm_hook((group_agent(), quantizer), ddp_hook)
    return expected, train(ours, rank)


@pytest.mark.parametrize("quantizer", ["", "int32", "int8+feedback"])
def test_ddp_learns_the_same_as_over_gloo(group: Group, quantizer: str):
    found = group.run(with_ddp, quantizer)
    assert found[0] == found[1]
    expected, ours = found[0]
    assert ours == pytest.approx(expected, rel=1e-2 if "int8" in quantizer else 1e-4, abs=0.02)


def with_fsdp(rank: int, dtype: Any) -> tuple[list[float], list[float]]:
    """Return sums of the parameters after training with DDP over Gloo, and with FSDP2 over innet."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    expected = train(
        DistributedDataParallel(model(), process_group=dist.new_group(backend="gloo")), rank
    )
    sharded, before = model(), innet.torch.carried()
    mesh = DeviceMesh.from_group(dist.group.WORLD, "cuda")
    policy = MixedPrecisionPolicy(dtype, torch.float32)
    for part in [layer for layer in sharded if list(layer.parameters())] + [sharded]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    ours = train(sharded, rank)
    after = innet.torch.carried()
    assert {way.by for way in after if after[way] > before.get(way, 0)} == {"switch"}
    return expected, ours


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fsdp_learns_the_same_as_ddp_over_gloo(group: Group, dtype: Any):
    for expected, ours in group.run(with_fsdp, dtype):
        assert ours == pytest.approx(expected, rel=1e-2, abs=0.05)
