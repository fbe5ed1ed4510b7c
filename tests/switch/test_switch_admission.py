"""Requests that a switch refuses without much work, and P4Infos that do not quite match their program."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import control_plane
import grpc
import pytest
from p4runtime_client import WITHIN, Controller, Names, refusal, uint128, update_errors
from switch_commands import frame, memory
from switches import Switch, receive, running_switch
from tiny_programs import Program, program

from innet.errors import UnsupportedProgram
from innet.p4runtime import p4info_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc.status import Refusal
from innet.switch import bmv2json
from innet.switch.p4runtime import admission, device, info
from innet.switch.p4runtime.schema import Schema

ROUTER = program("router")
GROWTH = 200 << 20
ELECTIONS = itertools.count(5)


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(2) as running:
        yield running


@pytest.fixture
def controller(switch: Switch) -> Iterator[Controller]:
    with Controller(switch.address, next(ELECTIONS)) as primary:
        yield primary


@contextlib.contextmanager
def calling(switch: Switch, method: str) -> Iterator[grpc.UnaryUnaryMultiCallable]:
    """Yield a method that takes any bytes."""
    with grpc.insecure_channel(switch.address, [("grpc.max_send_message_length", -1)]) as channel:
        yield channel.unary_unary(f"/p4.v1.P4Runtime/{method}")


def many_updates(election: int) -> bytes:
    """Return a short message that is large once it is parsed."""
    update = p4rt.Update(type=p4rt.Update.INSERT)
    update.entity.table_entry.match.add(field_id=1).exact.value = b"a"
    one = p4rt.WriteRequest(updates=[update]).SerializeToString()
    return p4rt.WriteRequest(election_id=uint128(election)).SerializeToString() + one * 400_000


@pytest.mark.usefixtures("controller")
def test_large_messages_of_a_client_that_is_not_primary_take_no_memory(switch):
    content = many_updates(4)
    before = memory(switch)
    with calling(switch, "Write") as write:
        for _ in range(3):
            code, message = refusal(lambda: write(content, timeout=4 * WITHIN))
            assert code == grpc.StatusCode.PERMISSION_DENIED
            assert message == "only the primary controller may change this switch"
    assert memory(switch) - before < GROWTH


@pytest.mark.usefixtures("controller")
def test_what_anybody_may_ask_has_to_be_short(switch):
    entity = p4rt.ReadRequest(entities=[p4rt.Entity(table_entry=p4rt.TableEntry(table_id=1))])
    content = entity.SerializeToString() * admission.MAX_BYTES_OF_OTHERS
    with grpc.insecure_channel(switch.address, [("grpc.max_send_message_length", -1)]) as channel:
        read = channel.unary_stream("/p4.v1.P4Runtime/Read")
        code, _ = refusal(lambda: list(read(content, timeout=WITHIN)))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_request_that_reads_too_many_entities_is_refused(monkeypatch):
    """Anybody may read, and a short request can be for millions of cells."""
    monkeypatch.setattr(device, "MAX_READ", 6)
    with contextlib.closing(device.Device([], 510, lambda _: None)) as made:
        config = p4rt.ForwardingPipelineConfig(
            p4info=control_plane.PROGRAM.p4info, p4_device_config=control_plane.PROGRAM.json
        )
        made.configure(p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config)
        last, wide = map(control_plane.register, ("last", "wide"))
        found, results = made.read([last, wide])
        assert (len(found), results) == (6, [None, None])
        with pytest.raises(Refusal, match="6 entities are the most that one request reads") as no:
            made.read([last, last])
    assert no.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("method", ["Write", "SetForwardingPipelineConfig", "Read", "Capabilities"])
def test_what_is_no_message_is_refused_as_that(switch, method):
    with calling(switch, method) as call:
        code, message = refusal(lambda: call(b"\x0f\xff\xff", timeout=WITHIN))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message == "what was sent is no message of this service"


@pytest.mark.parametrize(
    "content",
    [
        b"\x30\xff\xff\xff\xff\x0f",  # the role's name as a large number
        b"\x1a\x03\x0a\x01\x01",  # a part of the election id as bytes
        b"\x32\x01\xff",  # the role's name in no Unicode
        b"\x08" + b"\xff" * 20,  # a number of too many bytes
        b"\x08\xff",  # half a number
    ],
)
def test_the_fields_that_name_the_primary_have_their_types(switch, content):
    with calling(switch, "Write") as write:
        code, message = refusal(lambda: write(content, timeout=WITHIN))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message == "what was sent is no message of this service"


def with_tables(count: int, name: str = "other{}") -> Program:
    made = deepcopy(ROUTER)
    for number in range(count):
        made.p4info.tables.add(
            preamble={"id": 0x02000000 + number + 1, "name": name.format(number)}
        )
    return made


def test_a_p4info_of_too_many_tables_is_refused(controller):
    many = with_tables(info.MAX_ENTITIES)
    code, message = refusal(controller.configure, many)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message.startswith("the P4Info's tables: their number is")


def test_a_p4info_of_too_many_bytes_is_refused(controller):
    code, message = refusal(
        controller.configure, with_tables(1, "x" * (admission.MAX_INFO_BYTES + 1))
    )
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert f"bytes: {admission.MAX_INFO_BYTES} are the most" in message


def test_so_is_a_p4info_in_several_parts(switch, controller):
    """A message that is there twice is read as the sum of its parts."""
    first = with_tables(1, "x" * (admission.MAX_INFO_BYTES + 1)).p4info
    request = p4rt.SetForwardingPipelineConfigRequest(
        action=p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        election_id=uint128(controller.election),
        config=p4rt.ForwardingPipelineConfig(p4info=first),
    )
    last = p4rt.SetForwardingPipelineConfigRequest()
    last.config.p4_device_config = ROUTER.json
    with calling(switch, "SetForwardingPipelineConfig") as call:
        content = request.SerializeToString() + last.SerializeToString()
        code, message = refusal(lambda: call(content, timeout=WITHIN))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert f"bytes: {admission.MAX_INFO_BYTES} are the most" in message


@pytest.mark.parametrize("bits", [-1, 1 << 30, 33])
def test_a_p4info_with_other_widths_than_the_program_is_refused(bits):
    made = deepcopy(ROUTER)
    next(each for each in made.p4info.actions if each.params).params[0].bitwidth = bits
    with pytest.raises(UnsupportedProgram):
        Schema(made.p4info, bmv2json.load(made.json))


def rules(made: Program) -> Any:
    return next(each for each in made.p4info.tables if each.preamble.alias == "rules")


MISFITS: dict[str, Callable[[Program], object]] = {
    "the keys of RouterIngress.rules differ": lambda made: setattr(
        rules(made).match_fields[0], "match_type", p4info_pb2.MatchField.EXACT
    ),
    "the action profiles of RouterIngress.rules differ": lambda made: setattr(
        rules(made), "implementation_id", 7
    ),
    "an action with id 0x7, which is not there": lambda made: setattr(
        rules(made).action_refs[0], "id", 7
    ),
    "does not have the action": lambda made: setattr(
        next(each for each in made.p4info.actions if each.preamble.alias == "forward").preamble,
        "name",
        "other",
    ),
    "parts of RouterIngress.rules with the same id": lambda made: rules(made).match_fields.append(
        rules(made).match_fields[0]
    ),
    "a match of kind 77 is unknown": lambda made: setattr(
        rules(made).match_fields[0], "match_type", 77
    ),
    "packet_in is not of whole bytes": lambda made: made.p4info.controller_packet_metadata.add(
        preamble={"id": 1, "name": "packet_in"}, metadata=[{"id": 1, "bitwidth": 9}]
    ),
}


@pytest.mark.parametrize(("words", "change"), MISFITS.items())
def test_a_p4info_that_does_not_fit_its_program_is_refused_by_what_differs(words, change):
    made = deepcopy(ROUTER)
    change(made)
    with pytest.raises(UnsupportedProgram, match=re.escape(words)):
        Schema(made.p4info, bmv2json.load(made.json))


def test_a_p4info_that_has_a_table_twice_is_refused():
    made = deepcopy(ROUTER)
    made.p4info.tables.add().CopyFrom(made.p4info.tables[0])
    with pytest.raises(UnsupportedProgram, match="tables with the same name"):
        Schema(made.p4info, bmv2json.load(made.json))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_program_that_is_nested_too_deeply_is_refused(switch, controller, opening):
    nested = Program(opening.encode() * 200_000, ROUTER.p4info)
    controller.configure(program("wire"))
    code, message = refusal(controller.configure, nested)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message.startswith("malformed BMv2 JSON: more than 300 objects and lists are nested")
    switch.hosts[0].send(frame(1))
    assert receive(switch.hosts[1]) == frame(1)


def test_a_table_that_p4c_has_removed_may_be_in_the_p4info_and_cannot_be_written(controller):
    made = deepcopy(ROUTER)
    dead = made.p4info.tables.add()
    dead.CopyFrom(next(each for each in made.p4info.tables if each.preamble.alias == "routes"))
    dead.preamble.id, dead.preamble.name, dead.preamble.alias = 0x0200BEEF, "I.dead", "dead"
    controller.configure(made)
    names = Names(made.p4info)
    rule = {"match": {"destination": (0, 8)}, "action": "forward", "next_hop": 1, "port": 2}
    ((code, message),) = update_errors(controller.insert, names.entry("dead", **rule))
    assert code == grpc.StatusCode.NOT_FOUND.value[0]
    assert message.startswith("I.dead is not in the program: p4c has removed it")
    controller.insert(names.entry("routes", **rule))
    assert len(controller.read(names.entry("routes"))) == 1


@pytest.mark.parametrize("name", ["hub", "wire"])
def test_p4c_may_have_removed_everything_that_the_p4info_names(controller, name):
    made = program(name)
    assert not made.p4info.tables
    made.p4info.tables.add(preamble={"id": 0x0200BEEF, "name": "I.dead", "alias": "dead"})
    controller.configure(made)


def test_a_p4info_of_another_program_is_refused(controller):
    code, message = refusal(controller.configure, Program(ROUTER.json, program("mix_vlan").p4info))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message.startswith("the P4Info is not of this program")
