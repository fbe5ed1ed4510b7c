"""The controller's connection to a switch: refusals name a reason, and it always comes back."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from aggregation_rack import PROGRAM
from switches import running_switch
from waiting import WITHIN

from innet.controller.switches import p4runtime
from innet.controller.switches.p4runtime import SwitchConnection
from innet.errors import SwitchError
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime.p4runtime_pb2_grpc import P4RuntimeServicer, add_P4RuntimeServicer_to_server


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


def test_a_connection_that_is_closed_while_the_most_messages_wait_leaves_no_thread(monkeypatch):
    monkeypatch.setattr(p4runtime, "_MOST_WAITING", 4)
    heard, closed, service = threading.Event(), threading.Event(), P4RuntimeServicer()
    service.StreamChannel = packets
    before = {*threading.enumerate()}
    server = grpc.server(ThreadPoolExecutor(4))
    add_P4RuntimeServicer_to_server(service, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()

    def packet_in(*_):
        heard.set()
        assert closed.wait(WITHIN)

    made = SwitchConnection(address, 0, PROGRAM.p4info, packet_in)
    mine = [
        each
        for each in threading.enumerate()
        if each not in before and each.name in ("innet-stream", "innet-packet-in")
    ]
    assert len(mine) == 2
    assert heard.wait(WITHIN)
    while not made._client.inbox.full():
        pass
    made.close()
    closed.set()
    for each in mine:
        each.join(WITHIN)
        assert not each.is_alive(), each.name
    server.stop(0).wait()


def packets(requests, _):
    """Make the client the primary, and then send many packets."""
    yield p4rt.StreamMessageResponse(arbitration=next(requests).arbitration)
    yield from [p4rt.StreamMessageResponse(packet=p4rt.PacketIn(payload=bytes(64)))] * 100
    for _ in requests:
        pass


@pytest.fixture
def free_tcp_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
