"""What the aggregation program needs to know, and how it is told.

The only module of the controller that knows tables and packets of ``innet/p4/v1model``.
"""

import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import structlog
from p4.v1 import p4runtime_pb2 as p4rt

from innet.controller.p4runtime import SwitchConnection, group
from innet.errors import SwitchError
from innet.p4.artifacts import Artifact
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation, mac_text
from innet.wire.layout import HEADER_BYTES, Kind
from innet.wire.records import blank, packet_dtype

_log = structlog.get_logger("innet.controller")

COUNTERS = ("waiting", "completed", "answered", "pending", "stale")

_FLOOD_GROUP = 1
_FIRST_JOB_GROUP = 2
_SLOT_BITS = 16
_FRAME = packet_dtype(0, ENCAPSULATION_BYTES)
_FRAME_BYTES = _FRAME.itemsize
_CLEAR_ATTEMPTS, _CLEAR_WAIT = 20, 0.25
_CLEARS_AT_ONCE = 1024

Cell = tuple[int, int]
"""One copy of a slot: (slot, copy)."""


@dataclass(frozen=True)
class Attachment:
    """Where a worker is: a port of the switch, and its address behind it."""

    port: int
    address: Address


@dataclass(frozen=True)
class JobKey:
    """What a job's entries are made of."""

    job: int
    index: int  # of the job's counters
    first_slot: int
    slots: int
    workers: int

    @property
    def group(self) -> int:
        """The multicast group of the job's workers."""
        return _FIRST_JOB_GROUP + self.index


