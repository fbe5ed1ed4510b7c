"""A node's workers meet, share memory, and notice at once when one of them has ended or failed."""

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from nodes import met
from waiting import WITHIN, until

from innet.errors import AgentClosed, AllReduceError, NeighbourLost, WorkersDisagree
from innet.host.node import Entrance, Node, Place
from innet.host.node_meetings import Meetings
from innet.host.waker import Waker

BROUGHT = 3, 64, 1
WAKER = Waker()  # which wakes nobody


@pytest.fixture
def three() -> Iterator[list[Node]]:
    with met(1, 3) as found:
        yield found


def problem(node: Node) -> AllReduceError:
    """Return the error that a node's next meeting ends with."""
    found: list[AllReduceError] = []
    node.meetings.arrive(*BROUGHT)

    def raised() -> bool:
        try:
            node.wait(WAKER, 0)
        except AllReduceError as error:
            found.append(error)
        return bool(found)

    until(raised)
    return found[0]


def test_they_share_memory(three: list[Node]):
    for number, node in enumerate(three):
        node.memory[number] = number + 1
    assert {bytes(node.memory[:3]) for node in three} == {b"\1\2\3"}


def test_all_learn_who_is_late_and_whether_all_bring_the_same(three: list[Node]):
    first, second, third = three
    for _ in range(3):
        first.meetings.arrive(*BROUGHT)
        third.meetings.arrive(4, 64, 1)
        first.wait(WAKER, 0)
        assert not first.meetings.complete
        assert first.late == [1]
        second.meetings.arrive(*BROUGHT)
        assert second.meetings.complete
        for node in (first, third):
            until(lambda node=node: node.wait(WAKER, 0))
            assert not node.late
        assert not any(node.meetings.alike for node in three)
    for node in three:
        node.meetings.arrive(*BROUGHT)
    assert all(node.meetings.alike for node in three)


def test_who_waits_is_woken_by_the_last_arrival_and_by_its_waker(three: list[Node]):
    first, second, third = three
    first.meetings.arrive(*BROUGHT)
    third.meetings.arrive(*BROUGHT)
    with contextlib.closing(Waker()) as waker, ThreadPoolExecutor(1) as pool:
        for wake in (waker.wake, lambda: second.meetings.arrive(*BROUGHT)):
            first.wait(WAKER, 0)
            assert not first.meetings.complete
            waiting = pool.submit(first.wait, waker, 2 * WITHIN)
            wake()
            waiting.result(WITHIN)
    first.wait(WAKER, 0)
    assert first.meetings.complete


def test_who_is_woken_for_another_reason_goes_on_waiting(three: list[Node]):
    first, second, third = three
    first.meetings.arrive(*BROUGHT)
    with contextlib.closing(Waker()) as waker:
        waker.wake()
        assert not first.wait(waker, WITHIN)
        assert not first.wait(waker, 0)
        for node in (second, third):
            node.meetings.arrive(*BROUGHT)
        assert first.wait(waker, WITHIN)


def test_if_the_last_to_arrive_ends_before_it_signals_nobody_takes_the_meeting_for_complete(
    three: list[Node],
):
    first, second, third = three
    first.meetings.arrive(*BROUGHT)
    second.meetings.arrive(*BROUGHT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Meetings, "_signal", lambda _: None)
        third.meetings.arrive(*BROUGHT)
    third.close()
    for node in (first, second):
        with pytest.raises(NeighbourLost, match="worker 2, on the same node, has ended"):
            node.wait(WAKER, 0)


@pytest.mark.parametrize("killed", [False, True])
def test_a_problem_of_a_neighbour_is_passed_on_in_its_own_words(three: list[Node], killed: bool):
    if not killed:
        three[2].fail(ZeroDivisionError("in a hook"))
    three[2].close()
    said = set()
    for node in three[:2]:  # the second sees that both others have ended
        found = problem(node)
        node.fail(found)
        node.close()
        said.add(str(found))
    [text] = said
    assert text.startswith("worker 2, on the same node")
    assert text.count("on the same node") == 1


def test_an_end_before_all_have_arrived_is_noticed(three: list[Node]):
    first, second, _ = three
    first.meetings.arrive(*BROUGHT)  # never read: the connection breaks rather than ends
    second.meetings.arrive(*BROUGHT)
    second.close()
    for check in (partial(first.wait, WAKER, 0), first.check_all):
        with pytest.raises(NeighbourLost, match="worker 1, on the same node, has ended"):
            check()


def test_an_end_after_all_have_arrived_counts_at_the_next_meeting(three: list[Node]):
    """It does also if this worker reads of the end before it looks whether all have arrived."""
    first, second, third = three
    first.meetings.arrive(*BROUGHT)
    third.meetings.arrive(*BROUGHT)
    second.meetings.arrive(*BROUGHT)
    third.close()
    first.wait(WAKER, 0)
    assert first.meetings.complete
    assert first.meetings.alike
    first.meetings.arrive(*BROUGHT)
    with pytest.raises(NeighbourLost, match="worker 2, on the same node, has ended"):
        first.wait(WAKER, 0)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WorkersDisagree("3 and 4"), WorkersDisagree),
        (AgentClosed("closed"), NeighbourLost),
        (ZeroDivisionError("in a hook"), NeighbourLost),
        (AllReduceError("ü\ud800" * 10_000), AllReduceError),
        (AllReduceError("\N{GRINNING FACE}" * 10_000), AllReduceError),
    ],
)
def test_a_failure_reaches_the_others_in_its_own_words(
    three: list[Node], error: BaseException, kind: type[AllReduceError]
):
    three[2].fail(error)
    three[2].fail(ZeroDivisionError("only the first counts"))
    three[2].close()
    for node in three[:2]:
        found = problem(node)
        assert type(found) is kind
        assert str(found).startswith("worker 2, on the same node: ")
        assert str(error)[:20] in str(found)


def test_strangers_are_turned_away():
    with contextlib.closing(Entrance()) as first, contextlib.closing(Entrance()) as second:
        strangers = [_calling(first, message) for message in (b"hello", b"\7" * 8, b"\0" * 8)]
        strangers[0].close()
        names = [first.name, second.name]
        with ThreadPoolExecutor(2) as pool:
            entrances = enumerate([first, second])
            meeting = [
                pool.submit(each.meet, Place([0, 1], index, 2), names, WITHIN)
                for index, each in entrances
            ]
            nodes = [each.result(WITHIN) for each in meeting]
        nodes[0].memory[0] = 7
        assert nodes[1].memory[0] == 7
        for each in [*nodes, *strangers]:
            each.close()


def _calling(entrance: Entrance, message: bytes) -> socket.socket:
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    caller.connect(f"\0{entrance.name}")
    caller.send(message)
    return caller


def test_who_does_not_come_ends_the_meeting():
    with contextlib.closing(Entrance()) as alone:
        with pytest.raises(OSError, match="timed out"):
            alone.meet(Place([0, 1], 0, 2), [alone.name, "innet-nobody"], 0.01)
        with pytest.raises(OSError, match="refused"):
            alone.meet(Place([0, 1], 1, 2), ["innet-nobody", alone.name], WITHIN)
