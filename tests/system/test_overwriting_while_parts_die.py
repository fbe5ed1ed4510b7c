"""Callers overwrite inputs and results at once while switches and controllers die: sums stay right.

``INNET_KILLS=20`` sets the number of disturbed rounds.
"""

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from callers import KINDS, submit, vector
from gloo_fallbacks import gloo_fallbacks
from mortal import Mortal, controlled, mortal_switch, open_job
from racks import WITHIN
from trees import forest

from innet.host.agent import Agent
from innet.local.faults import DOWN, LOST, Faults, Wiring, faulty

ROUNDS = int(os.environ.get("INNET_KILLS", "2"))
ELEMENTS = 1000
SHARED = [("int32", "sum", ""), ("int32", "max", "")]
"""Kinds whose returned integers are the result itself, not a copy."""

VICTIM, OTHER = 0, 1


@dataclass
class Scene:
    """Two workers, and the parts between them. The victim has the wiring's first cable."""

    agents: Sequence[Agent]
    wiring: Wiring
    switch: Mortal
    restart_controller: Callable[[], None]


@contextlib.contextmanager
def one_switch(folder: Path, fallbacks: Sequence[Any] = (None, None)) -> Iterator[Scene]:
    with (
        mortal_switch(2) as switch,
        controlled(switch, "--state", str(folder / "state")) as (tor, controller),
        faulty(tor.links, seed=1) as wiring,
        contextlib.ExitStack() as stack,
    ):
        job = open_job(tor)
        agents = [
            stack.enter_context(tor.join(job, rank, link, fallback=fallbacks[rank]))
            for rank, link in enumerate(wiring.links)
        ]

        def restart_controller() -> None:
            controller.kill()
            controller.start()

        yield Scene(agents, wiring, switch, restart_controller)


@contextlib.contextmanager
def one_switch_and_a_fallback(folder: Path) -> Iterator[Scene]:
    with gloo_fallbacks(2) as fallbacks, one_switch(folder, fallbacks) as scene:
        yield scene


@contextlib.contextmanager
def a_tree(folder: Path) -> Iterator[Scene]:
    state = folder / "state"
    places, parents = {"tor": 0, "left": 1, "right": 1}, {"left": ["tor"], "right": ["tor"]}
    with (
        forest(places, parents, Faults(), seed=1, state=state) as trees,
        trees.workers("tor", ["left", "right"]) as agents,
    ):
        switch, restart = trees.switches["tor"], trees.restart_controller
        yield Scene(agents, trees.wiring, switch, lambda: restart(state=state))


SCENES = [one_switch, one_switch_and_a_fallback, a_tree]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_what_callers_write_into_their_arrays_never_comes_into_anothers_sum(scene, tmp_path: Path):
    chance = random.Random(scene.__name__)
    with scene(tmp_path) as made:
        for number in range(ROUNDS):
            kinds = [*chance.sample(KINDS, len(KINDS)), SHARED[number % len(SHARED)]]
            before = made.agents[OTHER].traffic.chunks
            check(kinds, number, begin(made.agents, kinds, number))
            packets = made.agents[OTHER].traffic.chunks - before
            # The victim does not get the last results. The other worker has them, and overwrites
            # them.
            lost = range(packets - chance.randrange(1, 8), 10 * packets)
            made.wiring.script(0, DOWN, dict.fromkeys(lost, LOST))
            running = begin(made.agents, kinds, number)
            running[-1][OTHER].exception(WITHIN)
            made.switch.kill()
            made.wiring.script(0, DOWN, {})
            if number % 2:
                made.restart_controller()
            made.switch.start()
            check(kinds, number, running)


def begin(agents: Sequence[Agent], kinds: Any, seed: int) -> list[list[Any]]:
    """Let all workers begin sums of these kinds; equal seeds give equal random vectors."""
    return [
        [
            submit(agent, mine, op, **({"quantizer": quantizer, "key": op} if quantizer else {}))
            for agent, mine in zip(agents, vectors(dtype, seed), strict=True)
        ]
        for dtype, op, quantizer in kinds
    ]


def vectors(dtype: str, seed: int) -> list[Any]:
    """Return a vector for each worker, alternately numpy's and PyTorch's."""
    kind = (np.asarray, torch.from_numpy)[seed % 2]
    return [kind(vector(dtype, ELEMENTS, 2 * seed + rank)) for rank in range(2)]


def check(kinds: Any, seed: int, running: list[list[Any]]) -> None:
    """Check that all workers get the same bits: exact ones, or close ones for floats."""
    for (dtype, op, quantizer), futures in zip(kinds, running, strict=True):
        one, other = (np.asarray(future.result(WITHIN)) for future in futures)
        assert one.tobytes() == other.tobytes(), (dtype, op, quantizer, seed)
        given = np.stack([np.asarray(each) for each in vectors(dtype, seed)])
        exact = getattr(given, op)(axis=0)
        if not quantizer:
            assert one.tolist() == exact.tolist(), (dtype, op, seed)
        elif "feedback" not in quantizer and "strom" not in quantizer:
            assert abs(one - exact).max() < 0.5, (dtype, op, quantizer, seed)
