"""Every transport computes means, rings compress in every step, and process groups work as well."""

from pathlib import Path

import numpy as np
import pytest
import torch
from forked import ranks
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from paths import SUPPORT
from racks import rack
from waiting import WITHIN

from innet.errors import PeerFailed, UsageError, WorkersMissing
from innet.training import make
from innet.training.codecs.max_scaled import MaxScaled
from innet.training.codecs.truncation import Truncation
from innet.training.elastic import ElasticServer
from innet.training.message_codecs import PLAIN, Mirror, message_codec
from innet.training.transports import threads
from innet.training.transports.ring import Ring
from innet.training.transports.switch import AgentTransport
from innet.training.transports.tree import Tree

WORKER = SUPPORT / "training_worker.py"
floats = hnp.arrays(
    np.float32, st.integers(1, 40), elements=st.floats(-(2.0**100), 2.0**100, width=32)
)


def vector(rank: int, elements: int) -> torch.Tensor:
    """Return a worker's vector."""
    return torch.randn(elements, generator=torch.Generator().manual_seed(rank))


def reduced(workers: int, elements: int, wrap) -> list[torch.Tensor]:
    """Return the results of three all-reduces at every worker."""

    def work(transport):
        wrapped = wrap(transport)
        futures = [wrapped.all_reduce(vector(transport.rank, elements)) for _ in range(3)]
        first, *others = [future.result() for future in futures]
        assert all(torch.equal(first, other) for other in others)
        wrapped.close()
        return first

    return threads.run(workers, work)


def mean(workers: int, elements: int) -> torch.Tensor:
    """Return the mean, computed in double precision."""
    return sum(vector(rank, elements).double() for rank in range(workers)) / workers


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("elements", [1, 5, 64])
@pytest.mark.parametrize("wrap", [lambda over: over, Ring, lambda over: Ring(over, parts=4), Tree])
def test_all_get_the_mean_and_the_same_bits(workers, elements, wrap):
    found = reduced(workers, elements, wrap)
    assert all(torch.equal(each, found[0]) for each in found)
    assert (found[0] - mean(workers, elements)).abs().max() < 1e-6


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(("name", "step"), [("T", 2**-7), ("Q", 1 / 254)])
def test_a_ring_that_compresses_is_off_by_a_step_a_hop(name: str, step: float, parts: int):
    workers, elements = 4, 1000
    found = reduced(workers, elements, lambda over: Ring(over, message_codec(name), parts))
    assert all(torch.equal(each, found[0]) for each in found)
    largest = sum(vector(rank, elements).abs().max() for rank in range(workers))
    # There are p - 1 transmit-and-reduce steps and the all-gather: p compressions of sums.
    error = (found[0] - mean(workers, elements)).abs().max()
    assert 1e-5 < error <= workers * step * largest / workers


def test_a_ring_of_parts_does_the_same_as_a_native_one():
    found = [reduced(4, 100, lambda over, n=n: Ring(over, parts=n))[0] for n in (1, 2, 25)]
    assert all(torch.equal(each, found[0]) for each in found)


def test_codecs_send_as_many_bytes_as_they_should():
    sent = {}
    for name in ("plain", "T", "Q"):

        def work(transport, name=name):
            ring = Ring(transport, message_codec(name))
            ring.all_reduce(torch.ones(4000)).result()
            ring.close()
            return ring.bytes_sent

        sent[name] = threads.run(4, work)
    # 2 (p - 1) / p of the vector, as in equation (5).
    assert sent["plain"] == [6 * 1000 * 4] * 4
    assert sent["T"] == [6 * 1000 * 2] * 4
    assert sent["Q"] == [6 * (1000 + 4)] * 4


@given(floats)
@pytest.mark.parametrize(("name", "kind", "code"), [("T", Truncation(), 2), ("Q", MaxScaled(), 1)])
def test_a_message_says_what_the_codec_does(name, kind, code, values):
    codec = message_codec(name)
    message = codec.encode(torch.from_numpy(values))
    assert message.dtype == torch.uint8
    assert message.numel() == codec.size(values.size) == values.size * code + 4 * (code == 1)
    assert np.array_equal(codec.decode(message).numpy(), kind.decode(kind.encode(values)))


