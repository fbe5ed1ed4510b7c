"""FSDP2 through the switch: gradients with quantizers of their own, and error feedback for shards."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from processes import Group, process_group
from racks import rack
from torch import nn

import innet.torch
from innet.errors import UsageError
from innet.torch import ReduceScatter

SIZE, STEPS = 2, 40
with_the_hook = pytest.mark.skipif(torch.__version__ < "2.9", reason="FSDP2 has no such hook")


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with (
        rack(SIZE) as tor,
        process_group(SIZE, prepare, "innet", tor.environments(SIZE)) as running,
    ):
        yield running


def prepare() -> None:
    pass


def gradients(rank: int) -> torch.Tensor:
    """Return the gradient of a rank, the same in every step."""
    return torch.randn(300, 32, generator=torch.Generator().manual_seed(rank))


def errors(rank: int, quantizer: str) -> tuple[float, float]:
    """Return the largest error of a step's gradient, and that of the mean over many steps."""
    from torch.distributed.fsdp import fully_shard  # slow, and only these processes need it

    torch.manual_seed(0)
    layer = nn.Linear(32, 300, bias=False)
    fully_shard(layer)
    layer.set_custom_reduce_scatter(ReduceScatter(quantizer))
    own, total, first = gradients(rank), torch.zeros(300 // SIZE, 32), 0.0
    exact = torch.stack([gradients(each) for each in range(SIZE)]).mean(0).chunk(SIZE)[rank]
    for _ in range(STEPS):
        (layer(torch.eye(32)) * own.t()).sum().backward()
        found = layer.weight.grad.to_local()
        first = first or float((found - exact).abs().max())
        total += found
        layer.weight.grad = None
    return first, float((total / STEPS - exact).abs().max())


@with_the_hook
def test_a_modules_gradients_have_a_quantizer_of_their_own(group: Group):
    before = group.run(scattered)
    for first, mean in group.run(errors, "int16"):
        assert 0 < first < 1e-3
        assert mean < 1e-3
    assert [after - own for after, own in zip(group.run(scattered), before, strict=True)] == [
        STEPS
    ] * SIZE


def scattered(rank: int) -> int:
    ways = innet.torch.carried()
    return sum(
        n for way, n in ways.items() if "reduce_scatter" in way.collective and way.by == "switch"
    )


@with_the_hook
def test_error_feedback_makes_up_for_the_errors_of_a_shard(group: Group):
    without = group.run(errors, "int8")
    for (first, mean), (_, never) in zip(group.run(errors, "int8+feedback"), without, strict=True):
        assert first > 1e-2
        assert mean < first / 10
        assert mean < never / 5


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UsageError, match="int9"):
        ReduceScatter("int9")
    with pytest.raises(UsageError, match="groups of the backend innet"):
        ReduceScatter("int16")(torch.ones(1), torch.ones(2), None, dist.ReduceOp.SUM)
