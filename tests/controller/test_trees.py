"""Several switches sum as one: racks under spines, three levels, shared slots, faults in between."""

import contextlib
import threading

import numpy as np
import pytest
from commands import run
from racks import WITHIN, means, rack, random_vectors
from trees import Forest, finish, forest, integers, submit, sums
from waiting import until

from innet.controller.handlers import probes
from innet.errors import InnetError
from innet.local.faults import DOWN, UP, Faults
from innet.observe.diagnosis import diagnose
from innet.observe.findings import Severity
from innet.observe.sample import Observation, sample_job, sample_twice
from innet.rpc import innet_pb2 as pb

LANES = 64


def exact(vectors: np.ndarray) -> np.ndarray:
    return vectors.astype(np.int64).sum(axis=0).astype(np.int32)


@pytest.fixture(scope="module")
def spine():
    with forest({"tor": 1, "left": 3, "right": 3}, {"left": ["tor"], "right": ["tor"]}) as made:
        yield made


def test_two_racks_under_a_spine_sum_as_one(spine: Forest):
    vectors = integers(1, 4, 5000)
    with spine.workers("tor", ["left", "left", "right", "right"]) as agents:
        for result in sums(agents, vectors):
            np.testing.assert_array_equal(result, exact(vectors))
        job = spine.show()
    assert job.path == pb.PATH_SWITCH
    tree = {each.switch: each for each in job.tree}
    assert {name: [*each.workers] for name, each in tree.items()} == {
        "tor": [], "left": [0, 1], "right": [2, 3],
    }  # fmt: skip
    assert {name: [*each.parents] for name, each in tree.items()} == {
        "tor": [], "left": ["tor"], "right": ["tor"],
    }  # fmt: skip
    assert [each.switch for each in job.members] == ["left", "left", "right", "right"]
    assert job.counters.completed == tree["left"].counters.completed


def test_the_means_are_those_of_one_switch_bit_by_bit(spine: Forest):
    vectors = random_vectors(2, 4, 3000)
    with spine.workers("tor", ["left", "right", "right", "tor"]) as agents:
        over_three = means(agents, *vectors)
    with rack(4) as one, one.workers(4) as agents:
        over_one = means(agents, *vectors)
    for result in over_three:
        assert result.tobytes() == over_one[0].tobytes()


def test_a_rack_takes_as_much_of_its_uplink_as_one_worker(spine: Forest):
    elements = 64 * LANES
    with spine.workers("tor", ["left"] * 3 + ["right"] * 3) as agents:
        sums(agents, integers(3, 6, elements))
        job = spine.show()
        again = sum(agent.traffic.retransmissions for agent in agents)
    raised = {each.switch: each.counters.raised for each in job.tree}
    assert raised["tor"] == 0
    done = job.counters.completed
    for name in ("left", "right"):
        assert done <= raised[name] <= done + again


def test_workers_of_one_rack_do_not_use_the_spine(spine: Forest):
    with spine.workers("tor", ["left", "left"]) as agents:
        vectors = integers(4, 2, 1000)
        for result in sums(agents, vectors):
            np.testing.assert_array_equal(result, exact(vectors))
        assert [each.switch for each in spine.show().tree] == ["left"]
    with spine.workers("left", ["left", "left"]) as agents:
        for result in sums(agents, vectors):
            np.testing.assert_array_equal(result, exact(vectors))
        assert not spine.show().tree


def test_a_rack_of_one_worker_sums_with_others(spine: Forest):
    vectors = integers(5, 3, 2000)
    with spine.workers("tor", ["right", "left", "tor"]) as agents:
        for result in sums(agents, vectors):
            np.testing.assert_array_equal(result, exact(vectors))


