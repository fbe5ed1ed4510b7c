"""P4Runtime's service: roles, batches, filtered reads, idle entries, registers, reconciliation."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from google.rpc import code_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from p4.v1 import p4runtime_pb2 as p4rt
from p4runtime_client import Controller, Names, group, refusal, uint128, update_errors
from switches import Switch, receive, running_switch
from tiny_programs import program

PROGRAM = program("control_plane")
NAMES = Names(PROGRAM.p4info)
ROUTER = program("router")
ROUTES = Names(ROUTER.p4info)
Action = p4rt.SetForwardingPipelineConfigRequest
Batch = p4rt.WriteRequest
Type = p4rt.Update
ELECTIONS = itertools.count(1)


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(2) as running:
        yield running


@pytest.fixture
def bare(switch: Switch) -> Iterator[Controller]:
    """Connect the primary controller of the default role."""
    with Controller(switch.address, next(ELECTIONS)) as controller:
        yield controller


@pytest.fixture
def primary(bare: Controller) -> Controller:
    """Restore the program's tables, and return the primary controller."""
    bare.configure(PROGRAM)
    return bare


def entry(table: str, kind: int, action: str = "", **params: int) -> p4rt.Entity:
    return NAMES.entry(table, {"type": kind}, action, **params)


def changeable(entities: list[p4rt.Entity]) -> list[p4rt.Entity]:
    return [each for each in entities if not each.table_entry.is_const]


def update(kind: int, entity: p4rt.Entity) -> p4rt.Update:
    return p4rt.Update(type=kind, entity=entity)


def write(controller: Controller, atomicity: int, *updates: p4rt.Update, role: str = "") -> None:
    request = p4rt.WriteRequest(updates=updates, atomicity=atomicity, role=role)
    request.election_id.CopyFrom(uint128(controller.election))
    controller.stub.Write(request, timeout=30)


# -- roles ---------------------------------------------------------------------------------------


def bid(controller: Controller, role: str, election: int) -> p4rt.MasterArbitrationUpdate:
    message = p4rt.StreamMessageRequest()
    message.arbitration.role.name = role
    message.arbitration.election_id.CopyFrom(uint128(election))
    controller.election = election
    controller.send(message)
    return controller.hear().arbitration


@pytest.fixture
def stream(switch: Switch) -> Iterator[Controller]:
    """Open a stream without arbitration."""
    with Controller(switch.address) as controller:
        yield controller


def test_every_role_has_a_primary_of_its_own(switch, primary, stream):
    answer = bid(stream, "telemetry", primary.election)  # the same id, but in another role
    assert answer.status.code == code_pb2.OK
    assert answer.role.name == "telemetry"
    write(stream, Batch.CONTINUE_ON_ERROR, update(Type.INSERT, group(8, (1, 1))), role="telemetry")
    primary.insert(group(9, (1, 1)))
    assert primary.read(group(0)) == [group(8, (1, 1)), group(9, (1, 1))]


def test_a_role_that_nobody_has_had_is_not_found(primary):
    with pytest.raises(grpc.RpcError, match="no controller has had the role 'nobody'") as problem:
        write(primary, Batch.CONTINUE_ON_ERROR, role="nobody")
    assert problem.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_role_takes_no_configuration(stream):
    message = p4rt.StreamMessageRequest()
    message.arbitration.role.name = "telemetry"
    message.arbitration.role.config.SetInParent()
    stream.send(message)
    assert refusal(stream.hear)[0] == grpc.StatusCode.INVALID_ARGUMENT


def test_a_stream_keeps_its_role_and_its_device(switch):
    for spoil in (
        lambda message: setattr(message.arbitration.role, "name", "other"),
        lambda message: setattr(message.arbitration, "device_id", 5),
    ):
        with Controller(switch.address) as controller:
            bid(controller, "steady", 1)
            message = p4rt.StreamMessageRequest()
            message.arbitration.role.name = "steady"
            spoil(message)
            controller.send(message)
            code, words = refusal(controller.hear)
            assert code == grpc.StatusCode.FAILED_PRECONDITION
            assert "open another one" in words


def test_a_primary_that_bids_lower_is_a_backup_and_nobody_is_primary(switch, primary):
    high = primary.election
    assert primary.arbitrate(0).status.code == code_pb2.NOT_FOUND
    assert refusal(primary.modify)[0] == grpc.StatusCode.PERMISSION_DENIED
    assert primary.arbitrate(high).status.code == code_pb2.OK
    primary.modify()


def test_a_controller_without_election_id_hears_who_is_primary(primary, stream):
    message = p4rt.StreamMessageRequest()
    message.arbitration.SetInParent()
    stream.send(message)
    heard = stream.hear().arbitration
    assert heard.status.code == code_pb2.ALREADY_EXISTS
    assert heard.election_id == uint128(primary.election)


def test_a_message_that_the_switch_does_not_know_comes_back_as_an_error(primary):
    message = p4rt.StreamMessageRequest()
    message.other.type_url = "example.org/anything"
    primary.send(message)
    error = primary.hear().error
    assert error.canonical_code == code_pb2.UNIMPLEMENTED
    assert error.other.other.type_url == "example.org/anything"


