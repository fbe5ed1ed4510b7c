"""Faults on links, at every position and at random: a result is always the exact sum.

``make soak`` is the long mode: ``INNET_SOAK_ELEMENTS`` elements in all, with progress on the
terminal.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from callers import submit
from faulty_job import FaultyJob, faulty_job, joined
from racks import WITHIN, Rack, rack

from innet.controller.state.registry import Policy
from innet.errors import LeftBehind, WorkersMissing
from innet.local.faults import (
    AGAIN_LATE,
    DOWN,
    HELD,
    LOST,
    OVERTAKEN,
    TWICE,
    UP,
    Copy,
    Damage,
    Fate,
    Faults,
    Flip,
    Overwrite,
    Resize,
    damaged,
    faulty,
)
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import HEADER_BYTES
from innet.wire.records import packet_dtype

if TYPE_CHECKING:
    from concurrent.futures import Future

SOAK = "INNET_SOAK_ELEMENTS" in os.environ
ELEMENTS = int(os.environ.get("INNET_SOAK_ELEMENTS", "200000"))
LANES = 64
LONG = 4 * 3600


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    # As many ports as are in use at once, and leases that last on a busy machine.
    with rack(5, LANES, policy=Policy(lease_s=WITHIN)) as running:
        yield running


# -- damage to a frame -------------------------------------------------------------------------

# The first bits of the fields in front of innet's header.
ENCAPSULATION = {
    "destination MAC": 0, "source MAC": 48, "EtherType": 96, "IP version": 112, "header length": 116,
    "total length": 128, "fragment": 162, "time to live": 176, "protocol": 184,
    "header checksum": 192, "source address": 208, "destination address": 240, "source port": 272,
    "destination port": 288, "UDP length": 304, "UDP checksum": 320,
}  # fmt: skip
FRAME = packet_dtype(LANES, ENCAPSULATION_BYTES)
OURS = {name: 8 * FRAME.fields[name][1] for name in FRAME.names[1:]}
LAST_BIT = 8 * FRAME.itemsize - 1
DAMAGES = {
    **{name: Flip((bit,)) for name, bit in ENCAPSULATION.items()},
    **{name: Flip((bit,)) for name, bit in OURS.items()},
    "operation": Flip((OURS["call"] + 6,)),
    "another contribution's slot": Flip((OURS["flags"] - 1,)),
    "another contribution's sequence": Flip((OURS["workers"] - 2,)),
    "a result": Flip((OURS["call"] + 2, OURS["call"] + 3)),
    "last bit": Flip((LAST_BIT,)),
    "two lanes": Flip((OURS["lanes"] + 31, OURS["lanes"] + 63)),
    "headers overwritten": Overwrite(0, bytes(ENCAPSULATION_BYTES)),
    "header overwritten": Overwrite(ENCAPSULATION_BYTES, bytes(HEADER_BYTES)),
    "lanes overwritten": Overwrite(ENCAPSULATION_BYTES + HEADER_BYTES, b"\xff" * 4 * LANES),
    "nothing left": Resize(0),
    "cut in front of the lanes": Resize(ENCAPSULATION_BYTES + HEADER_BYTES),
    "cut by a byte": Resize(FRAME.itemsize - 1),
    "longer by a byte": Resize(FRAME.itemsize + 1),
    "longer by as much again": Resize(2 * FRAME.itemsize),
}


# -- one fault at every place --------------------------------------------------------------------

WORKERS, SLOTS, USES = 2, 2, 3
SMALL = SLOTS * USES * LANES - 1

Place = tuple[int, int, int]
"""The position of a packet: cable, direction, and number there."""


@pytest.fixture(scope="module")
def pair(tor: Rack) -> Iterator[FaultyJob]:
    with faulty_job(tor, WORKERS, SLOTS, seed=1) as made:
        yield made


def places(pair: FaultyJob, kind: str = "small") -> list[Place]:
    """Return the positions of all packets of a small sum."""
    before = pair.agents[0].traffic.chunks
    pair.sum(SMALL, kind=kind)
    packets = pair.agents[0].traffic.chunks - before
    assert packets >= SLOTS * USES
    return list(product(range(WORKERS), (UP, DOWN), range(packets)))


def suffer(pair: FaultyJob, fates: Mapping[Place, Fate], kind: str = "small") -> None:
    """Sum while the packets at some positions meet these fates."""
    before = pair.wiring.total().scripted
    for way in {place[:2] for place in fates}:
        script = {number: fate for (*where, number), fate in fates.items() if (*where,) == way}
        pair.wiring.script(*way, script)
    pair.sum(SMALL, kind=kind)
    assert pair.wiring.total().scripted == before + len(fates)


@pytest.mark.parametrize("fate", [LOST, TWICE, OVERTAKEN], ids=["lost", "twice", "overtaken"])
def test_one_packet_lost_or_twice_or_overtaken_anywhere(pair: FaultyJob, fate: Fate):
    for place in places(pair):
        suffer(pair, {place: fate})


PORTIONED = ("scatter", "reduce", "gather", "broadcast")
"""The kinds in which packets may lack lanes."""


@pytest.mark.parametrize("kind", PORTIONED)
@pytest.mark.parametrize(
    "fate",
    [LOST, TWICE, OVERTAKEN, damaged(DAMAGES["cut in front of the lanes"])],
    ids=["lost", "twice", "overtaken", "cut in front of the lanes"],
)
def test_one_packet_of_a_collective_meets_a_fault_anywhere(pair: FaultyJob, fate: Fate, kind: str):
    for place in places(pair, kind):
        suffer(pair, {place: fate}, kind)


@pytest.mark.parametrize("kind", PORTIONED)
def test_one_packet_of_a_collective_comes_again_in_the_next(pair: FaultyJob, kind: str):
    for place in places(pair, kind):
        suffer(pair, {place: AGAIN_LATE}, kind)
        pair.wiring.release()
        pair.sum(SMALL, kind=kind)


@pytest.mark.parametrize("fate", [HELD, AGAIN_LATE], ids=["only late", "again, late"])
@pytest.mark.parametrize("sums_before_it_comes", [0, 1])
def test_one_packet_anywhere_comes_late(pair: FaultyJob, fate: Fate, sums_before_it_comes: int):
    for place in places(pair):
        suffer(pair, {place: fate})
        for _ in range(sums_before_it_comes):
            pair.sum(SMALL)
        pair.wiring.release()
        pair.sum(SMALL)


def test_a_second_copy_of_any_packet_comes_any_number_of_packets_later(pair: FaultyJob):
    found = places(pair)
    packets = 1 + max(number for *_, number in found)
    for place, later in product(found, range(1, 2 * packets)):
        suffer(pair, {place: (Copy(), Copy(later))})
    pair.wiring.release()


@pytest.mark.parametrize("fates", [*product([LOST, (Copy(), Copy(3))], repeat=2)])
def test_two_packets_anywhere_are_lost_or_come_again(pair: FaultyJob, fates: tuple[Fate, Fate]):
    for two in [*combinations(places(pair), 2)][:: 1 if SOAK else 5]:
        suffer(pair, dict(zip(two, fates, strict=True)))
    pair.wiring.release()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_one_packet_anywhere_is_damaged(pair: FaultyJob, damage: Damage):
    for place in places(pair):
        suffer(pair, {place: damaged(damage)})


@pytest.mark.parametrize("fate", [HELD, AGAIN_LATE], ids=["only late", "again, late"])
def test_packets_of_one_generation_of_workers_come_in_the_next(tor: Rack, fate: Fate):
    with (
        tor.cables(WORKERS) as links,
        faulty(links, seed=2) as wiring,
        tor.job(WORKERS, SLOTS) as name,
    ):
        for generation in range(3):
            with joined(tor, name, wiring) as agents:
                pair = FaultyJob(name, agents, wiring, generation)
                wiring.release()  # packets of the previous use, in the middle of this one
                for place in places(pair):
                    suffer(pair, {place: fate})


def test_packets_of_one_term_come_in_the_next(tor: Rack):
    with faulty_job(tor, WORKERS, SLOTS, seed=3) as job:
        for _ in range(3):
            packets = 1 + max(number for *_, number in places(job))
            suffer(job, dict.fromkeys(places(job), AGAIN_LATE))
            # Nothing passes until the silence leads to a new term.
            job.wiring.chance(Faults(drop=1.0))
            before, running = job.agents[0].term, job.submit(SMALL)
            while job.agents[0].term is before:
                job.wiring.total()
            assert job.wiring.total().held >= 2 * WORKERS * packets
            job.wiring.chance(Faults())
            job.wiring.release()
            running.check()
            job.sum(SMALL)


# -- faults by chance ----------------------------------------------------------------------------

RATES = {0.001: 18, 0.01: 9, 0.05: 2, 0.2: 1}
"""The rate of a fault, and the weight of its elements; lost packets take time, so high rates get few."""

KINDS = {name: (name,) for name in Faults().__dict__} | {"all": tuple(Faults().__dict__)}
PIECE = 300_000
"""Elements of the longest vector."""


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("kind", KINDS)
def test_faults_at_random_change_nothing(tor: Rack, kind: str):
    seed = list(KINDS).index(kind)
    with faulty_job(tor, 3, 64, seed) as job:
        for rate, share in RATES.items():
            job.wiring.chance(Faults(**dict.fromkeys(KINDS[kind], rate)))
            elements = ELEMENTS * share // sum(RATES.values()) // len(KINDS)
            sum_up(job, elements, f"{kind} {rate:.1%}, seed {seed}")


def sum_up(job: FaultyJob, elements: int, what: str) -> None:
    """Sum so many elements, in vectors of all sizes and kinds, two at a time."""
    started, done = time.monotonic(), 0
    while done < elements:
        sizes = job.chance.integers(1, min(PIECE, elements - done), 2, endpoint=True).tolist()
        job.sum(*sizes, kind=job.chance.choice(["small", "large", "long", *PORTIONED]))
        done += sum(sizes)
        say(f"{what}: {done:,} of {elements:,} elements in {time.monotonic() - started:.0f} s")
    say(f"{what}: {job.wiring.total()}")


# -- fewer contributions than workers ------------------------------------------------------------

BITS = 9
"""The bits of every worker's integers; each worker has its own bits of the sum, so they show its part."""


