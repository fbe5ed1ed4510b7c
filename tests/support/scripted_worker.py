"""A worker controlled by a test: it speaks the Join stream, and sends packets of its own."""

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from racks import Rack
from waiting import WITHIN

from innet.errors import InnetError
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import translated
from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation
from innet.wire.layout import HEADER_BYTES, LANE_BYTES, Flag, Kind, Operation
from innet.wire.records import blank, packet_bytes, packet_dtype, set_field

LANES = 64
_HELLO_EVERY = 0.05


class ScriptedWorker:
    """One worker at a link of a rack. It asks to join when it is made, and sends nothing more."""

    def __init__(self, stub: Any, link: str, job: str, rank: int, token: str, **join: Any) -> None:
        near, far = (_endpoint(end) for end in link.removeprefix("udp:").split("/"))
        self._cable = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._cable.bind(near)
        self._cable.connect(far)
        self._cable.settimeout(WITHIN)
        self.rank, self._stub = rank, stub
        mac = f"02:00:00:00:{near[1] >> 8:02x}:{near[1] & 255:02x}"
        self.address = Address(mac, *near)
        self._join = pb.JoinRequest(job=job, rank=rank, token=token, **join)
        self.admission = self.resume = None
        self.waiting_for: list[int] = []
        self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.vanish()
        self._cable.close()

    def open(self, *, wait: bool = False) -> None:
        """Open a stream and ask to join, with `wait` when the controller can be reached."""
        self._said: queue.SimpleQueue[pb.WorkerMessage | None] = queue.SimpleQueue()
        self._heard: queue.SimpleQueue[pb.JoinEvent | Exception | None] = queue.SimpleQueue()
        self._said.put(pb.WorkerMessage(join=self._join))
        self.call = self._stub.Join(iter(self._said.get, None), wait_for_ready=wait)
        threading.Thread(target=self._listen, args=(self.call, self._heard), daemon=True).start()

    @property
    def job(self) -> str:
        """Return the name of its job."""
        return self._join.job

    @property
    def nonce(self) -> int:
        """Return the nonce of its invitation."""
        return self._join.nonce

    def say(self, **message: Any) -> None:
        """Send a message."""
        self._said.put(pb.WorkerMessage(**message))

    def beat(self, **progress: Any) -> None:
        """Send a heartbeat."""
        self.say(heartbeat=pb.Heartbeat(progress=pb.Progress(**progress)))

    def ready(self, exchange: int, term: int | None = None) -> None:
        """Send Ready: the worker has stopped."""
        self.say(ready=pb.Ready(term=self.term if term is None else term, exchange=exchange))

    def trouble(self, reason: str = "silence") -> None:
        """Ask for another term."""
        self.say(trouble=pb.Trouble(term=self.resume.term, reason=reason))

    def hear(self, kind: str, within: float = WITHIN) -> Any:
        """Return the next event, which has to be of this kind. Raise the error that the stream ends
        with.
        """
        event = self.next_event(within)
        assert event is not None, f"the stream has ended, without {kind}"
        assert event.WhichOneof("event") == kind, event
        return getattr(event, kind)

    def next_event(self, within: float = WITHIN) -> pb.JoinEvent | None:
        """Return the next event, or None at the end. Raise the stream's error, or TimeoutError."""
        try:
            event = self._heard.get(timeout=within)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(event, Exception):
            raise event
        if event is not None:
            self._take(event)
        return event

    def come_back(self) -> "queue.SimpleQueue[pb.JoinEvent | Exception | None]":
        """Join again with the same nonce. Return the queue with the rest of the earlier stream."""
        before = self._heard
        self.open(wait=True)
        return before

    def hear_last(self) -> None:
        """Check that the stream ends without an error."""
        event = self.next_event()
        assert event is None, event

    def quiet(self) -> bool:
        """Return whether all events have been taken."""
        return self._heard.empty()

    def invited(self) -> pb.Invitation:
        """Return the invitation, and keep its nonce."""
        invitation = self.hear("invitation")
        self._join.nonce = invitation.nonce
        service = invitation.service
        self.service = Address(service.mac, service.ip, service.udp_port)
        self.lease = invitation.lease_s
        return invitation

    def say_hello(self) -> None:
        """Send a hello packet through the switch."""
        hello = blank(1, 0, Kind.HELLO, encapsulation(self.address, self.service, HEADER_BYTES))
        hello["sequence"] = self._join.nonce
        self._send(hello)

    def admitted(self) -> pb.Admission:
        """Send hellos until the admission is there, and return it."""
        while True:
            self.say_hello()
            with contextlib.suppress(TimeoutError):
                return self.hear("admission", _HELLO_EVERY)

    def settle(self) -> pb.Resume:
        """Go from the invitation to the first term's agreement, and return it."""
        self.invited()
        self.admitted()
        return self.hear("resume")

    def contribute(self, slot: int, sequence: int, value: int) -> None:
        """Send a contribution to one of the job's slots, with `value` in every lane."""
        prefix = encapsulation(self.address, self.service, packet_bytes(LANES))
        packet = blank(1, LANES, Kind.CONTRIBUTION, prefix)
        set_field(packet, "operation", Operation.SUM)
        packet["job"] = self.admission.job_id
        packet["term"], packet["slot"] = self.resume.term, self.resume.first_slot + slot
        packet["sequence"], packet["lanes"] = sequence, value
        packet["flags"] = Flag.CARRIED | Flag.WANTED
        self._send(packet)

    def result(self) -> np.void:
        """Return the next packet from the switch, with a field `lanes` if it has lanes."""
        content = self._cable.recv(1 << 16)
        lanes = (len(content) - ENCAPSULATION_BYTES - packet_bytes(0)) // LANE_BYTES
        [packet] = np.frombuffer(content, packet_dtype(lanes, ENCAPSULATION_BYTES))
        return packet

    def leave(self) -> None:
        """Close the worker's direction of the stream."""
        self._said.put(None)

    def vanish(self) -> None:
        """Break the stream."""
        self.call.cancel()
        self._said.put(None)

    def _send(self, packets: np.ndarray) -> None:
        seal(packets, int.from_bytes(self.address.ip_bytes), self.address.udp_port)
        self._cable.send(packets.tobytes())

    def _take(self, event: pb.JoinEvent) -> None:
        if event.HasField("admission"):
            self.admission = event.admission
        elif event.HasField("resume"):
            self.resume = event.resume
            self.term = event.resume.term
        elif event.HasField("recover"):
            self.term = event.recover.term

    def _listen(self, call: Any, heard: "queue.SimpleQueue[Any]") -> None:
        try:
            with translated("join"):
                for event in call:
                    if event.HasField("waiting"):  # it comes at any time, and needs no answer
                        self.waiting_for = [*event.waiting.ranks]
                    else:
                        heard.put(event)
            heard.put(None)
        except InnetError as problem:
            heard.put(problem)


def scripted(tor: Rack, job: str, rank: int, port: int = 0, **join: Any) -> ScriptedWorker:
    """Make a worker at a port, by default port rank + 1."""
    token = join.pop("token", tor.tokens[job])
    return ScriptedWorker(tor.stub, tor.links[(port or rank + 1) - 1], job, rank, token, **join)


@contextlib.contextmanager
def beating(*workers: ScriptedWorker, **progress: Any) -> Iterator[None]:
    """Let the workers send heartbeats meanwhile."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(workers[0].lease / 4):
            for worker in workers:
                worker.beat(**progress)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _endpoint(text: str) -> tuple[str, int]:
    ip, _, port = text.rpartition(":")
    return ip, int(port)
