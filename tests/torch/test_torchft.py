"""torchft over the switch: replicas die or train by themselves, and nobody else loses anything."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_rack import forked_rack
from paths import ROOT, SUPPORT
from preforked import forked_programs
from waiting import WITHIN, until

from benchmarks.replicas import start
from benchmarks.replicas.algorithms import ALGORITHMS, trained
from benchmarks.replicas.kills import SURVIVORS, crew
from benchmarks.replicas.start import interpreter, lighthouses
from innet.errors import UsageError
from innet.local.processes import spawned
from innet.local.rack import Rack
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

VICTIMS = 2
ROUNDS = -(-int(os.environ.get("INNET_REPLICA_KILLS", "2")) // VICTIMS)
LOSS = 0.01
TRIES = 3


@pytest.fixture(scope="module")
def addresses() -> Iterator[Iterator[str]]:
    """Yield the addresses of lighthouses, one for each training. All processes start soon."""
    try:
        folder = Path(interpreter()).parent
    except UsageError as problem:
        pytest.skip(str(problem))
    python = str(forked_programs(folder) / "python")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "interpreter", lambda: python)
        with lighthouses(2 * ROUNDS + 2 * len(ALGORITHMS) + TRIES) as running:
            yield running


@pytest.fixture(scope="module")
def rack(addresses) -> Iterator[Rack]:  # without torchft it is not needed
    with forked_rack(SURVIVORS + VICTIMS, udp=True) as running:
        yield running


def jobs(rack: Rack) -> list[str]:
    channel, stub = connect(rack.controller)
    with contextlib.closing(channel):
        return [job.name for job in stub.ListJobs(pb.ListJobsRequest()).jobs]


@pytest.mark.timeout(900 * ROUNDS)
def test_after_kills_the_survivors_have_the_bits_of_a_run_in_which_replicas_left(
    rack: Rack, addresses
):
    environments = [{**rack.environment, "INNET_LINK": link} for link in rack.links]
    with crew(environments, addresses) as replicas:
        for seed in range(ROUNDS):
            found = replicas.killed("innet", seed)
            assert replicas.left("innet", found) == found.digests
            assert len(set(found.digests)) == 1
    until(lambda: not [job for job in jobs(rack) if job.startswith("torchft-1-")])


def test_local_sgd_and_diloco_train_with_int8_lanes_over_cables_that_lose_packets(
    rack: Rack, addresses
):
    found = trained(rack, addresses, "int8", LOSS, steps=20)
    assert [each.algorithm for each in found[::2]] == [each.algorithm for each in ALGORITHMS]
    for gloo, innet in zip(found[::2], found[1::2], strict=True):
        assert (gloo.over, gloo.lost, innet.over) == ("Gloo", 0, "innet")
        assert innet.lost > 0
        assert len(set(innet.digests)) == 1
        assert innet.digests != gloo.digests
        assert innet.loss < gloo.loss + 0.1 < 0.5


def example(
    rack: Rack, lighthouse: str, number: int
) -> contextlib.AbstractContextManager["subprocess.Popen[str]"]:
    command = [start.interpreter(), str(ROOT / "examples/fault_tolerance.py"), "--steps", "6"]
    environment = {"TORCHFT_LIGHTHOUSE": lighthouse, "LOCAL_RANK": str(number), "RUST_LOG": "warn"}
    return spawned(command, {**rack.environment, **environment, "OMP_NUM_THREADS": "1"})


def test_a_replica_that_comes_back_gets_the_state_of_the_others(rack: Rack, addresses):
    for left in reversed(range(TRIES)):
        try:
            come_back(rack, next(addresses))
            break
        except subprocess.TimeoutExpired:
            # A replica without processor time may repeat the last step, and waits for one that is done.
            if not left:
                raise


def come_back(rack: Rack, lighthouse: str) -> None:
    """Kill a replica and start it again. Raises TimeoutExpired if it does not finish."""
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(example(rack, lighthouse, each)) for each in (0, 1))
        for line in second.stdout:
            if line.startswith("step 3: "):
                break
        second.kill()
        again = stack.enter_context(example(rack, lighthouse, 1))
        said = [each.communicate(timeout=WITHIN / 2) for each in (first, again)]
    assert [(first.returncode, again.returncode)] == [(0, 0)], said
    ends = [output.splitlines()[-1] for output, _ in said]
    assert ends[0].startswith("parameters ")
    assert ends[0] == ends[1]
    assert "2 replicas" in said[1][0]


@pytest.mark.parametrize("fault", ["configure", "leave"])
def test_a_wrapper_that_hides_errors_does_not_let_a_step_be_committed_without_its_sum(
    rack: Rack, addresses, fault: str
):
    command = [start.interpreter(), str(SUPPORT / "wrapped_replicas.py"), fault]
    own = {"INNET_LINK": "+".join(rack.links[:2]), "RUST_LOG": "warn", "OMP_NUM_THREADS": "1"}
    with spawned(command, {**rack.environment, **own}) as process:
        said, _ = process.communicate(timeout=WITHIN)
    steps = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(steps) == 6, said
    assert [step["means"] for step in steps if step["commits"]] == [[1.5, 1.5]] * 4
    assert not any(step["commits"] for step in steps[:2])
