"""Training with narrow integers: it ends as accurate as training with floats."""

from collections.abc import Iterator

import pytest
import torch

from benchmarks.quantizers import accuracies, in_process, switched, through_switch, train

WORKERS, TERMS, SEEDS = 4, 3, (1, 2, 3)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def in_floats() -> list[float]:
    return accuracies("float32", WORKERS, TERMS, SEEDS)


@pytest.mark.parametrize("name", ["int32", "int16", "int8+feedback"])
def test_accuracy_is_within_a_hundredth_of_that_in_floats(name: str, in_floats: list[float]):
    found = accuracies(name, WORKERS, TERMS, SEEDS)
    assert min(in_floats) > 0.8
    for mine, theirs in zip(found, in_floats, strict=True):
        assert abs(mine - theirs) <= 0.01


def test_the_switch_gives_the_bits_that_the_integers_sum_gives():
    name = "int8+stochastic+feedback"
    with switched(2) as agents:
        through = train(through_switch(agents, name), 2, 1, 1)
    with in_process(name, 2) as reduce:
        assert train(reduce, 2, 1, 1) == through
