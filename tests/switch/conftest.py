"""The fixtures that tests of the switch share."""

from collections.abc import Iterator

import pytest
from clone_sessions import session
from differential import Target, embedded
from p4runtime_client import group
from packet_paths import insert
from tiny_programs import program


@pytest.fixture
def target(request) -> Iterator[Target]:
    """Run the program that the test names. Session 5 copies to port 3 as instance 9."""
    with embedded(program(request.param)) as running:
        insert(running, session(5, (3, 9)), session(1, (1, 0)), group(5, (1, 1), (4, 4)))
        yield running
