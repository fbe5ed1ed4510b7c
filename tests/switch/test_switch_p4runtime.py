"""P4Runtime's session: arbitration, and packets from and to the controller."""

from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from p4runtime_client import Controller, Names, group, refusal
from switches import Switch, receive, running_switch

from innet.p4.artifacts import artifact
from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.wire.check import seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import HEADER_BYTES, Kind
from innet.wire.records import blank

DEVICE = 7
AGGREGATION = artifact(64)
NAMES = Names(AGGREGATION.p4info)
SERVICE = Address("02:00:00:00:00:fe", "10.0.0.254")
WORKER = Address("02:00:00:00:00:01", "10.0.0.1", 20_001)


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(2, "--device-id", str(DEVICE)) as running:
        yield running


@pytest.fixture
def elections(switch: Switch) -> Iterator[int]:
    """Return the highest election id that this switch has heard of."""
    with Controller(switch.address, device=DEVICE) as asking:
        election = asking.arbitrate(0).election_id
    return election.high << 64 | election.low


@pytest.fixture
def primary(switch: Switch, elections: int) -> Iterator[Controller]:
    with Controller(switch.address, elections + 1, DEVICE) as controller:
        yield controller


@pytest.fixture
def backup(switch: Switch, primary: Controller) -> Iterator[Controller]:
    with Controller(switch.address, primary.election - 1, DEVICE) as controller:
        yield controller


# -- arbitration ---------------------------------------------------------------------------------


def test_the_highest_election_id_is_primary_and_the_others_are_backups(switch, elections):
    high, low = elections + (5 << 64), elections + 1
    with (
        Controller(switch.address, device=DEVICE) as first,
        Controller(switch.address, device=DEVICE) as second,
    ):
        answer = first.arbitrate(high)
        assert answer.status.code == code_pb2.OK
        assert (answer.election_id.high, answer.election_id.low) == divmod(high, 1 << 64)
        assert second.arbitrate(low).status.code == code_pb2.ALREADY_EXISTS
        assert refusal(second.modify)[0] == grpc.StatusCode.PERMISSION_DENIED


def test_a_higher_election_id_takes_over_and_everybody_is_told(switch, primary):
    primary.configure(AGGREGATION)
    with Controller(switch.address, primary.election + 1, DEVICE) as successor:
        assert primary.hear().arbitration.status.code == code_pb2.ALREADY_EXISTS
        assert refusal(primary.insert, group(9, (1, 1)))[0] == grpc.StatusCode.PERMISSION_DENIED
        successor.insert(group(9, (1, 1)))
        election = successor.election
    # No client inherits the place of a primary that left. A new primary needs a higher id.
    assert primary.hear().arbitration.status.code == code_pb2.NOT_FOUND
    assert refusal(primary.delete, group(9))[0] == grpc.StatusCode.PERMISSION_DENIED
    assert primary.arbitrate(election + 1).status.code == code_pb2.OK
    primary.delete(group(9))


def test_an_election_id_that_another_client_has_ends_the_stream(switch, primary):
    with Controller(switch.address, device=DEVICE) as double:
        code, message = refusal(double.arbitrate, primary.election)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert f"{primary.election} belongs to another controller" in message
    assert primary.arbitrate(primary.election).status.code == code_pb2.OK


def test_a_client_without_election_id_reads_but_does_not_write(switch, primary):
    primary.configure(AGGREGATION)
    primary.insert(group(3, (1, 1)))
    with Controller(switch.address, 0, DEVICE) as reader:
        assert len(reader.read(group(3))) == 1
        assert refusal(reader.delete, group(3))[0] == grpc.StatusCode.PERMISSION_DENIED


def test_requests_for_another_device_find_nothing(switch):
    with Controller(switch.address, device=DEVICE + 1) as lost:
        configuration = p4rt.GetForwardingPipelineConfigRequest(device_id=DEVICE + 1)
        calls = [
            lambda: lost.arbitrate(1),
            lambda: lost.configure(AGGREGATION),
            lambda: lost.insert(group(1)),
            lambda: lost.read(group(0)),
            lambda: lost.stub.GetForwardingPipelineConfig(configuration),
        ]
        for call in calls:
            code, message = refusal(call)
            assert code == grpc.StatusCode.NOT_FOUND
            assert message == f"this is device {DEVICE}, not {DEVICE + 1}"


# -- packets from and to the controller ----------------------------------------------------------


def test_a_packet_out_leaves_through_the_port_that_it_names(switch, primary):
    primary.configure(AGGREGATION)
    frame = bytes(range(64))
    primary.send(NAMES.packet_out(frame, egress_port=2))
    assert receive(switch.hosts[1]) == frame


def test_a_packet_for_the_controller_comes_in_with_its_port(switch, primary, backup):
    primary.configure(AGGREGATION)
    mac = int.from_bytes(SERVICE.mac_bytes, "big")
    address = int.from_bytes(SERVICE.ip_bytes, "big")
    primary.insert(NAMES.entry("service", {"address": address}, "serve", mac=mac))
    hello = blank(1, 0, Kind.HELLO, encapsulation(WORKER, SERVICE, HEADER_BYTES))
    hello["sequence"] = np.uint32(0xCAFE)
    seal(hello, WORKER.ip_number, WORKER.udp_port)
    switch.hosts[1].send(hello.tobytes())
    heard = primary.hear().packet
    assert heard.payload == hello.tobytes()
    assert [(each.metadata_id, each.value) for each in heard.metadata] == [(1, b"\2"), (2, b"\0")]


def test_packet_outs_that_cannot_be_sent_come_back_as_errors(primary, backup):
    primary.configure(AGGREGATION)
    good = NAMES.packet_out(b"frame", egress_port=1)
    incomplete, unknown, wide = (p4rt.StreamMessageRequest() for _ in range(3))
    for message in (incomplete, unknown, wide):
        message.CopyFrom(good)
    del incomplete.packet.metadata[0]
    unknown.packet.metadata.add(metadata_id=9, value=b"\0")
    wide.packet.metadata[0].value = b"\2\0"
    for controller, message, code, words in (
        (backup, good, code_pb2.PERMISSION_DENIED, "only the primary controller"),
        (primary, incomplete, code_pb2.INVALID_ARGUMENT, "'egress_port' is missing"),
        (primary, unknown, code_pb2.INVALID_ARGUMENT, "no packet-out metadata has id 9"),
        (primary, wide, code_pb2.OUT_OF_RANGE, "0x200 does not fit 9 bits"),
    ):
        controller.send(message)
        error = controller.hear().error
        assert error.canonical_code == code
        assert words in error.message
        assert error.packet_out.packet_out == message.packet
