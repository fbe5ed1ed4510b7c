"""Every state of a job over several terms, while old packets stay under way for ever."""

import pytest
from slot_model import Graph, WrongSum, reachable, stuck
from term_model import Flaw, Job, Unequal, over, start, steps

ALL_NEEDED = [Job(2, 2, 1, 2), Job(2, 2, 2, 2), Job(2, 3, 1, 2), Job(3, 2, 1, 2), Job(2, 2, 1, 3)]
SOME_NEEDED = [Job(2, 2, 1, 2, 1), Job(2, 2, 2, 2, 1), Job(3, 1, 3, 1, 2), Job(3, 2, 1, 2, 2)]

WRONG = {
    Flaw.CONTRIBUTIONS_OF_ANY_TERM: WrongSum,
    Flaw.RESULTS_OF_ANY_TERM: Unequal,
    Flaw.CELLS_ARE_NOT_CLEARED: WrongSum,
    Flaw.NOTHING_IS_SHARED: Unequal,
}


def explore(job: Job) -> Graph:
    """Return all reachable states. Raises Violation."""
    return reachable(start(job), lambda state: steps(job, state))


@pytest.mark.parametrize("job", ALL_NEEDED, ids=str)
def test_all_workers_take_equal_results_and_can_always_get_to_the_end(job):
    graph = explore(job)  # raises WrongSum, Unequal, TooFarApart or FalseAlarm

    assert not stuck(graph, lambda state: over(job, state))
    assert not any(each.ended for state in graph for each in state.workers)
    resumes = {resume for state in graph for resume in state.resumes if resume}
    assert any(resume.shared for resume in resumes)
    assert {resume.exchange for resume in resumes} == {*range(job.exchanges + 1)}


@pytest.mark.parametrize("job", SOME_NEEDED, ids=str)
def test_with_a_quorum_too_and_who_is_left_behind_hears_of_it(job):
    graph = explore(job)  # raises WrongSum or Unequal

    assert not stuck(graph, lambda state: over(job, state))
    assert any(each.ended for state in graph for each in state.workers)


@pytest.mark.parametrize("flaw", list(Flaw))
def test_nothing_of_it_can_be_left_out(flaw):
    with pytest.raises(WRONG[flaw]):
        explore(Job(2, 2, 1, 2, flaw=flaw))
