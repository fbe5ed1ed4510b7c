"""The controller dies, at any moment, and comes back with its state: jobs continue where they were.

``INNET_KILLS=100`` is the long mode.
"""

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from commands import run
from mortal import MortalController, MortalSwitch, add_switch, mortal_switch, serving_rack
from racks import Rack
from scripted_worker import ScriptedWorker, beating, scripted
from working_job import assert_sums, eventually, reachable, renew

from innet.errors import ControllerUnreachable, InnetError, NotFound
from innet.rpc import innet_pb2 as pb

KILLS = int(os.environ.get("INNET_KILLS", "10"))
LEASE = "5"


@pytest.fixture(scope="module")
def switch() -> Iterator[MortalSwitch]:
    with mortal_switch(4) as running:
        yield running


@contextlib.contextmanager
def controlled(switch: MortalSwitch, state: Path | None, lease: str = LEASE) -> Iterator:
    """Run a controller as a process, in charge of the switch. Yield it and the rack."""
    options = ["--state", str(state)] if state else []
    controller = MortalController(*options, "--lease", lease)
    try:
        with serving_rack(controller.address, switch) as rack:
            add_switch(rack, switch)
            yield controller, rack
    finally:
        controller.stop()


@contextlib.contextmanager
def pair(rack: Rack, **join) -> Iterator[list[ScriptedWorker]]:
    """Yield both workers of a new job, at work."""
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(rack.job(2))
        workers = [stack.enter_context(scripted(rack, job, rank, **join)) for rank in range(2)]
        for each in workers:
            each.settle()
        yield workers


def come_back(rack: Rack, *workers: ScriptedWorker) -> None:
    """Let the workers join again, as soon as the controller answers."""
    for each in workers:
        while True:
            each.come_back()
            with contextlib.suppress(ControllerUnreachable):
                each.invited()
                break
        each.hear("admission")


