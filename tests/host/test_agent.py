"""The end of a worker's membership: it ends with the script, whatever ends the script."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from racks import WITHIN, Rack, rack
from waiting import until

from innet.errors import AgentClosed, AllReduceError, LinkFailed, WorkersMissing

ONES = np.ones(1000, np.float32)

# A worker that something happens to in the middle of an all-reduce, which cannot finish.
WORKER = """
import signal, sys, threading, traceback
import numpy as np
import innet

def interrupt():
    # This thread gets the signal while the main thread waits, which Python does not wake then.
    names = ()
    while names[:1] != ("wait",) or not {{"result", "exception"}} & set(names):
        names = tuple(each.name for each in traceback.extract_stack(
            sys._current_frames()[threading.main_thread().ident], 3))[::-1]
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

agent = innet.join(sys.argv[1], sys.argv[2], 0, sys.argv[3], token=sys.argv[4])
future = agent.submit(np.ones(1000, np.float32))
print("busy", flush=True)
{then}
"""


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(2) as made:
        yield made


INTERRUPTED = "threading.Thread(target=interrupt).start(); future.result()"


@pytest.mark.parametrize("then", ["raise MemoryError", "future.result()", INTERRUPTED])
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
        # It has contributed to the maximum. It cannot contribute to the sum.
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


@pytest.mark.parametrize("behind_another", [False, True])
def test_a_signal_handler_that_closes_the_agent_ends_the_call_that_it_interrupts(
    tor: Rack, behind_another: bool
):
    """It does also if the agent's thread serves the call, because another one is under way."""
    with tor.job(2) as job, tor.join(job, 1), tor.join(job, 0) as agent:
        if behind_another:
            agent.submit(ONES)
        main, begun = threading.main_thread().ident or 0, threading.Event()

        def interrupt() -> None:
            until(lambda: agent.progress().busy and main in agent._calls._callers)
            # Python does not notice a signal that comes just before a lock is waited for.
            while not begun.is_set():
                signal.pthread_kill(main, signal.SIGUSR1)
                begun.wait(1)

        def close(*_: object) -> None:
            begun.set()
            agent.close()

        before = signal.signal(signal.SIGUSR1, close)
        try:
            with ThreadPoolExecutor(1) as pool:
                interrupting = pool.submit(interrupt)
                with pytest.raises(AgentClosed):
                    agent.all_reduce(ONES)
                interrupting.result()
        finally:
            signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("wait", [False, True])
def test_a_call_that_comes_while_another_thread_closes_the_agent_is_refused(tor: Rack, wait: bool):
    with tor.job(1) as job, tor.join(job, 0) as agent:
        calls = agent._calls
        put, serve = calls.put, calls.serve

        def closed_before(give: Any, *call: Any) -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(agent.close).result(WITHIN)
            give(*call)

        calls.put, calls.serve = partial(closed_before, put), partial(closed_before, serve)
        future = agent.submit(ONES, wait=wait)
        assert isinstance(future.exception(1.0), AgentClosed)


class Unreadable(torch.Tensor):
    """A tensor that fails when it is read, as if there were no memory for a copy."""

    def detach(self) -> torch.Tensor:
        raise MemoryError("no memory")


def test_a_tensor_that_cannot_be_read_spoils_the_seat_and_never_a_sum(tor: Rack):
    with tor.job(2) as job, tor.join(job, 0) as first, tor.join(job, 1) as second:
        missing = torch.ones(1000).as_subclass(Unreadable)
        broken = [first.submit(missing), first.submit(ONES)]
        others = [second.submit(ONES), second.submit(2 * ONES)]
        assert isinstance(broken[0].exception(WITHIN), MemoryError)
        # Otherwise the second vector of one worker and the first of the other would be added.
        with pytest.raises(AllReduceError, match=r"no memory.*join the job again"):
            broken[1].result(WITHIN)
        for other in others:
            assert isinstance(other.exception(WITHIN), WorkersMissing)


def test_a_link_that_fails_spoils_the_seat_and_never_a_sum(tor: Rack):
    with tor.job(2) as job, tor.join(job, 0) as first, tor.join(job, 1) as second:
        with Path(os.devnull).open() as nothing:  # not a socket
            os.dup2(nothing.fileno(), first._link._packets._socket.fileno())
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(second.all_reduce, ONES)
            with pytest.raises(LinkFailed, match="non-socket"):
                first.all_reduce(ONES)
            with pytest.raises(LinkFailed, match="join the job again"):
                first.all_reduce(2 * ONES)
            first.close()
            assert isinstance(other.exception(WITHIN), WorkersMissing)
