"""A worker's membership in a job: a stream of messages to the controller, and back.

The controller answers a join with an invitation. The worker then sends hello packets through the
switch, which passes them to the controller with the number of the ingress port. So worker, switch
and controller agree on where the worker is attached, and nobody has to configure it.

Afterwards the stream carries heartbeats, departures, and the messages that begin a term
(docs/recovery.md). If the stream breaks, the worker opens another one with the nonce of its
membership. The membership goes on.
"""

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import grpc

from innet.errors import ControllerError, InnetError
from innet.host.job import Path, Term, WorkerInfo
from innet.host.link import Link, open_link
from innet.host.waker import Waker
from innet.machine.tcp import break_when_silent
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.client import CONNECT_WITHIN, connect, named, translated
from innet.rpc.words import LONGEST_REASON
from innet.terminal.console import printable
from innet.wire.frames import Address
from innet.wire.layout import Kind
from innet.wire.records import blank

_FIRST_HELLO, _SLOWEST_HELLO = 0.1, 1.6  # seconds until the next hello packet
_BEATS_PER_LEASE, _SLOWEST_BEAT = 3, 1.0
_SILENT_CONTROLLER = 4.0  # seconds, after which the stream is opened again
_FAREWELL_WITHIN = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds before the stream is opened again
_LONGEST_TRY = 2.0  # seconds for opening it
_TRIES_PER_LEASE = 4  # at least: the controller gives up a worker that is away for one lease

# Status codes by which the controller ends the membership. Any other end of a stream is an
# accident.
_FINAL = {
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
}


