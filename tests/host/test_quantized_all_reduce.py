"""Quantizers at work: float32 through a real switch, bytes on the wire, and disagreement."""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from processes import process_group
from quantized_worker import LANES, prepared, ready, sum_packed, train_replica
from quantizing import all_reduce
from racks import Rack, means, problem, rack, random_vectors
from waiting import WITHIN

from innet.errors import UsageError, WorkersDisagree
from innet.host.agent import Agent
from innet.host.ddp import ddp_hook
from innet.host.quantizers.spec import QuantizerSpec

SIZE = 3
ELEMENTS = 500_000  # 2 MB, not a whole number of packets
BUDGETS = {"int32": 4.4, "int16": 2.3, "int8": 1.3, "strom:0.5": 0.8}


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(27, LANES) as running:
        yield running


@pytest.fixture(scope="module")
def pair(tor: Rack) -> Iterator[list[Agent]]:
    with tor.workers(2, slots=128) as agents:
        yield agents


def reduce_all(agents: list[Agent], vectors, quantizer: str, key=None, op="mean") -> list:
    running = [
        agent.submit(vector, op, quantizer=quantizer, key=key)
        for agent, vector in zip(agents, vectors, strict=True)
    ]
    return [future.result(WITHIN) for future in running]


@pytest.mark.parametrize(("name", "budget"), BUDGETS.items())
def test_bytes_per_element_on_the_wire(pair: list[Agent], name: str, budget: float):
    """Count whole frames each way, with headers and scales. A busy machine may repeat some chunks."""
    before = [copy.copy(agent.traffic) for agent in pair]
    reduce_all(pair, random_vectors(1, 2, ELEMENTS), name, key="w")
    for agent, earlier in zip(pair, before, strict=True):
        now = agent.traffic
        chunks = now.chunks - earlier.chunks
        sent, received = (
            now.packets_sent - earlier.packets_sent,
            now.packets_received - earlier.packets_received,
        )
        assert (now.bytes_sent - earlier.bytes_sent) * chunks / sent <= budget * ELEMENTS
        assert (
            now.bytes_received - earlier.bytes_received
        ) * chunks / received <= budget * ELEMENTS


@pytest.mark.parametrize("name", ["int16", "int8", "int8+stochastic", "strom:0.5"])
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_through_the_switch_every_worker_gets_what_the_integers_sum_says(tor, name, workers):
    """Expect the same bits as integers summed with numpy, over two rounds because of feedback."""
    spec = QuantizerSpec.read(name)
    with tor.workers(workers) as agents:
        vectors = random_vectors(workers, workers, 5000)
        results = reduce_all(agents, vectors, name, key=0)
        assert len({each.tobytes() for each in results}) == 1
        if not spec.stochastic:
            expected = all_reduce(np.stack(vectors), spec, lanes=LANES)
            assert results[0].tobytes() == expected.tobytes()
        error = abs(results[0] - np.mean(vectors, axis=0))
        if spec.name != "strom":
            largest = 2 * np.abs(vectors).max()  # of one level
            assert error.max() <= largest / (spec.bind(workers).packing.levels - 1)
        sums = reduce_all(agents, vectors, name, key=1, op="sum")
        assert len({each.tobytes() for each in sums}) == 1


def test_with_feedback_what_was_rounded_away_comes_the_next_time(pair: list[Agent]):
    vectors = random_vectors(5, 2, 3000)
    exact = np.mean(vectors, axis=0, dtype=np.float64)
    plain = reduce_all(pair, vectors, "int8")[0]
    rounds = [reduce_all(pair, vectors, "int8+feedback", key="again")[0] for _ in range(30)]
    assert rounds[0].tobytes() == plain.tobytes()
    assert abs(np.mean(rounds, axis=0) - exact).max() < abs(plain - exact).max() / 10
    others = reduce_all(pair, vectors, "int8+feedback", key="another tensor")[0]
    assert others.tobytes() == plain.tobytes()


def test_with_threshold_small_gradients_come_late(pair: list[Agent]):
    vectors = [np.full(3000, 0.3, np.float32), np.full(3000, -0.1, np.float32)]
    got = [reduce_all(pair, vectors, "strom:0.5", key="s", op="sum")[0][0] for _ in range(10)]
    assert got[0] == 0
    # Together 3.0 of the first and -1.0 of the second, except for a residual of at most 0.5 each.
    assert abs(sum(got) - 2.0) <= 1.0
    assert set(got) <= {0.0, 0.5, -0.5}


def test_what_is_not_finite_comes_back_as_nan(pair: list[Agent]):
    for name in ("int16", "int8", "strom:0.5"):
        for poison in (np.nan, np.inf, -np.inf):
            vectors = random_vectors(2, 2, 4000)
            vectors[1][7] = poison
            for mean in reduce_all(pair, vectors, name, key="poison"):
                assert np.isnan(mean[7])
                assert np.isfinite(mean[3000:]).all()
    after = reduce_all(pair, random_vectors(2, 2, 4000), "strom:0.5", key="poison")[0]
    assert np.isfinite(after).all()


