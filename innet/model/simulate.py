"""The simulation of an all-reduce: by a recurrence without loss, and by events with it."""

from dataclasses import replace

from innet.model import events, recurrence
from innet.model.collectives import exchanges
from innet.model.scenario import Scenario, SimulationResult


def simulate(scenario: Scenario) -> SimulationResult:
    """Simulate a scenario to its end. Both ways give the same times where both apply."""
    return events.run(scenario) if scenario.lossy else recurrence.run(scenario)


def simulate_collective(scenario: Scenario, collective: str) -> SimulationResult:
    """Simulate a collective of the scenario's size, by name (:mod:`innet.model.collectives`).

    It may be several exchanges. The next begins when the last worker has the results of the one before.
    Packets without lanes take as long as others, since a link's other direction is the busier one.
    Raises UsageError for an unknown collective.
    """
    total = SimulationResult(0.0, 0, 0, 0, 0)
    for chunks in exchanges(collective, scenario.workers, scenario.size, scenario.slots):
        size = 4.0 * scenario.slots.lanes * chunks
        total += simulate(replace(scenario, size=size))
        scenario = replace(scenario, starts=())
    return total