class Membership:
    """A worker's membership in a job. Every message from the controller wakes the agent's thread.

    The attributes hold the controller's latest messages. `ended` is the reason why the membership
    is over, or empty. `recover` is a request that no `term` has answered yet. `waiting_for` are
    the ranks that the job waits for. While not `connected`, all of them are as old as the last
    stream.
    """

    def __init__(
        self,
        controller: str,
        request: pb.JoinRequest,
        timeout: float,
        waker: Waker,
        identity: tls.Identity | None = None,
    ) -> None:
        self.ended = ""
        self.recover: pb.Recover | None = None
        self.term: Term | None = None
        self.waiting_for: frozenset[int] = frozenset()
        self.connected = True
        self._departed: Mapping[int, str] = {}
        self._bitmaps: pb.Bitmaps | None = None  # of the term that comes next
        self._controller = controller
        self._identity = identity
        self._request = request
        self._timeout = timeout
        self._waker = waker
        self._answers: queue.SimpleQueue[pb.JoinEvent | Exception] = queue.SimpleQueue()
        self._admitted = False
        self._trouble: pb.Trouble | None = None
        self._activity: pb.Activity | None = None
        self._reporting = threading.Lock()  # so that no older activity follows a newer one
        self._lease = self._pace = 0.0
        self._leaving = threading.Event()
        self._stream = self._open(min(timeout, CONNECT_WITHIN))
        self._listener = threading.Thread(target=self._listen, name="innet-membership", daemon=True)
        self._listener.start()

    def be_admitted(self, link_spec: str) -> tuple[WorkerInfo, Link]:
        """Send hellos through the data plane until admitted. Returns the admission and the link."""
        try:
            invitation = self._next("invitation", self._timeout).invitation
        except queue.Empty:
            raise ControllerError(
                f"no invitation has come in {self._timeout:.0f} s: a job takes new workers only "
                "when all workers of its last run have left"
            ) from None
        self._request.nonce, self._lease = invitation.nonce, invitation.lease_s
        service = Address(
            invitation.service.mac, invitation.service.ip, invitation.service.udp_port
        )
        # The invitation names the lanes, and with them the size of the link's packets.
        sealed = not invitation.unsealed
        self._link = open_link(link_spec, service, invitation.lanes, self._waker, sealed=sealed)
        try:
            return self._await_admission(), self._link
        except BaseException:
            self._link.close()
            raise

    def send_heartbeats(self, progress: Callable[[], pb.Progress]) -> None:
        """Start heartbeats, which tell the controller that this process runs, and its progress."""
        arguments = (progress, min(self._lease / _BEATS_PER_LEASE, _SLOWEST_BEAT))
        threading.Thread(
            target=self._beat, args=arguments, name="innet-heartbeat", daemon=True
        ).start()

    def departed(self) -> Mapping[int, str]:
        """Return the ranks that have left the job, with the reasons."""
        return self._departed

    def ready(self, term: int, exchange: int) -> None:
        """Tell the controller that this worker has stopped and `exchange` is unfinished."""
        self._send(pb.WorkerMessage(ready=pb.Ready(term=term, exchange=exchange)))

    def trouble(self, term: int, reason: str) -> None:
        """Ask for another term."""
        self._trouble = pb.Trouble(term=term, reason=reason)
        self._send(pb.WorkerMessage(trouble=self._trouble))
        self._say_hello()  # in case the worker is now attached to another port

    def report_activity(self, busy: bool) -> None:
        """Tell the controller whether this worker communicates."""
        with self._reporting:
            self._activity = pb.Activity(busy=busy)
            self._send(pb.WorkerMessage(activity=self._activity))

    def close(self, problem: BaseException | None = None) -> None:
        """Leave the job. The controller and the other workers learn of the `problem`, if there is one."""
        if problem and not self._leaving.is_set():
            self._send(pb.WorkerMessage(farewell=pb.Farewell(reason=_summary(problem))))
        self._leaving.set()
        self._stream.finish()
        self._listener.join(_FAREWELL_WITHIN)
        self._stream.close()

    def _await_admission(self) -> WorkerInfo:
        # The pauses grow, because thousands of workers may wait for one controller.
        pause, until = _FIRST_HELLO, time.monotonic() + self._timeout
        while time.monotonic() < until:
            self._say_hello()
            try:
                admission = self._next("admission", pause).admission
            except queue.Empty:
                pause = min(2 * pause, _SLOWEST_HELLO)
                continue
            return WorkerInfo(
                job=admission.job_id,
                rank=admission.rank,
                workers=admission.workers,
                min_workers=admission.min_workers,
                lanes=admission.lanes,
                job_name=self._request.job,
                lends=admission.lends,
            )
        why = self._link.refusal or (
            "does this worker's link lead to the job's switch, and do all machines have the same "
            "version of innet?"
        )
        raise ControllerError(
            f"no hello packet has reached the controller in {self._timeout:.0f} s: {why}"
        )

    def _say_hello(self) -> None:
        hello = blank(1, 0, Kind.HELLO, self._link.bare_encapsulation)
        hello["sequence"] = self._request.nonce
        self._link.send(hello)

    def _next(self, wanted: str, timeout: float) -> pb.JoinEvent:
        event = self._answers.get(timeout=timeout)
        if isinstance(event, Exception):
            raise event
        if event.WhichOneof("event") != wanted:
            raise ControllerError(
                f"the controller sent {event}, not an {wanted}: install one version of innet on "
                "all machines"
            )
        return event

    def _open(self, timeout: float) -> "_Stream":
        return _Stream(self._controller, timeout, self._identity, self._request)

    def _send(self, message: pb.WorkerMessage) -> None:
        self._stream.send(message)

    def _beat(self, progress: Callable[[], pb.Progress], every: float) -> None:
        while not self._leaving.wait(max(every, self._pace)) and not self.ended:
            self._send(pb.WorkerMessage(heartbeat=pb.Heartbeat(progress=progress())))

    def _listen(self) -> None:
        """Receive the controller's messages, on one stream after the other."""
        while True:
            try:
                problem: Exception = ControllerError(
                    "the controller has closed the stream: see the controller's log, and join again"
                )
                with translated("join the job"):
                    for event in self._stream.events():
                        self._take(event)
            except InnetError as found:
                problem = found
            final = self._stream.status in _FINAL
            self.connected = False
            self.waiting_for = frozenset()
            self._stream.close()
            if not self._admitted:
                if self.ended:
                    problem = ControllerError(f"cannot join the job: {self.ended}")
                self._answers.put(problem)
                return
            if final and not self.ended:
                self.ended = str(problem)
            if self._leaving.is_set() or self.ended or not self._reopen():
                self._waker.wake()
                return

    def _reopen(self) -> bool:
        """Open the stream again as soon as the controller is there. Return False after :meth:`close`."""
        share = self._lease / _TRIES_PER_LEASE
        pause, longest = _FIRST_PAUSE, min(_LONGEST_PAUSE, share / 2)
        # Jitter, so that not all workers reconnect at once. The generator is private, since a
        # script may have seeded the shared one.
        jitter = random.Random()  # noqa: S311
        while not self._leaving.wait(pause * jitter.uniform(0.5, 1)):
            self._pace = 0.0
            try:
                self._stream = self._open(min(_LONGEST_TRY, share))
            except InnetError:
                pause = min(2 * pause, longest)
                continue
            self.connected = True
            if self._leaving.is_set():
                self._stream.close()
            if self._trouble:  # the controller ignores it if it is of an older term
                self._send(pb.WorkerMessage(trouble=self._trouble))
            with self._reporting:
                if self._activity:
                    self._send(pb.WorkerMessage(activity=self._activity))
            return True
        return False

    def _take(self, event: pb.JoinEvent) -> None:
        match event.WhichOneof("event"):
            case "departure":
                first = event.departure
                departed = {each.rank: each.reason for each in (first, *first.more)}
                self.ended = departed.pop(self._request.rank, self.ended)
                self._departed = {**self._departed, **departed}
            case "recover":
                self.recover = event.recover
            case "bitmaps":
                self._bitmaps = event.bitmaps
            case "resume":
                self._resume(event.resume)
            case "pace":
                self._pace = event.pace.heartbeat_s
            case "waiting":
                self.waiting_for = frozenset(event.waiting.ranks)
            case "admission":
                self._admitted = True
                self._answers.put(event)
            case _:
                self._answers.put(event)
        self._waker.wake()

    def _resume(self, resume: pb.Resume) -> None:
        # After a break the controller may repeat this message. Then no term begins.
        if not self.term or self.term.number != resume.term:
            self.term = Term(
                resume.term,
                Path(resume.path),
                resume.first_slot,
                resume.slots,
                resume.exchange,
                resume.shared,
                resume.reason,
                self._bitmaps,
            )
        self.recover = self._bitmaps = None