def test_a_switch_serves_only_so_many_streams():
    asking = p4rt.StreamMessageRequest()
    asking.arbitration.SetInParent()
    with running_switch(0) as busy, contextlib.ExitStack() as stack:
        for _ in range(64):
            stream = stack.enter_context(Controller(busy.address))
            stream.send(asking)
            assert stream.hear().arbitration.status.code == code_pb2.NOT_FOUND
        stream = stack.enter_context(Controller(busy.address))
        code, words = refusal(stream.hear)
        assert (code, "no more are served" in words) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)


# -- batches -------------------------------------------------------------------------------------

ALL_OR_NONE = [Batch.ROLLBACK_ON_ERROR, Batch.DATAPLANE_ATOMIC]


def state(controller: Controller) -> set[str]:
    """Return everything that can be read, except for counts of packets."""
    wanted = [p4rt.Entity(), NAMES.default("destinations"), group(0), register("wide")]
    wanted[0].table_entry.SetInParent()
    return set(map(str, controller.read(*wanted)))


def register(name: str, index: int | None = None, value: bytes | None = None) -> p4rt.Entity:
    layout = next(each for each in PROGRAM.p4info.registers if each.preamble.name.endswith(name))
    entity = p4rt.Entity()
    entity.register_entry.register_id = layout.preamble.id
    if index is not None:
        entity.register_entry.index.index = index
    if value is not None:
        entity.register_entry.data.bitstring = value
    return entity


@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
def test_a_batch_is_carried_out_as_a_whole(primary, atomicity):
    primary.insert(entry("destinations", 1, "set_destination", address=1), group(1, (1, 1)))
    write(
        primary, atomicity,
        update(Type.DELETE, entry("destinations", 1)),
        update(Type.INSERT, entry("sources", 1, "set_source", address=2)),
        update(Type.MODIFY, group(1, (2, 2))),
    )  # fmt: skip
    assert primary.read(NAMES.entry("destinations")) == []
    assert len(primary.read(NAMES.entry("sources"))) == 1
    assert primary.read(group(1)) == [group(1, (2, 2))]


@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
def test_a_batch_with_a_bad_update_changes_nothing_and_says_which_it_was(primary, atomicity):
    old = entry("destinations", 1, "set_destination", address=1)
    old.table_entry.metadata = b"mine"
    primary.insert(old, entry("sources", 1, "set_source", address=2), group(1, (1, 1)))
    before = state(primary)
    answers = update_errors(
        write, primary, atomicity,
        update(Type.MODIFY, entry("destinations", 1, "set_both", destination=5, source=5)),
        update(Type.DELETE, entry("sources", 1)),
        update(Type.INSERT, entry("sources", 7, "set_source", address=2)),
        update(Type.MODIFY, NAMES.default("destinations", "set_destination", address=7)),
        update(Type.MODIFY, group(1)),
        update(Type.MODIFY, register("wide", None, b"\7")),
        update(Type.DELETE, group(2)),
        update(Type.INSERT, group(3)),
    )  # fmt: skip
    codes = [code for code, _ in answers]
    assert codes == [code_pb2.ABORTED] * 6 + [code_pb2.NOT_FOUND, code_pb2.ABORTED]
    assert answers[0][1] == "not carried out: update 6 is refused"
    assert state(primary) == before


UPDATES = st.builds(
    lambda table, kind, value, type_: update(
        type_, entry(table, kind, f"set_{table[:-1]}", address=value)
    ),
    st.sampled_from(["destinations", "sources"]),
    st.integers(1, 3),
    st.integers(0, (1 << 48) - 1),
    st.sampled_from([Type.INSERT, Type.MODIFY, Type.DELETE]),
)


@pytest.fixture(scope="module")
def twin() -> Iterator[Controller]:
    with running_switch(0) as other, Controller(other.address, 1) as controller:
        controller.configure(PROGRAM)
        yield controller


@settings(max_examples=50)
@given(first=st.lists(UPDATES, max_size=8), batch=st.lists(UPDATES, max_size=8))
@pytest.mark.parametrize("atomicity", ALL_OR_NONE)
def test_whatever_a_batch_has_all_of_it_happens_or_none(twin, atomicity, first, batch):
    before, succeeded, after = outcome(twin, first, Batch.CONTINUE_ON_ERROR, batch)
    if not succeeded:
        after = before
    assert outcome(twin, first, atomicity, batch) == (before, succeeded, after)


def outcome(
    controller: Controller, first: list, atomicity: int, batch: list
) -> tuple[set[str], bool, set[str]]:
    """Return the state before a batch, whether all of it was carried out, and the state after it."""
    for table in ("destinations", "sources"):
        controller.delete(*controller.read(NAMES.entry(table)))
    attempt(controller, Batch.CONTINUE_ON_ERROR, first)
    before = state(controller)
    succeeded = attempt(controller, atomicity, batch)
    return before, succeeded, state(controller)


def attempt(controller: Controller, atomicity: int, batch: list) -> bool:
    try:
        write(controller, atomicity, *batch)
    except grpc.RpcError:
        return False
    return True


