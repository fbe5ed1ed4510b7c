"""The controller's connection to a switch: refusals name a reason, and it always comes back."""

import socket

import pytest
from aggregation_rack import PROGRAM
from switches import running_switch

from innet.controller.switches.p4runtime import SwitchConnection
from innet.errors import SwitchError


@pytest.fixture(scope="module")
def connection():
    with running_switch(1) as switch:
        made = SwitchConnection(switch.address, 0, PROGRAM.p4info, lambda *_: None)
        made.run(PROGRAM.json)
        yield made
        made.close()


def test_a_batch_that_is_refused_in_part_names_the_update(connection):
    first, second = (
        connection.names.entry("bridge", {"destination": mac}, "forward", {"port": 1})
        for mac in (1, 2)
    )
    connection.insert(first)

    with pytest.raises(SwitchError, match=r"update 1: .*there is an entry with this match"):
        connection.insert(second, first)
    with pytest.raises(SwitchError, match=r"update 0: .*there is an entry with this match"):
        connection.insert(second)  # the valid update of the batch was carried out


def test_a_second_connection_takes_over_and_the_first_is_refused(connection):
    with running_switch(1) as switch:
        old = SwitchConnection(switch.address, 0, PROGRAM.p4info, lambda *_: None)
        new = SwitchConnection(switch.address, 0, PROGRAM.p4info, lambda *_: None)
        new.run(PROGRAM.json)

        with pytest.raises(SwitchError, match="only the primary"):
            old.run(PROGRAM.json)
        old.close()
        new.close()


def test_nobody_at_the_address_is_said(free_tcp_port):
    with pytest.raises(SwitchError, match="no switch answers"):
        SwitchConnection(f"127.0.0.1:{free_tcp_port}", 0, PROGRAM.p4info, lambda *_: None)


@pytest.fixture
def free_tcp_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
