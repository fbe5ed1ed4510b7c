"""Two replicas of torchft, as threads, whose Managers do not see the errors of their process groups.

``python wrapped_replicas.py FAULT`` prints a line of JSON for each replica and step: whether the Manager
commits the step, and an element of each mean gradient. The gradients are in two buckets. The first step
has a fault: ``configure`` fails, or one replica leaves the group before the all-reduces (``leave``).
"""

import json
import os
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torchft.coordination import LighthouseServer
from torchft.ddp import DistributedDataParallel
from torchft.manager import Manager
from torchft.process_group import FakeProcessGroupWrapper

from innet.torch.torchft import ProcessGroupInnet

REPLICAS = 2
STEPS = 3
BUCKET = 1 << 20  # bytes
NOWHERE = "shm:/nonexistent/cable"


class Sum(nn.Module):
    """A model whose gradients are its input, in two buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.zeros(BUCKET // 4)) for _ in range(2))

    def forward(self, factor: float) -> torch.Tensor:
        return factor * (self.first.sum() + self.second.sum())


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
        model = Sum()
        parallel = DistributedDataParallel(manager, model, bucket_cap_mb=1)
        for step in range(STEPS):
            manager.start_quorum()
            model.zero_grad()
            if fault == "leave" and step == number == 0:
                group.shutdown()
            parallel(number + 1.0).backward()
            commits = manager.should_commit()
            means = [each.grad[0].item() for each in model.parameters()]
            line = {"replica": number, "commits": commits, "means": means}
            sys.stdout.write(json.dumps(line) + "\n")
            together.wait()
            os.environ["INNET_LINK"] = link
            together.wait()
        manager.shutdown()
        group.shutdown()

    with ThreadPoolExecutor(REPLICAS) as pool:
        for each in as_completed([pool.submit(train, number) for number in range(REPLICAS)]):
            if each.exception():
                traceback.print_exception(each.exception())
                os._exit(1)  # the other replica waits
    lighthouse.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
