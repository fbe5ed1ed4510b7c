"""A switch that runs the aggregation program, driven over P4Runtime.

:mod:`innet.controller.switches.entries` makes its table entries. This module loads the program, exchanges
packets with the switch and reads counters.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from innet.controller.defaults import uplink_address
from innet.controller.jobs.records import Assignment, Attachment, SlotRange, SwitchRecord, Uplink
from innet.controller.switches import entries
from innet.controller.switches.clearing import CellClearing
from innet.controller.switches.held_entries import HeldEntries
from innet.controller.switches.p4runtime import SwitchConnection
from innet.controller.switches.reconcile import Held
from innet.controller.switches.targets.choice import find
from innet.controller.switches.targets.interface import Program
from innet.controller.switches.transcript import OnRequest
from innet.errors import UsageError
from innet.rpc import tls
from innet.wire.check import intact, seal
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation, mac_text
from innet.wire.layout import HEADER_BYTES, VERSION, Kind
from innet.wire.records import blank, get_field, packet_dtype

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
        self._record, self._present = record, present or (lambda: record)
        target = find(record.target)
        self._clearing = CellClearing(
            record.service,
            program.slots,
            target.clears_at_once,
            self._send,
            lambda: self.broken,
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
        self._entries = HeldEntries(self._connection, target, self._present, silent)

    @property
    def held(self) -> Held:
        """Return the entities in the switch, as far as this connection knows."""
        return self._entries.held

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
            self._clearing.program_loaded()
        self._entries.recollect()
        return runs and self._entries.own_held

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
        for job in jobs:
            if job.shares:
                self._clearing.use(job.slot_range)
        return self._entries.hold(jobs)

    def expect(self, held: Held) -> None:
        """Assume that the switch holds what an earlier connection wrote, until it is inspected."""
        self._entries.held = held

    def inspect(self) -> tuple[list[str], bool]:
        """Compare the switch's entries with those that were written, and describe the differences.

        Also return whether the controller's own entries are all gone. In that case the switch has been
        restarted.
        """
        return self._entries.drift(), not self._entries.own_held

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
        """Send a hello packet out of an uplink, so that it comes in where the link ends."""
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