class AggregationSwitch:
    """A switch that runs the aggregation program.

    `hello` is called with a nonce and an attachment when a worker's hello packet comes in. Methods
    raise SwitchError.
    """

    def __init__(
        self,
        address: str,
        device_id: int,
        artifact: Artifact,
        service: Address,
        ports: Sequence[int],
        hello: Callable[[int, Attachment], None],
    ) -> None:
        self.lanes, self.slots, self.service = artifact.lanes, artifact.slots, service
        self._hello = hello
        self._stations: dict[bytes, int] = {}
        self._rounds: dict[int, set[Cell]] = {}  # of clearing, by token: what is still due
        self._acknowledged = threading.Condition()
        self._connection = SwitchConnection(address, device_id, artifact.p4info, self._packet_in)
        try:
            self._connection.run(artifact.json)
            names = self._connection.names
            self._connection.insert(
                group(_FLOOD_GROUP, [(port, 1) for port in ports]),
                names.entry(
                    "service", {"address": _number(service.ip_bytes)},
                    "serve", {"mac": _number(service.mac_bytes)},
                ),
            )  # fmt: skip
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Let go of the switch, which goes on."""
        self._connection.close()

    def open_job(self, job: JobKey) -> None:
        """Make the job's multicast group, and set its counters to zero."""
        names = self._connection.names
        self._connection.insert(group(job.group, []))
        self._connection.modify(*(names.counter(each, job.index, packets=0) for each in COUNTERS))

    def close_job(self, job: JobKey) -> None:
        """Remove what :meth:`open_job` made."""
        self._connection.delete(group(job.group, []))

    def counters(self, job: JobKey) -> dict[str, int]:
        """What the switch has counted for the job, by counter."""
        names = self._connection.names
        cells = [names.counter(each, job.index) for each in COUNTERS]
        return dict(zip(COUNTERS, self._connection.count(*cells), strict=True))

    def admit(self, job: JobKey, epoch: int, rank: int, where: Attachment) -> None:
        """Let a worker contribute, as bit `rank`."""
        self._learn(where)
        names, address = self._connection.names, where.address
        self._connection.insert(
            names.entry(
                "workers", _worker_key(job, epoch, where),
                "admit",
                {
                    "worker": 1 << rank, "quorum": job.workers,
                    "group": job.group, "job_index": job.index,
                },
            ),
            names.entry(
                "replicas", {"job": job.job, "instance": rank + 1},
                "address_to",
                {
                    "mac": _number(address.mac_bytes), "address": _number(address.ip_bytes),
                    "udp_port": address.udp_port,
                },
            ),
        )  # fmt: skip

    def dismiss(self, job: JobKey, epoch: int, rank: int, where: Attachment) -> None:
        """Undo :meth:`admit`."""
        names = self._connection.names
        self._connection.delete(
            names.entry("workers", _worker_key(job, epoch, where)),
            names.entry("replicas", {"job": job.job, "instance": rank + 1}),
        )

    def set_members(self, job: JobKey, ranks: Iterable[tuple[int, int]]) -> None:
        """Who gets the results: (rank, port) of every worker."""
        replicas = [(port, rank + 1) for rank, port in ranks]
        self._connection.modify(group(job.group, replicas))

    def clear(self, job: JobKey) -> None:
        """Make both copies of all the job's slots forget what they hold.

        P4Runtime cannot write BMv2's registers, so packets do it, and come back as acknowledgement.
        """
        slots = range(job.first_slot, job.first_slot + job.slots)
        cells = [(slot, copy) for slot in slots for copy in (0, 1)]
        for start in range(0, len(cells), _CLEARS_AT_ONCE):
            due = set(cells[start : start + _CLEARS_AT_ONCE])
            for _ in range(_CLEAR_ATTEMPTS):
                due = due and self._clear_once(due)
            if due:
                raise SwitchError(
                    f"the switch did not clear {len(due)} cells: has it lost its program?"
                )

    def _clear_once(self, cells: set[Cell]) -> set[Cell]:
        """Ask once, and return what was not acknowledged when acknowledgements ceased to come.

        Only acknowledgements of this very round count. The way through the switch keeps the order,
        so when the last of them is in, no request of an earlier round is still under way, which might
        clear a cell that is in use again.
        """
        token, left = secrets.randbits(32), set(cells)
        with self._acknowledged:
            self._rounds[token] = left
        self._connection.send([self._clear_packet(token, *cell) for cell in cells])
        with self._acknowledged:
            before = 0
            while left and len(left) != before:
                before = len(left)
                self._acknowledged.wait_for(lambda: not left, _CLEAR_WAIT)
            del self._rounds[token]
        return left

    def _clear_packet(self, token: int, slot: int, copy: int) -> p4rt.StreamMessageRequest:
        # The parity of the sequence number picks the copy.
        packet = blank(1, 0, Kind.CLEAR, encapsulation(self.service, self.service, HEADER_BYTES))
        packet["slot"], packet["sequence"], packet["workers"] = slot, copy, token
        return self._connection.names.packet_out(packet.tobytes())

    def _packet_in(self, metadata: dict[str, int], frame: bytes) -> None:
        if len(frame) < _FRAME_BYTES:
            return
        packet = np.frombuffer(frame[:_FRAME_BYTES], _FRAME)[0]
        if packet["kind"] == Kind.CLEAR:
            with self._acknowledged:
                left = self._rounds.get(int(packet["workers"]), set())
                left.discard((int(packet["slot"]), int(packet["sequence"])))
                if not left:
                    self._acknowledged.notify_all()
        elif packet["kind"] == Kind.HELLO:
            where = Attachment(metadata["ingress_port"], _source(frame))
            self._hello(int(packet["sequence"]), where)

    def _learn(self, where: Attachment) -> None:
        """Forward ordinary frames for this worker's host to its port, instead of to all ports.

        Without such an entry they still arrive, so a full table is no reason to refuse a worker.
        """
        mac, port = where.address.mac_bytes, where.port
        if self._stations.get(mac) == port:
            return
        match = {"destination": _number(mac)}
        entry = self._connection.names.entry("bridge", match, "forward", {"port": port})
        try:
            if mac in self._stations:
                self._connection.modify(entry)
            else:
                self._connection.insert(entry)
        except SwitchError as problem:
            _log.warning("a station's frames go to all ports", mac=where.address.mac, why=problem)
        else:
            self._stations[mac] = port


def _worker_key(job: JobKey, epoch: int, where: Attachment) -> dict[str, int | tuple[int, int]]:
    prefix = _SLOT_BITS - (job.slots.bit_length() - 1)
    return {
        "port": where.port,
        "address": _number(where.address.ip_bytes),
        "udp_port": where.address.udp_port,
        "job": job.job,
        "epoch": epoch,
        "slot": (job.first_slot, prefix),
    }


def _source(frame: bytes) -> Address:
    """Who sent an innet frame."""
    ip = ".".join(str(byte) for byte in frame[26:30])
    return Address(mac_text(frame[6:12]), ip, int.from_bytes(frame[34:36], "big"))


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")
