"""The workers of all jobs: each one's job, its stream, and its presence."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from innet.controller.jobs.events import Actions, Notify
from innet.controller.jobs.host_addresses import HostAddresses
from innet.controller.jobs.job import Job
from innet.controller.state.messages import event_message, pace_message
from innet.controller.state.pace import USUAL_S, Pace
from innet.controller.state.presence import Presence
from innet.controller.state.streams import Stream
from innet.errors import AlreadyExists, InnetError

if TYPE_CHECKING:
    from innet.rpc import innet_pb2 as pb

_RETURNS_PER_S = 100
"""The workers that come back to a restarted controller in a second, on a slow machine."""


class Members:
    """The workers of all jobs, by nonce. Those whose connection is lost have a job, but no stream."""

    def __init__(self, lease_s: float) -> None:
        self._jobs: dict[int, Job] = {}
        self._streams: dict[int, Stream] = {}
        self.addresses = HostAddresses()
        self.presence = Presence(lease_s, self._streams)
        self.pace = Pace()

    @property
    def nonces(self) -> Collection[int]:
        """Return the nonces of all workers."""
        return self._jobs.keys()

    def job(self, nonce: int) -> Job | None:
        """Return a worker's job."""
        return self._jobs.get(nonce)

    def has(self, stream: Stream) -> bool:
        """Return whether this is the present stream of a worker."""
        return self._streams.get(stream.nonce) is stream

    def restore(self, job: Job) -> None:
        """Take in the workers that a job had under an earlier controller."""
        self._jobs.update(dict.fromkeys(job.roster.nonces, job))

    def add(self, nonce: int, job: Job, rank: int, stream: Stream) -> None:
        """Take in a worker with its stream, which replaces an earlier one."""
        if before := self._streams.get(nonce):
            before.end(AlreadyExists("this worker has come back on another stream"))
        stream.job, stream.rank, stream.nonce = job.spec.name, job.spec.in_group(rank), nonce
        self._jobs[nonce], self._streams[nonce] = job, stream
        if self.pace.heartbeat_s != USUAL_S:
            stream.send(pace_message(self.pace.heartbeat_s))

    def forget(self, nonce: int) -> Job | None:
        """Remove a worker, and return the job that it was in."""
        self._streams.pop(nonce, None)
        self.addresses.forget(nonce)
        return self._jobs.pop(nonce, None)

    def lose_stream(self, nonce: int) -> None:
        """Note that a worker's connection is lost. The worker may come back."""
        del self._streams[nonce]
        self.presence.disconnected(nonce)

    def deliver(self, actions: Actions) -> None:
        """Send events to workers, and end streams. An event for many workers is one message."""
        made: dict[int, pb.JoinEvent] = {}
        for action in actions:
            stream = self._streams.get(action.nonce)
            if isinstance(action, Notify):
                if stream:
                    event = action.event
                    if id(event) not in made:
                        made[id(event)] = event_message(event)
                    stream.send(made[id(event)])
                continue
            if stream:
                stream.end(action.problem)
            self.forget(action.nonce)

    def keep_pace(self) -> None:
        """Notify all workers if their number asks for another pace of heartbeats."""
        if self.pace.follow(len(self._jobs)):
            for stream in self._streams.values():
                stream.send(pace_message(self.pace.heartbeat_s))

    def end_streams(self, problem: InnetError) -> None:
        """End all streams. The workers stay in their jobs."""
        for stream in self._streams.values():
            stream.end(problem)
        self._streams.clear()

    def await_return(self, now: float) -> None:
        """Begin the leases of workers whose connections an earlier controller had.

        They come back one after the other. So they have more time, the more of them there are.
        """
        self.given_up(now)
        self.presence.excuse(len(self._jobs) / _RETURNS_PER_S)

    def given_up(self, now: float) -> Iterable[tuple[int, str]]:
        """Look at all workers. Return the nonces of those to be given up, and why."""
        return self.presence.given_up(self._jobs, now).items()
