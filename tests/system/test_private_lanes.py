"""Switches and wires see random lanes of private sums, and no pad twice.

All workers sum zeros. The lanes on the wires are then the pads themselves, so a pad that is used
twice shows as equal lanes. A tree of three switches loses, repeats, delays and damages packets, and
its top is killed and started again, so that exchanges begin again and results are shared.
``INNET_SOAK_ELEMENTS`` sets the number of lanes to capture, by default 10 million.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from captured import captured, senders
from racks import WITHIN
from trees import Forest, forest

from innet.host.agent import Agent
from innet.local.faults import Faults
from innet.machine.environment import PRIVATE_KEY_FILE
from innet.wire.layout import Kind, Operation
from innet.wire.records import get_field

LANES = 256
CAPTURED = int(os.environ.get("INNET_SOAK_ELEMENTS", str(10_000_000)))
# Of an element, each of two leaves captures two contributions, their sum and a result.
ELEMENTS = CAPTURED // 8
ROUNDS = 20
HARMED_AT = 4, 11
SIGMAS = 6
"""Standard deviations that chance exceeds once in 10^9."""


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """Return the padded lanes of all different packets at the leaves, (packets, lanes) uint32."""
    folder, key = tmp_path_factory.mktemp("captures"), tmp_path_factory.mktemp("key") / "key"
    key.write_bytes(np.random.default_rng(1).bytes(32))
    key.chmod(0o600)
    with (
        pytest.MonkeyPatch.context() as patch,
        forest(
            {"tor": 0, "left": 2, "right": 2}, {"left": ["tor"], "right": ["tor"]},
            Faults.all(0.002), seed=4, add=False, captures=folder,
        ) as trees,
    ):  # fmt: skip
        patch.setenv(PRIVATE_KEY_FILE, str(key))
        for name in trees.switches:
            trees.add(name, lanes=LANES)
        with trees.workers("tor", ["left", "left", "right", "right"], slots=128) as agents:
            sum_zeros(agents, lambda: restart(trees, "tor"))
            files = [file for name in ("left", "right") for file in (folder / name).iterdir()]
    return different(files)


def restart(trees: Forest, name: str) -> None:
    trees.switches[name].kill()
    trees.switches[name].start()


def sum_zeros(agents: list[Agent], harm: Callable[[], None]) -> None:
    """Sum integers, floats and maxima of zeros, and harm the system before some rounds."""
    harmed = threading.Barrier(len(agents), harm)
    size = ELEMENTS // ROUNDS

    def work(agent: Agent) -> None:
        for number in range(ROUNDS):
            running = [
                agent.submit(np.zeros(size - 2 * LANES, np.int32), "sum"),
                agent.submit(np.zeros(2 * LANES, np.float32)),
                agent.submit(np.zeros(LANES, np.int64), "sum"),
            ]
            if number in HARMED_AT:  # while sums are under way
                harmed.wait(WITHIN)
            for each in running:
                assert not each.result(WITHIN).any()

    with ThreadPoolExecutor(len(agents)) as pool:
        for future in [pool.submit(work, agent) for agent in agents]:
            future.result(WITHIN)


def different(files: Iterable[Path]) -> np.ndarray:
    """Return the lanes of packets that differ in what they are: copies and repetitions are one.

    Requires that copies have the same lanes, and that few packets go without pads.
    """
    found: dict[tuple[object, ...], bytes] = {}
    bare: dict[tuple[object, ...], bytes] = {}
    for file in files:
        packets = captured(file, LANES)
        for packet, ip, port in zip(packets, *senders(packets), strict=True):
            told = (int(get_field(packet, each)) for each in ("kind", "term", "slot", "sequence"))
            name = *told, ip, port
            if get_field(packet, "kind") in (Kind.CONTRIBUTION, Kind.RESULT):
                covered = get_field(packet, "operation") == Operation.WRAPPING_SUM
                content = packet["lanes"].tobytes()
                assert (found if covered else bare).setdefault(name, content) == content
    assert len(bare) < 20, "only the agreement on a session goes without pads"
    assert len({term for _, term, *_ in found}) > len(HARMED_AT), "exchanges begin again"
    return np.frombuffer(b"".join(found.values()), ">u4").reshape(-1, LANES)


def test_the_lanes_are_uniform(lanes):
    assert lanes.size > 0.9 * CAPTURED
    flat = lanes.reshape(-1).astype(np.uint32)
    assert deviation(flat) < SIGMAS
    for half in (flat & 0xFFFF, flat >> 16):
        seen = np.bincount(half, minlength=1 << 16)
        expected, freedom = flat.size / seen.size, seen.size - 1
        chi_squared = ((seen - expected) ** 2 / expected).sum()
        assert abs(chi_squared - freedom) < SIGMAS * np.sqrt(2 * freedom)


@pytest.mark.parametrize("distance", [1, 2, LANES, LANES + 1])
def test_a_lane_tells_nothing_of_another(lanes, distance):
    flat = lanes.reshape(-1).astype(np.uint32)
    assert deviation(flat[distance:] ^ flat[:-distance]) < SIGMAS
    assert deviation(flat[distance:] - flat[:-distance]) < SIGMAS


def deviation(words: np.ndarray) -> float:
    """Return how far the most uneven of the 32 bits is from even, in standard deviations."""
    ones = np.array([np.count_nonzero(words & np.uint32(1 << bit)) for bit in range(32)])
    return float(np.abs(ones / words.size - 0.5).max() * 2 * np.sqrt(words.size))


@pytest.mark.parametrize("first", [0, 1])
def test_no_pad_is_there_twice(lanes, first):
    flat = lanes.reshape(-1)
    pairs = flat[first : first + (flat.size - first) // 2 * 2].astype(np.uint32).view(np.uint64)
    # Of so many random pairs, two are equal once in about 10^6 runs.
    pairs.sort()
    assert (pairs[1:] != pairs[:-1]).all()
