"""A worker on an emulated host that computes sums and checks each, until a test ends it.

``python emulated_sums.py FOLDER`` prints "begun" after the first sum. If a sum fails, it prints the
reason in one word.
"""

import os
import sys
from pathlib import Path

import numpy as np

import innet
from innet.errors import AllReduceError
from innet.host.job import Timeouts

SIZE = 20_000
TIMEOUTS = Timeouts(switch=8.0, workers=20.0)


def say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def main(folder: Path) -> None:
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    own = np.arange(SIZE, dtype=np.int32)
    with innet.join(timeouts=TIMEOUTS) as agent:
        step = 0
        enough = np.zeros(1, np.int32)
        while not enough[0]:
            try:
                total = agent.all_reduce(own + step * (rank + 1), op="sum")
                enough = agent.all_reduce(np.int32([(folder / "enough").exists()]), op="sum")
            except AllReduceError as problem:
                say(f"error {type(problem).__name__}")
                return
            assert np.array_equal(total, workers * own + step * workers * (workers + 1) // 2)
            step += 1
            if step == 1:
                say("begun")
    say("exact")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
