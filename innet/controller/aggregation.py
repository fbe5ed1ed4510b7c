"""A switch that runs the aggregation program, and is told over P4Runtime what to hold.

What stands in its tables is said by :mod:`innet.controller.entries`. Here are the program itself, the
packets that switch and controller exchange, and counters.
"""

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import structlog
from p4.v1 import p4runtime_pb2 as p4rt

from innet import tls
from innet.controller import entries
from innet.controller.defaults import uplink_address
from innet.controller.names import all_groups
from innet.controller.p4runtime import SwitchConnection
from innet.controller.reconcile import Difference, Held, by_key, difference, key
from innet.controller.targets.choice import find
from innet.controller.targets.interface import Program
from innet.controller.transcript import Heard
from innet.controller.values import Attachment, Place, SwitchRecord, Uplink, Wanted
from innet.errors import SwitchError
from innet.wire.check import intact, seal
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation, mac_text
from innet.wire.layout import HEADER_BYTES, VERSION, Kind
from innet.wire.records import blank, packet_dtype

_log = structlog.get_logger("innet.controller")

COUNTERS = ("waiting", "completed", "answered", "pending", "stale", "raised", "ignored")
"""Of a job: how often each outcome was the one of a contribution."""

PORT_COUNTERS = ("refused", "corrupted", "spoofed")
"""Of a port: why packets that came in there were dropped."""

_FRAME = packet_dtype(0, ENCAPSULATION_BYTES)
_FRAME_BYTES = _FRAME.itemsize
_CLEAR_ATTEMPTS, _CLEAR_WAIT, _LONGEST_CLEAR_WAIT = 20, 0.25, 4.0

Cell = tuple[int, int]
"""One copy of a slot: (slot, copy)."""