def _summary(problem: BaseException) -> str:
    """Return an exception's type and message in one printable line."""
    line = " ".join(f"{type(problem).__name__}: {problem}".split()).rstrip(":")
    return printable(line)[:LONGEST_REASON]


class _Stream:
    """A Join stream."""

    def __init__(
        self,
        controller: str,
        timeout: float,
        identity: tls.Identity | None,
        request: pb.JoinRequest,
    ) -> None:
        self._outgoing: queue.SimpleQueue[pb.WorkerMessage | None] = queue.SimpleQueue()
        self._closed = False
        self.send(pb.WorkerMessage(join=request))
        self._channel, stub = connect(controller, timeout, identity)
        for address in named(controller):
            break_when_silent(address, _SILENT_CONTROLLER)
        self._call = stub.Join(iter(self._outgoing.get, None))

    @property
    def status(self) -> grpc.StatusCode:
        """Return the status code with which the stream has ended."""
        return self._call.code()

    def send(self, message: pb.WorkerMessage) -> None:
        """Send a message; on a stream that has ended it is lost."""
        if not self._closed:
            self._outgoing.put(message)

    def events(self) -> Iterator[pb.JoinEvent]:
        """Yield the controller's messages until the stream ends."""
        try:
            yield from self._call
        except grpc.RpcError:
            if not self._closed:
                raise

    def finish(self) -> None:
        """Half-close the stream; the controller then ends it."""
        self._outgoing.put(None)

    def close(self) -> None:
        """End the stream, and close its connection."""
        self._closed = True  # nobody takes messages, which would fill the memory
        self.finish()
        self._call.cancel()
        self._channel.close()
