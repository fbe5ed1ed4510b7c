"""Process groups of the backend `innet`: their jobs, what they leave behind, and what goes wrong."""

import contextlib
import gc
import os
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import Group, process_group
from racks import Rack, rack
from waiting import WITHIN, until

import innet.torch
from innet.errors import UsageError, WorkersMissing
from innet.local.ports import free_tcp_port
from innet.rpc import innet_pb2 as pb
from innet.torch.membership import GroupContext, join_job
from innet.torch.settings import Settings

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
    own = tor.environments(SIZE, INNET_METRICS="127.0.0.1:0")
    with process_group(SIZE, prepare, "innet", own) as running:
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


def dropped(rank: int, times: int) -> list[str]:
    """Form groups which nobody destroys. Return why Gloo carries each, if it does."""
    store = dist.distributed_c10d._get_default_store()
    reasons = []
    for number in range(times):
        own = dist.PrefixStore(f"dropped/{number}", store)
        within = timedelta(seconds=WITHIN)
        gloo = dist.ProcessGroupGloo(own, rank, SIZE, within)
        context = GroupContext(own, gloo, rank, SIZE, within, first=False, prefix="dropped")
        membership = join_job(context, os.environ)
        reasons.append(membership.reason)
        if membership.agent:
            membership.agent.all_reduce(torch.ones(3))
        del membership
        gc.collect()
    return reasons


def test_the_cable_of_a_group_that_nobody_has_destroyed_is_free_when_it_has_left(
    group: Group, tor: Rack
):
    for reasons in group.run(dropped, 2 * CABLES):
        assert reasons == [""] * 2 * CABLES
    until(lambda: len(jobs(tor)) == 1)


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


def again_and_again(rank: int, times: int) -> None:
    def nothing_is_left() -> bool:
        return all(now <= had for now, had in zip(possessions(), before, strict=True))

    for number in range(times):
        group = dist.new_group()
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [SIZE] * 3
        dist.destroy_process_group(group)
        del group
        if number == 1:
            before = possessions()
    until(nothing_is_left)  # gRPC's threads end after the group


def test_a_group_leaves_nothing_behind(group: Group, tor: Rack):
    free, times = tor.free_slots, int(os.environ.get("INNET_TEST_GROUPS", "8"))
    group.run(again_and_again, times, within=WITHIN + 2 * times)
    assert (tor.free_slots, len(jobs(tor))) == (free, 1)


def busy_seconds() -> dict[str, float]:
    """Return the processor time of each thread, in seconds. Gloo's threads, which poll, are left out."""
    found = {}
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            if not (thread / "comm").read_text().startswith("gloo"):
                found[thread.name] = int((thread / "schedstat").read_text().split()[0]) * 1e-9
    return found


def idle(rank: int, seconds: float) -> float:
    before = busy_seconds()
    time.sleep(seconds)  # during this nothing should happen
    return sum(now - before.get(name, 0.0) for name, now in busy_seconds().items()) / seconds


def test_an_idle_worker_costs_next_to_nothing(group: Group):
    # Earlier work may still be cleaned up in the first seconds. A busy wait never ends.
    assert any(max(group.run(idle, 3.0)) < 0.01 for _ in range(4))


def slotless(rank: int) -> tuple[list[float], str]:
    group = dist.new_group()
    tensor = torch.full((100,), rank + 1.0)
    dist.all_reduce(tensor, group=group)
    fallbacks = innet.torch.backend_of(group)._membership.agent.fallbacks
    dist.destroy_process_group(group)
    return tensor[:2].tolist(), str(dict(fallbacks))


def test_a_group_for_which_there_are_no_slots_sums_over_the_fallback(group: Group, tor: Rack):
    with contextlib.ExitStack() as stack:
        while free := tor.free_slots:
            stack.enter_context(tor.job(1, slots=1 << free.bit_length() - 1))
        assert group.run(slotless) == [([3.0, 3.0], "{'no_slots': 1}")] * SIZE


# -- what goes wrong ---------------------------------------------------------------------------


