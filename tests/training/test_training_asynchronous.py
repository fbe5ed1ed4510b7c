"""Asynchronous SGD, n-softsync and backup workers update a centre as their equations say."""

import threading

import pytest
import torch
from training_problem import (
    RATE,
    STEPS,
    WORKERS,
    close,
    fresh_model,
    gradient,
    mean_gradient,
    train,
    weights,
)
from waiting import WITHIN

from innet.errors import PeerFailed, UsageError
from innet.training.gradient_servers import (
    AsyncServer,
    BackupServer,
    HogwildServer,
    SoftsyncServer,
)
from innet.training.transports import threads
from innet.training.transports.base import Background
from innet.training.transports.threads import DirectClient

MOMENTUM = 0.5


def like(momentum: float = 0.0) -> torch.optim.Optimizer:
    """Return an optimizer whose kind and options a server uses."""
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=momentum)


def alone(momentum: float = 0.0) -> torch.Tensor:
    """Return the centre of one worker alone: equations (3) and (4)."""
    vector, velocity = weights(fresh_model()), torch.zeros(())
    for step in range(STEPS):
        velocity = momentum * velocity - RATE * gradient(vector, 0, step)  # (3)
        vector = vector + velocity  # (4)
    return vector


@pytest.mark.parametrize(
    ("name", "momentum", "options"),
    [
        ("async-sgd", 0.0, {}),
        ("async-sgd", 0.0, {"staleness_aware": True}),
        ("async-sgd", 0.0, {"packing": "layers"}),
        ("async-msgd", MOMENTUM, {}),
        ("hogwild-sgd", 0.0, {}),
        ("softsync-sgd", MOMENTUM, {"n": 1}),
        ("backup-workers", MOMENTUM, {"backups": 0}),
    ],
)
def test_one_worker_alone_is_plain_sgd(name, momentum, options):
    [found] = train(name, workers=1, momentum=momentum, **options)
    assert close(found, alone(momentum))


def test_an_asynchronous_update_is_with_the_one_gradient_at_once():
    server = AsyncServer(torch.zeros(2), 2, like())
    assert torch.equal(server.push_pull(0, torch.tensor([1.0, 2.0]), 0.5), torch.tensor([-0.5, -1]))
    assert torch.equal(server.push_pull(1, torch.tensor([2.0, 0.0]), 0.5), torch.tensor([-1.5, -1]))


def test_the_momentum_is_the_servers():
    server = AsyncServer(torch.zeros(1), 2, like(MOMENTUM))
    server.push_pull(0, torch.ones(1), 0.1)  # V = -0.1
    centre = server.push_pull(1, torch.ones(1), 0.1)  # V = -0.05 - 0.1
    assert close(centre, torch.tensor([-0.25]))


class Passing(torch.optim.SGD):
    """An optimizer that passes its options on, so that its signature does not name them."""

    def __init__(self, parameters, **options):
        super().__init__(parameters, **options)


def test_the_server_has_all_options_whatever_the_signature():
    mine = Passing([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=MOMENTUM)
    server = AsyncServer(torch.zeros(1), 1, mine)
    found = [server.push_pull(0, torch.ones(1), rate=1.0).item() for _ in range(2)]
    assert found == [-1, -2 - MOMENTUM]


def test_a_master_that_hears_one_at_a_time_hears_nobody_else_meanwhile():
    server = AsyncServer(torch.zeros(1), 2, like(), one_at_a_time=True)
    first, second = (DirectClient(server, rank, Background("")) for rank in range(2))
    with server.conversation:
        waiting = second.submit(torch.ones(1), 1.0)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.1)
        assert server.updates == 0
    assert torch.equal(waiting.result(timeout=WITHIN), torch.tensor([-1.0]))
    assert torch.equal(first.push_pull(torch.ones(1), 1.0), torch.tensor([-2.0]))
    with pytest.raises(UsageError, match="one_at_a_time"):
        server.rule()


