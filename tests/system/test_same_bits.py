"""The same training has the same bits, whatever sums it, in whatever order contributions arrive.

The runs differ in the number of switches, in the places of the workers, in losses and repetitions, in
the order of the workers, and in failures. Each has to end with the same parameters, bit by bit.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from gloo_fallbacks import gloo_fallbacks
from nodes import met
from racks import WITHIN
from trees import Forest, forest

from innet.host.agent import Agent
from innet.local.faults import Faults
from innet.machine.environment import PRIVATE_KEY_FILE
from innet.rpc import innet_pb2 as pb

WORKERS, STEPS = 4, 12
INPUTS, HIDDEN, CLASSES, BATCH = 64, 96, 10, 16
HARMED_AT = 5
"""The step before which something is killed."""

Parameters = list[np.ndarray]


@dataclass(frozen=True)
class Scene:
    """The agents of a run by rank, and a function that harms the system in the middle of it."""

    agents: Sequence[Agent]
    harm: Callable[[], None] = lambda: None


@contextlib.contextmanager
def one_switch() -> Iterator[Scene]:
    with forest({"tor": WORKERS}, {}) as trees, trees.workers("tor", ["tor"] * WORKERS) as agents:
        yield Scene(agents)


@contextlib.contextmanager
def a_tree() -> Iterator[Scene]:
    with a_forest() as trees, trees.workers("tor", ["left", "right", "left", "right"]) as agents:
        yield Scene(agents)


@contextlib.contextmanager
def a_tree_with_losses() -> Iterator[Scene]:
    with (
        a_forest(Faults.all(0.01)) as trees,
        trees.workers("tor", ["left", "left", "right", "right"]) as agents,
    ):
        yield Scene(agents)


@contextlib.contextmanager
def a_tree_with_a_killed_switch() -> Iterator[Scene]:
    with a_forest() as trees, trees.workers("tor", ["right", "left", "right", "left"]) as agents:

        def harm() -> None:
            trees.switches["tor"].kill()
            trees.switches["tor"].start()

        yield Scene(agents, harm)


@contextlib.contextmanager
def the_fallback() -> Iterator[Scene]:
    with (
        gloo_fallbacks(WORKERS) as fallbacks,
        forest({"tor": WORKERS}, {}) as trees,
        trees.job("tor", WORKERS) as (name, token),
        contextlib.ExitStack() as stack,
    ):
        agents = [
            stack.enter_context(trees.worker(name, token, rank, "tor", fallback=fallback))
            for rank, fallback in enumerate(fallbacks)
        ]
        yield Scene(agents, trees.switches["tor"].kill)
        assert trees.show(name).path == pb.PATH_FALLBACK


@contextlib.contextmanager
def nodes_with_a_killed_switch() -> Iterator[Scene]:
    """Yield two nodes with two workers each, which sum in shared memory first, over a lossy network."""
    with (
        forest({"tor": WORKERS}, {}, Faults(), seed=3) as trees,
        met(2, WORKERS // 2) as nodes,
        contextlib.ExitStack() as stack,
    ):
        jobs = [stack.enter_context(trees.job("tor", 2)) for _ in range(WORKERS // 2)]
        agents = [
            stack.enter_context(trees.worker(*jobs[rank % 2], rank // 2, "tor", node=node))
            for rank, node in enumerate(nodes)
        ]

        def harm() -> None:
            trees.switches["tor"].kill()
            trees.switches["tor"].start()

        yield Scene(agents, harm)


def a_forest(faults: Faults | None = None) -> contextlib.AbstractContextManager[Forest]:
    parents = {"left": ["tor"], "right": ["tor"]}
    return forest({"tor": 0, "left": 2, "right": 2}, parents, faults, seed=3)


@pytest.fixture(scope="module", params=["int32", "int16"])
def reference(request):
    """Return a quantizer, and the parameters that one switch gives with it."""
    with one_switch() as scene:
        return request.param, trained(scene, request.param)


@pytest.mark.parametrize(
    "scene",
    [
        a_tree,
        a_tree_with_losses,
        a_tree_with_a_killed_switch,
        the_fallback,
        nodes_with_a_killed_switch,
    ],
)
def test_training_has_the_same_bits(scene, reference):
    quantizer, expected = reference
    with scene() as made:
        assert trained(made, quantizer) == expected


@pytest.mark.parametrize(
    "scene", [one_switch, a_tree_with_losses, a_tree_with_a_killed_switch, the_fallback]
)
def test_private_training_has_the_same_bits(scene, reference, monkeypatch, tmp_path):
    quantizer, expected = reference
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    monkeypatch.setenv(PRIVATE_KEY_FILE, str(key))
    with scene() as made:
        assert all(agent.private for agent in made.agents)
        assert trained(made, quantizer) == expected


def trained(scene: Scene, quantizer: str) -> bytes:
    """Train with all agents at once. Return the bits of the parameters, the same for every worker."""
    harmed = threading.Barrier(len(scene.agents), scene.harm)
    with ThreadPoolExecutor(len(scene.agents)) as pool:
        futures = [
            pool.submit(train, agent, rank, quantizer, harmed)
            for rank, agent in enumerate(scene.agents)
        ]
        results = [b"".join(p.tobytes() for p in each.result(WITHIN)) for each in futures]
    assert len(set(results)) == 1
    return results[0]


def train(agent: Agent, rank: int, quantizer: str, harmed: threading.Barrier) -> Parameters:
    """Train a network with one hidden layer on random digits. Return its parameters."""
    chance = np.random.default_rng(1)
    parameters = [
        chance.normal(0, 0.1, shape).astype(np.float32)
        for shape in ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
    ]
    own = np.random.default_rng(100 + rank)
    for step in range(STEPS):
        if step == HARMED_AT:
            harmed.wait(WITHIN)
        inputs = own.random((BATCH, INPUTS), np.float32)
        gradients = gradients_of(parameters, inputs, own.integers(0, CLASSES, BATCH))
        flat = np.concatenate([each.ravel() for each in gradients])
        mean = agent.all_reduce(flat, quantizer=quantizer)
        sizes = np.cumsum([each.size for each in parameters])[:-1]
        for number, gradient in enumerate(np.split(mean, sizes)):
            parameters[number] -= np.float32(0.5) * gradient.reshape(parameters[number].shape)
    return parameters


def gradients_of(parameters: Parameters, inputs: np.ndarray, labels: np.ndarray) -> Parameters:
    """Return the gradients of the cross entropy, in the order of the parameters."""
    first, bias, second, offset = parameters
    hidden = np.maximum(inputs @ first + bias, 0)
    scores = hidden @ second + offset
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    likely[np.arange(len(labels)), labels] -= 1
    error = likely / np.float32(len(labels))
    back = (error @ second.T) * (hidden > 0)
    found = [inputs.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]
    return [each.astype(np.float32) for each in found]
