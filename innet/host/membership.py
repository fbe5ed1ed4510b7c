"""A worker's seat in a job: taken by an open stream to the controller, given up by closing it.

The controller answers a join with an invitation. The worker then sends hello packets through the
switch, which passes them to the controller together with the port they came in at: that is how
worker, switch and controller agree on where the worker is attached without anybody configuring it.
"""

import queue
import threading
from collections.abc import Iterator

import grpc

from innet.controller import innet_pb2 as pb
from innet.controller.client import CONNECT_WITHIN, connect, translated
from innet.errors import ControllerError
from innet.host.link import Link, open_link
from innet.host.transport import Seat
from innet.wire.frames import Address
from innet.wire.layout import Kind
from innet.wire.records import blank

_HELLO_EVERY = 0.1


class Membership:
    """One worker's stay in one job."""

    def __init__(self, controller: str, job: str, rank: int, timeout: float) -> None:
        self._timeout = timeout
        self._channel, stub = connect(controller, min(timeout, CONNECT_WITHIN))
        self._stream = stub.Join(pb.JoinRequest(job=job, rank=rank))
        self._events: queue.Queue[pb.JoinEvent | Exception] = queue.Queue()
        self._departed: dict[int, str] = {}
        threading.Thread(target=self._read, name="innet-membership", daemon=True).start()

    def take_seat(self, link_spec: str) -> tuple[Seat, Link]:
        """Say hello through the data plane until admitted. Returns the seat and the open link."""
        try:
            invitation = self._next("invitation", self._timeout).invitation
        except queue.Empty:
            raise ControllerError(
                f"no invitation has come in {self._timeout:.0f} s: a job takes new workers only "
                "when all those of its last run have left"
            ) from None
        service = Address(
            invitation.service.mac, invitation.service.ip, invitation.service.udp_port
        )
        # The link is opened for the lanes that the invitation names: that is the packets' size.
        link = open_link(link_spec, service, invitation.lanes)
        try:
            return self._say_hello(link, invitation.nonce), link
        except BaseException:
            link.close()
            raise

    def departed(self) -> dict[int, str]:
        """Ranks that have left the job since, and why."""
        return dict(self._departed)

    def close(self) -> None:
        """Leave the job."""
        self._stream.cancel()
        self._channel.close()

    def _say_hello(self, link: Link, nonce: int) -> Seat:
        hello = blank(1, 0, Kind.HELLO, link.hello_encapsulation)
        hello["sequence"] = nonce
        for _ in range(max(1, int(self._timeout / _HELLO_EVERY))):
            link.send(hello)
            try:
                admission = self._next("admission", _HELLO_EVERY).admission
            except queue.Empty:
                continue
            return Seat(
                job=admission.job_id,
                epoch=admission.epoch,
                rank=admission.rank,
                workers=admission.workers,
                lanes=admission.lanes,
                first_slot=admission.first_slot,
                slots=admission.slots,
            )
        raise ControllerError(
            f"no hello packet has reached the controller in {self._timeout:.0f} s: "
            "does this worker's link lead to the job's switch?"
        )

    def _next(self, wanted: str, timeout: float) -> pb.JoinEvent:
        event = self._events.get(timeout=timeout)
        if isinstance(event, Exception):
            raise event
        if event.WhichOneof("event") != wanted:
            raise ControllerError(f"the controller sent {event}, not an {wanted}")
        return event

    def _read(self) -> None:
        try:
            with translated("join the job"):
                for event in self._received():
                    self._events.put(event)
            self._events.put(ControllerError("the controller has closed the stream"))
        except Exception as problem:  # noqa: BLE001 - handed to whoever waits for the next event
            self._events.put(problem)

    def _received(self) -> Iterator[pb.JoinEvent]:
        try:
            for event in self._stream:
                if event.WhichOneof("event") == "departure":
                    self._departed[event.departure.rank] = event.departure.reason
                else:
                    yield event
        except grpc.RpcError as problem:
            if problem.code() != grpc.StatusCode.CANCELLED:
                raise