def test_stale_gradients_make_smaller_steps():
    server = AsyncServer(torch.zeros(1), 2, like(), staleness_aware=True)
    for _ in range(4):
        server.push_pull(0, torch.ones(1), 1.0)
    assert torch.equal(server.centre, torch.tensor([-4.0]))
    centre = server.push_pull(1, torch.ones(1), 1.0)  # 4 updates old
    assert torch.equal(centre, torch.tensor([-4.25]))
    assert torch.equal(server.push_pull(1, torch.ones(1), 1.0), torch.tensor([-5.25]))


def test_softsync_of_all_workers_is_synchronous_sgd():
    vector = weights(fresh_model())
    for step in range(STEPS):
        vector = vector - RATE * mean_gradient(vector, step)
    found = train("softsync-sgd", n=WORKERS)
    assert close(found[0], vector)
    assert all(torch.equal(each, found[0]) for each in found)


def test_softsync_updates_once_for_n_gradients_with_their_mean():
    server = SoftsyncServer(torch.zeros(1), 4, like(), 2)
    answers = at_once(server, {0: 1.0, 3: 5.0})
    assert answers == {0: -3.0, 3: -3.0}
    assert server.updates == 1


def test_softsync_ends_when_fewer_are_left_than_a_batch_takes():
    server = SoftsyncServer(torch.zeros(1), 3, like(), 2)
    late = threading.Thread(target=server.push_pull, args=(2, torch.ones(1), 1.0))
    late.start()
    server.leave(0)
    server.leave(1)
    late.join(WITHIN)
    assert not late.is_alive()
    assert torch.equal(server.centre, torch.tensor([-1.0]))


def test_uneven_numbers_of_steps_come_to_an_end():
    def work(transport):
        client = transport.connect(1, lambda: SoftsyncServer(torch.zeros(1), 3, like(), 2))
        for _ in range(transport.rank + 1):
            client.push_pull(torch.ones(1), 1.0)
        client.close()
        return True

    assert threads.run(3, work) == [True] * 3


def test_who_is_late_for_an_update_is_dropped_and_goes_on_with_the_next():
    server = BackupServer(torch.zeros(1), 3, like(), 1)
    assert at_once(server, {0: 1.0, 1: 3.0}) == {0: -2.0, 1: -2.0}
    assert server.push_pull(2, torch.full((1,), 100.0), 1.0) == -2.0  # at once, and without effect
    assert server.dropped == 1
    assert at_once(server, {1: 1.0, 2: 1.0}) == {1: -3.0, 2: -3.0}
    assert server.updates == 2


def test_backup_workers_train_on_as_many_gradients_as_there_are_others():
    found = train("backup-workers", workers=3, backups=1, steps=30)
    assert not close(found[0], weights(fresh_model()), 1e-2)


def test_without_a_lock_no_update_is_with_a_torn_gradient():
    """Without a lock, updates may get lost, but only whole steps appear."""
    server = HogwildServer(torch.zeros(50_000), 4, like())

    def work(transport):
        for _ in range(50):
            server.push_pull(transport.rank, torch.ones(50_000), 1.0)

    threads.run(4, work)
    assert server.centre.max() <= -1
    assert server.centre.min() >= -200
    assert torch.equal(server.centre, server.centre.round())


def test_a_worker_that_breaks_down_ends_the_waiting_of_the_others():
    def work(transport):
        client = transport.connect(1, lambda: SoftsyncServer(torch.zeros(1), 2, like(), 2))
        if transport.rank:
            raise ZeroDivisionError
        with pytest.raises(PeerFailed):
            client.push_pull(torch.ones(1), 1.0)

    with pytest.raises(ZeroDivisionError):
        threads.run(2, work)


def at_once(server, gradients: dict[int, float]) -> dict[int, float]:
    """Let these workers push at the same time. Return the answers."""
    answers: dict[int, float] = {}

    def push(worker: int) -> None:
        vector = torch.full((1,), gradients[worker])
        answers[worker] = float(server.push_pull(worker, vector, 1.0))

    running = [threading.Thread(target=push, args=(worker,)) for worker in gradients]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(WITHIN)
    return answers