def test_with_a_quorum_a_sum_is_of_whole_contributions_or_there_is_an_error(tor: Rack):
    found = 0
    for rate, seed in product((0.0, 0.01, 0.05), range(3)):
        with faulty_job(tor, 3, 8, seed, Faults.all(rate), quorum=2) as job:
            for _ in range(5):
                integers = job.chance.integers(1, 1 << BITS, (40, LANES), np.int32)
                results = reduced(
                    [submit(agent, integers << BITS * rank, op="sum")
                     for rank, agent in enumerate(job.agents)]
                )  # fmt: skip
                found += len(results)
                assert len({result.tobytes() for result in results}) <= 1
                for result in results:
                    parts = np.stack([result >> BITS * rank & (1 << BITS) - 1 for rank in range(3)])
                    inside = parts.any(axis=2, keepdims=True)
                    assert (inside.sum(axis=0) >= 2).all(), f"rate {rate}, seed {seed}"
                    assert (parts == integers * inside).all(), f"rate {rate}, seed {seed}"
    assert found


def reduced(running: "list[Future[np.ndarray]]") -> list[np.ndarray]:
    """Return the results of the workers, without those left behind or with too many workers missing."""
    errors = [future.exception(WITHIN) for future in running]
    assert {type(error) for error in errors} <= {type(None), LeftBehind, WorkersMissing}
    return [future.result() for future, error in zip(running, errors, strict=True) if not error]


def say(line: str) -> None:
    """Print progress, which pytest shows for a failed test, and with ``-s`` always."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
