"""Two workers of a rack that sum once: the first with the C compiler, the second without one.

It runs under ``innet rack --workers 2``, with a folder for their caches. Each worker prints protobuf's
version, innet's file, and the least and the largest element of the mean.
"""

import os
import subprocess
import sys

import google.protobuf
import numpy as np

import innet
from innet.host import fastpath

WITHOUT_COMPILER = "1"


def work(rank: str) -> None:
    compiled = fastpath.compiled() is not None
    assert compiled == (rank != WITHOUT_COMPILER)
    with innet.join() as agent:
        mean = agent.all_reduce(np.full(1000, 2 * int(rank) + 1, np.float32))
    print(google.protobuf.__version__, innet.__file__, mean.min(), mean.max())  # noqa: T201


def start(rank: str, cache: str) -> "subprocess.Popen[bytes]":
    own = {"RANK": rank, "LOCAL_RANK": rank, "INNET_CACHE_DIR": f"{cache}/{rank}"}
    own |= {"PATH": "", "CC": ""} if rank == WITHOUT_COMPILER else {}
    return subprocess.Popen([sys.executable, "-P", __file__], env={**os.environ, **own})


if __name__ == "__main__":
    if rank := os.environ.get("RANK"):
        work(rank)
    else:
        workers = [start(rank, sys.argv[1]) for rank in ("0", WITHOUT_COMPILER)]
        sys.exit(max(worker.wait(250) for worker in workers))
