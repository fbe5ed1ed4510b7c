"""Agents sum through a Tofino: the compiled program, executed, with the controller in charge."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from aggregation_rack import FIRST_SLOT, SLOT_PREFIX, TERM, number, station
from aggregation_rack import SERVICE as HERE
from chip_files import make
from commands import run, serving
from racks import WITHIN, means, random_vectors
from tofino_rack import free_cables, model_chip, tofino_rack, tofino_tree
from tofino_switch import TofinoSwitch
from trees import integers, sums
from waiting import until

from innet.controller.switches.names import Names, group
from innet.errors import LeftBehind, NoCapacity, WorkersMissing
from innet.host import membership
from innet.host.transport import Timeouts
from innet.p4 import tofino
from innet.p4.artifacts import Artifact
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc import innet_pb2 as pb
from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES, encapsulation
from innet.wire.layout import HEADER_BYTES, Flag, Kind, Operation
from innet.wire.records import blank, packet_bytes, packet_dtype, set_field

PORTS = {"tofino": (128, 132), "tofino2": (8, 12)}
RUNS = 5


@pytest.mark.parametrize("kind", PORTS)
def test_agents_sum_through_the_compiled_program(kind: str, tmp_path: Path):
    folder = make(tmp_path / "built", kind)
    with tofino_rack(folder, kind, PORTS[kind]) as (rack, chip), rack.job(2, slots=2) as job:
        with rack.join(job, 0) as one, rack.join(job, 1) as other:
            left, right = random_vectors(1, 2, 300)
            for got in means([one, other], left, right):
                np.testing.assert_allclose(got, (left + right) / 2, atol=1e-6)
            whole = np.arange(-150, 150, dtype=np.int32)
            futures = [agent.submit(whole, "sum") for agent in (one, other)]
            for future in futures:
                np.testing.assert_array_equal(future.result(WITHIN), 2 * whole)
            assert one.traffic.corrupted == other.traffic.corrupted == 0
            assert one.fallbacks == {}
            counted = rack.show(job).counters
            # More where a term began anew, because the model was slow.
            assert counted.waiting >= counted.completed >= one.traffic.chunks
        assert chip.errors == []


@pytest.mark.parametrize(
    "kinds", [("tofino", "tofino"), ("tofino2", "tofino2"), ("tofino2", "tofino")]
)
def test_two_racks_below_a_chip_sum_as_one(kinds: tuple[str, str], tmp_path: Path):
    for kind in {*kinds}:
        make(tmp_path / kind, kind)
    down = dict(zip(("left", "right"), PORTS[kinds[0]], strict=True))
    one, other = PORTS[kinds[1]]
    up, racks = other + 4, {"left": (one, other), "right": (one,)}
    with (
        tofino_tree(tmp_path, kinds, racks, up, down) as forest,
        forest.workers("top", ["left", "left", "right"], slots=2) as agents,
    ):
        vectors = integers(1, 3, 300)
        for result in sums(agents, vectors):
            np.testing.assert_array_equal(result, vectors.sum(axis=0))
        # A worker may have given up the term because the model was slow, just before its result came.
        until(lambda: forest.show().path == pb.PATH_SWITCH)
        tree = {each.switch: each.counters for each in forest.show().tree}
        assert tree["left"].raised > 0
        assert tree["right"].raised > 0
        assert tree["top"].raised == 0
        # More where a term began anew, because the model was slow.
        assert min(each.completed for each in tree.values()) >= agents[0].traffic.chunks
        for agent in agents:
            assert agent.traffic.corrupted == 0
            assert agent.fallbacks == {}
        for name in racks:
            assert [each.found for each in forest.switch(name).uplinks] == [""]


@pytest.mark.parametrize("kinds", [("tofino", "tofino"), ("tofino2", "tofino2")])
def test_racks_below_a_chip_make_a_quorum_without_the_last(kinds: tuple[str, str], tmp_path: Path):
    make(tmp_path / kinds[0], kinds[0])
    for left in reversed(range(RUNS)):
        try:
            make_a_quorum(kinds, tmp_path)
            break
        except (LeftBehind, WorkersMissing) as problem:
            # No other worker waits for one that gets no processor. Its error also ends the others' sums.
            if not left or LeftBehind.__name__ not in repr(problem):
                raise


def make_a_quorum(kinds: tuple[str, str], folder: Path) -> None:
    """Sum with all workers, and then without the last.

    Raises LeftBehind if one came too late, or WorkersMissing, which names that error.
    """
    first, second = PORTS[kinds[1]]
    up, racks = second + 4, {"left": (first,), "middle": (first,), "right": (first, second)}
    down = dict(zip(racks, range(first, first + 12, 4), strict=True))
    with (
        tofino_tree(folder, kinds, racks, up, down) as forest,
        forest.workers("top", ["left", "middle", "right", "right"], slots=2, quorum=2) as agents,
    ):
        same, one, five, hundred = (np.full(150, each, np.float32) for each in (3, 1, 5, 100))
        for future in [agent.submit(same) for agent in agents]:
            np.testing.assert_array_equal(future.result(WITHIN), 3)
        beside = agents[2].submit(hundred)  # the fourth worker sends nothing
        for future in [agents[0].submit(one), agents[1].submit(five), beside]:
            np.testing.assert_array_equal(future.result(WITHIN), 3)
        until(lambda: forest.show().path == pb.PATH_SWITCH)  # a new term may begin, as above
        for agent in agents:
            assert agent.fallbacks == {}


def test_who_expects_seals_takes_nothing_from_a_tofino(tmp_path: Path, monkeypatch):
    opened = membership.open_link

    def strict(*arguments, sealed):
        assert not sealed, "the controller has said so"
        return opened(*arguments, sealed=True)

    monkeypatch.setattr(membership, "open_link", strict)
    folder = make(tmp_path / "built")
    with (
        tofino_rack(folder, "tofino", PORTS["tofino"][:1]) as (rack, _),
        rack.job(1, slots=1) as job,
        contextlib.ExitStack() as stack,
    ):
        agent = rack.join(job, 0, timeouts=Timeouts(switch=WITHIN, workers=WITHIN))
        stack.callback(agent.close, abandon=True)
        future = agent.submit(np.ones(10, np.float32))
        deadline = time.monotonic() + WITHIN
        while not agent.traffic.corrupted and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                future.exception(0.1)
        assert agent.traffic.corrupted > 0
        assert agent.traffic.chunks == 0
        assert not future.done()


def test_the_commands_of_the_document_lead_to_a_sum(tmp_path: Path):
    folder = make(tmp_path / "built")
    with (
        model_chip("tofino", free_cables(PORTS["tofino"])) as (chip, address, links),
        serving() as (_, controller),
    ):
        to = {"INNET_CONTROLLER": controller}
        switch = (address, "--target", "tofino", "--artifact", str(folder), "--device-id", "1")
        switch += ("--ports", "128,132", "--service-ip", "10.0.0.254")
        assert f"{address} runs the program" in run("innet", "deploy", *switch).stdout
        program, entries = chip.config, dict(chip.held)
        added = run("innet", "switch", "add", "tor", *switch, **to)
        assert "8192 slots of 64 lanes, at 10.0.0.254" in added.stdout
        assert (chip.config is program, chip.held) == (True, entries)
        made = run(
            "innet", "job", "create", "first", *"--switch tor --workers 2 --slots 2".split(), **to
        )
        [token] = re.findall(r"INNET_TOKEN=(\S+)", made.stdout)
        words = (
            "import innet, numpy; print(innet.join().all_reduce(numpy.arange(4, dtype='float32')))"
        )
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", words],
                env={**os.environ, **to, "INNET_JOB": "first", "INNET_TOKEN": token,
                     "RANK": str(rank), "INNET_LINK": link},
                stdout=subprocess.PIPE, text=True,
            )
            for rank, link in enumerate(links)
        ]  # fmt: skip
        try:
            said = [worker.communicate(timeout=WITHIN)[0] for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
        assert said == ["[0. 1. 2. 3.]\n"] * 2
        shown = run("innet", "switch", "show", "tor", **to).stdout
        assert re.search(r"target\s+│ tofino", shown), shown
        assert chip.errors == []


def test_a_chip_sums_32_contributions_at_most(tmp_path: Path):
    folder = make(tmp_path / "built", "tofino")
    with tofino_rack(folder, "tofino", PORTS["tofino"]) as (rack, _):
        with rack.job(32, slots=1):
            pass
        with (
            pytest.raises(NoCapacity, match="sums 32 contributions at most"),
            rack.job(33, slots=1),
        ):
            pass


@pytest.mark.parametrize("kind", PORTS)
def test_a_clear_from_a_workers_port_changes_nothing(kind: str):
    switch = TofinoSwitch(kind)
    program = Artifact(64, 8192, b"", tofino.p4info(kind))
    for entity in two_workers(Names(program.p4info)):
        switch.insert(entity, program)
    assert switch.send(1, contribution(0)) == []
    clear = blank(1, 0, Kind.CLEAR, encapsulation(station(2), HERE, HEADER_BYTES))
    clear["slot"], clear["sequence"] = FIRST_SLOT, 1
    seal(clear, station(2).ip_number, station(2).udp_port)
    assert switch.send(2, clear.tobytes()) == []
    results = switch.send(2, contribution(1))
    assert [port for port, _ in results] == [1, 2], "the first contribution is forgotten"


def two_workers(names: Names) -> list[p4rt.Entity]:
    """Return the entries with which the stations at ports 1 and 2 sum as a job of two."""
    found = [
        group(7, [(1, 1), (2, 2)]),
        names.entry("service", {"address": HERE.ip_number}, "serve",
                    {"mac": number(HERE.mac_bytes)}),
    ]  # fmt: skip
    for rank in (0, 1):
        at = station(rank + 1)
        where = {"address": at.ip_number, "udp_port": at.udp_port}
        slots = {"job": 7, "term": TERM, "slot": (FIRST_SLOT, SLOT_PREFIX)}
        params = {"worker": 1 << rank, "quorum": 2, "group": 7, "job_index": 7}
        found += [
            names.entry("workers", {"port": rank + 1, **where, **slots}, "admit", params),
            names.entry("replicas", {"job": 7, "instance": rank + 1}, "address_to",
                        {"mac": number(at.mac_bytes), "bits": 1 << rank, **where}),
        ]  # fmt: skip
    return found


def contribution(rank: int) -> bytes:
    """Return a contribution of the station at port rank + 1."""
    source = station(rank + 1)
    packet = blank(1, 64, Kind.CONTRIBUTION, encapsulation(source, HERE, packet_bytes(64)))
    fields = {"job": 7, "term": TERM, "slot": FIRST_SLOT, "sequence": 1}
    fields["flags"] = Flag.CARRIED | Flag.WANTED
    for name, value in {**fields, "operation": Operation.SUM}.items():
        set_field(packet, name, value)
    seal(packet, source.ip_number, source.udp_port)
    assert packet.dtype == packet_dtype(64, ENCAPSULATION_BYTES)
    return packet.tobytes()