def test_a_plain_message_has_the_same_bits_and_is_not_shared():
    values = torch.tensor([1.5, -0.0, float("nan"), 2.0**-149])
    message = PLAIN.encode(values)
    decoded = PLAIN.decode(message)
    assert torch.equal(decoded.view(torch.int32), values.view(torch.int32))
    message.zero_()
    assert values[0] == decoded[0] == 1.5


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_does_not_get_lost_in_a_codec(bad: float):
    values = torch.tensor([1.0, bad, 2.0])
    assert message_codec("Q").decode(message_codec("Q").encode(values)).isnan().all()
    assert not message_codec("T").decode(message_codec("T").encode(values)).isfinite()[1]


@pytest.mark.parametrize(("name", "step"), [("T", 2**-7), ("Q", 1 / 254)])
def test_a_mirror_is_never_further_off_than_by_one_difference(name: str, step: float):
    there, here = (Mirror(torch.zeros(1000), message_codec(name)) for _ in range(2))
    random = torch.Generator().manual_seed(1)
    walk = torch.zeros(1000)
    for _ in range(50):
        move = torch.randn(1000, generator=random) / 100
        before, walk = walk, walk + 1 + move
        found = here.decode(there.encode(walk))
        # The difference is the move plus the error of the vector before.
        largest = (walk - before).abs().max() * (1 + 2 * step)
        assert (found - walk).abs().max() <= largest * step + 1e-5


def test_there_are_three_codecs():
    with pytest.raises(UsageError, match="plain, T, Q"):
        message_codec("8-bit")


@pytest.mark.parametrize("replicas", [2, 3])
def test_replicas_sum_in_a_tree_and_the_first_goes_between_the_nodes(replicas: int):
    """Two nodes with replicas are section 6.2's groups."""
    nodes = [threads.group(replicas) for _ in range(2)]
    between = threads.group(2)

    def work(transport):
        node, replica = divmod(transport.rank, replicas)
        tree = Tree(nodes[node][replica], None if replica else between[node])
        started = tree.broadcast(vector(transport.rank, 20))
        found = tree.all_reduce(vector(transport.rank, 20)).result()
        tree.close()
        return started, found

    found = threads.run(2 * replicas, work)
    assert all(torch.equal(started, vector(0, 20)) for started, _ in found)
    assert all(torch.equal(each, found[0][1]) for _, each in found)
    assert (found[0][1] - mean(2 * replicas, 20)).abs().max() < 1e-6


def test_a_tree_of_several_nodes_has_no_parameter_server():
    """The server would have only the replicas of its node, and wait for all others, or ignore them."""
    nodes, between = [threads.group(2) for _ in range(2)], threads.group(2)

    def work(transport):
        node, replica = divmod(transport.rank, 2)
        tree = Tree(nodes[node][replica], None if replica else between[node])
        with tree, pytest.raises(UsageError, match="2 nodes"):
            tree.connect(20, lambda: ElasticServer(vector(0, 20), tree.workers))

    threads.run(4, work)


def test_a_tree_asks_the_network_between_the_nodes_which_sizes_it_takes():
    with rack(ports=1) as tor, tor.workers(1) as [agent]:
        [replica] = threads.group(1)
        between = AgentTransport(agent, "int8+feedback")
        with Tree(replica, between) as tree, pytest.raises(UsageError, match="the same size"):
            tree.check_sizes([20, 20])


def test_a_worker_that_ends_without_its_message_is_noticed(monkeypatch):
    monkeypatch.setattr(threads, "WITHIN", 0.2)

    def work(transport):
        if transport.rank:
            with pytest.raises(PeerFailed, match="no message of worker 0"):
                transport.receive(0, 4)

    threads.run(2, work)


def test_a_transport_that_is_closed_takes_no_more_vectors():
    [transport] = threads.group(1)
    transport.close()
    with pytest.raises(UsageError, match="the transport is closed"):
        transport.all_reduce(torch.ones(3))


def test_a_worker_that_breaks_down_is_noticed_by_those_who_wait():
    def work(transport):
        if transport.rank == 1:
            raise ZeroDivisionError
        with pytest.raises(PeerFailed):
            (transport.all_reduce(torch.ones(3)) if transport.rank else receive(transport)).result()

    with pytest.raises(ZeroDivisionError):
        threads.run(3, work)


def receive(transport):
    """Receive a message that never comes."""
    transport.receive(1, 4)


