"""The program of a host in :mod:`benchmarks.stragglers`: sums and trainings beside a slow host.

Integers are summed with an oracle: each host knows all hosts' vectors, and computes from who was late
which of them each sum has to contain.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import innet
from innet.errors import InnetError
from innet.host.deadline_sums import DeadlineSums
from innet.training import make
from innet.training.deadline_sgd import DeadlineSGD
from innet.training.transports.process_group import ProcessGroupTransport
from innet.training.transports.switch import AgentTransport

WAITING, DEADLINE, GLOO = "innet, waiting", "innet, deadline", "Gloo"
WIDTH, BATCH, RATE = 256, 16, 0.3


@dataclass(frozen=True)
class Case:
    """A case: `steps` sums of `floats` float32, of as many int32 with an oracle, or steps of a training.

    `what` is "sums", "oracle" or "digits", and `over` is one of the ways.
    """

    what: str
    over: str
    steps: int
    floats: int = 0
    seed: int = 0


def main(folder: Path) -> None:
    """Run the cases in the folder, and write the results there."""
    cases = [Case(**each) for each in json.loads((folder / "task.json").read_text())["cases"]]
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    noted = []
    # innet first: its workers' hellos tell the switch every host's port, so that nothing is flooded.
    with innet.join() as agent:
        agent.all_reduce(np.zeros(1, np.int32), op="sum")
        dist.init_process_group("gloo")
        for case in cases:
            agent.all_reduce(np.zeros(1, np.int32), op="sum")
            noted.append(_CASES[case.what](case, agent))
            if rank == 0:
                sys.stdout.write(f"{case}: {noted[-1]['total']:.1f} s\n")
                sys.stdout.flush()
        dist.barrier()
        dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(noted))


def _timed(steps: int, step: Callable[[int], None]) -> dict[str, Any]:
    seconds = []
    for number in range(steps):
        began = time.monotonic()
        step(number)
        seconds.append(time.monotonic() - began)
    return {"seconds": seconds, "total": sum(seconds)}


def _sums(case: Case, agent: innet.Agent) -> dict[str, Any]:
    """Sum vectors that are multiples of one, and check the last result."""
    rank, workers = agent.info.rank, agent.info.workers
    common = np.random.default_rng(7).random(case.floats, np.float32) - np.float32(0.5)
    own, state = common * np.float32(rank + 1), np.zeros(case.floats, np.float32)
    sums = DeadlineSums(agent)
    mean: Any = None

    def wait(_: int) -> None:
        nonlocal mean
        mean = agent.all_reduce(own)

    def go_on(_: int) -> None:
        nonlocal state
        if (found := sums.all_reduce(own, state)) is not None:
            state += found

    def gloo(_: int) -> None:
        nonlocal mean
        summed = torch.from_numpy(own.copy())
        dist.all_reduce(summed)
        mean = summed.numpy() / workers

    noted = _timed(case.steps, {WAITING: wait, DEADLINE: go_on, GLOO: gloo}[case.over])
    if case.over == DEADLINE:
        noted |= {"late": sorted(sums.late.ranks), "stride": sums.late.stride}
        state += sums.settle(np.zeros_like(own), state)
        mean = state / case.steps  # of all that was given in all steps
    expected = common * np.float32((workers + 1) / 2)
    if not np.abs(mean - expected).max() <= 1e-5 * workers:
        raise SystemExit(f"{case}: the sum is wrong by {np.abs(mean - expected).max()}")
    return noted


def integers(case: Case, rank: int, step: int) -> np.ndarray[Any, Any]:
    """Return a host's vector of a step."""
    generator = np.random.default_rng((case.seed, rank, step))
    return generator.integers(-(1 << 20), 1 << 20, case.floats, np.int32)


