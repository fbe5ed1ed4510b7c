"""A check whether a controller manages a switch, made without becoming its controller."""

import contextlib
import queue
from collections.abc import Iterator

import grpc

from innet.controller.jobs.records import SwitchRecord
from innet.controller.switches.election import SwitchTaken
from innet.controller.switches.entries import whole_inward
from innet.controller.switches.names import Names
from innet.controller.switches.p4runtime import open_channel
from innet.controller.switches.transcript import OnRequest, watched
from innet.errors import SwitchError
from innet.p4runtime import code_pb2, p4runtime_pb2_grpc
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc import tls
from innet.rpc.words import counted
from innet.terminal.console import one_line

_ANSWER_WITHIN = 5.0
_NO_PROGRAM = grpc.StatusCode.FAILED_PRECONDITION
_NO_BACKUPS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
_CONSEQUENCE = "its jobs then leave the switch until the controller has put its entries back"


def check_unclaimed(
    record: SwitchRecord, identity: tls.Identity | None, on_request: OnRequest
) -> None:
    """Raise SwitchTaken if a controller manages the switch, or has left entries of jobs in it.

    `on_request` is called with every request before it is sent. Raises SwitchError if the switch does
    not answer or refuses.
    """
    address = record.grpc_address
    if address.startswith(tls.INSECURE):
        address, identity = address.removeprefix(tls.INSECURE), None
    with contextlib.closing(open_channel(address, identity, patient=True)) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(watched(channel, on_request))
        try:
            managed = _has_primary(stub, record.device_id)
            workers = 0 if managed else _count_workers(stub, record.device_id)
        except grpc.RpcError as problem:
            said = one_line(problem.details() or problem.code().name)
            raise SwitchError(f"the switch at {address} refused: {said}") from None
    if managed:
        raise SwitchTaken(
            f"a controller is in charge of the switch at {address}: remove the switch there with "
            f"`innet switch remove`, or use --force ({_CONSEQUENCE})"
        )
    if workers:
        raise SwitchTaken(
            f"the switch at {address} holds entries of {counted(workers, 'worker')}, and no controller "
            "is connected: start their controller again and delete its jobs, or use --force to remove "
            "them"
        )


def _has_primary(stub: p4runtime_pb2_grpc.P4RuntimeStub, device_id: int) -> bool:
    """Return whether a primary controller is connected, or False if the switch cannot tell."""
    with _backup(stub, device_id) as answers:
        try:
            answer = next(answers)
        except grpc.RpcError as problem:
            if problem.code() in _NO_BACKUPS:
                return False
            raise
    return bool(answer.arbitration.status.code == code_pb2.ALREADY_EXISTS)


@contextlib.contextmanager
def _backup(
    stub: p4runtime_pb2_grpc.P4RuntimeStub, device_id: int
) -> Iterator[Iterator[p4rt.StreamMessageResponse]]:
    """Open a stream without an election id: its client never becomes primary."""
    said: queue.SimpleQueue[p4rt.StreamMessageRequest | None] = queue.SimpleQueue()
    arbitration = p4rt.MasterArbitrationUpdate(device_id=device_id)
    said.put(p4rt.StreamMessageRequest(arbitration=arbitration))
    call = stub.StreamChannel(iter(said.get, None), timeout=_ANSWER_WITHIN)
    try:
        yield call
    finally:
        said.put(None)
        call.cancel()


def _count_workers(stub: p4runtime_pb2_grpc.P4RuntimeStub, device_id: int) -> int:
    """Return the number of workers for which the switch holds entries."""
    request = p4rt.GetForwardingPipelineConfigRequest(device_id=device_id)
    request.response_type = p4rt.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE
    try:
        config = stub.GetForwardingPipelineConfig(request, timeout=_ANSWER_WITHIN).config
    except grpc.RpcError as problem:
        if problem.code() == _NO_PROGRAM:
            return 0
        raise
    wanted = whole_inward(Names(config.p4info))
    if not wanted:
        return 0
    read = p4rt.ReadRequest(device_id=device_id, entities=wanted)
    return sum(len(each.entities) for each in stub.Read(read, timeout=_ANSWER_WITHIN))
