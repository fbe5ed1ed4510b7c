"""The simulation of an all-reduce: by a recurrence without loss, and by events with it."""

from innet.model import events, recurrence
from innet.model.scenario import Scenario, SimulationResult


def simulate(scenario: Scenario) -> SimulationResult:
    """Simulate a scenario to its end. Both ways give the same times where both apply."""
    return events.run(scenario) if scenario.lossy else recurrence.run(scenario)
