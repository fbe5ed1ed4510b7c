"""`innet doctor` and `innet top` in a real rack with a fault."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from commands import BIN, refuse, run
from racks import WITHIN, Rack, means, rack

from innet.controller.state.registry import Policy
from innet.host.agent import Agent
from innet.host.job import Timeouts
from innet.host.join import join
from innet.host.link import frame_address, parse_endpoints
from innet.local.faults import UP, Faults, Wiring, faulty
from innet.local.rack import local_rack
from innet.observe.diagnosis import diagnose
from innet.observe.findings import Finding, Severity
from innet.observe.sample import Observation, sample_job
from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import Kind
from innet.wire.records import get_field, packet_dtype

WORKERS, LANES, ELEMENTS = 3, 64, 10_000
VECTOR = np.ones(ELEMENTS, np.float32)
LONG = Timeouts(switch=WITHIN, workers=WITHIN)
A_STALL = "4"
"""Seconds between samples: a worker held up in the first one is a stall in the second."""
NO_FAULTS, DEAD = Faults(), Faults(drop=1.0)


@dataclass
class Scene:
    """A job whose worker 1 has a cable that can be broken."""

    tor: Rack
    name: str
    agents: list[Agent]
    cable: Wiring

    def doctor(self, interval: str = "1") -> str:
        """Return the command's output."""
        address = self.tor.controller
        done = run("innet", "doctor", self.name, "--interval", interval, "--controller", address)
        assert done.stderr == ""
        healthy = not re.search(r"^(problem|warning)", done.stdout, re.MULTILINE)
        assert done.returncode == (0 if healthy else 1)
        return done.stdout


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    # On a busy machine a heartbeat may be late; these tests are not about that.
    with rack(WORKERS + 1, LANES, policy=Policy(lease_s=WITHIN)) as running:
        yield running


@pytest.fixture
def scene(tor: Rack) -> Iterator[Scene]:
    with (
        tor.job(WORKERS) as name,
        tor.cables(WORKERS) as (first, second, third),
        faulty([second], seed=1) as cable,
        contextlib.ExitStack() as stack,
    ):
        links = [first, cable.links[0], third]
        agents = [
            stack.enter_context(tor.join(name, rank, link, timeouts=LONG))
            for rank, link in enumerate(links)
        ]
        means(agents, *[VECTOR] * WORKERS)
        yield Scene(tor, name, agents, cable)


def problems(said: str) -> list[str]:
    return re.findall(r"^problem (.*)$", said, re.MULTILINE)


def test_a_job_between_two_all_reduces_is_well(scene: Scene):
    said = scene.doctor()
    assert "3 of 3 workers" in said
    assert "path switch" in said
    assert "no worker is in an all-reduce just now" in said
    assert re.search("^good +no problem found$", said, re.MULTILINE)


def test_a_worker_that_does_not_call_all_reduce_is_found_with_chunk_and_slot(scene: Scene):
    others = [scene.agents[rank].submit(VECTOR) for rank in (0, 2)]
    said = scene.doctor(A_STALL)
    [problem] = problems(said)
    assert problem == "worker 1 is not in an all-reduce, and others wait for it in exchange 2"
    # 10,000 elements have the exponents of 157 blocks, which fill 3 chunks.
    assert re.search(
        r"worker 0 has waited \d+\.\d s for chunk 0 of 3 in exchange 2, in slot 0", said
    )
    assert re.search(
        r"worker 2 has waited \d+\.\d s for chunk 0 of 3 in exchange 2, in slot 0", said
    )
    assert re.search(r"counter `pending` has grown by \d+", said)
    assert (scene.agents[1].all_reduce(VECTOR) == 1).all()
    assert all((each.result(WITHIN) == 1).all() for each in others)


def test_a_worker_whose_link_is_dead_is_told_from_one_that_does_nothing(scene: Scene):
    scene.cable.chance(DEAD)
    running = [agent.submit(VECTOR) for agent in scene.agents]
    said = scene.doctor(A_STALL)
    [problem] = problems(said)
    assert problem == "worker 1 hears nothing from the switch: its link is dead"
    assert re.search(r"it is attached to port \d of tor", said)
    assert "the switch does answer workers 0, 2" in said
    scene.cable.chance(NO_FAULTS)
    assert all((each.result(WITHIN) == 1).all() for each in running)


def test_a_worker_whose_packets_are_refused_is_found_with_the_counter_that_says_so(scene: Scene):
    """They carry the term of an earlier generation, and are right in all else."""
    frames = [frame for frame in scene.cable.recent(0, UP) if _is_contribution(frame)]
    scene.cable.chance(DEAD)
    running = [agent.submit(VECTOR) for agent in scene.agents]
    before = sample_job(scene.tor.stub, scene.name)
    for _ in range(10):
        scene.cable.inject(0, UP, _outdated(frames, scene.cable.links[0]))
    finding = _wait_for_finding(scene, before, "refused")
    assert finding.subject == "worker 1"
    text = "\n".join(finding.evidence)
    assert re.search(
        rf"counter `refused` of port \d of tor has grown by {10 * len(frames)} in", text
    )
    scene.cable.chance(NO_FAULTS)
    assert all((each.result(WITHIN) == 1).all() for each in running)


def test_a_worker_that_has_left_and_one_that_never_came_are_told_apart(scene: Scene):
    scene.agents[1].close()
    assert problems(scene.doctor()) == ["worker 1 has left the job"]
    with scene.tor.job(2) as name, scene.tor.join(name, 1, scene.tor.links[0]):
        said = Scene(scene.tor, name, [], scene.cable).doctor()
        assert problems(said) == ["worker 0 has not joined"]


