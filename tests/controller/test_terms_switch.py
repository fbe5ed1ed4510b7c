"""Terms while the switch dies, hangs, is cut off or is changed by somebody else."""

import contextlib
import signal
from collections.abc import Iterator

import pytest
from mortal import Forwarder, MortalSwitch, mortal_switch, rack_of
from racks import Rack
from scripted_worker import WITHIN, scripted
from working_job import (
    FALLBACK,
    LONG,
    NAMES,
    SWITCH,
    Intruder,
    assert_sums,
    at_work,
    eventually,
    reachable,
    renew,
)

from innet.controller.state.registry import Policy
from innet.controller.switches import p4runtime
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc import innet_pb2 as pb


@pytest.fixture(scope="module")
def switch() -> Iterator[MortalSwitch]:
    with mortal_switch(4) as running:
        yield running


@pytest.fixture(scope="module")
def tor(switch: MortalSwitch) -> Iterator[Rack]:
    with rack_of(switch, policy=Policy(lease_s=LONG)) as rack:
        yield rack


@contextlib.contextmanager
def mortal_rack() -> Iterator[tuple[MortalSwitch, Rack]]:
    """Yield a switch that can be killed, and a controller in charge of it."""
    with mortal_switch(2) as mortal, rack_of(mortal, policy=Policy(lease_s=LONG)) as rack:
        yield mortal, rack


def test_a_switch_that_dies_is_replaced_by_the_fallback_until_it_is_back():
    with mortal_rack() as (mortal, own), at_work(own, fallback=True) as workers:
        for sequence in (1, 2):
            assert_sums(workers, sequence)
            mortal.kill()
            renew(workers, sequence, sequence)
            for each in workers:
                resume = each.hear("resume")
                assert (resume.path, resume.exchange) == (FALLBACK, sequence)
                assert f"no switch answers at {mortal.address}" in resume.reason
            assert not reachable(own)
            mortal.start()
            renew(workers, 4, 4)
            for each in workers:
                assert each.hear("resume").path == SWITCH


def test_a_switch_that_hangs_is_left_for_the_fallback_until_it_answers():
    with mortal_rack() as (mortal, own), at_work(own, fallback=True) as workers:
        mortal.process.send_signal(signal.SIGSTOP)
        workers[0].trouble()
        renew(workers, 1, 1)
        for each in workers:
            assert each.hear("resume").path == FALLBACK
        mortal.process.send_signal(signal.SIGCONT)
        renew(workers, 4, 4)
        for each in workers:
            assert each.hear("resume").path == SWITCH
        assert_sums(workers, 1)


def test_without_a_fallback_workers_wait_for_a_switch_that_has_died():
    with mortal_rack() as (mortal, own), at_work(own) as workers:
        mortal.kill()
        renew(workers, 0, 0)
        eventually(lambda: "no worker has a fallback" in own.show(workers[0].job).reason)
        mortal.start()
        for each in workers:
            assert each.hear("resume").path == SWITCH
        assert_sums(workers, 1)


def test_jobs_of_a_dead_switch_can_be_shown_deleted_and_created():
    with mortal_rack() as (mortal, own):
        with own.job(1) as job:
            mortal.kill()
            eventually(lambda: not reachable(own))
            assert own.show(job).counters == pb.Counters()
            assert not own.stub.GetSwitch(pb.GetSwitchRequest(name="tor")).port_counters
        with own.job(1) as job:
            mortal.start()
            with scripted(own, job, 0) as worker:
                worker.settle()
                assert_sums([worker], 1)


def test_nobody_notices_when_only_the_controllers_connection_breaks(monkeypatch):
    monkeypatch.setattr(p4runtime, "_RECONNECT_WITHIN", WITHIN)  # no live switch is to be lost
    with (
        mortal_switch(3) as switch,
        contextlib.closing(Forwarder(switch.address)) as forwarder,
        rack_of(switch, forwarder.address, policy=Policy(lease_s=LONG)) as own,
        at_work(own) as workers,
    ):
        for sequence in range(1, 4):
            forwarder.cut()
            assert_sums(workers, sequence)
            # A worker can join only over the controller's connection.
            with own.job(1) as job, scripted(own, job, 0, port=3) as other:
                other.settle()
        assert all(each.quiet() for each in workers)


@pytest.fixture
def intruder(switch: MortalSwitch) -> Iterator[Intruder]:
    with contextlib.closing(Intruder(switch.address)) as made:
        yield made


def test_what_somebody_else_changes_in_the_switch_is_mended(tor: Rack, intruder: Intruder):
    with at_work(tor) as workers:
        before = {table: intruder.read(table) for table in ("workers", "replicas", "service")}
        strange = NAMES.entry("bridge", {"destination": 77}, "forward", port=3)
        intruder.write(p4rt.Update.DELETE, before["workers"][0], *before["replicas"])
        intruder.write(p4rt.Update.INSERT, strange)

        def mended() -> bool:
            same = all(
                sorted(map(str, intruder.read(t))) == sorted(map(str, e)) for t, e in before.items()
            )
            return same and strange not in intruder.read("bridge")

        eventually(mended)
        assert_sums(workers, 1)
        assert all(each.quiet() for each in workers)


def test_a_switch_that_was_made_to_begin_anew_gets_a_new_term(tor: Rack, intruder: Intruder):
    with at_work(tor) as workers:
        intruder.run_afresh()
        renew(workers, 2, 2)
        for each in workers:
            assert each.hear("resume").exchange == 2
        assert_sums(workers, 1)
