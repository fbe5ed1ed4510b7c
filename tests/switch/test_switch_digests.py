"""Digests: their values, their lists, acknowledgements, and configuration."""

import itertools
import struct
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from clone_sessions import ELECTIONS
from p4runtime_client import Controller, encode, update_errors
from switches import Switch, receive, running_switch
from tiny_programs import program

from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.p4runtime.digest_types import DigestType
from innet.switch.p4runtime.digests import Digests

DIGESTS = {each.preamble.name: each.preamble.id for each in program("path_digest").p4info.digests}
STATION = DIGESTS["station_t"]
[PLAIN] = set(DIGESTS.values()) - {STATION}
SECOND = 10**9


def gathering(number: int, timeout: int = 0, size: int = 0, ack: int = 0) -> p4rt.Entity:
    entity = p4rt.Entity()
    config = entity.digest_entry.config
    entity.digest_entry.digest_id = number
    config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns = timeout, size, ack
    return entity


def say(switch: Switch, address: int, mark: int = 7, command: int = 1) -> None:
    """Send a packet that makes a digest and leaves from port 2."""
    switch.hosts[0].send(struct.pack("!BHIH", command, address >> 32, address & 0xFFFFFFFF, mark))


def stations(message: Any) -> list[bytes]:
    assert message.digest.digest_id == STATION
    return [each.struct.members[0].bitstring for each in message.digest.data]


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(3) as running:
        yield running


@pytest.fixture
def controller(switch: Switch, request) -> Iterator[Controller]:
    # The stream of the previous test may still be open.
    with Controller(switch.address, next(ELECTIONS)) as primary:
        primary.configure(program(request.param))
        yield primary


on_digests = pytest.mark.parametrize("controller", ["path_digest"], indirect=True)


@on_digests
def test_a_digest_has_the_values_of_the_end_of_the_ingress_in_canonical_bytes(switch, controller):
    controller.insert(gathering(STATION))
    say(switch, 0x0102030405, mark=0x1234)
    digest = controller.hear().digest
    assert (digest.digest_id, digest.list_id) == (STATION, 1)
    assert digest.timestamp > 0
    [data] = digest.data
    members = [each.bitstring for each in data.struct.members]
    # The digest's structure was filled before the mark became 0.
    assert members == [encode(0x0102030405), b"\1", b"\x12\x34"]


@on_digests
def test_a_digest_without_a_structure_is_a_tuple_or_a_value_and_the_last_one_counts(
    switch, controller
):
    controller.insert(gathering(STATION), gathering(PLAIN))
    say(switch, 1, mark=0x4321, command=0b11)
    digest = controller.hear().digest
    assert digest.digest_id == PLAIN
    [data] = digest.data
    assert [each.bitstring for each in data.tuple.members] in ([b"\x43\x21"], [b"\0"])


@on_digests
def test_a_dropped_packet_says_its_digest(switch, controller):
    controller.insert(gathering(STATION))
    say(switch, 5, command=0b101)
    assert stations(controller.hear()) == [b"\5"]


@on_digests
def test_digests_are_gathered_to_lists_of_different_messages(switch, controller):
    controller.insert(gathering(STATION, timeout=3600 * SECOND, size=3))
    for address in (1, 2, 1, 2, 3, 4, 4, 5, 6):
        say(switch, address)
    assert stations(controller.hear()) == [b"\1", b"\2", b"\3"]
    assert stations(controller.hear()) == [b"\4", b"\5", b"\6"]


def test_a_long_list_comes_in_messages_that_any_client_takes():
    kind = DigestType(1, "station", 0, "struct", (48, 9, 1))
    samples = [(0, number.to_bytes(9, "big")) for number in range(1, 200_001)]
    engine = Mock(**{"learned.return_value": samples})
    digests = Digests(engine, {1: kind})
    digests.write(p4rt.Update.INSERT, gathering(1, timeout=3600 * SECOND).digest_entry)
    lists, _ = digests.collect()
    assert len(lists) > 1
    assert max(each.ByteSize() for each in lists) <= 1 << 20


