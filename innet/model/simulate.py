"""The simulation of an all-reduce: by a recurrence without loss, and by events with it."""

from dataclasses import replace

from innet.model import events, recurrence
from innet.model.collectives import exchanges
from innet.model.scenario import Scenario, SimulationResult


def simulate(scenario: Scenario) -> SimulationResult:
    """Simulate a scenario to its end. Without loss, both ways would give the same times."""
    return events.run(scenario) if scenario.lossy else recurrence.run(scenario)


def simulate_collective(scenario: Scenario, collective: str) -> SimulationResult:
    """Simulate a collective of the scenario's size, by name (:mod:`innet.model.collectives`).

    A collective may be several exchanges. Each begins when the last worker has the results of the
    one before. Packets without lanes are simulated like full ones. This changes no time, since a
    link is busier in its other direction. Raises UsageError for an unknown collective.
    """
    total = SimulationResult(0.0, 0, 0, 0, 0)
    for chunks in exchanges(collective, scenario.workers, scenario.size, scenario.slots):
        size = 4.0 * scenario.slots.lanes * chunks
        total += simulate(replace(scenario, size=size))
        scenario = replace(scenario, starts=())
    return total
