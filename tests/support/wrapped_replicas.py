"""Two replicas of torchft, as threads, whose Managers do not see the errors of their process groups.

``python wrapped_replicas.py FAULT`` prints a line of JSON for each replica and step: whether the Manager
commits the step, and an element of the mean. The first step has a fault: ``configure`` fails, or one
replica leaves the group before the all-reduce (``leave``).
"""

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft.coordination import LighthouseServer
from torchft.manager import Manager
from torchft.process_group import FakeProcessGroupWrapper

from innet.torch.torchft import ProcessGroupInnet

REPLICAS = 2
STEPS = 3
NOWHERE = "shm:/nonexistent/cable"


def main(fault: str) -> None:
    link = os.environ["INNET_LINK"]
    if fault == "configure":
        os.environ["INNET_LINK"] = NOWHERE
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=REPLICAS)
    together = threading.Barrier(REPLICAS)

    def train(number: int) -> None:
        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        group = ProcessGroupInnet(timedelta(seconds=30))
        manager = Manager(
            pg=FakeProcessGroupWrapper(group),
            load_state_dict=lambda _: None,
            state_dict=dict,
            min_replica_size=REPLICAS,
            use_async_quorum=False,
            replica_id=str(number),
            store_addr="localhost",
            store_port=store.port,
            rank=0,
            world_size=1,
            lighthouse_addr=lighthouse.address(),
        )
        for step in range(STEPS):
            manager.start_quorum()
            if fault == "leave" and step == number == 0:
                group.shutdown()
            mean = torch.full((3,), number + 1.0)
            manager.allreduce(mean).wait()
            commits = manager.should_commit()
            line = {"replica": number, "commits": commits, "mean": mean[0].item()}
            sys.stdout.write(json.dumps(line) + "\n")
            together.wait()
            os.environ["INNET_LINK"] = link
            together.wait()
        manager.shutdown()
        group.shutdown()

    with ThreadPoolExecutor(REPLICAS) as pool:
        list(pool.map(train, range(REPLICAS)))
    lighthouse.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
