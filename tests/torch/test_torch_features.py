"""Features of PyTorch's groups for which other backends need Gloo or NCCL: carried, or refused."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import Group, process_group
from racks import Rack, rack
from torch.nn.parallel import DistributedDataParallel

import innet.torch
from innet.errors import AllReduceError, UsageError

SIZE = 2
SHORT = timedelta(seconds=1)


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(2 * SIZE) as running:
        yield running


@pytest.fixture(scope="module")
def group(tor: Rack) -> Iterator[Group]:
    """Start processes without LOCAL_RANK, as Lightning's first process is."""
    links = ["+".join(tor.links[rank::SIZE]) for rank in range(SIZE)]
    common = {
        "INNET_CONTROLLER": tor.controller, "INNET_LINK": ",".join(links), "INNET_LOCAL_SUM": "0",
    }  # fmt: skip
    with process_group(SIZE, without_local_rank, "innet", [common] * SIZE) as running:
        yield running


def without_local_rank() -> None:
    assert "LOCAL_RANK" not in os.environ


def summed(rank: int, group: Any = None) -> tuple[float, set[tuple[str, str]]]:
    before = innet.torch.carried()
    tensor = torch.full((100,), rank + 1.0)
    dist.all_reduce(tensor, group=group)
    after = innet.torch.carried()
    return tensor[0].item(), {
        (way.by, way.reason) for way, n in after.items() if n != before.get(way)
    }


def test_without_a_local_rank_the_rank_picks_the_cable(group: Group):
    assert group.run(summed) == [(3.0, {("switch", "")})] * SIZE


def barred(rank: int) -> str:
    """Pass barriers with every form of arguments. Return what rank 0 says about a missing rank."""
    dist.monitored_barrier()
    dist.monitored_barrier(None, timedelta(seconds=60), wait_all_ranks=True)
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    dist.group.WORLD.monitored_barrier(timedelta(seconds=60))
    both, said = dist.new_group(backend="cpu:innet,cuda:innet"), ""
    if rank == 0:
        with pytest.raises(RuntimeError) as caught:
            dist.monitored_barrier(both, SHORT)
        said = str(caught.value)
    dist.barrier()
    dist.destroy_process_group(both)  # which gives its cable to the groups of other tests
    return said


def test_a_monitored_barrier_names_the_rank_that_stays_away(group: Group):
    said, nothing = group.run(barred)
    assert "Rank 1 failed to pass" in said
    assert nothing == ""


def elsewhere(rank: int) -> str:
    """Call the functions with a group of Gloo, which some versions of PyTorch can split on CPUs."""
    gloo = dist.new_group(backend="gloo")
    dist.monitored_barrier(gloo)
    try:
        return dist.get_backend(dist.split_group(gloo, [[0], [1]]))
    except RuntimeError as refusal:
        return str(refusal)
    finally:
        dist.destroy_process_group(gloo)


def test_groups_of_other_backends_get_pytorchs_functions(group: Group):
    for found in group.run(elsewhere):
        assert found == "gloo" or "safe to split" in found


def split(rank: int) -> list[str]:
    found = []
    for call in (
        lambda: dist.group.WORLD.split_group([0]),
        lambda: dist.split_group(split_ranks=[[0], [1]]),
        lambda: dist.split_group(dist.group.WORLD, [[0], [1]]),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        found.append(str(caught.value))
    return found


def test_a_group_cannot_be_split_and_the_error_names_the_other_way(group: Group):
    for errors in group.run(split):
        assert len(errors) == 3
        assert all("create one with torch.distributed.new_group(ranks)" in each for each in errors)


def uneven(rank: int) -> list[float]:
    """Train with more batches on rank 1, as a mean over the ranks that still have some."""
    model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    torch.nn.init.zeros_(model.module.weight)
    found = []
    with model.join(divide_by_initial_world_size=False):
        for _ in range(1 + rank):
            model.zero_grad()
            model(torch.full((1, 1), rank + 1.0)).sum().backward()
            found.append(model.module.weight.grad.item())
    return found


def test_ranks_with_uneven_inputs_take_the_mean_over_those_that_have_some(group: Group):
    assert group.run(uneven) == [[1.5], [1.5, 2.0]]


def compiled(rank: int) -> list[float]:
    """Train a compiled model. In its second step, it broadcasts the new order of its buckets."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    step = torch.compile(DistributedDataParallel(model), backend="aot_eager")
    found = []
    for _ in range(3):
        step.zero_grad()
        step(torch.full((1, 1), rank + 1.0)).sum().backward()
        found.append(model.weight.grad.item())
    return found


def test_a_compiled_model_trains(group: Group):
    assert group.run(compiled) == [[1.5] * 3] * SIZE


def limited(rank: int) -> bool:
    """Shorten a group's timeout; the other rank of it stays away."""
    own = dist.new_group()
    dist.distributed_c10d._set_pg_timeout(SHORT, own)
    if rank == 0:
        with pytest.raises(AllReduceError):  # a busy switch may be the first to miss the limit
            dist.all_reduce(torch.ones(5), group=own)
    dist.barrier()
    dist.destroy_process_group(own)
    return True


def test_a_timeout_that_is_set_later_limits_all_reduces_through_the_switch(group: Group):
    assert group.run(limited) == [True] * SIZE


def different(rank: int) -> tuple[Any, str]:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    own = dist.new_group()
    found = summed(rank, own)
    try:
        dist.all_reduce(torch.ones(5 + rank), group=own)
    except RuntimeError as problem:
        return found, str(problem)
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)
    return found, ""


def test_the_debug_level_detail_finds_ranks_that_disagree(group: Group):
    for found, said in group.run(different):
        assert found == (3.0, {("switch", "")})
        assert "mismatch" in said


# -- PyTorch's list of backends ----------------------------------------------------------------


def said(script: str, **environment: str) -> str:
    """Return the output of a script, in a process that has imported nothing."""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=250, check=True,
    )  # fmt: skip
    return done.stdout.strip() + done.stderr.strip()


def test_pytorch_knows_the_backend_by_itself_and_loads_nothing_heavy_for_it():
    assert said(
        "import sys, torch; import torch.distributed as dist\n"
        "assert 'innet' in dist.Backend.backend_list\n"
        "assert dist.Backend.default_device_backend_map['cpu'] == 'gloo'\n"
        "assert not {'grpc', 'numpy.random', 'innet.torch.group', 'innet.host'} & set(sys.modules)\n"
        "assert not [each for each in sys.meta_path if 'innet.torch' in str(type(each))]\n",
        INNET_CONTROLLER="",
    ) == ""  # fmt: skip


def test_an_innet_that_cannot_be_imported_does_not_keep_pytorch_from_starting():
    found = said(
        "import sys; sys.modules['innet.torch.backend'] = None\n"
        "import torch; print('innet' in torch.distributed.Backend.backend_list)"
    )
    assert found.startswith("False")
    assert "PyTorch does not know the backend innet" in found


@pytest.mark.parametrize("first", ["innet.torch", "innet.host.ddp"])
def test_any_module_may_be_imported_first(first: str):
    assert said(f"import {first}, torch; print(torch.distributed.Backend.INNET)") == "innet"