def test_a_worker_whose_hello_does_not_get_through_is_found(scene: Scene):
    with scene.tor.job(2) as name, faulty([scene.tor.links[0]], 1, DEAD, DEAD) as cable:
        command = (
            f"import innet; innet.join({scene.tor.controller!r}, {name!r}, 0, {cable.links[0]!r})"
        )
        with subprocess.Popen(
            [str(BIN / "python"), "-c", command],
            env={"INNET_TOKEN": scene.tor.tokens[name]}, stderr=subprocess.DEVNULL,
        ) as worker:  # fmt: skip
            while not scene.tor.show(name).members:
                assert worker.poll() is None
            said = Scene(scene.tor, name, [], scene.cable).doctor()
            worker.kill()
    assert "worker 0 talks to the controller, but no hello packet of it has come" in said


def test_a_dead_switch_is_found():
    with local_rack(2) as tor, contextlib.ExitStack() as stack:
        agents = [
            stack.enter_context(
                join(tor.controller, tor.job, rank, link, token=tor.token, timeouts=LONG)
            )
            for rank, link in enumerate(tor.links)
        ]
        means(agents, VECTOR, VECTOR)
        tor.switch.kill()
        for agent in agents:
            agent.submit(VECTOR)
        done = run(
            "innet", "doctor", tor.job, "--interval", A_STALL, "--controller", tor.controller
        )
        assert done.returncode == 1
        assert any("is down" in each for each in problems(done.stdout)), done.stdout
        for agent in agents:
            agent.close(abandon=True)


def test_of_a_job_that_is_not_there_the_doctor_says_so(scene: Scene):
    why = "cannot read the job 'nowhere': there is no job 'nowhere'"
    refuse(why, "innet", "doctor", "nowhere", "--controller", scene.tor.controller)


# ---- top ----------------------------------------------------------------------------------------


def test_one_look_shows_jobs_and_switches_and_with_a_job_its_workers(scene: Scene):
    address = scene.tor.controller
    jobs = run("innet", "top", "--once", "--interval", "1.5", "--controller", address)
    assert (jobs.returncode, jobs.stderr) == (0, "")
    assert re.search(
        rf"{scene.name} +│ tor +│ switch +│ \d+ +│ 3 of 3 +│ 3 of 3 +│ 32 +│ (-|\d+\.\d) +│",
        jobs.stdout,
    )
    assert re.search(r"tor\W+yes\W+32 of 8192", jobs.stdout)
    assert "worker " not in jobs.stdout
    one = run("innet", "top", "--once", "--job", scene.name, "--controller", address)
    for rank in range(WORKERS):
        assert re.search(rf"^│ {rank} +│ \d +│ 10\.0\.\d+\.\d+:\d+ +│ 2 ", one.stdout, re.MULTILINE)


def test_top_goes_on_until_ctrl_c(scene: Scene):
    command = ["top", "--interval", "0.1", "--controller", scene.tor.controller]
    with subprocess.Popen(
        [str(BIN / "innet"), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as top:
        shown = 0
        while shown < 3:
            shown += scene.name in top.stdout.readline()
        top.send_signal(signal.SIGINT)
        _, stderr = top.communicate(timeout=WITHIN)
    assert (top.returncode, stderr) == (130, "")


def test_after_sigterm_top_leaves_the_terminal_as_it_was(scene: Scene):
    command = [str(BIN / "innet"), "top", "--interval", "0.1", "--controller", scene.tor.controller]
    ours, its = os.openpty()
    with subprocess.Popen(command, stdout=its, env={**os.environ, "TERM": "xterm"}) as top:
        os.close(its)
        said = b""
        while scene.name.encode() not in said:
            said += os.read(ours, 65536)
        top.send_signal(signal.SIGTERM)
        with contextlib.suppress(OSError):  # it has closed the terminal
            while more := os.read(ours, 65536):
                said += more
    os.close(ours)
    assert top.returncode == 128 + signal.SIGTERM
    assert said.endswith(b"\x1b[?25h\x1b[?1049l")  # the cursor is shown, the first screen is back


def test_top_of_a_job_that_is_not_there_ends_with_code_2(scene: Scene):
    address = scene.tor.controller
    refuse("no job 'nowhere'", "innet", "top", "--job", "nowhere", "--controller", address)


def _is_contribution(frame: bytes) -> bool:
    dtype = packet_dtype(LANES, ENCAPSULATION_BYTES)
    if len(frame) != dtype.itemsize:
        return False
    return get_field(np.frombuffer(frame, dtype), "kind")[0] == Kind.CONTRIBUTION


def _outdated(frames: list[bytes], link: str) -> list[bytes]:
    """Return the same contributions in another term, with correct checks."""
    packets = np.frombuffer(b"".join(frames), packet_dtype(LANES, ENCAPSULATION_BYTES)).copy()
    packets["term"] -= 7
    source = frame_address(parse_endpoints(link)[0])
    seal(packets, int.from_bytes(source.ip_bytes, "big"), source.udp_port)
    return [packet.tobytes() for packet in packets]


def _wait_for_finding(scene: Scene, before, rule: str) -> Finding:
    """Return the finding of a rule, once it is a problem."""
    while True:
        found = diagnose(Observation(before, sample_job(scene.tor.stub, scene.name)))
        for finding in found:
            if (finding.rule, finding.severity) == (rule, Severity.PROBLEM):
                return finding
