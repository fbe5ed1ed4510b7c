"""Forged packets and messages change nothing, and are counted.

The stranger knows addresses, job, term, slots and sequence numbers, and computes correct checks.
The stranger lacks the worker's port, and the secrets that gRPC protects.
"""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from faulty_job import FaultyJob, faulty_job
from racks import Rack, rack
from scapy.layers.l2 import ARP, Ether
from switches import ANSWERS_WITHIN, receive

from innet.host.link import frame_address, parse_endpoints
from innet.local.faults import DOWN, UP
from innet.rpc import innet_pb2 as pb
from innet.wire.check import seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import WITH_LANES, Flag, Kind, Operation
from innet.wire.records import blank, packet_bytes, set_field

LANES, SLOTS, WORKERS = 64, 4, 2
SEQUENCES = 40
FORGED = SLOTS * SEQUENCES
"""Packets of one kind: all uses of all slots, past, in flight and future."""

STRANGER = Address("02:00:00:00:00:77", "10.7.7.7", 7777)
COUNTERS = ("refused", "corrupted", "spoofed")


class Scene:
    """A job at work, and a stranger at a port of the same switch."""

    def __init__(self, tor: Rack, job: FaultyJob, stranger: socket.socket) -> None:
        self.tor, self.job, self.stranger = tor, job, stranger
        members = tor.show(job.name).members
        self.first_port = next(each.port for each in members if each.rank == 0)
        [self.port] = {*range(1, WORKERS + 2)} - {each.port for each in members}
        self.workers = [frame_address(parse_endpoints(link)[0]) for link in job.wiring.links]
        known = self._switch().service
        self.service = Address(known.mac, known.ip, known.udp_port)
        self._before = self._counters()

    def packets(
        self, source: Address, target: Address, sealed_for: Address | None = None, **fields: Any
    ) -> list[bytes]:
        """Return forged packets: sums of the job, except for `fields`."""
        shown = self.tor.show(self.job.name)
        lanes = LANES if fields.get("kind", Kind.CONTRIBUTION) in WITH_LANES else 0
        prefix = encapsulation(source, target, packet_bytes(lanes))
        made = blank(FORGED, lanes, Kind.CONTRIBUTION, prefix)
        uses, slots = np.divmod(np.arange(FORGED), SLOTS)
        made["slot"], made["sequence"] = shown.first_slot + slots, 1 + uses
        made["job"], made["term"] = shown.id, shown.term
        if lanes:
            set_field(made, "operation", Operation.SUM)
            made["lanes"] = 1
            made["flags"] = Flag.CARRIED | Flag.WANTED
        for name, value in fields.items():
            set_field(made, name, value)
        sealer = sealed_for or source
        seal(made, int.from_bytes(sealer.ip_bytes, "big"), sealer.udp_port)
        return [packet.tobytes() for packet in made]

    def send(self, frames: list[bytes], worker: int | None = None) -> None:
        """Send from the stranger's port, or from a worker's, in the middle of a sum. The sum has to
        be right.
        """
        running = self.job.submit(3 * SLOTS * LANES)
        if worker is None:
            for frame in frames:
                self.stranger.send(frame)
            self.settle()
        else:
            self.job.wiring.inject(worker, UP, frames)
        running.check()
        self.job.sum(3 * SLOTS * LANES)

    def settle(self) -> None:
        """Wait until the switch has processed all of the stranger's packets."""
        asking = {"hwsrc": STRANGER.mac, "psrc": STRANGER.ip}
        question = ARP(op="who-has", pdst=self.service.ip, **asking)
        self.stranger.send(bytes(Ether(src=STRANGER.mac, dst="ff:ff:ff:ff:ff:ff") / question))
        while ARP not in Ether(receive(self.stranger)):
            pass

    def counted(self) -> dict[int, dict[str, int]]:
        """Return the switch's counts above zero since the beginning, by port."""
        now, grown = self._counters(), {}
        for port, name in now:
            if more := now[port, name] - self._before[port, name]:
                grown.setdefault(port, {})[name] = more
        return grown

    def _counters(self) -> dict[tuple[int, str], int]:
        counters = self._switch().port_counters
        return {(each.port, name): getattr(each, name) for each in counters for name in COUNTERS}

    def _switch(self) -> pb.Switch:
        switch: pb.Switch = self.tor.stub.GetSwitch(pb.GetSwitchRequest(name="tor"))
        return switch


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(WORKERS + 1, LANES) as running:
        yield running


