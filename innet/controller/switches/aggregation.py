"""A switch that runs the aggregation program, driven over P4Runtime.

:mod:`innet.controller.switches.entries` makes its table entries. This module loads the program, exchanges
packets with the switch and reads counters.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import structlog

from innet.controller.defaults import uplink_address
from innet.controller.jobs.records import Assignment, Attachment, SlotRange, SwitchRecord, Uplink
from innet.controller.switches import entries
from innet.controller.switches.clearing import CellClearing
from innet.controller.switches.names import all_groups
from innet.controller.switches.p4runtime import SwitchConnection
from innet.controller.switches.reconcile import Difference, Held, by_key, difference, key
from innet.controller.switches.targets.choice import find
from innet.controller.switches.targets.interface import Program
from innet.controller.switches.transcript import OnRequest
from innet.errors import SwitchError, UsageError
from innet.rpc import tls
from innet.wire.check import intact, seal
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation, mac_text
from innet.wire.layout import HEADER_BYTES, VERSION, Kind
from innet.wire.records import blank, get_field, packet_dtype

_log = structlog.get_logger("innet.controller")

_DAMAGED = "corrupted"
PORT_COUNTERS = ("refused", _DAMAGED, "spoofed")
"""The counters of a port: one for each reason to drop a packet that came in there."""

_FRAME = packet_dtype(0, ENCAPSULATION_BYTES)
_FRAME_BYTES = _FRAME.itemsize


class AggregationSwitch:
    """A connection to a switch that runs the aggregation program, from :meth:`start` on.

    `hello` is called with a nonce and an attachment when a worker's hello packet comes in. `present`
    returns the record with the ports and uplinks that the switch has at present. `silent` returns the
    ports that must not be flooded. The other arguments are as for :class:`SwitchConnection`. Methods
    raise SwitchError. Only one thread may call those that write.
    """

    def __init__(
        self,
        record: SwitchRecord,
        program: Program,
        hello: Callable[[int, Attachment], None],
        identity: tls.Identity | None = None,
        *,
        ended: Callable[[], None] = lambda: None,
        election: tuple[int, int] | None = None,
        patient: bool = True,
        present: Callable[[], SwitchRecord] | None = None,
        silent: Callable[[], frozenset[int]] = frozenset,
        on_request: OnRequest | None = None,
    ) -> None:
        self.service, self._program, self._hello = record.service, program, hello
        self._record, self._silent = record, silent
        self._target = find(record.target)
        self._present = present or (lambda: record)
        self._held: Held = {}
        self._entities: dict[int, _Entities] = {}
        self._clearing = CellClearing(
            record.service, self._target.clears_at_once, self._send, lambda: self.broken
        )
        self._ended = ended
        self._connection = SwitchConnection(
            record.grpc_address,
            record.device_id,
            program.p4info,
            self._packet_in,
            identity,
            ended=self._connection_ended,
            election=election,
            patient=patient,
            on_request=on_request,
        )
        self._own = self._own_entities()
        self._forwarding = entries.Forwarding(self._connection.names)

    @property
    def held(self) -> Held:
        """Return the entities in the switch, as far as this connection knows."""
        return self._held

    @property
    def broken(self) -> str | None:
        """Return the reason why the connection is unusable, or None."""
        return self._connection.broken

    def start(self) -> bool:
        """Make the switch run the program. Return True if it already did, with our own entries."""
        cookie = _cookie(self._program)
        runs = self._connection.cookie() == cookie
        if not runs:
            self._connection.run(self._program.device_config, cookie)
        self._held = self._read()
        return runs and not self._own.keys().isdisjoint(self._held)

    def check_ports(self, ports: Iterable[int] | None = None) -> None:
        """Raise UsageError if the switch reports that it lacks some of these ports.

        By default they are the ports that the switch should have at present.
        """
        there = self._connection.ports()
        if there and (missing := sorted({*(ports or self._present().ports)} - there)):
            raise UsageError(
                f"the switch at {self._record.grpc_address} has no port {_numbers(missing)}: it has "
                f"{_numbers(sorted(there))}"
            )

    def close(self) -> None:
        """Disconnect from the switch, which keeps running."""
        self._connection.close()

    def hold(self, jobs: Sequence[Assignment]) -> dict[int, str]:
        """Make the switch hold its own entries and those of these jobs, and nothing else.

        Returns, by job, why the switch refused a job's entries.
        """
        try:
            return self._hold(jobs)
        except SwitchError:
            self._recollect()  # another client may have written as well
            return self._hold(jobs)

    def expect(self, held: Held) -> None:
        """Assume that the switch holds what an earlier connection wrote, until it is inspected."""
        self._held = held

    def inspect(self) -> tuple[list[str], bool]:
        """Compare the switch's entries with those that were written, and describe the differences.

        Returns as well whether the controller's own entries are all gone. In that case the switch
        has been restarted.
        """
        found, describe = self._read(), self._connection.names.describe
        drift = difference(self._held, found)
        missing = [f"{describe(each)} is missing" for each in drift.delete]
        changed = [f"{describe(each)} was changed" for each in drift.modify]
        strange = [f"{describe(each)} is not the controller's" for each in drift.insert]
        if drift:
            self._held = found
        return missing + changed + strange, self._own.keys().isdisjoint(found)

    def counters(self, slot_range: SlotRange) -> dict[str, int]:
        """Return a job's counts by outcome."""
        cells = entries.job_counters(self._connection.names, slot_range.index)
        return dict(zip(cells, self._connection.count(*cells.values()), strict=True))

    def port_counters(self) -> dict[int, dict[str, int]]:
        """Return the number of packets dropped at each port, by counter."""
        names, ports = self._connection.names, self._present().ports
        cells = [names.counter(each, port) for port in ports for each in PORT_COUNTERS]
        counts = iter(self._connection.count(*cells))
        return {port: {each: next(counts) for each in PORT_COUNTERS} for port in ports}

    def damaged(self) -> dict[int, int]:
        """Return the number of damaged packets that have come in at each port."""
        names, ports = self._connection.names, self._present().ports
        cells = [names.counter(_DAMAGED, port) for port in ports]
        return dict(zip(ports, self._connection.count(*cells), strict=True))

    def ports_down(self) -> frozenset[int]:
        """Return the ports that are down, as far as the switch reports it."""
        return self._connection.ports_down()

    def reset_counters(self, slot_range: SlotRange) -> None:
        """Set a job's counters to zero."""
        cells = entries.job_counters(self._connection.names, slot_range.index).values()
        for cell in cells:
            cell.counter_entry.data.packet_count = 0
        self._connection.modify(*cells)

    def clear(self, slot_range: SlotRange) -> Iterator[None]:
        """Clear all of a job's cells, some in every step."""
        return self._clearing.clear(slot_range)

    def probe(self, link: Uplink, nonce: int) -> None:
        """Send a hello out of an uplink. It comes in where the link ends."""
        source = uplink_address(link.parent_port)
        packet = blank(1, 0, Kind.HELLO, encapsulation(source, self.service, HEADER_BYTES))
        packet["sequence"] = nonce
        seal(packet, source.ip_number, source.udp_port)
        self._send([packet.tobytes()], egress_port=link.port)

    def _send(self, packets: list[bytes], **metadata: int) -> None:
        names = self._connection.names
        self._connection.send([names.packet_out(each, **metadata) for each in packets])

    def _packet_in(self, metadata: dict[str, int], frame: bytes) -> None:
        if len(frame) < _FRAME_BYTES:
            return
        packets, source = np.frombuffer(frame[:_FRAME_BYTES], _FRAME), _source(frame)
        [packet] = packets
        fits = intact(packets, int.from_bytes(source.ip_bytes), source.udp_port)
        if packet["version"] != VERSION or not fits[0]:
            return
        [kind] = get_field(packets, "kind")
        if kind == Kind.CLEAR:
            cell = int(packet["slot"]), int(packet["sequence"])
            self._clearing.acknowledge(int(packet["workers"]), cell)
        elif kind == Kind.HELLO:
            where = Attachment(metadata["ingress_port"], source, self._record.name)
            self._hello(int(packet["sequence"]), where)

    def _connection_ended(self) -> None:
        self._clearing.wake()
        self._ended()

    def _read(self) -> Held:
        names = self._connection.names
        tables = [names.whole(table) for table in self._target.tables]
        return by_key(self._connection.read(*tables, all_groups()))

    def _recollect(self) -> None:
        """Read the switch's entries again after a refusal, if the connection still works."""
        if self.broken:
            raise SwitchError(self.broken)
        self._held = self._read()

    def _own_entities(self) -> Held:
        """Return the switch's own entities. Links that close a loop are left out of the flood group."""
        names, silent, record = self._connection.names, self._silent(), self._present()
        ports = [port for port in record.ports if port not in silent]
        return by_key(entries.own_entities(names, self.service, ports, record.uplinks))

    def _hold(self, jobs: Sequence[Assignment]) -> dict[int, str]:
        self._own = self._own_entities()
        refused = {job.job: why for job in jobs if (why := self._target.objection(job))}
        jobs = [job for job in jobs if job.job not in refused]
        self._entities = {job.job: self._entities_of(job) for job in jobs}
        forwarding = self._forwarding.entities(jobs)
        wanted = {**self._own, **forwarding}
        for each in self._entities.values():
            wanted.update(each.inward)
            wanted.update(each.outward)
        self._remove_all_but(wanted)
        self._apply(self._missing(self._own))
        for number, each in self._entities.items():
            try:
                self._apply(self._missing(each.outward))
                self._apply(self._missing(each.inward))
            except SwitchError as problem:
                self._recollect()
                refused[number] = str(problem)
        self._forward(forwarding)
        return refused

    def _entities_of(self, job: Assignment) -> "_Entities":
        """Return a job's entities, made anew only if the job has changed."""
        before = self._entities.get(job.job)
        if before and before.job == job:
            return before
        names = self._connection.names
        inward, outward = entries.inward_entities(names, job), entries.outward_entities(names, job)
        return _Entities(job, by_key(inward), by_key(outward))

    def _remove_all_but(self, wanted: Held) -> None:
        # Entries that let workers contribute go first, before anything else changes.
        names = self._connection.names
        gone = [entity for at, entity in self._held.items() if at not in wanted]
        for inward in (True, False):
            some = [each for each in gone if entries.is_inward(names, each) == inward]
            self._apply(Difference(some, [], []))

    def _missing(self, wanted: Held) -> Difference:
        """Return the changes after which the switch holds at least these entities."""
        held = {at: self._held[at] for at in wanted if at in self._held}
        change = difference(held, wanted)
        modified = {id(each) for each in change.modify}
        # What was read from the switch gives way to its equals, so the next comparison is quick.
        self._held.update((at, wanted[at]) for at in held if id(wanted[at]) not in modified)
        return change

    def _apply(self, change: Difference) -> None:
        connection = self._connection
        if change.delete:
            connection.delete(*change.delete)
        if change.modify:
            connection.modify(*change.modify)
        if change.insert:
            connection.insert(*change.insert)
        for entity in change.delete:
            del self._held[key(entity)]
        self._held.update(by_key([*change.modify, *change.insert]))

    def _forward(self, forwarding: Held) -> None:
        """Forward ordinary frames for the workers' hosts to their ports.

        Frames arrive without such an entry too, because they are flooded to all ports. So a refused
        entry is no reason to refuse a worker.
        """
        try:
            self._apply(self._missing(forwarding))
        except SwitchError as problem:
            self._recollect()
            _log.warning("some hosts' frames go to all ports", why=str(problem))


@dataclass(frozen=True)
class _Entities:
    """A job's entities in a switch: `inward` admits its workers, `outward` brings them results."""

    job: Assignment
    inward: Held
    outward: Held


def _cookie(program: Program) -> int:
    """Return a number that identifies the program. It is not 0, which stands for no cookie."""
    content = program.device_config + program.p4info.SerializeToString(deterministic=True)
    return int.from_bytes(hashlib.sha256(content).digest()[:8]) | 1


def _numbers(ports: Iterable[int]) -> str:
    return ", ".join(map(str, ports))


def _source(frame: bytes) -> Address:
    """Return the source address of an innet frame."""
    ip = ".".join(str(byte) for byte in frame[26:30])
    return Address(mac_text(frame[6:12]), ip, int.from_bytes(frame[34:36], "big"))