def entries(switch: MortalSwitch) -> list[str]:
    """Return the entries in the switch's table of workers."""
    from p4runtime_client import Controller, Names

    from innet.p4.artifacts import artifact

    names = Names(artifact(64).p4info)
    wanted = names.entry("workers")
    client = Controller(switch.address)
    with client:
        return sorted(map(str, client.read(wanted)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_go_on_without_the_controller_and_with_it_when_it_is_back(
    switch: MortalSwitch, tmp_path: Path, number: signal.Signals
):
    with controlled(switch, tmp_path / "state") as (controller, rack), pair(rack) as workers:
        assert_sums(workers, 1)
        held, before = entries(switch), rack.show(workers[0].job)
        controller.kill(number)
        for each in workers:
            with pytest.raises(InnetError):
                each.hear("recover")
        assert_sums(workers, 2)
        controller.start()
        come_back(rack, *workers)
        with beating(*workers):
            for each in workers:
                assert each.hear("resume").term == before.term
            assert_sums(workers, 3)
            after = rack.show(workers[0].job)
            assert (after.id, after.term, after.first_slot) == (
                before.id,
                before.term,
                before.first_slot,
            )
            assert after.counters.completed == 3
            assert entries(switch) == held
            # After that everything is as before.
            workers[1].trouble()
            renew(workers, 4, 4)
            for each in workers:
                assert each.hear("resume").exchange == 4
            assert_sums(workers, 1)


def test_who_does_not_come_back_has_left(switch: MortalSwitch, tmp_path: Path):
    with controlled(switch, tmp_path / "state", "1") as (controller, rack), pair(rack) as workers:
        controller.kill()
        controller.start()
        first, second = workers
        come_back(rack, first)
        with beating(first):
            # On a busy machine the lease may be over before the switch admits the first worker.
            heard = [first.next_event() for _ in range(2)]
            assert {each.WhichOneof("event") for each in heard} == {"resume", "departure"}
            assert [each.departure.rank for each in heard if each.HasField("departure")] == [1]
            eventually(lambda: len(entries(switch)) == 1)
        second.come_back()
        with pytest.raises(NotFound, match=r"this worker has left the job .* meanwhile"):
            second.invited()


def test_a_controller_that_stood_still_blames_nobody(switch: MortalSwitch):
    with controlled(switch, None, lease="1") as (controller, rack), pair(rack) as workers:
        with beating(*workers, exchange=1):
            controller.process.send_signal(signal.SIGSTOP)
            threading.Event().wait(1.5)  # longer than a lease
            controller.process.send_signal(signal.SIGCONT)
            eventually(lambda: all_at(rack, workers[0].job, 1))
        assert all(each.quiet() for each in workers)


def all_at(rack: Rack, job: str, exchange: int) -> bool:
    """Return whether both workers of a job have reported this exchange."""
    return [each.progress.exchange for each in rack.show(job).members] == [exchange] * 2


def test_a_switch_that_died_with_the_controller_begins_a_new_term(tmp_path: Path):
    with (
        mortal_switch(2) as mortal,
        controlled(mortal, tmp_path / "state") as (controller, rack),
        pair(rack) as workers,
    ):
        term = workers[0].resume.term
        controller.kill()
        mortal.kill()
        controller.start()
        come_back(rack, *workers)
        with beating(*workers):
            renew(workers, 1, 1)
            mortal.start()
            for each in workers:
                assert each.hear("resume").term != term
            assert_sums(workers, 1)


def test_switches_jobs_and_their_slots_are_as_they_were(switch: MortalSwitch, tmp_path: Path):
    with controlled(switch, tmp_path / "state") as (controller, rack):
        for name, slots in (("small", 16), ("large", 4096), ("gone", 32)):
            request = pb.CreateJobRequest(name=name, switch="tor", workers=2, slots=slots)
            rack.tokens[name] = rack.stub.CreateJob(request).token
        waiting = pb.CreateJobRequest(
            name="waiting", switch="tor", workers=2, slots=8192, queue=True, quorum=1
        )
        rack.stub.CreateJob(waiting)
        rack.delete("gone")
        before = rack.stub.ListJobs(pb.ListJobsRequest()), rack.free_slots
        controller.kill()
        controller.start()
        eventually(lambda: answers(rack))
        assert (rack.stub.ListJobs(pb.ListJobsRequest()), rack.free_slots) == before
        with scripted(rack, "small", 0) as worker:  # its token is still good
            worker.settle()
        for name in ("small", "large"):
            rack.delete(name)
        assert rack.show("waiting").slots == 8192
        again = rack.stub.CreateJob(
            pb.CreateJobRequest(name="new", switch="tor", workers=2, slots=8, queue=True)
        )
        assert again.job.id == before[0].jobs[-1].id + 1


def answers(rack: Rack) -> bool:
    """Return whether the controller answers and reaches its switch."""
    try:
        return reachable(rack)
    except grpc.RpcError:
        return False


def test_without_a_file_a_new_controller_knows_nothing(switch: MortalSwitch):
    with controlled(switch, None) as (controller, rack), pair(rack) as workers:
        controller.kill()
        controller.start()
        for each in workers:
            each.come_back()
        with pytest.raises(NotFound, match="no job"):
            workers[0].hear("invitation")
        assert_sums(workers, 1)  # nobody has touched the switch


def test_two_controllers_cannot_have_one_file(switch: MortalSwitch, tmp_path: Path):
    state = tmp_path / "state"
    with controlled(switch, state):
        done = run("innet", "controller", "--address", "127.0.0.1:0", "--state", str(state))
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            "is the state of another controller that runs: stop that one, or name another file"
            in done.stderr
        )


class Obedient:
    """A worker that obeys all events, on one stream after the other, until it is closed."""

    def __init__(self, worker: ScriptedWorker) -> None:
        self.worker, self.resume, self.exchange = worker, None, 0
        self._over = threading.Event()
        self.problem: Exception | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self.worker.vanish()
        self._thread.join()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                self._follow()
            except ControllerUnreachable:
                pass
            except InnetError as problem:
                if not self._over.is_set():
                    self.problem = problem
                return
            self.resume = None
            self.worker.come_back()

    def _follow(self) -> None:
        while not self._over.is_set():
            try:
                event = self.worker.next_event(0.05)
            except TimeoutError:
                self.worker.beat()
                if not self.worker.admission:
                    self.worker.say_hello()
                continue
            if event is None:
                return
            if event.HasField("recover"):
                self.resume = None
                self.worker.ready(self.exchange)
            elif event.HasField("resume"):
                self.resume = event.resume


def test_killed_at_any_moment_it_comes_back_to_workers_that_agree(
    switch: MortalSwitch, tmp_path: Path
):
    chance, pause = random.Random(1), threading.Event()
    used: Counter[int] = Counter()
    with (
        controlled(switch, tmp_path / "state") as (controller, rack),
        pair(rack) as made,
        contextlib.closing(Obedient(made[0])) as first,
        contextlib.closing(Obedient(made[1])) as second,
    ):
        for _ in range(KILLS):
            made[0].trouble()
            pause.wait(chance.uniform(0, 0.05))
            controller.kill()
            controller.start()
            eventually(lambda: agree(first, second))
            term = made[0].resume.term
            used[term] += 1
            assert_sums(made, used[term])


def agree(*workers: Obedient) -> bool:
    """Return whether all have the same agreement, after the controller has come back."""
    for each in workers:
        assert not each.problem, each.problem
    agreement = [each.resume for each in workers]
    return None not in agreement and all(each == agreement[0] for each in agreement)


def test_the_state_is_the_owners_only(switch: MortalSwitch, tmp_path: Path):
    state = tmp_path / "state"
    with controlled(switch, state):
        assert state.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_not_a_state_is_refused_and_left_alone(tmp_path: Path):
    state = tmp_path / "notes"
    state.write_text("buy milk")
    done = run("innet", "controller", "--address", "127.0.0.1:0", "--state", str(state))
    assert (done.returncode, state.read_text()) == (2, "buy milk")
    assert "cannot be used as the controller's state: it is no SQLite file" in done.stderr
