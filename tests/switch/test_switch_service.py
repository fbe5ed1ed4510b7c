"""P4Runtime's service: roles, and configurations that are saved or reconciled."""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator

import grpc
import pytest
import tiny_programs
from control_plane import (
    NAMES,
    PROGRAM,
    ROUTER,
    ROUTES,
    Action,
    Batch,
    Type,
    entry,
    frame,
    register,
    state,
    update,
    write,
)
from p4runtime_client import Controller, group, refusal, uint128, update_errors
from switches import Switch, receive, running_switch
from waiting import WITHIN

from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.p4runtime.admission import MAX_ENTITIES, MAX_UPDATES
from innet.switch.p4runtime.arbitration import Arbitration
from innet.switch.p4runtime.device import Device
from innet.switch.p4runtime.service import P4RuntimeService


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(2) as running:
        yield running


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


def test_a_stream_that_has_ended_does_not_become_primary_later():
    arbitration, handled = Arbitration(0), threading.Event()

    def requests() -> Iterator[p4rt.StreamMessageRequest]:
        for election in (1, 2):
            message = p4rt.StreamMessageRequest()
            message.arbitration.election_id.CopyFrom(uint128(election))
            yield message
            if election == 1:
                assert ended.wait(WITHIN)
        handled.set()

    ended = threading.Event()
    with contextlib.closing(Device([], 510, arbitration.send)) as device:
        answers = P4RuntimeService(device, arbitration)._answers(requests())
        assert next(answers).arbitration.status.code == code_pb2.OK
        answers.close()  # as gRPC does when an answer finds no client any more
        ended.set()
        assert handled.wait(WITHIN)
    assert arbitration.primaries() == []


def test_large_entities_are_read_in_messages_that_any_client_takes(primary):
    written = [entry("sources", kind, "set_source", address=9) for kind in range(1, 6)]
    for number, each in enumerate(written):
        each.table_entry.metadata = bytes([number]) * (1 << 20)
    primary.insert(*written)
    assert primary.read(NAMES.entry("sources")) == written


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


def test_reconciling_keeps_the_counts_of_default_entries(switch, primary):
    for _ in range(3):
        switch.hosts[0].send(frame(1))
        receive(switch.hosts[0])
    missed = NAMES.default("fixed")
    missed.table_entry.counter_data.SetInParent()
    before = primary.read(missed)
    assert before[0].table_entry.counter_data.packet_count >= 3
    primary.configure(PROGRAM, Action.RECONCILE_AND_COMMIT)
    assert primary.read(missed) == before


def test_reconciling_with_a_program_that_entries_do_not_fit_changes_nothing(primary):
    written = entry("sources", 1, "set_source", address=9)
    primary.insert(written)
    code, message = refusal(primary.configure, ROUTER, Action.RECONCILE_AND_COMMIT)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "the forwarding state does not fit the new program: the program has no table" in message
    assert primary.read(NAMES.entry("sources")) == [written]


def test_a_default_entry_of_a_refused_batch_is_still_the_programs_own(switch, primary):
    default = NAMES.default("destinations", "set_destination", address=7)
    refused = update(Type.DELETE, entry("sources", 99))
    answers = update_errors(
        write, primary, Batch.ROLLBACK_ON_ERROR, update(Type.MODIFY, default), refused
    )
    assert [code for code, _ in answers] == [code_pb2.ABORTED, code_pb2.NOT_FOUND]
    content = json.loads(PROGRAM.json)
    tables = {each["name"]: each for part in content["pipelines"] for each in part["tables"]}
    table = tables["ControlIngress.destinations"]
    action = table["action_ids"][table["actions"].index("ControlIngress.set_destination")]
    table["default_entry"] |= {"action_id": action, "action_data": ["0x4"]}
    changed = dataclasses.replace(PROGRAM, json=json.dumps(content).encode())
    primary.configure(changed, Action.RECONCILE_AND_COMMIT)
    switch.hosts[0].send(frame(1))
    assert receive(switch.hosts[0]) == frame(1, destination=4)


@pytest.mark.parametrize("name", ["extern_meters", "parse_value_set"])
def test_meters_and_value_sets_that_nobody_has_written_fit_any_program(bare, name):
    bare.configure(tiny_programs.program(name))
    bare.configure(ROUTER, Action.RECONCILE_AND_COMMIT, cookie=6)
    request = p4rt.GetForwardingPipelineConfigRequest()
    assert bare.stub.GetForwardingPipelineConfig(request).config.cookie.cookie == 6


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
                list(call(iter([b"\xff"]), timeout=WITHIN))
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_request_with_too_many_parts_is_refused_before_it_is_parsed(primary):
    many = p4rt.ReadRequest(device_id=primary.device)
    many.entities.extend([p4rt.Entity()] * (MAX_ENTITIES + 1))
    with pytest.raises(grpc.RpcError, match=f"{MAX_ENTITIES} are the most") as refused:
        list(primary.stub.Read(many, timeout=WITHIN))
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    write = p4rt.WriteRequest(device_id=primary.device)
    write.election_id.low = primary.election
    write.updates.extend([p4rt.Update()] * (MAX_UPDATES + 1))
    with pytest.raises(grpc.RpcError, match=f"{MAX_UPDATES} are the most") as refused:
        primary.stub.Write(write, timeout=WITHIN)
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
