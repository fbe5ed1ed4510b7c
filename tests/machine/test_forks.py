"""Forked children: each ends promptly, and touches nothing that its parent owns."""

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.distributed as dist
from forking import exit_code
from paths import SUPPORT
from processes import process_group
from racks import WITHIN, Rack, rack

from innet.errors import AgentClosed, ClientClosed
from innet.rpc import innet_pb2 as pb
from innet.servers import pbox

SIZE = 2

# While the worker is a member of the job, a child is forked. It leaves the block as its parent
# does.
WORKER = """
import os, sys
import numpy as np
import innet
from forking import exit_code
from innet.errors import AgentClosed
child = None
with innet.join(*sys.argv[1:3], 0, sys.argv[3], token=sys.argv[4]) as agent:
    assert agent.all_reduce(np.ones(3, np.float32)).tolist() == [1, 1, 1]
    child = os.fork()
    if child:
        print(exit_code(child), flush=True)
        agent.all_reduce(np.ones(3, np.float32))
    else:
        try:
            agent.all_reduce(np.ones(3, np.float32))
        except AgentClosed as problem:
            print(problem, flush=True)
if not child:
    sys.exit(7)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(SIZE + 1) as running:
        yield running


def test_a_child_that_leaves_the_block_of_its_parents_agent_leaves_the_parent_in_its_job(tor: Rack):
    with tor.job(1) as job, tor.cables(1) as [link]:
        command = [sys.executable, "-c", WORKER, tor.controller, job, link, tor.tokens[job]]
        with subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(SUPPORT), "INNET_METRICS": "127.0.0.1:0"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as worker:  # fmt: skip
            try:
                said = worker.stdout.readline()
                assert f"belongs to process {worker.pid}, which has forked this one" in said
                assert worker.stdout.readline() == "7\n"
                assert tor.show(job).joined == [0]
                worker.communicate(timeout=WITHIN)
                assert worker.returncode == 0
            finally:
                worker.kill()


def nothing() -> None:
    pass


def forked(rank: int) -> int | str:
    """Return the outcome of a member's forked child, which has tried an all-reduce."""
    child = os.fork()
    if child:
        return exit_code(child)
    try:
        dist.all_reduce(torch.ones(3))
    except AgentClosed:
        sys.exit(7)


def summed(rank: int) -> list[float]:
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return tensor.tolist()


def test_a_child_of_a_process_group_ends_through_sys_exit_and_the_group_goes_on(tor: Rack):
    links = ",".join(tor.links[:SIZE])
    common = {"INNET_CONTROLLER": tor.controller, "INNET_LINK": links}
    environments = [{**common, "LOCAL_RANK": str(rank)} for rank in range(SIZE)]
    with process_group(SIZE, nothing, "innet", environments) as group:
        assert group.run(summed) == [[2.0] * 3] * SIZE
        assert group.run(forked) == [7] * SIZE
        [job] = tor.stub.ListJobs(pb.ListJobsRequest()).jobs
        assert sorted(job.joined) == [0, 1]
        assert group.run(summed) == [[2.0] * 3] * SIZE


def test_a_child_that_leaves_the_block_of_its_parents_client_says_no_goodbye():
    with pbox.Server(cores=1, memory_bytes=1 << 20) as server:
        given = {"job": "test", "rank": 0, "workers": 1, "keys": [8], "timeout": WITHIN}
        with pbox.connect(server.address, **given) as client:
            child = os.fork()
            if not child:  # the child must not run the remaining tests
                os._exit(child_of(client))
            assert exit_code(child) == 7
            gradients = [np.ones(8, np.float32)]
            client.push_pull(gradients)
            assert gradients[0].tolist() == [1.0] * 8


def child_of(client: pbox.Client) -> int:
    """Run the forked child of a client's process."""
    try:
        with client:
            client.push_pull([np.ones(8, np.float32)])
    except ClientClosed:
        return 7
    return 1
