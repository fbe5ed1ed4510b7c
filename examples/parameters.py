"""Training steps of a parameter server above the racks, with a check of every step.

Written for `innet emulate`, with a topology that has a server on top:

    sudo innet emulate topologies/two-racks-pbox.yaml -- python examples/parameters.py

All settings come from the environment, so it runs wherever a worker can join a job with such a
server.
"""

import argparse
import os
import time

import numpy as np

import innet
from innet.host.parameters import RackedParameters
from innet.servers import pbox

SEED = 1
RATE, MOMENTUM = 0.1, 0.9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=float, default=1.0, help="size of the parameters")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    elements = int(options.mib * (1 << 20)) // 4
    mine, velocity = vector(0, 0, elements), np.zeros(elements, np.float32)
    with innet.join() as agent:
        optimizer = pbox.Momentum(lr=RATE, momentum=MOMENTUM)
        parameters = RackedParameters(agent, [mine.copy()], optimizer)
        for step in range(1, options.steps + 1):
            gradients = [vector(step, each, elements) for each in range(workers)]
            began = time.monotonic()
            parameters.step([gradients[rank]])
            took = time.monotonic() - began
            velocity = velocity * MOMENTUM + np.mean(gradients, axis=0)
            mine -= RATE * velocity
            [theirs] = parameters.values
            if not np.allclose(theirs, mine, rtol=0, atol=1e-5):
                raise SystemExit(f"step {step}: the parameters are wrong")
            each_way = theirs.nbytes * 8 / took / 1e6
            print(f"step {step}: {took:.3f} s, {each_way:.1f} Mbit/s each way", flush=True)


def vector(step: int, rank: int, elements: int) -> np.ndarray:
    """Return a worker's gradient of a step; step 0 gives the initial parameters."""
    chance = np.random.default_rng([SEED, step, rank])
    return chance.standard_normal(elements, np.float32)


if __name__ == "__main__":
    main()
