"""innet-switch on two cores: the same results as on one."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import differential
import numpy as np
import pytest
from faulty_job import faulty_job
from mortal import MortalSwitch, rack_of
from racks import Rack
from waiting import WITHIN

from innet.controller.state.registry import Policy
from innet.local.faults import Faults
from innet.p4.artifacts import artifact
from innet.switch.engine import Engine
from innet.switch.engine.counts import Count, TableCounts
from innet.switch.layout import byte_order

WORKERS, SIZE = 3, 40_000


@pytest.mark.parametrize("name", ["innet-64", "mix_wide", "path_clone_egress"])
def test_recorded_packets_are_treated_as_bmv2_treated_them(name):
    assert differential.replay(name, cores=2, most=1) == []


@contextlib.contextmanager
def rack_of_two_cores(folder: Path | None) -> Iterator[Rack]:
    """Start a switch on two cores, with cables in shared memory if there is a folder for them."""
    switch = MortalSwitch(WORKERS + 1, "--cores", "2", folder=folder)
    try:
        with rack_of(switch, policy=Policy(lease_s=WITHIN)) as rack:
            yield rack
    finally:
        switch.stop()


@pytest.mark.parametrize("shared", [True, False], ids=["shared memory", "UDP"])
def test_sums_are_exact(tmp_path, shared):
    given = np.random.default_rng(1).integers(-1000, 1000, (WORKERS, SIZE), np.int32)
    with (
        rack_of_two_cores(tmp_path if shared else None) as rack,
        rack.job(WORKERS) as job,
        contextlib.ExitStack() as stack,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        agents = [stack.enter_context(rack.join(job, rank)) for rank in range(WORKERS)]
        for times in (1, 2, 3):
            sums = pool.map(lambda a, v: a.all_reduce(v, "sum"), agents, times * given)
            for each in sums:
                np.testing.assert_array_equal(each, times * given.sum(0))


def test_faults_in_a_cable_change_no_sum(tmp_path):
    with (
        rack_of_two_cores(tmp_path) as rack,
        faulty_job(rack, WORKERS, 64, seed=5, faults=Faults.all(0.01)) as job,
    ):
        job.sum(SIZE // 4)


# -- the control plane's view --------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with contextlib.closing(Engine(artifact(64).json, cores=2)) as running:
        assert running.cores == 2
        yield running


def named(parts, end: str) -> str:
    return next(each.name for each in parts if each.name.endswith(end))


def test_a_register_is_read_from_the_cores_that_own_its_cells(engine):
    name = named(engine.program.registers, ".sequence")
    cells = engine.arrays.raw_register(name, 0, 1000)
    size = len(cells) // 1000
    cells[:] = b"".join(each.to_bytes(size, byte_order(size)) for each in range(1000))
    engine.arrays.set_raw_register(name, 0, cells)
    assert engine.arrays.register(name, 0, 1000) == [*range(1000)]


def test_a_count_is_the_sum_of_all_cores(engine):
    table = named(engine.program.tables, "service")
    for core, times in ((0, 3), (1, 4)):
        engine.exercise(1, bytes(60), times, core)
    assert engine.entries.table_counts(table) == TableCounts(0, 7)


def test_a_count_that_is_set_is_set_once(engine):
    name = named(engine.program.counters, "outcomes")
    engine.arrays.fill_counter(name, 7, 1, Count(30, 4000))
    assert [each.value() for each in engine.arrays.counts(name, 7, 1)] == [Count(30, 4000)]


def test_entries_are_the_same_on_all_cores(engine):
    table = named(engine.program.tables, "bridge")
    action = engine.entries.table(table).actions[0]
    added = [engine.entries.insert(table, [n], [(1 << 48) - 1], 1, action, [1]) for n in range(9)]
    assert added == [*range(9)]
    for core in (0, 1):
        engine.exercise(1, bytes(60), 1, core)
    assert engine.entries.table_counts(table).hits == 2


@pytest.mark.parametrize(("name", "cores"), [("tally", 1), ("router", 2)])
def test_a_program_gets_as_many_cores_as_its_state_allows(name, cores):
    with contextlib.closing(Engine(differential.load(name).json, cores=2)) as running:
        assert running.cores == cores
