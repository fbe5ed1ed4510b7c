"""Ray Train: Ray starts the workers, on one machine or on the machines of a Ray cluster.

    innet rack --workers 2 -- python examples/with_ray.py

The workers get the environment of the script, and so find the controller.
"""

import os
from typing import Any

import ray
import torch
from common import BATCH, classifier, dataset, mean
from losses import report, steps
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

WORKERS = 2


def train(settings: dict[str, Any]) -> None:
    model = prepare_model(classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    digits = dataset(settings["steps"])
    sampler = DistributedSampler(digits, shuffle=False)
    losses = []
    for images, labels in DataLoader(digits, BATCH // WORKERS, sampler=sampler):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    report(losses)


if __name__ == "__main__":
    innet = {name: value for name, value in os.environ.items() if name.startswith("INNET_")}
    ray.init(runtime_env={"env_vars": innet}, include_dashboard=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={"steps": steps()},
        scaling_config=ScalingConfig(num_workers=WORKERS),
        torch_config=TorchConfig(backend="innet"),
    )
    trainer.fit()
    ray.shutdown()
