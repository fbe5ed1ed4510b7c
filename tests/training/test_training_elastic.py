"""The elastic-averaging family follows equations (1) to (6) and each member's order of events."""

import pytest
import torch
from training_problem import (
    RATE,
    STEPS,
    WORKERS,
    close,
    fresh_model,
    gradient,
    loss_of,
    train,
    weights,
)

from innet.errors import UsageError
from innet.training import make
from innet.training.elastic import ElasticServer, HogwildElasticServer
from innet.training.transports import threads
from innet.training.transports.ring import Ring
from innet.training.transports.tree import Tree

RHO = 0.5
MOMENTUM = 0.5


def both(algorithm, model):
    """Return a worker's weights and the centre, both in the model's order."""
    mine = weights(model)
    algorithm.load_centre()
    return mine, weights(model)


def original(steps: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return the weights and the centre of Algorithm 1 after `steps` rounds of all workers."""
    local = [weights(fresh_model()) for _ in range(WORKERS)]
    centre = weights(fresh_model())
    for step in range(steps):
        for worker in range(WORKERS):
            before = local[worker]
            slope = gradient(before, worker, step)
            local[worker] = before - RATE * (slope + RHO * (before - centre))  # (1)
            centre = centre + RATE * RHO * (before - centre)  # (2), one worker's part
    return local, centre


def synchronous(steps: int, workers: int = WORKERS) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return the weights and the centre of Algorithms 2 to 4."""
    local = [weights(fresh_model()) for _ in range(workers)]
    centre = weights(fresh_model())
    for step in range(steps):
        before = local
        local = [
            mine - RATE * (gradient(mine, worker, step) + RHO * (mine - centre))  # (1)
            for worker, mine in enumerate(before)
        ]
        centre = centre + RATE * sum(RHO * (mine - centre) for mine in before)  # (2)
    return local, centre


def test_original_easgd_goes_round_robin():
    local, centre = original(STEPS)
    found = train("easgd", rho=RHO, finish=both)
    for worker, (mine, common) in enumerate(found):
        assert close(mine, local[worker])
        assert close(common, centre) or worker < WORKERS - 1  # the last to leave has seen all
    assert not close(centre, weights(fresh_model()), 1e-2), "nothing was learned"


@pytest.mark.parametrize("name", ["sync-easgd-1", "sync-easgd-2", "sync-easgd-3"])
def test_all_three_sync_easgds_are_equations_1_and_2(name: str):
    local, centre = synchronous(STEPS)
    for worker, (mine, common) in enumerate(train(name, rho=RHO, finish=both)):
        assert close(mine, local[worker])
        assert close(common, centre)


@pytest.mark.parametrize("wrap", [Ring, Tree])
@pytest.mark.parametrize("packing", ["packed", "layers"])
def test_rings_trees_and_packing_change_nothing(wrap, packing):
    _, centre = synchronous(STEPS)
    found = train("sync-easgd-3", rho=RHO, wrap=wrap, packing=packing, finish=both)
    assert all(torch.equal(common, found[0][1]) for _, common in found)
    assert close(found[0][1], centre)


def test_the_replicas_of_all_nodes_pull_the_centre():
    """Equation (2) sums over all workers, also if they are two replicas on each of two nodes."""
    nodes, between = [threads.group(2) for _ in range(2)], threads.group(2)

    def wrap(transport):
        node, replica = divmod(transport.rank, 2)
        tree = Tree(nodes[node][replica], None if replica else between[node])
        assert (tree.rank, tree.workers) == (transport.rank, 4)
        return tree

    local, centre = synchronous(STEPS, workers=4)
    found = train("sync-easgd-2", workers=4, rho=RHO, wrap=wrap, finish=both)
    for worker, (mine, common) in enumerate(found):
        assert close(mine, local[worker])
        assert close(common, centre)


@pytest.mark.parametrize("name", ["async-easgd", "hogwild-easgd"])
def test_asynchronous_members_alone_are_the_original_alone(name: str):
    """With one worker there is only one order of events."""
    local, centre = weights(fresh_model()), weights(fresh_model())
    for step in range(STEPS):
        slope = gradient(local, 0, step)
        pull = RHO * (local - centre)
        local, centre = local - RATE * (slope + pull), centre + RATE * pull
    [(mine, common)] = train(name, rho=RHO, workers=1, finish=both)
    assert close(mine, local)
    assert close(common, centre)


def test_async_measgd_is_equations_5_6_and_2():
    local, centre = weights(fresh_model()), weights(fresh_model())
    velocity = torch.zeros_like(local)
    for step in range(STEPS):
        velocity = MOMENTUM * velocity - RATE * gradient(local, 0, step)  # (5)
        pull = RATE * RHO * (local - centre)
        local, centre = local + velocity - pull, centre + pull  # (6), (2)
    [(mine, common)] = train("async-measgd", rho=RHO, workers=1, momentum=MOMENTUM, finish=both)
    assert close(mine, local)
    assert close(common, centre)


def test_the_asynchronous_centre_is_some_order_of_the_pushes():
    """Every push moves the centre by (2), starting from the centre in its answer."""
    answers: list[tuple[torch.Tensor, torch.Tensor]] = []

    def work(transport):
        model = fresh_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        with make("async-easgd", model, optimizer, transport, rho=RHO) as algorithm:
            [client] = algorithm.clients
            push = client.push_pull

            def recorded(vector, rate):
                answer = push(vector, rate)
                answers.append((vector, answer))
                return answer

            client.push_pull = recorded
            for step in range(STEPS):
                optimizer.zero_grad()
                loss_of(model, transport.rank, step).backward()
                algorithm.step()

    threads.run(WORKERS, work)
    assert len(answers) == WORKERS * STEPS
    after = [answer + RATE * RHO * (vector - answer) for vector, answer in answers]
    befores = [answer for _, answer in answers]
    unmatched = [
        centre for centre in after if not any(close(centre, before, 1e-7) for before in befores)
    ]
    assert len(unmatched) == 1  # that of the last push; every other centre was an answer


def test_pushes_under_the_lock_are_all_in_the_centre():
    server = ElasticServer(torch.zeros(1000), 4)
    pushed(server, 200)
    # Every push moves the centre by the same factor towards 1, in any order.
    assert close(server.centre, 1 - 0.99 ** torch.tensor(800.0), 1e-5)
    assert server.updates == 800


def test_without_the_lock_pushes_may_get_lost_but_the_centre_stays_between_the_weights():
    server = HogwildElasticServer(torch.zeros(100_000), 4)
    pushed(server, 50)
    assert server.centre.min() > 0
    assert server.centre.max() <= 1


def pushed(server, times: int) -> None:
    """Let the server's 4 workers push ones at the same time."""

    def work(transport):
        for _ in range(times):
            server.push_pull(transport.rank, torch.ones_like(server.centre), 0.01)

    threads.run(4, work)


def test_only_one_worker_computes_at_a_time_in_original_easgd():
    computing: list[int] = []
    most = []

    def work(transport):
        model = fresh_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        with make("easgd", model, optimizer, transport) as algorithm:
            for step in range(STEPS):
                algorithm.begin()
                computing.append(transport.rank)
                most.append(len(computing))
                optimizer.zero_grad()
                loss_of(model, transport.rank, step).backward()
                computing.remove(transport.rank)
                algorithm.step()

    threads.run(WORKERS, work)
    assert max(most) == 1


def test_a_step_size_of_zero_gives_no_rho():
    model = fresh_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    [transport] = threads.group(1)
    with transport, pytest.raises(UsageError, match="no default of rho, so give one"):
        make("sync-easgd-2", model, optimizer, transport)


def test_by_default_all_workers_together_pull_nine_tenths_of_the_way():
    def rho(algorithm, _):
        return algorithm.rho

    assert (
        train("sync-easgd-2", workers=3, steps=1, finish=rho)
        == [pytest.approx(0.9 / (3 * RATE))] * 3
    )