def initialize(rank: int, port: int, changed: dict[str, str]) -> None:
    import innet.torch

    assert innet.torch
    os.environ.update(changed)
    where = f"tcp://127.0.0.1:{port}"
    timeout = timedelta(seconds=WITHIN)
    dist.init_process_group("innet", where, timeout, rank=rank, world_size=SIZE)


def initialize_unlike(rank: int, port: int, changed: dict[str, str]) -> None:
    """Change the environment of rank 1 only, until the group is made."""
    before = dict(os.environ)
    try:
        initialize(
            rank, port, changed if rank == 1 else {"INNET_CONTROLLER": changed["INNET_CONTROLLER"]}
        )
    finally:
        os.environ.clear()
        os.environ.update(before)


def failing(rank: int) -> list[float]:
    if rank == 1:
        os._exit(9)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    return tensor.tolist()


def test_what_the_environment_has_wrong_and_a_worker_that_dies_are_named_to_all(tor: Rack):
    with tor.cables(SIZE) as links:
        common = {
            "INNET_CONTROLLER": tor.controller, "INNET_LINK": ",".join(links), "INNET_LOCAL_SUM": "0",
        }  # fmt: skip
        own = [{**common, "LOCAL_RANK": str(rank)} for rank in range(SIZE)]
        del own[1]["INNET_CONTROLLER"]
        with process_group(SIZE, prepare, "", own) as group:
            group.start(initialize, free_tcp_port(), {})
            for problem in group.results():
                assert isinstance(problem, UsageError)
                assert "set INNET_CONTROLLER=HOST:PORT" in str(problem)
                assert "rank 1" in str(problem)
            group.start(initialize_unlike, free_tcp_port(), {**common, "INNET_METRICS": "nowhere"})
            for problem in group.results(within=WITHIN / 2):  # before the timeout of `initialize`
                assert isinstance(problem, UsageError)
                assert "INNET_METRICS is 'nowhere'" in str(problem)
            common["INNET_QUANTIZER"] = "int8+feedback"
            group.start(initialize, free_tcp_port(), common)
            for problem in group.results():
                assert isinstance(problem, UsageError)
                assert "choose a quantizer without feedback, or register the hook" in str(problem)
            common["INNET_QUANTIZER"] = "int8"
            group.run(initialize, free_tcp_port(), common)
            group.start(failing)
            [problem] = group.results([0])
            assert isinstance(problem, WorkersMissing)
            assert "worker 1: " in str(problem)


@pytest.mark.parametrize("slots", ["-1", "many", "100", "4294967296", "9" * 5000])
def test_a_number_of_slots_that_no_job_can_have_is_refused(slots: str):
    """Otherwise only rank 0 would fail, with a traceback, and the others would wait for it."""
    with pytest.raises(UsageError, match="INNET_SLOTS"):
        Settings.read({"INNET_CONTROLLER": "127.0.0.1:9600", "INNET_SLOTS": slots})


# -- private sums --------------------------------------------------------------------------------


def hidden(rank: int) -> tuple[float, float, list[str]]:
    """All-reduce and broadcast, and try what Gloo would carry."""
    mean, moved = torch.full((5000,), rank + 1.0), torch.full((5000,), rank + 1.0)
    dist.all_reduce(mean)
    dist.broadcast(moved, 1)
    dist.barrier()
    refused = []
    for call in (
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.float64)),
        lambda: dist.all_to_all_single(torch.empty(SIZE), torch.ones(SIZE)),
        lambda: dist.send(torch.ones(1), 1 - rank),
    ):
        try:
            call()
        except UsageError as problem:
            refused.append(str(problem))
    return mean.unique().item(), moved.unique().item(), refused


def test_a_private_group_leaves_nothing_to_gloo(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    with (
        rack(SIZE * CABLES) as tor,
        process_group(
            SIZE, prepare, "innet", tor.environments(SIZE, INNET_PRIVATE_KEY_FILE=str(key))
        ) as running,
    ):
        for mean, moved, refused in running.run(hidden):
            assert (mean, moved) == (3, 2)
            assert len(refused) == 3
            assert all("in the clear" in each for each in refused)
