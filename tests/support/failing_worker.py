"""A worker that sums once, and then waits to be killed, stopped or told to fail."""

import sys

import numpy as np

import innet

agent = innet.join()
agent.all_reduce(np.ones(100, np.float32))
print("summed", flush=True)  # noqa: T201
sys.stdin.readline()
raise ValueError("no more data")
