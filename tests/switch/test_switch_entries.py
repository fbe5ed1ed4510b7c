"""Reads and writes of entries, the program's own ones, idle timeouts, registers."""

import time
from collections.abc import Iterator

import grpc
import pytest
from control_plane import NAMES, PROGRAM, ROUTER, ROUTES, Type, entry, frame, register, update
from p4runtime_client import Controller, group, update_errors
from switches import Switch, receive, running_switch

from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(2) as running:
        yield running


# -- reads ---------------------------------------------------------------------------------------


def test_values_may_have_leading_zeros_and_are_read_in_the_shortest_form(primary):
    written = entry("destinations", 1, "set_destination", address=0x0102)
    padded = p4rt.Entity()
    padded.CopyFrom(written)
    padded.table_entry.match[0].exact.value = bytes(9) + b"\1"
    padded.table_entry.action.action.params[0].value = bytes(7) + b"\1\2"
    primary.insert(padded)
    assert primary.read(NAMES.entry("destinations")) == [written]
    primary.modify(padded)
    assert primary.read(NAMES.entry("destinations")) == [written]
    assert primary.read(padded) == [written]
    primary.delete(padded)


def test_what_a_client_keeps_with_an_entry_is_read_back_and_replaced(primary):
    written = entry("aging", 1, "forward", port=1)
    written.table_entry.metadata, written.table_entry.controller_metadata = b"m", 7
    written.table_entry.idle_timeout_ns = 1 << 60
    primary.insert(written)
    assert primary.read(NAMES.entry("aging")) == [written]
    bare = entry("aging", 1, "drop")
    primary.modify(bare)
    assert primary.read(NAMES.entry("aging")) == [bare]


def test_reads_are_filtered_by_what_they_give(bare):
    bare.configure(ROUTER)
    rules = [
        ROUTES.entry("rules", {"protocol": 1}, "deny", 5),
        ROUTES.entry("rules", {"protocol": 1}, "permit", 6),
        ROUTES.entry("rules", {"source": (1, 1)}, "deny", 6),
    ]
    rules[0].table_entry.metadata = b"a"
    rules[1].table_entry.controller_metadata = 3
    bare.insert(*rules)
    wanted = ROUTES.entry("rules", {"protocol": 1})
    assert bare.read(wanted) == rules[:2]
    wanted.table_entry.priority = 6
    assert bare.read(wanted) == [rules[1]]
    assert bare.read(ROUTES.entry("rules", {}, "deny")) == [rules[0], rules[2]]
    assert bare.read(ROUTES.entry("rules", priority=6)) == rules[1:]
    for each, name in ((rules[0], "metadata"), (rules[1], "controller_metadata")):
        by = ROUTES.entry("rules")
        setattr(by.table_entry, name, getattr(each.table_entry, name))
        assert bare.read(by) == [each]
    nothing = ROUTES.entry("rules", {"protocol": 1}, "permit", 5)
    assert bare.read(nothing) == []


def test_all_tables_are_read_at_once_with_their_counters(switch, primary):
    primary.insert(entry("sources", 1, "set_source", address=1))
    switch.hosts[0].send(frame(0xDEAD, source=5))
    assert receive(switch.hosts[0]) == frame(0xDEAD, source=5)
    everything = p4rt.Entity()
    everything.table_entry.counter_data.SetInParent()
    found = primary.read(everything)
    counts = [each.table_entry.counter_data for each in found if each.table_entry.priority == 2]
    assert [(count.packet_count, count.byte_count) for count in counts] == [(1, 14)]
    assert [each.table_entry.HasField("counter_data") for each in found].count(True) == 2


def test_a_read_that_is_wrong_in_part_gives_the_rest(primary):
    request = p4rt.ReadRequest(entities=[group(0), p4rt.Entity(), NAMES.entry("initial")])
    answers, found = primary.stub.Read(request), []
    with pytest.raises(grpc.RpcError) as problem:
        found.extend(entity for answer in answers for entity in answer.entities)
    assert problem.value.code() == grpc.StatusCode.UNKNOWN
    assert [code for code, _ in update_errors(primary.read, *request.entities)] == [
        code_pb2.OK, code_pb2.INVALID_ARGUMENT, code_pb2.OK,
    ]  # fmt: skip