class Oracle:
    """All hosts' vectors, and the parts of them that each sum contains, given who is late in its step."""

    def __init__(self, case: Case, sums: DeadlineSums, lanes: int) -> None:
        self._case, self._sums, self._lanes = case, sums, lanes
        self._workers = sums.late.workers
        self._left = np.zeros((self._workers, case.floats), np.int64)
        self.in_sums = np.zeros(case.floats, np.int64)
        self.given = np.zeros(case.floats, np.int64)
        self.on_time = self.late = 0  # contributions of an element

    def expected(self, step: int) -> np.ndarray[Any, Any]:
        """Return the sum that a step must have given. Call this after the step."""
        found = np.zeros(self._case.floats, np.int64)
        for rank in range(self._workers):
            vector = integers(self._case, rank, step)
            self.given += vector
            self._left[rank] += vector
            sent = np.ones(self._case.floats, bool)
            if rank in self._sums.late.ranks:
                chunks = np.arange(self._case.floats) // self._lanes
                stride = self._sums.late.stride
                sent = chunks % stride == step % stride
            found += np.where(sent, self._left[rank], 0)
            self._left[rank][sent] = 0
            self.on_time += int(sent.sum())
            self.late += int((~sent).sum())
        self.in_sums += found
        return found

    def rest(self) -> np.ndarray[Any, Any]:
        """Return the sum of all that is in no sum so far. Settling must give this sum."""
        found: np.ndarray[Any, Any] = self._left.sum(axis=0)
        self._left[:] = 0
        self.in_sums += found
        return found


def checked(
    case: Case,
    agent: innet.Agent,
    sums: DeadlineSums,
    note: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Sum integers, check each sum, and note the step. Returns the counts.

    Raises InnetError if a sum is wrong.
    """
    oracle = Oracle(case, sums, agent.info.lanes)
    state = np.zeros(case.floats, np.int32)
    seconds, sums_checked = [], 0
    for step in range(case.steps):
        own = integers(case, agent.info.rank, step)
        began = time.monotonic()
        found = sums.all_reduce(own, state)
        seconds.append(time.monotonic() - began)
        expected = oracle.expected(step)
        if found is not None:
            _same(case, f"step {step}", found, expected)
            sums_checked += 1
            state += found
        note(step)
    last = sums.settle(np.zeros_like(state), state)
    _same(case, "the last step", last, oracle.rest())
    state += last
    _same(case, "the total", oracle.in_sums, oracle.given)
    _same(case, "the state", state, oracle.given.astype(np.int32))
    counts = {"on_time": oracle.on_time, "late": oracle.late, "checked": sums_checked}
    return {"seconds": seconds, "total": sum(seconds), **counts}


def _oracle(case: Case, agent: innet.Agent) -> dict[str, Any]:
    return checked(case, agent, DeadlineSums(agent))


def _same(case: Case, what: str, found: Any, expected: Any) -> None:
    if not np.array_equal(found, expected):
        wrong = int((found != expected).sum())
        raise InnetError(f"{case}: {wrong} elements of {what} are wrong")


def _digits(case: Case, agent: innet.Agent) -> dict[str, Any]:
    """Train on handwritten digits. Return the accuracy on those that were kept for the test."""
    (images, labels), (test_images, test_labels) = _data()
    torch.manual_seed(case.seed)
    model = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    rank, workers = agent.info.rank, agent.info.workers
    name = "deadline-sgd" if case.over == DEADLINE else "d-sync"
    transport: Any = ProcessGroupTransport() if case.over == GLOO else AgentTransport(agent)
    batches = _batches(len(images), case, rank, workers)
    with transport, make(name, model, optimizer, transport) as algorithm:

        def step(_: int) -> None:
            chosen = next(batches)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            algorithm.step()

        noted = _timed(case.steps, step)
        late = algorithm.sums.late if isinstance(algorithm, DeadlineSGD) else None
        noted |= {"stride": late.stride if late else 1, "late": sorted(late.ranks) if late else []}
    right = model(test_images).argmax(dim=1) == test_labels
    bits = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    digest = hashlib.sha256(bits).hexdigest()
    return {**noted, "accuracy": right.float().mean().item(), "digest": digest}


def _batches(images: int, case: Case, rank: int, workers: int) -> Iterator[torch.Tensor]:
    """Yield a host's part of each batch, which all hosts draw alike."""
    generator = torch.Generator().manual_seed(case.seed)
    for _ in range(case.steps):
        batch = torch.randint(0, images, (workers * BATCH,), generator=generator)
        yield batch[rank * BATCH :][:BATCH]


def _data() -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
    from sklearn.datasets import load_digits

    pixels, numbers = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    images = torch.tensor(pixels[order] / 16, dtype=torch.float32)
    labels = torch.tensor(numbers[order])
    test = len(images) // 5
    return (images[test:], labels[test:]), (images[:test], labels[:test])


_CASES = {"sums": _sums, "oracle": _oracle, "digits": _digits}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