@on_digests
def test_a_list_that_does_not_fill_is_sent_in_time(switch, controller):
    controller.insert(gathering(STATION, timeout=SECOND // 10, size=100))
    say(switch, 1)
    assert stations(controller.hear()) == [b"\1"]


@on_digests
def test_what_is_not_acknowledged_is_not_said_again_until_it_is(switch, controller):
    controller.insert(gathering(STATION, ack=3600 * SECOND))
    say(switch, 1)
    first = controller.hear()
    say(switch, 1)
    say(switch, 2)
    assert stations(controller.hear()) == [b"\2"]
    ack = p4rt.StreamMessageRequest()
    ack.digest_ack.digest_id, ack.digest_ack.list_id = STATION, first.digest.list_id
    controller.send(ack)
    said = next(what for what in said_again(switch, controller) if what == [b"\1"])
    assert said == [b"\1"]


def said_again(switch: Switch, controller: Controller) -> Iterator[list[bytes]]:
    """Yield the digests of further packets. Another station's digest shows that a packet is through."""
    for other in itertools.count(10):
        say(switch, 1)
        say(switch, other)
        while (said := stations(controller.hear())) != [encode(other)]:
            yield said


@on_digests
def test_without_an_acknowledgement_it_is_said_again_in_the_end(switch, controller):
    controller.insert(gathering(STATION, ack=SECOND // 100))
    say(switch, 1)
    assert stations(controller.hear()) == [b"\1"]
    assert next(said_again(switch, controller)) == [b"\1"]


def test_of_the_lists_that_nobody_acknowledges_only_the_oldest_is_looked_at():
    class Counted(OrderedDict):
        looks = 0

        def values(self) -> Iterator:
            for each in super().values():
                Counted.looks += 1
                yield each

        def items(self) -> Iterator:
            for each in super().items():
                Counted.looks += 1
                yield each

    engine = Mock()
    digests = Digests(engine, {1: DigestType(1, "station", 0, "bitstring", (48,))})
    digests.write(p4rt.Update.INSERT, gathering(1, ack=3600 * SECOND).digest_entry)
    digests._buffers[1].sent = Counted()
    engine.learned.return_value = [(0, number.to_bytes(6, "big")) for number in range(1000)]
    assert len(digests.collect()[0]) == 1000
    engine.learned.return_value = []
    before = Counted.looks
    for _ in range(10):
        assert digests.collect()[0] == []
    assert Counted.looks - before <= 20


@on_digests
def test_digests_that_nobody_asked_for_are_not_said(switch, controller):
    say(switch, 201)
    while receive(switch.hosts[1])[6] != 201:  # packets of an earlier test, of other stations
        pass
    controller.insert(gathering(STATION))
    say(switch, 202)
    first = controller.hear()
    controller.delete(gathering(STATION))
    say(switch, 203)
    while receive(switch.hosts[1])[6] != 203:
        pass
    controller.insert(gathering(STATION))
    say(switch, 204)
    second = controller.hear()
    assert (stations(first), stations(second)) == ([encode(202)], [encode(204)])
    assert second.digest.list_id == first.digest.list_id + 1


@on_digests
def test_a_digest_s_configuration_is_read_back(controller):
    made = [gathering(STATION, 5, 6, 7), gathering(PLAIN)]
    controller.insert(*made)
    assert controller.read(gathering(0)) == made
    changed = gathering(STATION, 1, 2, 3)
    controller.modify(changed)
    assert controller.read(gathering(STATION)) == [changed]
    controller.delete(changed)
    assert controller.read(gathering(0)) == made[1:]


@on_digests
@pytest.mark.parametrize(
    ("kind", "entity", "code"),
    [
        (p4rt.Update.INSERT, gathering(PLAIN), code_pb2.ALREADY_EXISTS),
        (p4rt.Update.MODIFY, gathering(STATION), code_pb2.NOT_FOUND),
        (p4rt.Update.DELETE, gathering(STATION), code_pb2.NOT_FOUND),
        (p4rt.Update.INSERT, gathering(99), code_pb2.NOT_FOUND),
        (p4rt.Update.INSERT, gathering(STATION, timeout=-1), code_pb2.INVALID_ARGUMENT),
    ],
)
def test_what_is_wrong_with_a_digest_s_configuration_is_said(controller, kind, entity, code):
    controller.insert(gathering(PLAIN))
    errors = update_errors(controller.write, p4rt.Update(type=kind, entity=entity))
    assert [number for number, _ in errors] == [code]


@on_digests
def test_an_acknowledgement_of_another_kind_is_answered_with_an_error(controller):
    ack = p4rt.StreamMessageRequest()
    ack.digest_ack.digest_id, ack.digest_ack.list_id = 99, 1
    controller.send(ack)
    error = controller.hear().error
    assert error.canonical_code == code_pb2.NOT_FOUND
    assert error.digest_list_ack.digest_list_ack == ack.digest_ack
