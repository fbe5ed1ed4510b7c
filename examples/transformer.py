"""A small language model on bytes, trained on innet's own documents."""

import torch
import torch.distributed as dist
from common import SEED, mean, run, text
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

WINDOW = 64
WIDTH = 64
BATCH = 16


class Model(nn.Module):
    """A model that predicts the next byte at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(256, WIDTH)
        self.places = nn.Embedding(WINDOW, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW))

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Map int64 (batch, WINDOW) to scores, (batch, WINDOW, 256)."""
        found = self.letters(letters) + self.places(torch.arange(letters.shape[1]))
        return self.out(self.layers(found, mask=self.mask, is_causal=True))


def train(steps: int) -> list[float]:
    torch.manual_seed(SEED)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    windows = text(WINDOW + 1)
    rank, workers = dist.get_rank(), dist.get_world_size()
    losses = []
    for _ in range(steps):
        mine = windows[torch.randint(len(windows), (BATCH,))[rank::workers]]
        optimizer.zero_grad()
        scores = model(mine[:, :-1])
        loss = cross_entropy(scores.flatten(0, 1), mine[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(mean(loss))
    return losses


if __name__ == "__main__":
    run(train)
