"""The program of a host in :mod:`benchmarks.fsdp`: a training with FSDP2, over each backend in turn."""

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

SYMBOLS, LENGTH, BATCH = 64, 32, 4
WIDTH, HEADS = 256, 4


@dataclass(frozen=True)
class Case:
    """A training of `steps` steps, of a transformer with so many `layers`.

    `over` is "Gloo" or "innet QUANTIZER". With `narrow`, parameters are gathered as bfloat16.
    """

    over: str
    layers: int
    steps: int
    narrow: bool = False


def main(folder: Path) -> None:
    """Run the cases in the folder, and write the results there."""
    cases = [Case(**each) for each in json.loads((folder / "task.json").read_text())["cases"]]
    torch.set_num_threads(1)
    # innet first: its workers' hellos tell the switch every host's port, so that nothing is flooded.
    os.environ["INNET_SLOTS"] = "128"
    dist.init_process_group("innet")
    gloo = dist.new_group(backend="gloo")
    noted = [_train(case, gloo) for case in cases]
    dist.barrier(gloo)
    rank = dist.get_rank()
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(noted))


def _group(over: str, gloo: Any) -> Any:
    if over == "Gloo":
        return gloo
    os.environ["INNET_QUANTIZER"] = over.partition(" ")[2]
    return dist.new_group(backend="innet")


def _train(case: Case, gloo: Any) -> dict[str, Any]:
    mesh = DeviceMesh.from_group(_group(case.over, gloo), "cpu")
    torch.manual_seed(3)
    model = Transformer(case.layers)
    size = sum(each.numel() for each in model.parameters())
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if case.narrow else None, reduce_dtype=torch.float32
    )
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    # Gather a block's parameters while the gradients of the one before are reduced.
    model._set_unshard_async_op(True)  # type: ignore[operator]  # noqa: SLF001 - no public method
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seconds, losses = [], []
    for step in range(case.steps + 1):
        dist.barrier(gloo)
        began = time.monotonic()
        loss = model.loss(_batch(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.monotonic() - began)
        whole = loss.detach().float()
        dist.all_reduce(whole, dist.ReduceOp.SUM, gloo)
        losses.append(whole.item() / dist.get_world_size())
    if dist.get_rank() == 0:
        took = statistics.median(seconds[1:])
        sys.stdout.write(f"{case.over}: {took:.2f} s a step, loss {losses[-1]:.3f}\n")
        sys.stdout.flush()
    return {"seconds": seconds[1:], "losses": losses, "parameters": size}


def _batch(step: int) -> torch.Tensor:
    """Return this host's sequences: each symbol follows from the one before, mostly."""
    seed = 1000 * step + dist.get_rank()
    chance = torch.Generator().manual_seed(seed)
    following = torch.randperm(SYMBOLS, generator=torch.Generator().manual_seed(1))
    rows = [torch.randint(0, SYMBOLS, (BATCH,), generator=chance)]
    for _ in range(LENGTH):
        strange = torch.rand(BATCH, generator=chance) < 0.1
        other = torch.randint(0, SYMBOLS, (BATCH,), generator=chance)
        rows.append(torch.where(strange, other, following[rows[-1]]))
    return torch.stack(rows, 1)


class Transformer(nn.Module):
    """A decoder for sequences of symbols."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.scores = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the scores of each next symbol."""
        values = self.symbols(rows) + self.positions.weight
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH).to(values.dtype)
        for block in self.blocks:
            values = block(values, src_mask=mask, is_causal=True)
        scores: torch.Tensor = self.scores(values)
        return scores

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy of the next symbols."""
        scores = self(rows[:, :-1]).float().flatten(0, 1)
        return nn.functional.cross_entropy(scores, rows[:, 1:].flatten())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
