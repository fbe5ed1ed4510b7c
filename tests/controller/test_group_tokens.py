"""Tokens of a process group's ranks: each rank has its own, and none crosses Gloo or the store."""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from processes import WITHIN, Group, process_group
from racks import Rack, free_cables, rack
from scripted_worker import scripted
from switches import running_switch

from innet.controller.server import ControllerServer
from innet.errors import NoCapacity, NotAuthorized, UsageError
from innet.local.ports import free_tcp_port
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.client import connect, translated
from innet.rpc.tokens import token_digest
from innet.wire.layout import MOST_WORKERS

SIZE = 2
TOKENS = [f"{rank}-token-that-only-rank-{rank}-knows" for rank in range(SIZE)]
DIGESTS = [token_digest(token) for token in TOKENS]


# -- the controller ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE) as running:
        yield running


def test_where_every_rank_has_its_own_token_it_joins_with_that_and_no_other(tor: Rack):
    with tor.job(SIZE, token_digests=DIGESTS) as job:
        assert not tor.tokens[job]
        for rank, token in ((0, TOKENS[1]), (1, TOKENS[0]), (1, ""), (2, TOKENS[1])):
            with pytest.raises(NotAuthorized, match="INNET_TOKEN"):
                tor.join(job, rank, tor.links[0], token=token)
        with (
            tor.join(job, 0, token=TOKENS[0]) as first,
            tor.join(job, 1, token=TOKENS[1]) as second,
        ):
            running = [agent.submit(torch.ones(3)) for agent in (first, second)]
            assert [each.result(WITHIN).tolist() for each in running] == [[1.0] * 3] * SIZE


def test_a_rank_does_not_take_the_seat_of_another_with_the_nonce_of_that_one(tor: Rack):
    with (
        tor.job(SIZE, token_digests=DIGESTS) as job,
        scripted(tor, job, 0, token=TOKENS[0]) as first,
    ):
        first.settle()
        with (
            scripted(tor, job, 1, token=TOKENS[1], nonce=first.nonce) as second,
            pytest.raises(NotAuthorized, match="that of another rank"),
        ):
            second.next_event()
        assert first.quiet()
        assert [each.rank for each in tor.show(job).members] == [0]


def test_a_job_of_many_ranks_has_a_token_for_each(tor: Rack):
    digests = [token_digest(f"token {rank}") for rank in range(MOST_WORKERS)]
    request = pb.CreateJobRequest(
        name="large", switch="tor", workers=MOST_WORKERS, slots=8, token_digests=digests
    )
    with pytest.raises(NoCapacity, match="sums 64 contributions at most"), translated("create it"):
        tor.stub.CreateJob(request)


@pytest.mark.parametrize(
    ("digests", "why"),
    [
        (DIGESTS[:1], "1 token digests do not fit 2 workers"),
        ([DIGESTS[0], DIGESTS[1][:31]], "send one of 32 bytes for each rank"),
        ([DIGESTS[0]] * 2, "two ranks have the same token"),
    ],
)
def test_digests_that_are_not_one_for_each_rank_are_refused(tor: Rack, digests: Any, why: str):
    with pytest.raises(UsageError, match=why), tor.job(SIZE, token_digests=digests):
        pass


# -- a group under TLS -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def protected(folder: Path) -> Iterator[Rack]:
    """Yield a rack whose controller has TLS; its switch has none."""
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(running_switch(SIZE))
        server = ControllerServer("127.0.0.1:0", tls.load(folder, tls.CONTROLLER))
        stack.callback(server.close)
        address = f"127.0.0.1:{server.port}"
        channel, stub = connect(address, identity=tls.load(folder, tls.ADMIN))
        stack.callback(channel.close)
        ports = range(1, SIZE + 1)
        where = tls.INSECURE + switch.address
        stub.AddSwitch(pb.AddSwitchRequest(name="tor", grpc_address=where, ports=ports))
        yield Rack(switch, address, stub, free_cables(switch))


def nothing() -> None:
    pass


@pytest.fixture(scope="module")
def processes() -> Iterator[Group]:
    with process_group(SIZE, nothing, "") as running:
        yield running


def grouped(
    rank: int, port: int, environments: list[dict[str, str]]
) -> tuple[list[float], list[Any], bytes]:
    """Form a group, and sum in it. Return the sum, the carriers, and innet's messages over Gloo."""
    import innet.torch
    from innet.torch import counts, membership

    counts._counts.clear()
    os.environ.update(environments[rank])
    said: list[bytes] = []
    allgather = dist.ProcessGroupGloo.allgather

    def recorded(group: Any, found: Any, own: list[torch.Tensor], *more: Any) -> Any:
        said.extend(each.numpy().tobytes() for each in own)
        return allgather(group, found, own, *more)

    where, timeout = f"tcp://127.0.0.1:{port}", timedelta(seconds=WITHIN)
    with (
        patch.object(membership, "new_token", lambda: TOKENS[rank], create=True),
        patch.object(dist.ProcessGroupGloo, "allgather", recorded),
    ):
        dist.init_process_group("innet", where, timeout, rank=rank, world_size=SIZE)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return tensor.tolist(), list(innet.torch.carried()), b"".join(said)


def environments(rack: Rack, folder: Path, job: str, *tokens: str) -> list[dict[str, str]]:
    common = {
        "INNET_CONTROLLER": rack.controller, "INNET_TLS": str(folder),
        "INNET_LINK": ",".join(rack.links), "INNET_JOB": job, "INNET_LOCAL_SUM": "0",
    }  # fmt: skip
    return [
        {**common, "LOCAL_RANK": str(rank), "INNET_TOKEN": token}
        for rank, token in enumerate(tokens)
    ]


def summed_without_saying(
    processes: Group, tokens: list[str], own: list[dict[str, str]]
) -> list[bytes]:
    """Sum in a group through the switch. Return each rank's messages, which contain no token."""
    found = processes.run(grouped, free_tcp_port(), own)
    for tensor, ways, said in found:
        assert (tensor, ways) == ([2.0] * 3, [("allreduce", "switch", "")])
        assert not any(token.encode() in said for token in tokens)
    return [said for *_, said in found]


def test_ranks_tell_each_other_digests_of_their_tokens_and_no_token(
    protected: Rack, processes: Group, folder: Path
):
    own = environments(protected, folder, "", "", "")
    for digest, said in zip(DIGESTS, summed_without_saying(processes, TOKENS, own), strict=True):
        assert digest.hex().encode() in said


def test_the_token_of_a_job_that_is_there_is_not_told(
    protected: Rack, processes: Group, folder: Path
):
    with protected.job(SIZE) as job:
        token = protected.tokens[job]
        own = environments(protected, folder, job, token, token)
        assert all(summed_without_saying(processes, [token], own))


def test_a_rank_without_the_token_of_a_job_that_is_there_is_named_to_all(
    protected: Rack, processes: Group, folder: Path
):
    with protected.job(SIZE) as job:
        own = environments(protected, folder, job, protected.tokens[job], "")
        processes.start(grouped, free_tcp_port(), own)
        for problem in processes.results():
            assert isinstance(problem, NotAuthorized)
            assert "set INNET_TOKEN" in str(problem)
            assert "rank 1" in str(problem)
