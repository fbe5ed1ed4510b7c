"""Two workers of a rack that sum once: the first with the C compiler, the second without one.

It runs under ``innet rack --workers 2``, with a folder for their caches. Each worker prints protobuf's
version, innet's file, and the least and the largest element of the mean.
"""

import os
import sys
from functools import partial

import google.protobuf
import numpy as np

import innet
from innet.host import fastpath
from innet.host.join import join  # here it is imported once for both workers
from innet.local.workers import fork_workers

WITHOUT_COMPILER = "1"


def work(cache: str) -> None:
    rank = os.environ["RANK"]
    os.environ["INNET_CACHE_DIR"] = f"{cache}/{rank}"
    if rank == WITHOUT_COMPILER:
        os.environ |= {"PATH": "", "CC": ""}
    compiled = fastpath.compiled() is not None
    assert compiled == (rank != WITHOUT_COMPILER)
    with join() as agent:
        mean = agent.all_reduce(np.full(1000, 2 * int(rank) + 1, np.float32))
    # In one piece: the workers share the output.
    said = f"{google.protobuf.__version__} {innet.__file__} {mean.min()} {mean.max()}\n"
    sys.stdout.write(said)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(fork_workers(partial(work, sys.argv[1]), 2))
