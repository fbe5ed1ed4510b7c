"""Callers may overwrite their inputs and results at once: no other worker's result may change."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from callers import KINDS, SPOILT, spoil, vector
from one_worker import TERM, WORKER_INFO, Controller, cabled
from racks import WITHIN, Rack, rack

from innet.host.agent import Agent
from innet.host.exchanges import Exchanges
from innet.host.integers import Reduction
from innet.host.job import Path, Timeouts
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.reducer import Reducer

# -- one worker: the memory that it later shares with others -----------------------------------


class Echo:
    """A fallback that answers at once, with the worker's own contribution."""

    def __init__(self) -> None:
        self.workers, self.said = WORKER_INFO.workers, np.empty(0)

    def all_reduce(self, _position, chunks, _operation, flags) -> "Future[Reduction]":
        self.said = chunks.copy()
        members = np.full(len(chunks), 0b111, np.uint64)
        counts = np.full(len(chunks), 3, np.uint16)
        done: Future[Reduction] = Future()
        done.set_result(Reduction(chunks.copy(), flags.copy(), counts, members))
        return done

    def combine(self, tensor, *, mean: bool) -> "Future[torch.Tensor]":
        raise AssertionError((tensor, mean))


@pytest.fixture(scope="module")
def alone() -> Iterator[tuple[Exchanges, Controller, Echo]]:
    """Yield a worker that sums by itself, and its controller."""
    with cabled() as switch:
        controller, echo = Controller(switch.waker), Echo()
        timeouts = Timeouts(WITHIN, WITHIN)
        exchanges = Exchanges(switch.link, WORKER_INFO, controller, switch.waker, timeouts, echo)
        controller.say_resume(replace(TERM, path=Path.FALLBACK))
        yield exchanges, controller, echo


@pytest.mark.parametrize(("dtype", "op", "quantizer"), KINDS)
def test_what_a_worker_shares_is_what_it_got_whatever_its_caller_has_written_since(
    alone: tuple[Exchanges, Controller, Echo], dtype: str, op: Any, quantizer: str
):
    exchanges, controller, echo = alone
    reducer, values = Reducer(exchanges, WORKER_INFO), vector(dtype, 4 * WORKER_INFO.lanes)
    if quantizer:
        result = reducer.floats(values, QuantizerSpec.read(quantizer), 1, mean=op == "mean")
    elif op == "sum":
        result = reducer.integers(values)
    else:
        result = reducer.extremes(values, op)
    kept = echo.said.copy()
    spoil(values)
    spoil(result)
    assert (result == SPOILT).all()
    number = controller.term.number + 1
    controller.say_recover(number)
    exchanges.attend()
    _, finished = controller.readies[-1]
    shared = replace(TERM, path=Path.FALLBACK, number=number, exchange=finished - 1, shared=True)
    controller.say_resume(shared)
    exchanges.attend()
    assert echo.said[: len(kept)].tolist() == kept.tolist()


# -- a rack: no memory in common ---------------------------------------------------------------


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(2) as running:
        yield running


@pytest.fixture(scope="module")
def pair(tor: Rack) -> Iterator[list[Agent]]:
    with tor.workers(2) as agents:
        yield agents


@pytest.mark.parametrize("wrapped", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("elements", [640, 100, 70_000])
@pytest.mark.parametrize(("dtype", "op", "quantizer"), KINDS)
def test_results_share_no_memory_with_inputs_with_each_other_or_with_what_is_kept(
    pair: list[Agent], monkeypatch, dtype: str, op: Any, quantizer: str, elements: int, wrapped: Any
):
    kept: list[Reduction] = []
    carry_out = Exchanges.all_reduce

    def recorded(*arguments: Any, **more: Any) -> Reduction:
        kept.append(carry_out(*arguments, **more))
        return kept[-1]

    monkeypatch.setattr(Exchanges, "all_reduce", recorded)
    given = [vector(dtype, elements, seed) for seed in (1, 2)]
    running = [
        agent.submit(wrapped(mine), op, quantizer=quantizer or None, key=elements)
        for agent, mine in zip(pair, given, strict=True)
    ]
    results = [np.asarray(future.result(WITHIN)) for future in running]
    inside = [each for one in kept for each in (one.lanes, one.flags, one.counts, one.members)]
    assert len(kept) >= len(pair)
    assert not any(array.flags.writeable for array in inside)
    for number, result in enumerate(results):
        assert result.flags.writeable
        for other in [*inside, *given, *results[:number]]:
            assert not np.shares_memory(result, other)
