"""How a worker's stay ends: with the script, whatever ends it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from racks import WITHIN, Rack, rack

from innet.errors import AgentClosed, LinkFailed, WorkersMissing

ONES = np.ones(1000, np.float32)

# A worker that is in the middle of an all-reduce, which cannot finish, when something happens to it.
WORKER = """
import sys
import numpy as np
import innet
agent = innet.join(sys.argv[1], sys.argv[2], 0, sys.argv[3], token=sys.argv[4])
future = agent.submit(np.ones(1000, np.float32))
print("busy", flush=True)
{then}
"""


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(2) as made:
        yield made


@pytest.mark.parametrize("then", ["raise MemoryError", "future.result()"])
def test_a_script_that_fails_ends_and_the_others_learn_it(tor: Rack, then: str):
    with tor.job(2) as job, tor.join(job, 1) as other:
        script = WORKER.format(then=then)
        arguments = [tor.controller, job, tor.links[0], tor.tokens[job]]
        command = [sys.executable, "-c", script, *arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as worker:
            assert worker.stdout.readline() == "busy\n"
            if then == "future.result()":
                worker.send_signal(signal.SIGINT)
            assert worker.wait(WITHIN) != 0
        # To the maximum it has contributed, to the sum it cannot.
        with pytest.raises(WorkersMissing, match="worker 0"):
            other.all_reduce(ONES)


def test_leaving_a_with_block_by_an_error_does_not_wait_for_the_others(tor: Rack):
    with tor.job(2) as job, tor.join(job, 1):
        futures = []

        def leave_by_an_error() -> None:
            with tor.join(job, 0) as agent:
                futures.extend([agent, agent.submit(ONES)])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            leave_by_an_error()
        agent, future = futures
        with pytest.raises(AgentClosed):
            future.result()
        with pytest.raises(AgentClosed, match="join the job again"):
            agent.submit(ONES)


def test_a_link_that_fails_spoils_the_seat_and_never_a_sum(tor: Rack):
    with tor.job(2) as job, tor.join(job, 0) as first, tor.join(job, 1) as second:
        with Path(os.devnull).open() as nothing:  # no socket
            os.dup2(nothing.fileno(), first._link._socket.fileno())
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(second.all_reduce, ONES)
            with pytest.raises(LinkFailed, match="non-socket"):
                first.all_reduce(ONES)
            with pytest.raises(LinkFailed, match="join the job again"):
                first.all_reduce(2 * ONES)
            first.close()
            assert isinstance(other.exception(WITHIN), WorkersMissing)