def test_a_transport_that_is_abandoned_waits_for_nobody():
    first, _ = threads.group(2)
    future = first.all_reduce(torch.ones(1))
    first.close(abandon=True)
    assert not future.done()
    first.hub.fail()
    with pytest.raises(PeerFailed):
        future.result(WITHIN)


def test_workers_that_reduce_different_sizes_are_told():
    with pytest.raises(UsageError, match="different sizes"):
        threads.run(2, lambda end: end.all_reduce(torch.ones(end.rank + 1)).result())


def test_the_switch_trains_as_threads_do():
    """Pipe-SGD and Sync EASGD over innet's agents; the switch's sums are exact to about 2**-30."""
    with rack(ports=2) as tor:
        for name, options in (("pipe-sgd", {}), ("sync-easgd-3", {"rho": 0.5})):
            with tor.workers(2) as agents:
                found = trained(name, options, [AgentTransport(agent) for agent in agents])
            for mine, other in zip(found, trained(name, options, threads.group(2)), strict=True):
                assert (mine - other).abs().max() < 1e-5
            assert torch.equal(*found) == (name == "pipe-sgd")


def test_vectors_of_one_size_share_no_error_feedback():
    """The error of one layer would be added to the gradient of another."""
    model = torch.nn.Sequential(*(torch.nn.Linear(9, 9) for _ in range(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with rack(ports=1) as tor, tor.workers(1) as [agent]:
        transport = AgentTransport(agent, "int8+feedback")
        make("d-sync", model, optimizer, transport, packing="packed")
        with pytest.raises(UsageError, match="packing='packed'"):
            make("d-sync", model, optimizer, transport, packing="layers")
        make("d-sync", model, optimizer, AgentTransport(agent, "int8"), packing="layers")


def test_nobody_starts_with_zeros_because_worker_0_came_after_the_quorum():
    """A sum of worker 0's bits and the others' zeros would be zeros without worker 0."""
    with rack(ports=2) as tor, tor.workers(2, quorum=1) as agents:
        for agent in reversed(agents):
            with pytest.raises(WorkersMissing, match="the bytes of worker 0 are missing"):
                AgentTransport(agent).broadcast(vector(0, 200))


def trained(name, options, ends) -> list[torch.Tensor]:
    """Return the results of some steps over these ends."""
    from training_problem import fresh_model, loss_of, weights

    def work(transport):
        end = ends[transport.rank]
        model = fresh_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with make(name, model, optimizer, end, **options) as algorithm:
            for step in range(8):
                optimizer.zero_grad()
                loss_of(model, transport.rank, step).backward()
                algorithm.step()
        end.close()
        return weights(model)

    return threads.run(len(ends), work)


def in_processes(script: Path, count: int, folder: Path) -> None:
    """Run a script as `count` ranks of a process group."""
    with ranks(script, [str(folder)], count) as running:
        for worker in running:
            worker.finish()


def test_processes_train_every_algorithm_as_threads_do(tmp_path: Path):
    """Three processes over Gloo train with one algorithm after the other, as threads do."""
    in_processes(WORKER, 3, tmp_path)
    from training_problem import train
    from training_worker import CASES

    for index, (name, options) in enumerate(CASES):
        found = [torch.load(tmp_path / f"{index}-{rank}.pt") for rank in range(3)]
        if name in {"async-sgd", "hogwild-easgd"}:
            assert all(each.isfinite().all() for each in found)
            continue
        given_ = {key: value for key, value in options.items() if key != "ring"}
        for mine, other in zip(found, train(name, **given_), strict=True):
            assert (mine - other).abs().max() < (1e-1 if "ring" in options else 1e-5), name


def test_with_a_node_for_the_servers_it_is_the_same(tmp_path: Path):
    """Three workers and a process that only serves, against three threads."""
    in_processes(WORKER.with_name("training_node_worker.py"), 4, tmp_path)
    from training_node_worker import CASES
    from training_problem import train

    for index, (name, given_) in enumerate(CASES):
        options = dict(given_)
        found = [torch.load(tmp_path / f"{index}-{rank}.pt") for rank in range(3)]
        if name == "async-easgd":
            assert all(each.isfinite().all() for each in found)
            continue
        within = {"T": 2e-3, "Q": 2e-3}.get(options.pop("codec", ""), 1e-5)
        for mine, other in zip(found, train(name, **options), strict=True):
            assert (mine - other).abs().max() < within, name