class AggregationSwitch:
    """A connection to a switch that runs the aggregation program, from :meth:`start` on.

    `hello` is called with a nonce and an attachment when a worker's hello packet comes in; `silent` says
    at which ports it is not to flood; the other arguments are as for :class:`SwitchConnection`. Methods
    raise SwitchError. Those that write are for one thread.
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
        silent: Callable[[], frozenset[int]] = frozenset,
        heard: Heard | None = None,
    ) -> None:
        self.service, self._program, self._hello = record.service, program, hello
        self._record, self._silent = record, silent
        self._target = find(record.target)
        self._ports = tuple(record.ports)
        self._held: Held = {}
        self._entities: dict[int, _Entities] = {}
        self._rounds: dict[int, set[Cell]] = {}  # of clearing, by token: what is still due
        self._acknowledged = threading.Condition()
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
            heard=heard,
        )
        self._own = self._own_entities()

    @property
    def held(self) -> Held:
        """What the switch holds, as far as this connection knows."""
        return self._held

    @property
    def broken(self) -> str | None:
        """Why the connection is of no use any more, if it is not."""
        return self._connection.broken

    def start(self) -> bool:
        """Make the switch run the program, unless it does. Returns whether it did, with our address."""
        cookie = _cookie(self._program)
        runs = self._connection.cookie() == cookie
        if not runs:
            self._connection.run(self._program.device_config, cookie)
        self._held = self._read()
        return runs and not self._own.keys().isdisjoint(self._held)

    def close(self) -> None:
        """Let go of the switch, which goes on."""
        self._connection.close()

    def hold(self, jobs: Sequence[Wanted]) -> dict[int, str]:
        """Make the switch hold what it and these jobs need, and nothing else.

        Returns which jobs' entries it refused, and why.
        """
        try:
            return self._hold(jobs)
        except SwitchError:
            self._recollect()  # somebody else may have written, too
            return self._hold(jobs)

    def expect(self, held: Held) -> None:
        """Take what an earlier connection has written for what the switch holds, to be inspected."""
        self._held = held

    def inspect(self) -> tuple[list[str], bool]:
        """Compare what the switch holds with what was written: what is different, in words.

        And whether that is all that there was: then the switch has begun anew.
        """
        found = self._read()
        drift = difference(self._held, found)
        missing = [f"{self._describe(each)} is missing" for each in drift.delete]
        changed = [f"{self._describe(each)} was changed" for each in drift.modify]
        strange = [f"{self._describe(each)} is not the controller's" for each in drift.insert]
        if drift:
            self._held = found
        return missing + changed + strange, self._own.keys().isdisjoint(found)

    def counters(self, place: Place) -> dict[str, int]:
        """What the switch has counted for a job, by counter; 0 what its program does not know."""
        cells = self._target.job_cells(self._connection.names, place.index)
        counts = self._connection.count(*cells.values())
        return dict.fromkeys(COUNTERS, 0) | dict(zip(cells, counts, strict=True))

    def port_counters(self) -> dict[int, dict[str, int]]:
        """How many packets the switch has dropped at each of its ports, by counter."""
        names = self._connection.names
        cells = [names.counter(each, port) for port in self._ports for each in PORT_COUNTERS]
        counts = iter(self._connection.count(*cells))
        return {port: {each: next(counts) for each in PORT_COUNTERS} for port in self._ports}

    def reset_counters(self, place: Place) -> None:
        """Set a job's counters to zero."""
        cells = [*self._target.job_cells(self._connection.names, place.index).values()]
        for cell in cells:
            cell.counter_entry.data.packet_count = 0
        self._connection.modify(*cells)

    def clear(self, place: Place) -> Iterator[None]:
        """Make both copies of all of a job's slots forget what they hold, some with every step.

        P4Runtime cannot write BMv2's registers, so packets do it, and come back as acknowledgement.
        """
        slots = range(place.first_slot, place.first_slot + place.slots)
        cells = [(slot, copy) for slot in slots for copy in (0, 1)]
        burst = self._target.clears_at_once
        for start in range(0, len(cells), burst):
            due = set(cells[start : start + burst])
            wait = _CLEAR_WAIT
            for _ in range(_CLEAR_ATTEMPTS):
                left = due and self._clear_once(due, wait)
                if left == due:
                    # A switch may be slow, and requests wait behind those that were made before.
                    wait *= 2
                due = left
                if not due or wait > _LONGEST_CLEAR_WAIT:
                    break
            if due:
                raise SwitchError(
                    f"the switch did not clear {len(due)} cells: has it lost its program?"
                )
            yield

    def probe(self, link: Uplink, nonce: int) -> None:
        """Send a hello out of an uplink: where it comes in, the link ends."""
        source = uplink_address(link.parent_port)
        prefix = encapsulation(source, self.service, HEADER_BYTES)
        packet = blank(1, 0, Kind.HELLO, prefix)
        packet["sequence"] = nonce
        seal(packet, source.ip_number, source.udp_port)
        names = self._connection.names
        self._connection.send([names.packet_out(packet.tobytes(), egress_port=link.port)])

    def _clear_once(self, cells: set[Cell], wait: float) -> set[Cell]:
        """Ask once, and return what was not acknowledged when none had come for `wait` seconds.

        Only acknowledgements of this very round count. The way through the switch keeps the order,
        so when the last of them is in, no request of an earlier round is still under way, which might
        clear a cell that is in use again.
        """
        if self.broken:
            raise SwitchError(self.broken)
        token, left = secrets.randbits(32), set(cells)
        with self._acknowledged:
            self._rounds[token] = left
        self._connection.send(self._clear_packets(token, list(cells)))
        with self._acknowledged:
            before = 0
            while left and len(left) != before:
                before = len(left)
                self._acknowledged.wait_for(lambda: not left or self.broken, wait)
            del self._rounds[token]
        return left

    def _clear_packets(self, token: int, cells: list[Cell]) -> list[p4rt.StreamMessageRequest]:
        # The parity of the sequence number picks the copy.
        prefix = encapsulation(self.service, self.service, HEADER_BYTES)
        packets = blank(len(cells), 0, Kind.CLEAR, prefix)
        packets["slot"], packets["sequence"] = np.array(cells).T
        packets["workers"] = token
        seal(packets, int.from_bytes(self.service.ip_bytes), self.service.udp_port)
        return [self._connection.names.packet_out(packet.tobytes()) for packet in packets]

    def _packet_in(self, metadata: dict[str, int], frame: bytes) -> None:
        if len(frame) < _FRAME_BYTES:
            return
        packets, source = np.frombuffer(frame[:_FRAME_BYTES], _FRAME), _source(frame)
        [packet] = packets
        fits = intact(packets, int.from_bytes(source.ip_bytes), source.udp_port)
        if packet["version"] != VERSION or not fits[0]:
            return
        if packet["kind"] == Kind.CLEAR:
            with self._acknowledged:
                left = self._rounds.get(int(packet["workers"]), set())
                left.discard((int(packet["slot"]), int(packet["sequence"])))
                if not left:
                    self._acknowledged.notify_all()
        elif packet["kind"] == Kind.HELLO:
            where = Attachment(metadata["ingress_port"], source, self._record.name)
            self._hello(int(packet["sequence"]), where)

    def _connection_ended(self) -> None:
        with self._acknowledged:
            self._acknowledged.notify_all()
        self._ended()

    def _read(self) -> Held:
        names = self._connection.names
        tables = [names.whole(table) for table in self._target.tables]
        return by_key(self._connection.read(*tables, all_groups()))

    def _recollect(self) -> None:
        """After a refusal: see what the switch holds, if it still can be asked."""
        if self.broken:
            raise SwitchError(self.broken)
        self._held = self._read()

    def _own_entities(self) -> Held:
        """What the switch needs for itself; of the links that close a loop no flood comes out."""
        names, silent = self._connection.names, self._silent()
        ports = [port for port in self._ports if port not in silent]
        return by_key(entries.own_entities(names, self.service, ports, self._record.uplinks))

    def _hold(self, jobs: Sequence[Wanted]) -> dict[int, str]:
        self._own = self._own_entities()
        refused = {job.job: why for job in jobs if (why := self._target.objection(job))}
        jobs = [job for job in jobs if job.job not in refused]
        self._entities = {job.job: self._entities_of(job) for job in jobs}
        stations = by_key(entries.stations(self._connection.names, jobs))
        wanted = {**self._own, **stations}
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
        self._bridge(stations)
        return refused

    def _entities_of(self, job: Wanted) -> "_Entities":
        """What a job needs, made anew only if it has changed."""
        before = self._entities.get(job.job)
        if before and before.job == job:
            return before
        names = self._connection.names
        inward, outward = entries.inward_entities(names, job), entries.outward_entities(names, job)
        return _Entities(job, by_key(inward), by_key(outward))

    def _remove_all_but(self, wanted: Held) -> None:
        # Who may not contribute any more is shut out before anything else changes.
        stale: dict[bool, list[p4rt.Entity]] = {True: [], False: []}
        for entity in difference(self._held, wanted).delete:
            stale[entries.is_inward(self._connection.names, entity)].append(entity)
        for each in stale.values():
            self._apply(Difference(each, [], []))

    def _missing(self, wanted: Held) -> Difference:
        """What has to be written so that the switch holds at least this."""
        held = {at: entity for at, entity in self._held.items() if at in wanted}
        return difference(held, wanted)

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

    def _bridge(self, stations: Held) -> None:
        """Forward ordinary frames for the workers' hosts to their ports.

        Without such an entry they still arrive, since they go to all ports: it is no reason to refuse
        a worker.
        """
        try:
            self._apply(self._missing(stations))
        except SwitchError as problem:
            self._recollect()
            _log.warning("some stations' frames go to all ports", why=str(problem))

    def _describe(self, entity: p4rt.Entity) -> str:
        return self._connection.names.describe(entity)


@dataclass(frozen=True)
class _Entities:
    """What a job needs in the switch: to let its workers in, and to bring them results."""

    job: Wanted
    inward: Held
    outward: Held


def _cookie(program: Program) -> int:
    """What tells this very program from any other; not 0, which is nobody's."""
    content = program.device_config + program.p4info.SerializeToString(deterministic=True)
    return int.from_bytes(hashlib.sha256(content).digest()[:8]) | 1


def _source(frame: bytes) -> Address:
    """Who sent an innet frame."""
    ip = ".".join(str(byte) for byte in frame[26:30])
    return Address(mac_text(frame[6:12]), ip, int.from_bytes(frame[34:36], "big"))
