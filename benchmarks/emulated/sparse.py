"""The program of a host in :mod:`benchmarks.sparse`: sums of an embedding's gradient.

Every host looks up some rows of the embedding and computes their gradients, which :func:`gradient` can
compute for any host. Counters are those of the kernel, for this host's link.
"""

import hashlib
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

from benchmarks.emulated.sharded import counters

_SCALE = 1 << 24
"""The integer for 1.0 where gradients are summed as integers, to check that no bit is lost."""


@dataclass(frozen=True)
class Case:
    """A case: `steps` sums of an embedding's gradient, a table of `rows` rows of `width` float32.

    Every host touches a `share` of the rows. `touched` says which: "different" rows at random,
    "popular" rows, where row r is touched in proportion to 1 / r, or the "same" rows as the others.
    `over` is "Gloo" or "innet QUANTIZER". With `sparse`, the gradient is a sparse tensor.
    """

    over: str
    sparse: bool
    touched: str
    rows: int
    width: int
    share: float
    steps: int


def main(folder: Path) -> None:
    """Run the cases in the folder, and write the results there."""
    cases = [Case(**each) for each in json.loads((folder / "task.json").read_text())["cases"]]
    torch.set_num_threads(1)
    torch.sparse.check_sparse_tensor_invariants.enable()
    # innet first: its workers' hellos tell the switch every host's port, so that nothing is flooded.
    os.environ["INNET_SLOTS"] = "256"
    dist.init_process_group("innet")
    groups: dict[str, Any] = {"Gloo": dist.new_group(backend="gloo")}
    for over in sorted({case.over for case in cases} - {"Gloo"}):
        os.environ["INNET_QUANTIZER"] = over.partition(" ")[2]
        groups[over] = dist.new_group(backend="innet")
    noted = [_run(case, groups[case.over], groups["Gloo"]) for case in cases]
    rank = dist.get_rank()
    dist.barrier(groups["Gloo"])
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(noted))


def gradient(case: Case, rank: int) -> torch.Tensor:
    """Return a host's gradient, as backpropagation through the embedding makes it."""
    generator = torch.Generator().manual_seed(0 if case.touched == "same" else rank)
    count = max(1, round(case.rows * case.share))
    chances = torch.ones(case.rows)
    if case.touched == "popular":
        chances /= torch.arange(1, case.rows + 1)
    touched = torch.multinomial(chances, count, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = nn.Embedding(case.rows, case.width, sparse=case.sparse)
    aims = torch.randn(count, case.width, generator=torch.Generator().manual_seed(99 + rank))
    nn.functional.mse_loss(model(touched), aims).backward()
    found = model.weight.grad
    if found is None:
        raise AssertionError
    return found.coalesce() if case.sparse else found


def _run(case: Case, group: Any, gloo: Any) -> dict[str, Any]:
    own = gradient(case, dist.get_rank())
    summed = own.clone()
    dist.all_reduce(summed, group=group)  # opens connections and sets windows
    seconds, crossed = [], [0, 0, 0, 0]
    for _ in range(case.steps):
        summed = own.clone()
        dist.barrier(gloo)
        before, began = counters(), time.monotonic()
        dist.all_reduce(summed, group=group)
        seconds.append(time.monotonic() - began)
        dist.barrier(gloo)
        crossed = [sum(each) for each in zip(crossed, _since(before), strict=True)]
    if dist.get_rank() == 0:
        sys.stdout.write(f"{case.over}: {1e3 * statistics.median(seconds):.1f} ms\n")
        sys.stdout.flush()
    checked = _checked(case, own, summed, group)
    return {"seconds": seconds, "counters": [each / case.steps for each in crossed], **checked}


def _checked(case: Case, own: torch.Tensor, summed: torch.Tensor, group: Any) -> dict[str, Any]:
    """Return the largest error of the sum, a digest of its bits, and the rows of the union.

    The same gradient is summed once more as integers. Ends the program if a bit of that is wrong.
    """
    every = [gradient(case, rank) for rank in range(dist.get_world_size())]
    exact = torch.zeros(case.rows, case.width, dtype=torch.float64)
    whole = torch.zeros(case.rows, case.width, dtype=torch.int32)
    for each in every:
        exact += each.double().to_dense() if case.sparse else each
        whole += _integers(each).to_dense() if case.sparse else _integers(each)
    dense = summed.to_dense() if case.sparse else summed
    integers = _integers(own)
    dist.all_reduce(integers, group=group)
    if not torch.equal(integers.to_dense() if case.sparse else integers, whole):
        raise SystemExit(f"{case}: a sum of integers is wrong")
    return {
        "error": float((dense - exact).abs().max() / exact.abs().max()),
        "digest": hashlib.sha256((dense + 0).numpy().tobytes()).hexdigest(),
        "union": int(exact.any(dim=1).sum()),
    }


def _integers(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_sparse:
        return (tensor * _SCALE).to(torch.int32)
    values = (tensor.values() * _SCALE).to(torch.int32)
    return torch.sparse_coo_tensor(tensor.indices(), values, tensor.shape, is_coalesced=True)


def _since(before: tuple[int, ...]) -> list[int]:
    return [late - early for late, early in zip(counters(), before, strict=True)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
