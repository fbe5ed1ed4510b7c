"""A job whose workers follow the test's script, and somebody else who writes to its switch."""

import contextlib
import threading
from collections.abc import Iterator

import grpc
from p4runtime_client import Names, uint128
from racks import Rack
from scripted_worker import ScriptedWorker, scripted
from waiting import WITHIN

from innet.p4.artifacts import artifact
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime import p4runtime_pb2_grpc
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import Kind
from innet.wire.records import get_field

SWITCH, FALLBACK = pb.PATH_SWITCH, pb.PATH_FALLBACK
LONG = 60.0
"""A lease in seconds that does not expire in a test."""

SHORT = 0.5
"""A lease in seconds that expires in a test."""


NAMES = Names(artifact(64).p4info)


@contextlib.contextmanager
def at_work(tor: Rack, workers: int = 2, **request) -> Iterator[list[ScriptedWorker]]:
    """Yield the workers of a job, all of which sum in the switch. `request` has fields of the job."""
    with contextlib.ExitStack() as stack:
        fallback = request.pop("fallback", False)
        job = stack.enter_context(tor.job(workers, **request))
        made = [
            stack.enter_context(scripted(tor, job, rank, fallback=fallback))
            for rank in range(workers)
        ]
        for each in made:
            each.invited()
            each.admitted()
        for each in made:
            assert each.hear("resume").path == SWITCH
        yield made


def assert_sums(workers: list[ScriptedWorker], sequence: int, quorum: int = 0) -> None:
    """Have the workers contribute, and assert that each gets the switch's sum.

    Workers after the quorum contribute late. Until then, the switch does not know that they want lanes.
    """
    some = workers[: quorum or len(workers)]
    for each in some:
        each.contribute(0, sequence, 10**each.rank)
    for each in workers[len(some) :]:
        assert "lanes" not in (each.result().dtype.names or ())
        each.contribute(0, sequence, 10**each.rank)
    for each in workers:
        packet = each.result()
        assert (get_field(packet, "kind"), packet["sequence"], packet["count"]) == (
            Kind.RESULT,
            sequence,
            len(some),
        )
        assert packet["workers"] == sum(1 << one.rank for one in some)
        assert set(packet["lanes"]) == {sum(10**one.rank for one in some)}


def renew(workers: list[ScriptedWorker], *exchanges: int) -> None:
    """Wait until all workers are called back, and have each report its exchange."""
    for each, exchange in zip(workers, exchanges, strict=True):
        each.hear("recover")
        each.ready(exchange)


def eventually(condition, within: float = WITHIN) -> None:
    """Wait until a condition holds."""
    pause = threading.Event()
    for _ in range(int(within / 0.02)):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError("it never came to hold")


def reachable(tor: Rack) -> bool:
    """Return whether the controller reaches its switch."""
    [switch] = tor.stub.ListSwitches(pb.ListSwitchesRequest()).switches
    return switch.reachable


class Intruder:
    """Another client that writes to the switch, in its own role."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
        arbitration = p4rt.StreamMessageRequest()
        arbitration.arbitration.election_id.CopyFrom(uint128(1))
        arbitration.arbitration.role.name = "intruder"
        self._over = threading.Event()

        def said():
            yield arbitration
            self._over.wait()

        self._stream = self.stub.StreamChannel(said())
        next(self._stream)

    def close(self) -> None:
        self._over.set()
        self._channel.close()

    def write(self, kind: int, *entities: p4rt.Entity) -> None:
        updates = [p4rt.Update(type=kind, entity=each) for each in entities]
        request = p4rt.WriteRequest(updates=updates, role="intruder", election_id=uint128(1))
        self.stub.Write(request)

    def read(self, table: str) -> list[p4rt.Entity]:
        wanted = p4rt.Entity()
        wanted.table_entry.table_id = NAMES.table(table).preamble.id
        answers = self.stub.Read(p4rt.ReadRequest(entities=[wanted]))
        return [entity for answer in answers for entity in answer.entities]

    def run_afresh(self) -> None:
        wanted = p4rt.GetForwardingPipelineConfigRequest()
        config = self.stub.GetForwardingPipelineConfig(wanted).config
        request = p4rt.SetForwardingPipelineConfigRequest(
            role="intruder", election_id=uint128(1), config=config
        )
        request.action = p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        self.stub.SetForwardingPipelineConfig(request)
