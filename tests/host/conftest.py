"""A worker whose exchanges a test drives: the test is the switch, the controller and the others."""

from collections.abc import Iterator

import pytest
from exchanging_worker import Worker
from one_worker import TERM, Switch, cabled


@pytest.fixture
def switch() -> Iterator[Switch]:
    with cabled() as made:
        yield made


@pytest.fixture
def worker(switch: Switch) -> Worker:
    made = Worker(switch)
    made.controller.say_resume(TERM)
    return made
