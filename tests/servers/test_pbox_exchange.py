"""Push and pull, with one server and with several, in all modes."""

import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pbox_workers import WITHIN, together
from waiting import until

from innet.errors import UsageError
from innet.servers import pbox

F = np.float32
SIZES = [100_003, 7, 40_000]


@pytest.fixture(scope="module")
def servers():
    """Yield two servers, one with two cores and one with one."""
    with pbox.Server(cores=2) as first, pbox.Server(cores=1) as second:
        yield [first, second]


@pytest.fixture
def addresses(servers):
    return [each.address for each in servers]


def gradients(rank, step, sizes=SIZES):
    chance = np.random.default_rng((rank, step))
    return [chance.standard_normal(size, F) for size in sizes]


def in_order(workers, step, sizes=SIZES):
    """Return the sums, added in the order of ranks."""
    found = gradients(0, step, sizes)
    for rank in range(1, workers):
        found = [a + b for a, b in zip(found, gradients(rank, step, sizes), strict=True)]
    return found


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("sharded", [False, True])
def test_sums_are_exact_and_the_same_for_all(addresses, workers, sharded):
    def work(client):
        results = []
        for step in range(3):
            out = [np.empty(size, F) for size in SIZES]
            client.push_pull(gradients(client.rank, step), out)
            results.append(out)
        return results

    used = addresses if sharded else addresses[:1]
    for results in together(used, workers, work, keys=SIZES, reduction="sum"):
        for step, found in enumerate(results):
            for one, other in zip(found, in_order(workers, step), strict=True):
                np.testing.assert_array_equal(one, other)


@settings(max_examples=15)
@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=12), st.integers(1, 4),
    st.sampled_from([64, 1000, 4096]),
)  # fmt: skip
def test_any_keys_in_any_chunks_give_the_mean(addresses_of_all, sizes, workers, chunk_bytes):
    def work(client):
        mine = gradients(client.rank, 0, sizes)
        client.push_pull(mine)  # in place
        return mine

    for found in together(
        addresses_of_all, workers, work, keys=sizes, chunk_bytes=chunk_bytes, job="any"
    ):
        for one, other in zip(found, in_order(workers, 0, sizes), strict=True):
            np.testing.assert_array_equal(one, other / F(workers))


@pytest.fixture(scope="module")
def addresses_of_all(servers):
    return [each.address for each in servers]


