"""A worker as a process of its own: reads vectors from a file and writes their means to another.

``python all_reduce.py CONTROLLER JOB RANK LINK VECTORS.npz MEANS.npz``
"""

import sys

import numpy as np

from innet.host.join import join


def main(controller: str, job: str, rank: str, link: str, vectors: str, means: str) -> None:
    """All-reduce every vector of the file, in order."""
    with np.load(vectors) as given, join(controller, job, int(rank), link) as agent:
        np.savez(means, *[agent.all_reduce(given[name]) for name in given.files])


if __name__ == "__main__":
    main(*sys.argv[1:])
