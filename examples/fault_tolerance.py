"""torchft's fault-tolerant training: replicas may die and come back, and the others go on.

Two replicas on one machine, after `make libraries` (docs/torchft.md):

    .venv-libs/bin/torchft_lighthouse --min_replicas 1 --join_timeout_ms 60000 \\
        --bind 127.0.0.1:29510 &
    .venv/bin/innet rack --workers 2 -- sh -c '
        for replica in 0 1; do
            LOCAL_RANK=$replica .venv-libs/bin/python examples/fault_tolerance.py &
        done
        wait'
"""

import argparse
import os
from datetime import timedelta
from typing import Any

import torch
from common import classifier, digest, digits
from torch.distributed import TCPStore
from torch.nn.functional import cross_entropy
from torchft import DistributedDataParallel, Manager
from torchft.optim import OptimizerWrapper

from innet.torch.torchft import ProcessGroupInnet

BATCH = 32
LIGHTHOUSE = "http://127.0.0.1:29510"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--replica", type=int, default=int(os.environ.get("LOCAL_RANK", "0")))
    parser.add_argument("--lighthouse", default=os.environ.get("TORCHFT_LIGHTHOUSE", LIGHTHOUSE))
    arguments = parser.parse_args()
    classify = classifier()
    sgd = torch.optim.SGD(classify.parameters(), lr=0.1, momentum=0.9)

    def load(state: dict[str, Any]) -> None:
        classify.load_state_dict(state["model"])
        sgd.load_state_dict(state["optimizer"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupInnet(timeout=timedelta(seconds=30))
    manager = Manager(
        pg=group,
        load_state_dict=load,
        state_dict=lambda: {"model": classify.state_dict(), "optimizer": sgd.state_dict()},
        min_replica_size=1,
        use_async_quorum=False,  # a replica that comes back takes part from its first step on
        quorum_timeout=timedelta(minutes=10),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        lighthouse_addr=arguments.lighthouse,
        replica_id=f"replica-{arguments.replica}",
    )
    model = DistributedDataParallel(manager, classify)
    optimizer = OptimizerWrapper(manager, sgd)
    images, labels = digits()
    while (before := manager.current_step()) < arguments.steps:
        # This asks for a quorum. A replica that is behind takes the state of another one.
        optimizer.zero_grad()
        step = manager.current_step()
        drawn = torch.Generator().manual_seed(1000 * step + arguments.replica)
        batch = torch.randint(len(images), (BATCH,), generator=drawn)
        loss = cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()  # does nothing if an all-reduce has failed: the loop repeats the step
        if manager.current_step() > before:
            print(
                f"step {manager.current_step()}: loss {loss.item():.6f}, "
                f"{manager.num_participants()} replicas",
                flush=True,
            )
    print(f"parameters {digest(classify)}", flush=True)
    manager.shutdown(wait=False)
    group.shutdown()
    os._exit(0)  # threads of torchft may still be at work


if __name__ == "__main__":
    main()