def test_nobody_begins_before_all_are_there_and_the_job_says_so(spine: Forest):
    with spine.job("tor", 2) as (name, token), contextlib.ExitStack() as stack:
        first = stack.enter_context(spine.worker(name, token, 0, "left"))
        vectors = integers(6, 2, 100)
        running = submit([first], vectors[:1])
        assert "1 of the workers are missing" in spine.show(name).reason
        second = stack.enter_context(spine.worker(name, token, 1, "right"))
        running += submit([second], vectors[1:])
        for result in finish(running):
            np.testing.assert_array_equal(result, exact(vectors))


def test_three_levels():
    parents = {"a": ["top"], "b": ["top"], "a1": ["a"], "a2": ["a"], "b1": ["b"]}
    hosts = {"top": 0, "a": 1, "b": 0, "a1": 2, "a2": 1, "b1": 1}
    with forest(hosts, parents) as made:
        vectors = integers(7, 5, 3000)
        with made.workers("top", ["a1", "a1", "a2", "b1", "a"]) as agents:
            for result in sums(agents, vectors):
                np.testing.assert_array_equal(result, exact(vectors))
            assert {each.switch for each in made.show().tree} == {*hosts}
        with made.workers("top", ["a1", "a2"]) as agents:  # their lowest common switch is a
            for result in sums(agents, vectors[:2]):
                np.testing.assert_array_equal(result, exact(vectors[:2]))
            assert {each.switch for each in made.show().tree} == {"a", "a1", "a2"}


def test_two_parents_share_the_slots():
    parents = {"left": ["one", "two"], "right": ["one", "two"]}
    with forest({"one": 0, "two": 0, "left": 2, "right": 2}, parents) as made:
        vectors = integers(8, 4, 64 * LANES)
        with made.workers("one", ["left", "left", "right", "right"]) as agents:
            for result in sums(agents, vectors):
                np.testing.assert_array_equal(result, exact(vectors))
            job = made.show()
        done = {each.switch: each.counters.completed for each in job.tree}
        assert done["one"] > 0
        assert done["two"] > 0
        assert done["one"] + done["two"] == done["left"] == done["right"] == job.counters.completed
        [left] = [each for each in job.tree if each.switch == "left"]
        assert [*left.parents] == ["one", "two"]


@pytest.mark.parametrize("seed", [1, 2])
def test_faults_between_the_switches_change_nothing(seed: int):
    parents = {"left": ["tor"], "right": ["tor"]}
    faults = Faults.all(0.02)
    with forest({"tor": 0, "left": 2, "right": 2}, parents, faults, seed) as made:
        vectors = integers(seed, 4, 20 * LANES)
        with made.workers("tor", ["left", "left", "right", "right"]) as agents:
            for _ in range(3):
                for result in sums(agents, vectors):
                    np.testing.assert_array_equal(result, exact(vectors))
        for direction in (UP, DOWN):
            counts = [made.wiring.counts(cable, direction) for cable in (0, 1)]
            assert sum(sum(each.faults.values()) for each in counts)


# -- links that cannot be ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joined():
    with forest({"top": 1, "low": 1}, {"low": ["top"]}) as made:
        yield made


@pytest.mark.parametrize(
    ("uplinks", "change", "said"),
    [
        ([("nobody", 1, 1)], {}, "there is no switch 'nobody': add parents first"),
        ([("new", 1, 1)], {}, "cannot be its own parent"),
        ([("top", 7, 1)], {}, "'new' has no port 7"),
        ([("top", 1, 7)], {}, "'top' has no port 7"),
        ([("top", 1, 2)], {}, "port 2 of 'top' has a link already"),
        ([("low", 1, 2)], {}, "port 2 of 'low' has a link already"),
        ([("top", 1, 1), ("low", 1, 1)], {}, "port 1 has two uplinks"),
        ([("top", 1, 1), ("top", 2, 1)], {}, "port 1 of 'top' has a link already"),
        ([("top", 1, 1)], {"lanes": 256}, "256 lanes and its parent 'top' 64"),
        (
            [("top", 1, 1)],
            {"service": pb.Address(mac="02:00:00:00:00:fd", ip="10.0.0.1")},
            "give all switches of a tree the same address",
        ),
    ],
)
def test_links_that_cannot_be_are_refused(joined: Forest, uplinks, change, said):
    links = [pb.Uplink(parent=name, port=port, parent_port=above) for name, port, above in uplinks]
    fields = {"grpc_address": "127.0.0.1:1", "ports": [1, 2], "uplinks": links, **change}
    joined.plan.cables["new"], joined.switches["new"] = [], joined.switches["low"]
    joined.plan.uplinks["new"] = []
    with pytest.raises(InnetError, match=said):
        joined.add("new", **fields)


