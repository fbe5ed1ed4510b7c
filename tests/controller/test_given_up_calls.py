"""Clients that give up while the controller works on their calls do not harm it."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from mortal import MortalController
from waiting import WITHIN

from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import tls
from innet.rpc.client import connected

CALLS = 150
DELAYS = (0.0, 0.0002, 0.0005, 0.001, 0.002, 0.004, 0.008)
"""Seconds after which clients give up. Some of these moments are those at which a handler runs."""

JOIN = pb.WorkerMessage(join=pb.JoinRequest(job="no such job", token="wrong"))  # noqa: S106
UNARY: list[tuple[str, Any]] = [
    ("DeleteJob", pb.DeleteJobRequest(name="nonesuch")),
    ("CreateJob", pb.CreateJobRequest(name="train", switch="nonesuch", workers=1, slots=1)),
    ("ListJobs", pb.ListJobsRequest(detailed=True)),
    ("CheckJoin", pb.CheckJoinRequest(job="nonesuch")),
]


@pytest.fixture
def controller(folder: Path, tmp_path: Path) -> Iterator[MortalController]:
    log = tmp_path / "log"
    running = MortalController("--tls", str(folder), log=log)
    try:
        yield running
        assert running.process.poll() is None
    finally:
        running.stop()
    assert "Traceback" not in log.read_text()


def channel(controller: MortalController, folder: Path, role: str) -> grpc.Channel:
    credentials = tls.load(folder, role).channel_credentials()
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(controller.address, credentials, options)


def give_up(call: Any, chance: random.Random) -> None:
    threading.Event().wait(chance.choice(DELAYS))
    call.cancel()


def cancelled_calls(stub: Any, chance: random.Random) -> None:
    for _ in range(CALLS):
        name, request = chance.choice(UNARY)
        give_up(getattr(stub, name).future(request, timeout=WITHIN), chance)


def calls_with_deadlines(stub: Any, chance: random.Random) -> None:
    for _ in range(CALLS):
        name, request = chance.choice(UNARY)
        with contextlib.suppress(grpc.RpcError):
            getattr(stub, name)(request, timeout=chance.choice(DELAYS) or 0.0001)


def cancelled_streams(stub: Any, chance: random.Random) -> None:
    for _ in range(CALLS):
        give_up(stub.Join(iter([JOIN] * chance.randrange(20))), chance)


@pytest.mark.parametrize("act", [cancelled_calls, calls_with_deadlines, cancelled_streams])
def test_a_client_that_gives_up_does_not_end_the_controller(
    controller: MortalController, folder: Path, act: Callable[[Any, random.Random], None]
):
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(futures.ThreadPoolExecutor(4))
        acts = []
        for number, role in enumerate((tls.WORKER, tls.ADMIN) * 2):
            each = stack.enter_context(channel(controller, folder, role))
            acts.append(pool.submit(act, rpc.ControllerStub(each), random.Random(number)))
        for done in acts:
            done.result()
    with connected(controller.address, folder, WITHIN) as stub:
        assert not stub.ListJobs(pb.ListJobsRequest()).jobs