def test_much_is_read_in_messages_of_bounded_size(primary):
    primary.insert(*(entry("sources", n, "set_source", address=n) for n in range(1, 1025)))
    request = p4rt.ReadRequest(entities=[NAMES.entry("sources")])
    sizes = [len(answer.entities) for answer in primary.stub.Read(request)]
    assert (sum(sizes), max(sizes)) == (1024, 1000)


# -- the program's own entries -------------------------------------------------------------------


def test_constant_entries_are_read_and_only_their_counters_written(primary):
    first, second = primary.read(NAMES.entry("fixed"))
    wanted = NAMES.entry("fixed", {"type": (0xDEAD, 0xFFFF), "source": 5}, "forward", 2, port=1)
    wanted.table_entry.is_const = True
    assert first == wanted
    assert (second.table_entry.priority, len(second.table_entry.match)) == (1, 1)
    entry = NAMES.entry("fixed", {"type": (0xDEAD, 0xFFFF), "source": 5}, priority=2)
    entry.table_entry.counter_data.packet_count = 70
    primary.modify(entry)
    assert primary.read(entry)[0].table_entry.counter_data.packet_count == 70
    primary.configure(PROGRAM)
    entry.table_entry.is_const = True
    [(code, message)] = update_errors(primary.modify, entry)
    assert (code, "only the program can make an entry constant" in message) == (
        code_pb2.INVALID_ARGUMENT,
        True,
    )
    first.table_entry.is_const = False
    for call in (primary.insert, primary.modify, primary.delete):
        assert update_errors(call, first)[0][0] == code_pb2.PERMISSION_DENIED


def test_initial_entries_that_are_not_constant_are_entries_like_others(switch, primary):
    assert primary.read(NAMES.entry("initial")) == [entry("initial", 0xBEEF, "drop")]
    primary.modify(entry("initial", 0xBEEF, "forward", port=2))
    switch.hosts[0].send(frame(0xBEEF))
    assert receive(switch.hosts[1]) == frame(0xBEEF)
    primary.delete(entry("initial", 0xBEEF))
    switch.hosts[0].send(frame(0xBEEF))
    assert receive(switch.hosts[0]) == frame(0xBEEF)


def test_a_default_entry_keeps_what_came_with_it_until_it_is_reset(primary):
    written = NAMES.default("sources", "set_source", address=3)
    written.table_entry.metadata = b"mine"
    primary.modify(written)
    assert primary.read(NAMES.default("sources")) == [written]
    primary.modify(NAMES.default("sources"))
    [reset] = primary.read(NAMES.default("sources"))
    assert reset.table_entry.metadata == b""
    assert reset == NAMES.default("sources", "NoAction")


def test_actions_are_used_where_the_program_allows_them(primary):
    [(code, message)] = update_errors(primary.insert, entry("aging", 1, "NoAction"))
    assert code == code_pb2.PERMISSION_DENIED
    assert message == "ControlIngress.aging: NoAction cannot stand in entries"
    primary.modify(NAMES.default("aging", "NoAction"))


def test_deleting_looks_at_nothing_but_the_key(primary):
    primary.insert(entry("sources", 1, "set_source", address=1))
    odd = entry("sources", 1, "set_source", address=1)
    odd.table_entry.idle_timeout_ns = -1
    odd.table_entry.counter_data.packet_count = 1
    odd.table_entry.action.action.action_id = 9
    primary.delete(odd)
    assert primary.read(NAMES.entry("sources")) == []


# -- idle timeouts -------------------------------------------------------------------------------


def test_an_entry_that_nothing_matches_is_told_of_again_and_again(primary):
    written = entry("aging", 1, "forward", port=1)
    written.table_entry.idle_timeout_ns = 20_000_000
    written.table_entry.metadata = b"mine"
    began = time.time_ns()
    primary.insert(written, entry("aging", 2, "drop"))
    stamps = []
    for _ in range(2):
        heard = primary.hear().idle_timeout_notification
        [idle] = heard.table_entry
        assert idle.match == written.table_entry.match
        assert (idle.metadata, idle.idle_timeout_ns) == (b"mine", 20_000_000)
        stamps.append(heard.timestamp)
    assert began + 20_000_000 <= stamps[0]
    assert stamps[0] + 20_000_000 <= stamps[1] + 1_000_000
    primary.delete(written)


