"""Every state of a slot that two jobs lend to each other, while old packets stay under way for ever."""

import pytest
from lease_model import Flaw, Size, over, start, steps
from slot_model import Graph, WrongSum, reachable, stuck

SIZES = [Size(1, 2, 3), Size(2, 1, 2)]


def explore(size: Size) -> Graph:
    """Return all reachable states. Raises Violation."""
    return reachable(start(size), lambda state: steps(size, state))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_no_packet_of_one_job_or_term_enters_a_sum_of_another_and_all_get_to_the_end(size):
    graph = explore(size)  # raises WrongSum

    assert not stuck(graph, lambda state: over(size, state))
    by_switch = {job for state in graph for job, *_ in state.sent}
    assert by_switch == {0, 1}


@pytest.mark.parametrize("flaw", list(Flaw))
def test_nothing_of_it_can_be_left_out(flaw):
    with pytest.raises(WrongSum):
        explore(Size(1, 2, 3, flaw))
