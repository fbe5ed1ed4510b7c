"""SetForwardingPipelineConfig: programs are verified, saved, run, replaced or refused."""

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import grpc
import pytest
from p4runtime_client import Controller, Names, group, refusal
from switches import Switch, receive, running_switch
from tiny_programs import Program, program

from innet.p4.artifacts import artifact
from innet.p4runtime import code_pb2, p4info_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

AGGREGATION = artifact(64)
Action = p4rt.SetForwardingPipelineConfigRequest
Response = p4rt.GetForwardingPipelineConfigRequest


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(2) as running:
        yield running


@pytest.fixture(scope="module")
def primary(switch: Switch) -> Iterator[Controller]:
    with Controller(switch.address, 1) as controller:
        yield controller


def test_before_a_program_nothing_can_be_written_read_or_sent():
    with running_switch(0) as bare, Controller(bare.address, 1) as controller:
        missing = grpc.StatusCode.FAILED_PRECONDITION
        assert refusal(controller.read, group(1)) == (
            missing, "no pipeline configuration has been set: set one first",
        )  # fmt: skip
        assert not running(controller).HasField("config")
        nothing = Program(b"", p4info_pb2.P4Info())
        code, message = refusal(controller.configure, nothing, Action.COMMIT)
        assert (code, message) == (
            grpc.StatusCode.NOT_FOUND,
            "no configuration has been saved: send VERIFY_AND_SAVE first",
        )
        controller.send(Names(AGGREGATION.p4info).packet_out(b""))
        assert controller.hear().error.canonical_code == code_pb2.FAILED_PRECONDITION


def test_verifying_a_program_changes_nothing(primary):
    primary.configure(AGGREGATION)
    primary.insert(group(4, (1, 1)))
    primary.configure(program("hub"), Action.VERIFY)
    assert primary.read(group(4)) == [group(4, (1, 1))]
    assert running(primary).config.p4info == AGGREGATION.p4info


def test_a_program_that_was_saved_runs_when_it_is_committed(primary):
    primary.configure(AGGREGATION)
    primary.configure(program("router"), Action.VERIFY_AND_SAVE)
    assert running(primary).config.p4info == AGGREGATION.p4info
    primary.configure(Program(b"", p4info_pb2.P4Info()), Action.COMMIT)
    assert running(primary).config.p4info == program("router").p4info


def test_a_new_program_takes_the_ports_over_with_empty_tables(switch, primary):
    one, two = switch.hosts
    frame = bytes(12) + b"\x88\xb7 as it is"
    primary.configure(AGGREGATION)
    primary.insert(group(1, (1, 1), (2, 1)))
    one.send(frame)
    assert receive(two) == frame
    primary.configure(program("hub"))
    assert primary.read(group(0)) == []
    primary.insert(group(1, (1, 0x0101), (2, 0x0202)))
    one.send(frame)
    assert receive(two) == bytes(12) + b"\x88\xb6\x02\x02\x00\x01\x88\xb7 as it is"


@pytest.mark.parametrize(
    ("response", "has_info", "has_program"),
    [
        (Response.ALL, True, True),
        (Response.COOKIE_ONLY, False, False),
        (Response.P4INFO_AND_COOKIE, True, False),
        (Response.DEVICE_CONFIG_AND_COOKIE, False, True),
    ],
)
def test_the_configuration_is_read_back_in_the_parts_asked_for(
    primary, response, has_info, has_program
):
    hub = program("hub")
    primary.configure(hub, cookie=1 << 63)
    config = running(primary, response).config
    assert config.cookie.cookie == 1 << 63
    assert config.p4info == (hub.p4info if has_info else p4info_pb2.P4Info())
    assert config.p4_device_config == (hub.json if has_program else b"")


def mismatched() -> dict[str, tuple[Program, str]]:
    """Return programs that cannot run, with the expected message of the switch."""
    hub, tally, large = program("hub"), program("tally"), artifact(256)
    document = json.loads(hub.json)
    document["actions"].append(
        {"id": 99, "name": "x", "runtime_data": [], "primitives": [{"op": "clone_ingress"}]}
    )
    unsupported = replace(hub, json=json.dumps(document).encode())
    return {
        "empty": (replace(hub, json=b""), "it has to be p4c's BMv2 JSON"),
        "text": (replace(hub, json=b"\x7fELF"), "not a BMv2 JSON"),
        "other JSON": (replace(hub, json=b'{"headers": []}'), "was it made by p4c-bm2-ss?"),
        "unsupported": (unsupported, "primitive 'clone_ingress' is not supported"),
        "another program's P4Info": (
            Program(AGGREGATION.json, tally.p4info),
            "not of this program",
        ),
        "other dimensions": (
            Program(AGGREGATION.json, large.p4info),
            "has 2048 cells there, 16384 in the program",
        ),
    }


@pytest.mark.parametrize("action", [Action.VERIFY, Action.VERIFY_AND_COMMIT])
@pytest.mark.parametrize("case", mismatched())
def test_a_program_that_cannot_run_is_refused_and_the_old_one_goes_on(primary, case, action):
    wrong, words = mismatched()[case]
    primary.configure(AGGREGATION)
    code, message = refusal(primary.configure, wrong, action)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert words in message
    assert running(primary).config.p4info == AGGREGATION.p4info


def test_an_empty_frame_for_the_controller_does_not_stop_those_behind_it(switch, primary):
    hub = program("hub")
    document = json.loads(hub.json)
    document["deparsers"][0]["order"] = []  # only the payload leaves
    primary.configure(replace(hub, json=json.dumps(document).encode()))
    tagged = bytes(12) + b"\x88\xb6" + bytes([0, 0, 510 >> 8, 510 & 255]) + b"\x88\xb7"
    for payload in (b"", b"x"):
        switch.hosts[0].send(tagged + payload)
    assert [primary.hear().packet.payload for _ in range(2)] == [b"", b"x"]


def test_a_frame_that_is_shorter_than_the_packet_in_header_is_none(switch, primary):
    hub = deepcopy(program("hub"))
    document = json.loads(hub.json)
    document["deparsers"][0]["order"] = []  # only the payload leaves
    hub.p4info.controller_packet_metadata.add(
        preamble={"id": 1, "name": "packet_in"}, metadata=[{"id": 1, "name": "x", "bitwidth": 16}]
    )
    primary.configure(replace(hub, json=json.dumps(document).encode()))
    tagged = bytes(12) + b"\x88\xb6" + bytes([0, 0, 510 >> 8, 510 & 255]) + b"\x88\xb7"
    for payload in (b"a", b"bcd"):
        switch.hosts[0].send(tagged + payload)
    heard = primary.hear().packet
    assert [each.value for each in heard.metadata] == [b"bc"]
    assert heard.payload == b"d"


def running(controller: Controller, response: int = Response.ALL):
    request = Response(response_type=response)
    return controller.stub.GetForwardingPipelineConfig(request)
