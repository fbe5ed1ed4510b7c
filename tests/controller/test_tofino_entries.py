"""The entries, clears and counters of jobs on a Tofino, and the workers that it refuses."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from assignments import alone
from chip_files import make_for_both
from chip_server import Chip, Invalid, number, require, serving

from innet.controller.jobs.records import (
    Assignment,
    Attachment,
    Contributor,
    Share,
    SlotRange,
    SwitchRecord,
    Uplink,
)
from innet.controller.switches.aggregation import AggregationSwitch
from innet.controller.switches.entries import OUTCOMES
from innet.controller.switches.names import Names
from innet.controller.switches.targets.choice import find
from innet.errors import SwitchError
from innet.p4 import tofino
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.wire.frames import Address

SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_for_both(tmp_path / "built")


def worker(port: int, rank: int) -> Attachment:
    return Attachment(port, Address(f"02:00:00:00:01:{rank:02x}", f"10.0.1.{rank}", 4000 + rank))


@contextlib.contextmanager
def driven(folder: Path, server: Chip, chip: str = "tofino", ports: tuple[int, ...] = (128, 132)):
    with serving(server) as address:
        record = SwitchRecord("tor", address, 1, ports, SERVICE, 64, (), chip, str(folder))
        program = find(chip).program(64, str(folder))
        with contextlib.closing(AggregationSwitch(record, program, lambda *_: None)) as switch:
            assert not switch.start()
            yield switch
        assert server.errors == []


def test_jobs_come_and_go_on_a_tofino_with_valid_requests_only(folder: Path):
    server = Chip()
    with driven(folder, server) as switch:
        jobs = [
            alone(
                n,
                SlotRange(n, 64 * n, 64),
                7,
                2,
                {0: worker(128, 2 * n), 1: worker(132, 2 * n + 1)},
            )
            for n in range(1, 5)
        ]
        assert switch.hold(jobs) == {}
        assert len(server.held) == 3 + 4 * (1 + 2 + 2 + 2)  # group, workers, replicas, stations
        assert switch.inspect() == ([], False)
        assert switch.hold(jobs[:1]) == {}
        assert switch.hold([]) == {}
        assert len(server.held) == 3
        assert switch.start()


def test_cells_that_a_job_has_used_are_cleared_in_bursts_that_stratum_can_answer(folder: Path):
    waiting, most, cells = 0, 0, 0
    used, slots = SlotRange(0, 0, 128), SlotRange(0, 0, 256)

    def forward(packet: p4rt.PacketOut) -> list[p4rt.PacketIn]:
        nonlocal waiting, most, cells
        waiting += 1
        cells += 1
        most = max(most, waiting)
        made = p4rt.PacketIn(payload=packet.payload)
        made.metadata.add(metadata_id=1, value=b"\xc0")
        made.metadata.add(metadata_id=2, value=b"\0")
        return [made]

    with driven(folder, Chip(forward)) as switch:
        assert [*switch.clear(slots)] == []  # the program has just been loaded
        assert switch.hold([alone(1, used, 7, 1, {0: worker(132, 1)})]) == {}
        assert switch.hold([]) == {}
        for _ in switch.clear(slots):
            assert waiting <= 128
            waiting = 0
    assert most == 128
    assert cells == 2 * used.slots


def test_a_jobs_counters_are_cells_of_one_counter(folder: Path):
    server = Chip()
    with driven(folder, server) as switch:
        names, slot_range = Names(tofino.p4info("tofino")), SlotRange(3, 0, 64)
        counter = names.counter("outcomes", 0).counter_entry.counter_id
        for outcome in range(16):
            server.counters[counter, outcome * 256 + 3] = 100 + outcome
        counted = switch.counters(slot_range)
        assert [*counted] == [*OUTCOMES]
        assert [*counted.values()] == [101, 102, 103, 104, 105, 108, 109, 110]
        switch.reset_counters(slot_range)
        assert set(switch.counters(slot_range).values()) == {0}
        assert server.counters[counter, 7 * 256 + 3] == 107
        assert switch.port_counters() == {
            port: {"refused": 0, "corrupted": 0, "spoofed": 0} for port in (128, 132)
        }


@pytest.mark.parametrize(
    ("chip", "good", "bad", "ports"),
    [("tofino", 132, 4, "128 to 191"), ("tofino2", 12, 132, "1 to 127")],
)
def test_workers_in_a_pipe_that_no_clear_reaches_are_refused(chip, good, bad, ports, folder: Path):
    make_others = alone(1, SlotRange(1, 0, 64), 7, 2, {0: worker(good, 1), 1: worker(bad, 2)})
    fine = alone(2, SlotRange(2, 64, 64), 7, 1, {0: worker(good, 3)})
    server = Chip()
    with driven(folder, server, chip, (good, bad)) as switch:
        refused = switch.hold([make_others, fine])
        assert [*refused] == [1]
        assert f"worker 1 is at port {bad}, in pipe {bad >> 7}" in refused[1]
        assert refused[1].endswith(f"attach it to one of the ports {ports}")
        assert len(server.held) == 3 + 4  # the other job's entries
        refused = switch.hold([replace(make_others, group_ranks=(5, 9)), fine])
        assert f"worker 9 is at port {bad}" in refused[1]


def test_so_are_switches_above_and_below(folder: Path):
    below, above = Contributor(1, frozenset({0, 1}), 33 + 4, worker(4, 1)), Uplink("top", 8, 1)
    near = Contributor(1, frozenset({0, 1}), 33 + 132, worker(132, 1))
    server = Chip()
    with driven(folder, server, ports=(132, 4, 8)) as switch:
        for share, said in (
            (Share(64, 64, (near, below), None, 2), "a switch below is at port 4, in pipe 0"),
            (Share(64, 64, (near,), above, 2), "the parent 'top' is at port 8, in pipe 0"),
        ):
            wanted = Assignment(1, SlotRange(1, 64, 64), 7, shares=(share,))
            assert said in switch.hold([wanted])[1]
            assert len(server.held) == 3
        there = Share(64, 64, (near,), Uplink("top", 128, 1), 2)
        assert switch.hold([Assignment(1, SlotRange(1, 64, 64), 7, shares=(there,))]) == {}
        assert len(server.held) == 3 + 4  # group, worker, replica, tree


def test_the_server_of_these_tests_refuses_what_the_program_does_not_take(folder: Path):
    server = Chip()
    with driven(folder, server) as switch:
        names = Names(tofino.p4info("tofino"))
        connection = switch._connection
        match = {"address": 5}
        good = names.entry("service", match, "serve", {"mac": 1})
        for spoil, why in (
            (lambda e: e.table_entry.match[0].exact.__setattr__("value", b"\0\5"), "shortest"),
            (lambda e: e.table_entry.match[0].exact.__setattr__("value", b"\1" * 5), "32 bits"),
            (lambda e: e.table_entry.__setattr__("table_id", 7), "no such id: 7"),
            (lambda e: e.table_entry.action.action.__setattr__("action_id", 7), "no action 7"),
            (lambda e: e.table_entry.__setattr__("priority", 7), "no priority"),
            (lambda e: e.table_entry.action.action.params.pop(), "serve"),
        ):
            entity = p4rt.Entity()
            entity.CopyFrom(good)
            spoil(entity)
            with pytest.raises(SwitchError, match=why):
                connection.insert(entity)
        assert len(server.errors) == 6
        server.errors.clear()
        connection.insert(good)
        with pytest.raises(SwitchError, match="is it there"):
            connection.insert(good)
        server.errors.clear()
    with pytest.raises(Invalid):
        require(number(b"\1") == 2, "not")
