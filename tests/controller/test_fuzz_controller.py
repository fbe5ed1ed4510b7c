"""No message to the controller breaks it, nor a job that is at work.

``INNET_FUZZ_MESSAGES=1000000`` is the long mode.
"""

import contextlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import damage
import grpc
import pytest
from mortal import MortalController, MortalSwitch, add_switch, mortal_switch, serving_rack
from racks import Rack
from scripted_worker import beating, scripted
from working_job import assert_sums

from innet.controller.state.validation import MOST_BYTES
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

MESSAGES = int(os.environ.get("INNET_FUZZ_MESSAGES", "1000"))

GROWTH = 32 << 20
"""Bytes by which the controller's memory may grow, however many messages it gets."""

WITHIN = 250.0

Code = grpc.StatusCode
EXPECTED = {
    Code.OK, Code.CANCELLED, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.ALREADY_EXISTS,
    Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED, Code.PERMISSION_DENIED, Code.ABORTED,
    Code.OUT_OF_RANGE,
}  # fmt: skip
"""The codes with which calls may end, without DEADLINE_EXCEEDED, UNKNOWN and INTERNAL."""

ADDRESS = pb.Address(mac="02:00:00:00:00:fe", ip="10.0.0.1", udp_port=19790)
REQUESTS: dict[str, Any] = {
    "ListSwitches": pb.ListSwitchesRequest(),
    "GetSwitch": pb.GetSwitchRequest(name="tor"),
    "RemoveSwitch": pb.RemoveSwitchRequest(name="tor"),
    "CreateJob": pb.CreateJobRequest(
        name="made", switch="tor", workers=2, slots=8, quorum=1, queue=True, lease_s=1
    ),
    "ListJobs": pb.ListJobsRequest(),
    "GetJob": pb.GetJobRequest(name="fuzzed"),
    "DeleteJob": pb.DeleteJobRequest(name="made"),
}
"""Valid requests. Adding a switch waits for that switch, so it is requested less often, below."""


@pytest.fixture(scope="module")
def switch() -> Iterator[MortalSwitch]:
    with mortal_switch(4) as running:
        yield running


@pytest.fixture(scope="module")
def controlled(switch: MortalSwitch, tmp_path_factory) -> Iterator[tuple[MortalController, Rack]]:
    """Run a controller as a process, in charge of the switch. It must log no errors of its own."""
    log = tmp_path_factory.mktemp("controller") / "log"
    controller = MortalController("--lease", "30", log=log)
    try:
        with serving_rack(controller.address, switch) as rack:
            add_switch(rack, switch)
            yield controller, rack
    finally:
        controller.stop()
    assert "Traceback" not in log.read_text()


def memory(controller: MortalController) -> int:
    """Return the resident bytes of the controller's memory."""
    status = Path(f"/proc/{controller.process.pid}/status")
    if not status.exists():
        pytest.skip("the memory of a process is read from Linux's /proc")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def spoilt(chance: random.Random, good: Any) -> Any:
    """Return a message that is random, or almost valid."""
    messages = damage.Messages(chance, (1, 2, 8, 64, 32))
    if chance.random() < 0.3:
        return messages.fill(type(good)())
    copy = type(good)()
    copy.CopyFrom(good)
    return messages.spoil(copy)


def ask(rack: Rack, chance: random.Random) -> Code:
    """Send one request. Return how it ended."""
    name = chance.choice([*REQUESTS])
    try:
        getattr(rack.stub, name)(spoilt(chance, REQUESTS[name]), timeout=WITHIN)
    except grpc.RpcError as problem:
        return problem.code()
    return Code.OK