def test_the_server_optimizes(addresses):
    """Workers get the parameters that the equation gives for the mean, from rank 0's initial ones."""
    initial = gradients(99, 0)

    def work(client):
        out = [np.empty(size, F) for size in SIZES]
        client.pull(out)
        for one, other in zip(out, initial, strict=True):
            np.testing.assert_array_equal(one, other)
        for step in range(3):
            client.lr = 0.1 / (step + 1)  # a schedule
            client.push_pull(gradients(client.rank, step), out)
        return out

    found = together(addresses, 2, work, keys=SIZES, optimizer=pbox.SGD(lr=0.1), initial=initial)
    expected = [each.astype(np.float64) for each in initial]
    for step in range(3):
        means = [each / F(2) for each in in_order(2, step)]
        rate = np.float64(F(0.1 / (step + 1)))
        expected = [
            (w - rate * g).astype(F).astype(np.float64)
            for w, g in zip(expected, means, strict=True)
        ]
    for out in found:
        for one, other in zip(out, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_every_asynchronous_push_is_a_step_and_staleness_is_counted(addresses):
    turns = threading.Barrier(2, timeout=WITHIN)

    def work(client):
        ones, out = [np.ones(9, F)], [np.empty(9, F)]
        if client.rank == 0:
            for _ in range(3):
                client.push_pull(ones, out)
            assert (out[0] == -3).all()
            turns.wait()
            turns.wait()
            client.pull(out)
        else:
            turns.wait()
            client.push_pull(ones, out)  # based on parameters from before three steps
            turns.wait()
        assert (out[0] == -4).all()
        turns.wait()
        counts = client.counts()
        turns.wait()
        return counts

    for counts in together(
        addresses[:1], 2, work, keys=[9], optimizer=pbox.SGD(lr=1.0), mode="async"
    ):
        assert counts == {"updates": 4, "late": 0, "stale": 3, "most_stale": 3}


def test_a_quorum_goes_on_and_the_late_gradient_is_dropped(addresses):
    turns = threading.Barrier(3, timeout=WITHIN)

    def work(client):
        mine, out = [np.full(5, client.rank + 1, F)], [np.empty(5, F)]
        if client.rank < 2:
            client.push_pull(mine, out)
            turns.wait()
        else:
            turns.wait()
            client.push_pull(mine, out)
        np.testing.assert_array_equal(out[0], np.full(5, -1.5, F))  # the mean of 1 and 2
        turns.wait()
        counts = client.counts()
        turns.wait()
        client.push_pull(mine, out)  # now two of any
        return counts

    found = together(
        addresses[:1], 3, work, keys=[5], optimizer=pbox.SGD(lr=1.0), quorum=2, job="quorum"
    )
    assert [each["late"] for each in found] == [1, 1, 1]


def test_a_submitted_step_has_the_learning_rate_of_its_call(addresses):
    gate, found = threading.Event(), [np.zeros(10, F)]
    with pbox.connect(
        addresses, job="test", rank=0, workers=1, keys=[10], optimizer=pbox.SGD(lr=1.0)
    ) as client:
        client._executor.submit(gate.wait)  # as an exchange that takes long
        client.lr = 0.5
        future = client.submit([np.ones(10, F)], found)
        client.lr = 0.25
        gate.set()
        future.result(WITHIN)
    assert (found[0] == -0.5).all()


def test_submitted_keys_are_exchanged_in_order(addresses):
    def work(client):
        mine = gradients(client.rank, 0)
        futures = [client.submit([mine[key]], keys=[key]) for key in (2, 0, 1)]
        for future in futures:
            future.result(WITHIN)
        return mine

    for found in together(addresses, 3, work, keys=SIZES, reduction="sum"):
        for one, other in zip(found, in_order(3, 0), strict=True):
            np.testing.assert_array_equal(one, other)


def test_jobs_share_a_server_and_the_memory_of_one_that_ends_is_free(servers, addresses):
    until(lambda: not servers[0].stats().reserved_bytes)  # the jobs of earlier tests are gone
    with pbox.connect(addresses[:1], job="stays", rank=0, workers=1, keys=[1000]) as stays:
        before = servers[0].stats().reserved_bytes
        gone = pbox.connect(addresses[:1], job="goes", rank=0, workers=1, keys=[1 << 20])
        assert servers[0].stats().reserved_bytes >= before + 2 * 4 * (1 << 20)
        gone.push_pull([np.ones(1 << 20, F)])
        gone.close()
        until(lambda: servers[0].stats().reserved_bytes == before)
        assert list(servers[0].stats().jobs) == ["stays"]
        mine = [np.ones(1000, F)]
        stays.push_pull(mine)
        assert (mine[0] == 1).all()


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ([np.ones(10, F)], "1 arrays for 2 keys"),
        ([np.ones(10), np.ones(4, F)], "key a needs .* not float64 of 10"),
        ([np.ones(9, F), np.ones(4, F)], "key a needs .* of 10 elements, not float32 of 9"),
        ([np.ones(20, F)[::2], np.ones(4, F)], "not contiguous"),
        ([np.ones(10, F), [1.0] * 4], "key b .* not list"),
        ([np.broadcast_to(F(1), 10), np.ones(4, F)], "key a"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_and_the_client_goes_on(addresses, arrays, why):
    with pbox.connect(
        addresses[:1], job="fits", rank=0, workers=1, keys={"a": 10, "b": 4}
    ) as client:
        with pytest.raises(UsageError, match=why):
            client.push_pull(arrays)
        with pytest.raises(UsageError, match="keys"):
            client.push_pull([np.ones(10, F)], keys=[7])
        client.push_pull([np.ones(10, F), np.ones(4, F)])


def test_numbers_may_be_numpys(addresses):
    rank, one, chunk = np.arange(1)[0], np.int32(1), np.int64(64)
    given = {"quorum": one, "chunk_bytes": chunk, "timeout": WITHIN}
    with pbox.connect(
        addresses, job="numpy", rank=rank, workers=one, keys=[np.int64(40)], **given
    ) as client:
        mine = [np.ones(40, F)]
        client.push_pull(mine)
        assert (mine[0] == 1).all()


def test_cores_take_turns_on_the_addresses_of_interfaces():
    with pbox.Server("127.0.0.1:0", 3, data_hosts=["127.0.0.2", "127.0.0.3"]) as server:
        with pbox.connect(server.address, job="many", rank=0, workers=1, keys=[6 * 8192]) as client:
            client.push_pull([np.ones(6 * 8192, F)])
            hosts = [each.getpeername()[0] for each in client._connections.cores]
        assert hosts == ["127.0.0.2", "127.0.0.3", "127.0.0.2"]
        assert server.stats().cores["chunks"].tolist() == [2, 2, 2]


def test_over_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with pbox.Server("[::1]:0") as server:
        assert server.address.startswith("[::1]:")
        with pbox.connect(server.address, job="six", rank=0, workers=1, keys=[9]) as client:
            client.push_pull([np.ones(9, F)])