@pytest.fixture
def scene(tor: Rack) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        [link] = stack.enter_context(tor.cables(1))
        near, far = parse_endpoints(link)
        stranger = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        stranger.bind(near)
        stranger.connect(far)
        stranger.settimeout(ANSWERS_WITHIN)
        job = stack.enter_context(faulty_job(tor, WORKERS, SLOTS, seed=1))
        job.sum(3 * SLOTS * LANES)
        yield Scene(tor, job, stranger)


def test_a_stranger_cannot_contribute_whoever_he_says_he_is(scene: Scene):
    for source in (STRANGER, *scene.workers):
        scene.send(scene.packets(source, scene.service))
    assert scene.counted() == {scene.port: {"refused": 3 * FORGED}}


def test_a_worker_cannot_contribute_for_another(scene: Scene):
    scene.send(scene.packets(scene.workers[1], scene.service), worker=0)
    scene.send(scene.packets(STRANGER, scene.service), worker=0)
    assert scene.counted() == {scene.first_port: {"refused": 2 * FORGED}}


@pytest.mark.parametrize("field", ["job", "term", "slot"])
def test_a_worker_cannot_contribute_to_what_is_not_its_own(scene: Scene, field: str):
    shown = scene.tor.show(scene.job.name)
    others = {"job": shown.id + 1, "term": shown.term ^ 1, "slot": shown.first_slot ^ SLOTS}
    changed = {field: others[field]}
    scene.send(scene.packets(scene.workers[0], scene.service, **changed), worker=0)
    assert scene.counted() == {scene.first_port: {"refused": FORGED}}


@pytest.mark.parametrize("kind", [Kind.RESULT, Kind.PENDING, Kind.CLEAR, Kind.STALE])
def test_a_worker_cannot_say_what_only_the_switch_or_the_controller_may(scene: Scene, kind: Kind):
    scene.send(scene.packets(scene.workers[0], scene.service, kind=kind), worker=0)
    assert scene.counted() == {scene.first_port: {"refused": FORGED}}


def test_what_a_check_does_not_fit_is_counted_and_no_more(scene: Scene):
    worker, other = scene.workers
    scene.send(scene.packets(worker, scene.service, sealed_for=other), worker=0)
    assert scene.counted() == {scene.first_port: {"corrupted": FORGED}}


@pytest.mark.parametrize("kind", [Kind.RESULT, Kind.PENDING, Kind.STALE])
def test_nobody_speaks_to_a_worker_in_the_switchs_name(scene: Scene, kind: Kind):
    answers = scene.packets(scene.service, scene.workers[0], kind=kind, workers=0b11, count=WORKERS)
    scene.send(answers)
    assert not set(answers) & set(scene.job.wiring.recent(0, DOWN))
    assert scene.counted() == {scene.port: {"spoofed": FORGED}}


def test_nobody_claims_the_switchs_address(scene: Scene):
    claim = ARP(op="is-at", hwsrc=STRANGER.mac, psrc=scene.service.ip, pdst=scene.workers[0].ip)
    frame = bytes(Ether(src=STRANGER.mac, dst=scene.workers[0].mac) / claim)
    scene.send([frame])
    assert frame not in scene.job.wiring.recent(0, DOWN)
    assert scene.counted() == {scene.port: {"spoofed": 1}}


@pytest.mark.parametrize("kind", [Kind.RESULT, Kind.PENDING, Kind.STALE])
@pytest.mark.parametrize("flags", [0, Flag.OVERFLOW])
def test_a_worker_does_not_listen_to_a_stranger(scene: Scene, kind: Kind, flags: int):
    """The stranger's packets reach the worker over the bridge."""
    said = {"kind": kind, "workers": 0b11, "count": WORKERS, "flags": flags}
    source = Address(STRANGER.mac, STRANGER.ip, scene.service.udp_port)
    for sealed_for in (source, scene.service):
        before = scene.job.wiring.counts(0, DOWN).packets
        scene.send(scene.packets(source, scene.workers[0], sealed_for, **said))
        assert scene.job.wiring.counts(0, DOWN).packets - before >= FORGED
    assert scene.counted() == {}


def test_hellos_with_guessed_nonces_move_nobody(scene: Scene):
    def attachments() -> list[Any]:
        shown = scene.tor.show(scene.job.name)
        where = [(each.rank, each.port, each.address) for each in shown.members]
        return [shown.term, shown.path, sorted(shown.joined), where]

    before = attachments()
    for source in (STRANGER, *scene.workers):
        scene.send(scene.packets(source, scene.service, kind=Kind.HELLO))
    assert attachments() == before
    assert len(before[-1]) == WORKERS
    assert scene.counted() == {}
