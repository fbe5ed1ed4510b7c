"""Hugging Face's Trainer: `ddp_backend` names the backend. torchrun or Accelerate starts the workers.

innet rack --workers 2 -- torchrun --nproc-per-node 2 examples/with_trainer.py
"""

from tempfile import TemporaryDirectory
from typing import Any

import torch
from common import BATCH, SEED, digest, text
from losses import report, steps
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

WINDOW = 64


class Windows(Dataset[dict[str, Any]]):
    """Windows of innet's own documents, as bytes."""

    def __init__(self) -> None:
        self.windows = text(WINDOW)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.windows[index], "labels": self.windows[index]}


def train(steps: int, folder: str) -> list[float]:
    arguments = TrainingArguments(
        folder,
        ddp_backend="innet",
        use_cpu=not torch.cuda.is_available(),
        max_steps=steps,
        per_device_train_batch_size=BATCH // 2,
        logging_steps=1,
        ddp_find_unused_parameters=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=SEED,
    )
    config = GPT2Config(
        vocab_size=256, n_positions=WINDOW, n_embd=64, n_layer=2, n_head=4,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    trainer = Trainer(model, arguments, train_dataset=Windows())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    report(losses)
    print(f"rank {arguments.process_index} parameters {digest(model)}", flush=True)
    return losses


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        train(steps(), folder)