def join(rack: Rack, chance: random.Random, job: str) -> Code:
    """Send random messages on a stream, most with a valid beginning. Return how it ended."""
    token = rack.tokens[job] if chance.random() < 0.9 else "another job's"
    request = pb.JoinRequest(job=job, rank=chance.randrange(2), token=token, fallback=True)
    said = [pb.WorkerMessage(join=request)]
    good = [
        *said,
        pb.WorkerMessage(heartbeat=pb.Heartbeat(progress=pb.Progress(exchange=3, busy=True))),
        pb.WorkerMessage(trouble=pb.Trouble(term=7, reason="silence")),
        pb.WorkerMessage(ready=pb.Ready(term=7, exchange=3)),
    ]
    if chance.random() < 0.2:
        said = []
    for _ in range(chance.randrange(6)):
        each = chance.choice(good)
        said.append(spoilt(chance, each) if chance.random() < 0.5 else each)
    call = rack.stub.Join(iter(said), timeout=WITHIN)
    if chance.random() < 0.3:
        call.cancel()
    with contextlib.suppress(grpc.RpcError):
        for _ in call:
            pass
    return call.code()


def test_no_message_stops_the_controller_or_a_job_and_the_memory_stays(controlled):
    controller, rack = controlled
    chance = random.Random(4)
    codes: Counter[Code] = Counter()
    with (
        rack.job(2) as job,
        rack.job(2) as fuzzed,
        scripted(rack, job, 0) as first,
        scripted(rack, job, 1) as second,
    ):
        first.settle()
        second.settle()
        with beating(first, second):
            for part in range(4):
                if part == 1:
                    before = memory(controller)
                for _ in range(MESSAGES // 4):
                    codes[ask(rack, chance)] += 1
                    codes[join(rack, chance, fuzzed)] += 1
                assert_sums([first, second], part + 1)
        assert memory(controller) - before < GROWTH
        assert first.quiet()
        assert second.quiet()
        assert codes.keys() <= EXPECTED, codes
        assert {
            Code.OK,
            Code.INVALID_ARGUMENT,
            Code.NOT_FOUND,
            Code.PERMISSION_DENIED,
        } <= codes.keys()
        with scripted(rack, fuzzed, 0, port=3) as worker:  # whatever was sent there
            worker.settle()
    assert controller.process.poll() is None


def test_bytes_that_are_no_message_are_refused(controlled):
    controller, rack = controlled
    chance = random.Random(5)
    channel, _ = connect(rack.controller)
    with contextlib.closing(channel):
        for _ in range(MESSAGES // 10):
            name = chance.choice([*REQUESTS, "AddSwitch", "Nonsense"])
            call = channel.unary_unary(f"/innet.v1.Controller/{name}")
            content = damage.frame(chance, [REQUESTS["CreateJob"].SerializeToString()])
            with contextlib.suppress(grpc.RpcError):
                call(content[:1000], timeout=WITHIN)
            stream = channel.stream_stream("/innet.v1.Controller/Join")
            with contextlib.suppress(grpc.RpcError):
                list(stream(iter([content[:1000]]), timeout=WITHIN))
    assert [each.name for each in rack.stub.ListSwitches(pb.ListSwitchesRequest()).switches]
    assert controller.process.poll() is None


def test_a_message_that_is_too_long_is_refused(controlled):
    _, rack = controlled
    with pytest.raises(grpc.RpcError) as caught:
        rack.stub.GetJob(pb.GetJobRequest(name="x" * MOST_BYTES), timeout=WITHIN)
    assert caught.value.code() == Code.RESOURCE_EXHAUSTED


def test_nonsense_about_switches_is_refused(controlled):
    _, rack = controlled
    chance = random.Random(6)
    good = pb.AddSwitchRequest(
        name="other", grpc_address="127.0.0.1:1", ports=[1, 2], service=ADDRESS, lanes=64
    )
    codes: Counter[Code] = Counter()
    for _ in range(MESSAGES // 80):
        request = spoilt(chance, good)
        request.grpc_address = chance.choice(["", "\x1b", "x" * 400, rack.switch.address])
        try:
            rack.stub.AddSwitch(request, timeout=WITHIN)
        except grpc.RpcError as problem:
            codes[problem.code()] += 1
    assert codes.keys() <= {Code.INVALID_ARGUMENT, Code.ALREADY_EXISTS, Code.ABORTED}, codes
