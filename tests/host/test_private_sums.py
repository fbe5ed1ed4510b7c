"""Private sums of agents: exact under faults, and refused where pads would not cancel."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_job import faulty_job
from nodes import met
from racks import Rack, rack
from waiting import WITHIN

from innet.controller.state.registry import Policy
from innet.errors import UnsupportedTensor, UsageError, WorkersDisagree
from innet.host import float_reducer
from innet.host.agent import Agent
from innet.host.job import WorkerInfo
from innet.host.parameters import RackedParameters
from innet.host.private_sums import LEAST_BYTES, check_suits, read_secret
from innet.local.faults import Faults
from innet.machine.environment import PRIVATE_KEY_FILE
from innet.servers.pbox.optimizers import SGD

LANES = 64


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(6, LANES, policy=Policy(lease_s=WITHIN)) as running:
        yield running


def key_file(folder: Path, content: bytes = bytes(range(LEAST_BYTES)), mode: int = 0o600) -> Path:
    path = folder / f"key-{len(list(folder.iterdir()))}"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRIVATE_KEY_FILE, str(key_file(tmp_path)))


def together(agents: Sequence[Agent], call: Callable[[Agent, int], Any]) -> list[Any]:
    """Return the outcome of a call of every worker, by rank: its result or its error."""

    def outcome(rank: int) -> Any:
        try:
            return call(agents[rank], rank)
        except Exception as problem:  # noqa: BLE001 - the test looks at it
            return problem

    with ThreadPoolExecutor(len(agents)) as pool:
        return list(pool.map(outcome, range(len(agents))))


# -- the same results ----------------------------------------------------------------------------


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize("kind", ["small", "large", "long"])
def test_sums_are_exact_under_faults(tor, kind):
    with faulty_job(tor, 3, 8, seed=5, faults=Faults.all(0.01)) as job:
        job.sum(1, 64, 5000, 30_000, kind=kind)
        assert job.wiring.total().dropped


QUANTIZERS = ("int32", "int16", "int8", "int32+stochastic", "int8+feedback", "strom:0.5")
SIZES = 3, 2_000, 40_000


def reduced(agents: Sequence[Agent], quantizer: str) -> list[bytes]:
    own = np.random.default_rng(3).normal(size=(len(agents), max(SIZES))).astype(np.float32)
    own[0, 1000], own[1, 1500] = np.nan, np.inf
    results = []
    for size in SIZES:
        found = together(
            agents,
            lambda agent, rank, n=size: agent.all_reduce(own[rank, :n], quantizer=quantizer, key=n),
        )
        assert len({each.tobytes() for each in found}) == 1
        results.append(found[0].tobytes())
    for op in ("max", "min"):
        found = together(agents, lambda agent, rank, op=op: agent.all_reduce(own[rank], op))
        results.append(found[0].tobytes())
    return results


@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_every_quantizer_gives_the_same_bits(tor, quantizer, monkeypatch, tmp_path):
    with tor.workers(3) as agents:
        expected = reduced(agents, quantizer)
    monkeypatch.setenv(PRIVATE_KEY_FILE, str(key_file(tmp_path)))
    with tor.workers(3) as agents:
        assert all(agent.private for agent in agents)
        assert reduced(agents, quantizer) == expected


@pytest.mark.parametrize("quantizer", ["int32", "int8", "int32+feedback"])
def test_large_vectors_and_parts_give_the_same_bits(tor, quantizer, monkeypatch, tmp_path):
    own = np.random.default_rng(4).normal(size=(3, 6000)).astype(np.float32)

    def called(agents: Sequence[Agent]) -> list[list[Any]]:
        return [
            together(agents, lambda agent, rank: agent.all_reduce(own[rank], **more)),
            together(agents, lambda agent, rank: agent.reduce_scatter(own[rank], **more)),
            together(agents, lambda agent, rank: agent.reduce(own[rank], 1, **more)),
        ]

    more = {"quantizer": quantizer, "key": "one"}
    with tor.workers(3) as agents:
        expected = called(agents)
    monkeypatch.setenv(PRIVATE_KEY_FILE, str(key_file(tmp_path)))
    monkeypatch.setattr(float_reducer, "LARGE", 0)
    with tor.workers(3) as agents:
        for found, right in zip(called(agents), expected, strict=True):
            for one, other in zip(found, right, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize("dtype", ["uint8", "int64", "complex64"])
@pytest.mark.parametrize("size", [5, 3000])
def test_moves_have_the_bits_of_all(tor, dtype, size):
    own = np.random.default_rng(size).integers(0, 255, (3, size, 16), np.uint8).view(dtype)[..., 0]
    with tor.workers(3) as agents:
        for found in together(agents, lambda agent, rank: agent.all_gather(own[rank])):
            np.testing.assert_array_equal(found, own.reshape(-1))
        for found in together(agents, lambda agent, rank: agent.broadcast(own[rank], 2)):
            np.testing.assert_array_equal(found, own[2])
        assert together(agents, lambda agent, _: agent.barrier()) == [None] * 3


@pytest.mark.usefixtures("private")
def test_a_disagreement_shows(tor):
    with tor.workers(2) as agents:
        own = [np.zeros(size, np.float32) for size in (9000, 500)]
        found = together(agents, lambda agent, rank: agent.all_reduce(own[rank]))
        assert [type(each) for each in found] == [WorkersDisagree] * 2
        assert "has 9000 elements, others have between 500 and 9000" in str(found[0])


# -- the key ---------------------------------------------------------------------------------------


def test_every_generation_of_a_job_has_a_session_of_its_own(tor, tmp_path):
    path, keys = key_file(tmp_path), []
    with tor.job(2) as name:
        for _ in range(2):
            agents = [tor.join(name, rank, private_key_file=path) for rank in range(2)]
            together(agents, lambda agent, _: agent.barrier())
            own = {agent._exchanges._paths._pads._key for agent in agents}
            assert len(own) == 1
            keys += own
            for agent in agents:
                agent.close()
    assert len(set(keys)) == 2


def joined(tor: Rack, files: Sequence[Path | None]) -> list[Any]:
    """Return each worker's outcomes of two all-reduces, where each has a key file of its own."""
    with tor.job(len(files)) as name:
        agents = [tor.join(name, rank, private_key_file=file) for rank, file in enumerate(files)]
        try:
            return [
                together(agents, lambda agent, _, n=n: agent.all_reduce(np.ones(n, np.float32)))
                for n in (500, 3)
            ]
        finally:
            for agent in agents:
                agent.close(abandon=True)


