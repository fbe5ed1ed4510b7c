"""DeepSpeed on CPUs: ZeRO keeps the optimizer's state in parts, and all-reduces gradients.

innet rack --workers 2 -- torchrun --nproc-per-node 2 examples/with_deepspeed.py
"""

import deepspeed
import torch
from common import BATCH, batches, classifier, mean
from losses import report, steps
from torch.nn.functional import cross_entropy

WORKERS = 2
SETTINGS = {
    "train_micro_batch_size_per_gpu": BATCH // WORKERS,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}


def train(steps: int) -> list[float]:
    # DeepSpeed would compile this for shared memory, which only inference uses.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="innet")
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=SETTINGS)
    losses = []
    for images, labels in batches(steps):
        loss = cross_entropy(engine(images), labels)
        engine.backward(loss)
        engine.step()
        losses.append(mean(loss))
    return losses


if __name__ == "__main__":
    report(train(steps()))
    deepspeed.comm.destroy_process_group()
