"""A script may end without closing anything: no thread of innet's is left when the interpreter ends."""

import os
import subprocess
import sys

from processes import WITHIN
from racks import rack

from innet.local.ports import free_tcp_port
from innet.local.workers import rank_environment

SCRIPT = """
import atexit, sys, threading

@atexit.register  # the first to be registered is the last to run
def show_threads():
    print([each.name for each in threading.enumerate() if each.name.startswith("innet")])

import numpy as np
import torch.distributed as dist
import innet
from innet.host.fallback import ProcessGroupFallback
from innet.wire.layout import Operation

dist.init_process_group("gloo")
agent = innet.join(fallback=dist.group.WORLD)
agent.all_reduce(np.ones(100, np.float32))
fallback = ProcessGroupFallback(dist.group.WORLD)
if dist.get_rank() == 0:  # alone, as after an exchange that the others finished over the switch
    fallback.all_reduce((1, 1), np.ones((4, 4), np.int32), Operation.SUM, np.zeros(4, np.uint16))
if "destroy" in sys.argv:
    dist.destroy_process_group()
if "fail" in sys.argv:
    agent.submit(np.ones(100, np.float32))  # rank 0 or 1 may be alone with this one
    sys.exit(3)
"""


def ends(*arguments: str) -> list[tuple[int, str, str]]:
    """Run the script as two workers. Return their exit statuses, output and error output."""
    port = free_tcp_port()
    with rack(2) as tor, tor.job(2) as job:
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", SCRIPT, *arguments],
                env={
                    **os.environ, **rank_environment(rank, 2, port),
                    "INNET_CONTROLLER": tor.controller, "INNET_JOB": job,
                    "INNET_TOKEN": tor.tokens[job], "INNET_LINK": tor.links[rank],
                },
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank in range(2)
        ]  # fmt: skip
        said = [worker.communicate(timeout=WITHIN) for worker in workers]
        return [(worker.returncode, *each) for worker, each in zip(workers, said, strict=True)]


def test_threads_end_before_the_interpreter_does():
    assert ends() == [(0, "[]\n", "")] * 2


def test_threads_end_after_the_process_group_is_destroyed():
    assert ends("destroy") == [(0, "[]\n", "")] * 2


def test_threads_end_while_an_all_reduce_is_under_way():
    assert [(status, said) for status, said, _ in ends("fail")] == [(3, "[]\n")] * 2