def test_a_parent_is_not_removed_before_its_children(joined: Forest):
    with pytest.raises(InnetError, match="'top' is a parent: remove 'low' first"):
        joined.remove("top")


# -- where links really end ----------------------------------------------------------------------


def test_a_link_that_ends_elsewhere_is_seen(monkeypatch):
    monkeypatch.setattr(probes, "_WITHIN", WITHIN)
    with forest({"one": 0, "two": 0, "low": 1}, {"low": ["one", "two"]}, add=False) as made:
        for name in ("one", "two"):
            made.add(name)
        right, wrong = made.plan.uplinks["low"]
        right.parent, wrong.parent = "two", "one"
        added = made.add("low")  # whose answer waits for what the links say
        assert [each.found for each in added.uplinks] == ["port 1 of one", "port 1 of two"]


def test_a_link_that_ends_where_it_should_is_not_talked_of(joined: Forest):
    until(lambda: joined.switch("low").uplinks[0].probed)
    assert [(each.found, each.probed) for each in joined.switch("low").uplinks] == [("", True)]


def test_swapped_uplinks_are_named_by_those_who_look(monkeypatch):
    monkeypatch.setattr(probes, "_WITHIN", WITHIN)
    with forest({"top": 0, "a": 1, "b": 1}, {"a": ["top"], "b": ["top"]}, add=False) as made:
        made.add("top")
        links = [made.plan.uplinks[name][0] for name in "ab"]
        links[0].parent_port, links[1].parent_port = links[1].parent_port, links[0].parent_port
        for name, link in zip("ab", links, strict=True):
            uplink = f"{link.parent}:{link.port}:{link.parent_port}"
            ports = f"1-{len(made.plan.cables[name])}"
            done = run(
                "innet", "switch", "add", name, made.switches[name].address, "--ports", ports,
                "--lanes", "64", "--uplink", uplink, "--controller", made.controller,
            )  # fmt: skip
            assert done.returncode == 1
            other = 3 - link.parent_port
            said = (
                f"the uplink at port 2 of {name} was said to lead to port {link.parent_port} of top, "
                f"and leads to port {other} of top"
            )
            assert said in done.stderr
        with made.job("top", 2) as (job, _):
            sample = sample_job(made.stub, job)
            whats = [each.statement for each in diagnose(Observation(sample, sample))]
            assert sum("was said to lead to" in each for each in whats) == 2


def test_a_killed_leaf_is_what_the_doctor_names():
    with (
        forest({"top": 0, "a": 1, "b": 1}, {"a": ["top"], "b": ["top"]}) as made,
        made.workers("top", ["a", "b"]) as agents,
    ):
        vectors = integers(7, 2, 64)
        sums(agents, vectors)
        made.switches["b"].kill()
        running = submit(agents, vectors)
        name = made.show().name
        while made.switch("b").reachable or made.show(name).path != pb.PATH_NONE:
            threading.Event().wait(0.05)
        observation = sample_twice(lambda: sample_job(made.stub, name), 0.5)
        problems = [each for each in diagnose(observation) if each.severity == Severity.PROBLEM]
        assert [each.statement for each in problems] == ["the switch b is down"], problems
        for agent in agents:
            agent.close(abandon=True)
        for each in running:
            each.exception(WITHIN)