def test_a_packet_begins_the_time_anew(switch, primary):
    asked = entry("aging", 1)
    asked.table_entry.time_since_last_hit.SetInParent()
    primary.insert(entry("aging", 1, "forward", port=1))

    def elapsed() -> int:
        [found] = primary.read(asked)
        return found.table_entry.time_since_last_hit.elapsed_ns

    began = time.monotonic_ns()
    assert elapsed() < elapsed()
    sent = time.monotonic_ns()
    switch.hosts[0].send(frame(1))
    receive(switch.hosts[0])
    since_hit, now = elapsed(), time.monotonic_ns()
    assert 0 < since_hit < now - sent < now - began


def test_many_idle_entries_come_in_messages_that_any_client_takes(primary):
    entries = [entry("aging", number, "drop") for number in range(50)]
    for each in entries:
        each.table_entry.idle_timeout_ns = 200_000_000
        each.table_entry.metadata = bytes(100_000)
    primary.insert(*entries)
    heard: set[bytes] = set()
    while len(heard) < len(entries):
        idle = primary.hear().idle_timeout_notification.table_entry
        heard |= {each.match[0].exact.value for each in idle}
    primary.delete(*entries)


def test_idle_timeouts_are_for_tables_that_support_them(primary):
    cases = [entry("sources", 1, "set_source", address=1), entry("aging", 1, "drop")]
    cases += [NAMES.default("aging", "drop"), entry("aging", 2, "drop")]
    cases[0].table_entry.idle_timeout_ns = 1
    cases[1].table_entry.idle_timeout_ns = -1
    cases[2].table_entry.idle_timeout_ns = 1
    cases[3].table_entry.time_since_last_hit.SetInParent()
    answers = update_errors(primary.write, *(update(Type.INSERT, each) for each in cases))
    assert {code for code, _ in answers} == {code_pb2.INVALID_ARGUMENT}
    asked = NAMES.entry("sources")
    asked.table_entry.time_since_last_hit.SetInParent()
    assert update_errors(primary.read, asked)[0][0] == code_pb2.INVALID_ARGUMENT


# -- registers -----------------------------------------------------------------------------------


def cells(controller: Controller, name: str, index: int | None = None) -> list[bytes]:
    found = controller.read(register(name, index))
    return [each.register_entry.data.bitstring for each in found]


def test_registers_are_read_as_the_program_left_them(switch, primary):
    switch.hosts[0].send(frame(0x0102, source=0x0A0B0C))
    receive(switch.hosts[0])
    assert cells(primary, "last") == [b"\x0a\x0b\x0c", b"\0", b"\0", b"\0"]
    assert cells(primary, "balance", 0) == [b"\xff"]  # -1
    assert cells(primary, "wide", 0) == [b"\1\2"]


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("last", b"\0\0\1", b"\1"),
        ("balance", b"\xff\xff\x9d", b"\x9d"),
        ("balance", b"\x07\xff", b"\x07\xff"),
        ("balance", b"\x00\x80", b"\x00\x80"),
        ("wide", b"\xff" * 9, b"\xff" * 9),
    ],
)
def test_a_register_is_written_and_read_back_in_canonical_form(primary, name, given, kept):
    primary.modify(register(name, 1, given))
    assert cells(primary, name)[:2] == [b"\0", kept]
    primary.modify(register(name, None, given))
    assert set(cells(primary, name)) == {kept}


def test_a_program_reads_what_was_written_to_its_registers(switch, primary):
    primary.modify(register("wide", 0, b"\xff" * 9), register("balance", 0, b"\xf8\x00"))
    switch.hosts[0].send(frame(2))
    receive(switch.hosts[0])
    assert cells(primary, "wide", 0) == [b"\1"]
    assert cells(primary, "balance", 0) == [b"\x07\xff"]  # -2048 - 1, of 12 bits


def test_registers_that_are_not_there_and_values_that_do_not_fit_are_refused(primary):
    unknown, truth = p4rt.Entity(), register("last", 0)
    unknown.register_entry.register_id = 1
    truth.register_entry.data.bool = True
    answers = update_errors(
        primary.modify,
        register("balance", 0, b"\x08\x00"), register("last", 0, b"\1" + bytes(6)),
        register("last", 0, b""), register("last", 4, b"\1"), register("last", -1, b"\1"),
        register("last", 0), truth, unknown,
    )  # fmt: skip
    assert [code for code, _ in answers] == (
        [code_pb2.OUT_OF_RANGE] * 4 + [code_pb2.INVALID_ARGUMENT] * 3 + [code_pb2.NOT_FOUND]
    )
    assert update_errors(primary.insert, register("last", 0, b"\1"))[0][0] == (
        code_pb2.INVALID_ARGUMENT
    )