def test_workers_with_different_keys_are_told(tor, tmp_path):
    same, other = key_file(tmp_path), key_file(tmp_path, bytes(LEAST_BYTES))
    for found in joined(tor, [same, other, same]):
        assert [type(each) for each in found] == [WorkersDisagree] * 3
        assert "of worker 1 is not that of worker 0" in str(found[0])
        assert "of worker 0, 2 is not that of worker 1" in str(found[1])


def test_workers_without_a_key_are_told(tor, tmp_path):
    first, second = joined(tor, [key_file(tmp_path), None])
    for each in first:
        assert isinstance(each, WorkersDisagree)
        assert f"set {PRIVATE_KEY_FILE} on all workers, or on none" in str(each)
    assert [type(each) for each in second] == [WorkersDisagree] * 2


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602])
def test_a_key_that_others_can_use_is_refused(tmp_path, mode):
    with pytest.raises(UsageError, match="chmod 600"):
        read_secret(key_file(tmp_path, mode=mode))


def test_a_short_key_is_refused(tmp_path):
    with pytest.raises(UsageError, match="31 bytes: a key of private sums has at least 32"):
        read_secret(key_file(tmp_path, bytes(LEAST_BYTES - 1)))


def test_a_missing_key_is_refused_before_joining(tor, tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        tor.join("no-job", 0, private_key_file=tmp_path / "none")


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize("fewer", [{"quorum": 2}, {"min_workers": 2}])
def test_a_job_that_goes_on_without_workers_is_refused(tor, fewer):
    with tor.job(3, **fewer) as name, pytest.raises(UsageError, match="need all 3 workers"):
        tor.join(name, 0)


@pytest.mark.usefixtures("private")
def test_ranks_that_sum_on_a_node_first_are_refused(tor):
    with (
        met(1, 2) as [node, _],
        tor.job(1) as name,
        pytest.raises(UsageError, match="join without a node"),
        tor.join(name, 0, node=node),
    ):
        pass


def test_a_switch_that_saturates_is_refused():
    info = WorkerInfo(job=1, rank=0, workers=2, min_workers=2, lanes=LANES)
    check_suits(info, sealed=True)
    with pytest.raises(UsageError, match="Tofino"):
        check_suits(info, sealed=False)
    with pytest.raises(UsageError, match="2 lanes for each worker"):
        check_suits(replace(info, workers=33, min_workers=33), sealed=True)
    with pytest.raises(UsageError, match="need all 2 workers"):
        check_suits(replace(info, min_workers=1), sealed=True)


class Unused:
    """A fallback of two workers, which nothing may reach."""

    workers = 2

    def all_reduce(self, *_: Any) -> Any:
        raise AssertionError

    def combine(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


@pytest.mark.usefixtures("private")
def test_a_tensor_for_the_fallback_alone_is_refused(tor):
    with tor.job(2) as name, tor.join(name, 0, fallback=Unused()) as agent:
        with pytest.raises(UnsupportedTensor, match="not float64"):
            agent.all_reduce(np.zeros(4))
        assert not agent.fallbacks.get("dtype")


@pytest.mark.usefixtures("private")
def test_a_rack_server_is_refused(tor):
    with (
        tor.job(2) as name,
        tor.join(name, 0) as agent,
        pytest.raises(UsageError, match="has to read the sums"),
    ):
        RackedParameters(agent, [np.zeros(9, np.float32)], SGD(lr=0.1))
