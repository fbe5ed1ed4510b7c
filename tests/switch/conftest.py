"""The fixtures that tests of the switch share."""

from collections.abc import Iterator

import pytest
from aggregation_rack import AggregationRack, Job, aggregation_rack
from clone_sessions import session
from compared_switches import Target, embedded
from control_plane import ELECTIONS, PROGRAM
from p4runtime_client import Controller, group
from packet_paths import insert
from slot_jobs import PAIR, QUORUM, SLOTS, WORKERS
from switches import Switch
from tiny_programs import program


@pytest.fixture
def target(request) -> Iterator[Target]:
    """Run the program that the test names. Session 5 copies to port 3 as instance 9."""
    with embedded(program(request.param)) as running:
        insert(running, session(5, (3, 9)), session(1, (1, 0)), group(5, (1, 1), (4, 4)))
        yield running


@pytest.fixture(scope="module")
def rack() -> Iterator[AggregationRack]:
    """Start a switch with three stations, and admit the workers of all jobs."""
    with aggregation_rack(3) as made:
        for job, workers in WORKERS.items():
            made.controller.insert(group(job, *((r + 1, r + 1) for r in range(workers))))
            for rank in range(workers):
                made.admit(job, rank, QUORUM[job])
        yield made


@pytest.fixture(params=[PAIR])
def job(rack, request) -> Job:
    """Return a job with an unused slot."""
    return Job(rack, request.param, QUORUM[request.param], next(SLOTS))


@pytest.fixture
def bare(switch: Switch) -> Iterator[Controller]:
    """Connect the primary controller of the default role."""
    with Controller(switch.address, next(ELECTIONS)) as controller:
        yield controller


@pytest.fixture
def primary(bare: Controller) -> Controller:
    """Restore the program's tables, and return the primary controller."""
    bare.configure(PROGRAM)
    return bare
