"""Lightning's Trainer starts its workers itself.

innet rack --workers 2 -- python examples/with_lightning.py
"""

import lightning
import torch
from common import BATCH, classifier, dataset, mean
from lightning.pytorch.strategies import DDPStrategy
from losses import report, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

WORKERS = 2


class Digits(lightning.LightningModule):
    """The classifier of the other examples."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.model = classifier()
        self.steps = steps
        self.losses: list[float] = []

    def train_dataloader(self) -> DataLoader:
        digits = dataset(self.steps)
        return DataLoader(
            digits, BATCH // WORKERS, sampler=DistributedSampler(digits, shuffle=False)
        )

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        loss = cross_entropy(self.model(images), labels)
        self.losses.append(mean(loss))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def train(steps: int) -> list[float]:
    module = Digits(steps)
    trainer = lightning.Trainer(
        strategy=DDPStrategy(process_group_backend="innet"),
        accelerator="auto",
        devices=WORKERS,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module)
    report(module.losses)
    return module.losses


if __name__ == "__main__":
    train(steps())