def test_integers_are_exact_whatever_the_quantizer(tor: Rack):
    values = np.arange(-500, 500) * 2**20
    with tor.job(2) as job, tor.cables(2) as links:
        agents = [
            tor.join(job, rank, link, quantizer="int8+feedback") for rank, link in enumerate(links)
        ]
        for dtype in (np.int32, np.int64):
            running = [agent.submit(values.astype(dtype), "sum") for agent in agents]
            assert all((future.result(WITHIN) == 2 * values).all() for future in running)
        with pytest.raises(UsageError, match="give it a key"):
            agents[0].submit(np.ones(3, np.float32))
        with pytest.raises(UsageError, match=r"key \['weight'\] has no hash"):
            agents[0].submit(np.ones(3, np.float32), key=["weight"])
        halves = [torch.full((3,), 0.5), torch.full((3,), 1.5)]
        for mean in [a.submit(h, key=0) for a, h in zip(agents, halves, strict=True)]:
            assert torch.allclose(mean.result(WITHIN), torch.ones(3), atol=0.02)
        for agent in agents:
            agent.close()


def test_workers_that_choose_differently_are_told(tor: Rack):
    for first, second in (("int16", "int8"), ("int32", "int16"), ("strom:1", "strom:2")):
        with tor.workers(2) as agents:
            vector = np.ones(LANES * 5, np.float32)
            running = [
                agent.submit(vector, quantizer=name, key=0)
                for agent, name in zip(agents, (first, second), strict=True)
            ]
            for future, name in zip(running, (first, second), strict=True):
                error = problem(future)
                assert isinstance(error, WorkersDisagree)
                assert f"different quantizers or roots: this one's quantizer is {name}" in str(
                    error
                )


def test_the_choice_may_come_from_the_environment(tor: Rack, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INNET_QUANTIZER", "int8")
    with tor.workers(2) as agents:
        vectors = random_vectors(3, 2, 2000)
        got = means(agents, *vectors)[0]
        assert got.tobytes() == reduce_all(agents, vectors, "int8")[0].tobytes()
        assert got.tobytes() != reduce_all(agents, vectors, "int32")[0].tobytes()


def test_what_cannot_be_used_is_refused_when_joining(tor: Rack):
    with tor.job(19) as job, tor.cables(1) as [link]:
        with pytest.raises(UsageError, match="quantizer 'int7'"):
            tor.join(job, 0, link, quantizer="int7")
        with pytest.raises(UsageError, match=r"19 workers' integers has to fit 8 bits.*use int16"):
            tor.join(job, 0, link, quantizer="int8")
    with tor.workers(1) as [agent]:  # the same, chosen by the call
        before = agent.traffic.packets_sent
        with pytest.raises(UsageError, match="quantizer 'int7'"):
            agent.submit(np.ones(3, np.float32), quantizer="int7")
        assert agent.traffic.packets_sent == before
        assert agent.all_reduce(np.ones(3, np.float32), quantizer="int8").tolist() == [1, 1, 1]


def test_the_fallback_gives_the_same_bits():
    vectors = np.stack(random_vectors(4, SIZE, 3000))
    with process_group(SIZE, prepared) as group:
        group.run(ready)
        for name in ("int16", "int8"):
            expected = all_reduce(vectors, QuantizerSpec.read(name), lanes=LANES)
            for got in group.run(sum_packed, name, vectors):
                assert got[:3000].tobytes() == expected.tobytes()


class Bucket:
    """A bucket of the gradients of some parameters, as DistributedDataParallel gives it to its hook."""

    def __init__(self, *parameters: torch.Tensor) -> None:
        self.parameters = lambda: list(parameters)
        self.buffer = partial(torch.linspace, -1, 2, sum(each.numel() for each in parameters))


def hooked(agents: list[Agent], *parameters: torch.Tensor) -> torch.Tensor:
    """Return the mean of the gradients of a bucket, of which all agents have the same."""
    bucket: Any = Bucket(*parameters)
    running = [ddp_hook((agent, "int8+feedback"), bucket) for agent in agents]
    [mean, _] = [future.wait() for future in running]
    return mean


def test_a_model_in_the_memory_of_another_begins_without_residuals(pair: list[Agent]):
    """A script may train one model after the other, and PyTorch reorders the parameters of a bucket."""
    memory = torch.zeros(4000)
    kept = pair[0]._reducer._residuals._kept
    before = len(kept)
    model = [torch.nn.Parameter(part) for part in memory.split(2000)]
    first = hooked(pair, *model)
    assert not torch.equal(hooked(pair, *model), first)  # the residual of its first step
    assert torch.equal(hooked(pair, model[0], torch.nn.Parameter(memory[2000:])), first)
    del model
    assert torch.equal(hooked(pair, torch.nn.Parameter(memory)), first)
    assert len(kept) == before + 1


def test_a_ddp_hook_may_have_a_quantizer_of_its_own(tor: Rack):
    with tor.job(2) as job, tor.cables(2) as links, process_group(2, prepared) as group:
        group.run(ready)
        for rank, link in enumerate(links):
            group.start(train_replica, tor.controller, job, tor.tokens[job], link, ranks=[rank])
        (first, sent), (second, _) = group.results()
    assert first == second
    assert sent < 5 * 30_300 * 1.5
