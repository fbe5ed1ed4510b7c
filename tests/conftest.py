"""What all tests share."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from p4runtime_client import Controller
from switches import Switch, running_switch
from tiny_programs import program

from innet.p4.artifacts import artifact

# The same examples in every run, and none that fails because the machine is busy.
settings.register_profile("innet", deadline=None, derandomize=True)
settings.load_profile("innet")


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    """A switch with one port and no program."""
    with running_switch(1) as one:
        yield one


@pytest.fixture(scope="module")
def controller(switch: Switch) -> Iterator[Controller]:
    """The controller that is in charge of it."""
    with Controller(switch.address, 1) as primary:
        yield primary


@pytest.fixture
def router(controller: Controller) -> Controller:
    """The same, and the switch has just begun to run the router."""
    controller.configure(program("router"))
    return controller


@pytest.fixture
def bridge(controller: Controller) -> Controller:
    """The same, with the aggregation program."""
    controller.configure(artifact(64))
    return controller