# -- changes while packets flow ------------------------------------------------------------------

BURST, BURSTS = 32, 100


def frame(kind: int, source: int = 0, destination: int = 0) -> bytes:
    return destination.to_bytes(6, "big") + source.to_bytes(6, "big") + kind.to_bytes(2, "big")


def changes(controller: Controller, stop: threading.Event, *batches: list) -> None:
    for batch in itertools.cycle(batches):
        if stop.is_set():
            return
        write(controller, Batch.DATAPLANE_ATOMIC, *batch)


@pytest.mark.parametrize("tables", ["one table", "two tables"])
def test_packets_see_all_of_a_change_or_nothing_and_none_is_lost(switch, primary, tables):
    """Destination and source always get the same value, whichever entry matches."""

    def batch(value: int) -> list[p4rt.Update]:
        other = update(Type.INSERT if value % 2 else Type.DELETE, entry("aging", 9, "drop"))
        if tables == "one table":
            both = entry("destinations", 1, "set_both", destination=value, source=value)
            return [update(Type.MODIFY, both), other]
        return [
            update(Type.MODIFY, entry("destinations", 1, "set_destination", address=value)),
            update(Type.MODIFY, entry("sources", 1, "set_source", address=value)),
            other,
        ]

    primary.insert(*(each.entity for each in batch(2)[:-1]))
    stop = threading.Event()
    batches = [batch(value << 24 | value) for value in range(1, 33)]
    changing = threading.Thread(target=changes, args=(primary, stop, *batches))
    changing.start()
    try:
        host, seen = switch.hosts[0], set()
        for _ in range(BURSTS):
            for _ in range(BURST):
                host.send(frame(1))
            for _ in range(BURST):
                answer = receive(host)
                assert answer[:6] == answer[6:12]
                seen.add(answer[:6])
    finally:
        stop.set()
        changing.join()
    assert len(seen) > 1


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
    assert (code, "is constant" in message) == (code_pb2.INVALID_ARGUMENT, True)
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


# -- configurations ------------------------------------------------------------------------------


def test_from_saving_on_writes_are_for_the_saved_program(switch, bare):
    bare.configure(ROUTER)
    bare.configure(PROGRAM, Action.VERIFY_AND_SAVE, cookie=5)
    written = entry("sources", 1, "set_source", address=9)
    bare.insert(written)
    assert update_errors(bare.read, ROUTES.entry("routes"))[0][0] == code_pb2.NOT_FOUND
    request = p4rt.SetForwardingPipelineConfigRequest(action=Action.COMMIT)
    request.election_id.CopyFrom(uint128(bare.election))
    bare.stub.SetForwardingPipelineConfig(request)
    switch.hosts[0].send(frame(1))
    assert receive(switch.hosts[0]) == frame(1, source=9)
    assert bare.read(NAMES.entry("sources")) == [written]
    request = p4rt.GetForwardingPipelineConfigRequest()
    assert bare.stub.GetForwardingPipelineConfig(request).config.cookie.cookie == 5


def test_reconciling_keeps_entries_groups_counts_and_registers(switch, primary):
    written = [entry("sources", 1, "set_source", address=9), group(5, (1, 1))]
    primary.insert(*written)
    primary.delete(entry("initial", 0xBEEF))
    default = NAMES.default("destinations", "set_destination", address=4)
    primary.modify(default, register("wide", 1, b"\7"))
    switch.hosts[0].send(frame(0xDEAD, source=5))
    receive(switch.hosts[0])
    wanted = NAMES.entry("fixed", {"type": (0xDEAD, 0xFFFF), "source": 5}, priority=2)
    wanted.table_entry.counter_data.SetInParent()
    before = state(primary), primary.read(wanted)
    primary.configure(PROGRAM, Action.RECONCILE_AND_COMMIT, cookie=8)
    assert (state(primary), primary.read(wanted)) == before
    switch.hosts[0].send(frame(1))
    assert receive(switch.hosts[0]) == frame(1, source=9, destination=4)


def test_reconciling_with_a_program_that_entries_do_not_fit_changes_nothing(primary):
    written = entry("sources", 1, "set_source", address=9)
    primary.insert(written)
    code, message = refusal(primary.configure, ROUTER, Action.RECONCILE_AND_COMMIT)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "the forwarding state does not fit the new program: the program has no table" in message
    assert primary.read(NAMES.entry("sources")) == [written]


METHODS = (
    "Capabilities", "GetForwardingPipelineConfig", "SetForwardingPipelineConfig", "Write", "Read",
    "StreamChannel",
)  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_what_is_no_message_is_refused_however_often_it_comes(switch: Switch, method: str):
    # gRPC allows about a hundred calls on one connection, so none of them may stay open.
    with grpc.insecure_channel(switch.address) as channel:
        call = channel.stream_stream(f"/p4.v1.P4Runtime/{method}")
        for _ in range(300):
            with pytest.raises(grpc.RpcError, match="no message of this service") as refused:
                list(call(iter([b"\xff"]), timeout=20))
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
