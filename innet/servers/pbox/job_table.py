"""The jobs of a parameter server: their names, and the memory that they reserve."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from innet.errors import InnetError, NoCapacity, NotAuthorized, UsageError
from innet.rpc.words import counted
from innet.servers.pbox.cores import Core
from innet.servers.pbox.jobs import Member, ServedJob
from innet.servers.pbox.messages import Description, Registration
from innet.servers.pbox.protocol import CoreEvent

MOST_MEMBERS = 1024
"""The limit of workers in all jobs."""


class JobTable:
    """The jobs on a server's `cores`, by name, within `memory` bytes. Threads may share it.

    `report` is called with an event and its values.
    """

    def __init__(self, cores: Sequence[Core], memory: int, report: Callable[..., None]) -> None:
        self._cores, self._memory, self._report = cores, memory, report
        self._lock = threading.Lock()
        self._creating = threading.Lock()  # taken before _lock
        self._jobs: dict[str, ServedJob] = {}
        # By number, until the cores have freed their parts.
        self._freeing: dict[int, ServedJob] = {}
        self._last_number = 0
        self._closed = False

    def stats(self) -> tuple[dict[str, dict[str, int]], int]:
        """Return the workers and counts of every job, and the bytes that all of them reserve."""
        with self._lock:
            return {name: job.stats() for name, job in self._jobs.items()}, self._reserved()

    def join(self, registration: Registration, member: Member) -> ServedJob:
        """Add a worker to its job. Jobs are created one at a time. Existing jobs go on meanwhile.

        Raises UsageError, NotAuthorized, AlreadyExists and NoCapacity.
        """
        cores = registration.cores[registration.server]
        if cores != len(self._cores):
            own = counted(len(self._cores), "core")
            raise UsageError(f"this server has {own}, not {cores}")
        described = registration.described()  # this takes long for a large job: before the lock
        if job := self._add(registration, described, member):
            return job
        with self._creating:
            return self._add(registration, described, member) or self._create(
                registration, described, member
            )

    def leave(self, job: ServedJob, rank: int) -> None:
        """Remove a worker from its job."""
        with self._lock:
            job.leave(rank)
            self._file_away(job)

    def handle_message(
        self, message: dict[str, Any], job: ServedJob, rank: int, member: Member
    ) -> None:
        """Carry out a worker's request. Raises NotAuthorized if the worker may not send it."""
        with self._lock:
            match message:
                case {"initialised": True} if rank == 0 and not job.ready:
                    job.set_ready()
                case {"goodbye": True}:
                    member.said_goodbye = True
                case {"counts": True}:
                    member.tell({"counts": job.counts()})
                case _:
                    raise NotAuthorized(
                        f"worker {rank} may not send this request: {str(message)[:80]}"
                    )

    def handle_event(self, event: np.void) -> None:
        """React to an event of a core."""
        number = int(event["job"])
        with self._lock:
            if int(event["kind"]) == CoreEvent.REMOVED:
                self._freed(number)
                return
            for job in [*self._jobs.values()]:
                if job.number == number:
                    job.handle_event(event)
                    self._file_away(job)

    def close(self, why: InnetError) -> None:
        """Tell the workers of all jobs, end the jobs, and refuse further ones."""
        with self._lock:
            self._closed = True
            for job in self._jobs.values():
                job.end(why)

    def _add(
        self,
        registration: Registration,
        described: Description,
        member: Member,
        new: ServedJob | None = None,
    ) -> ServedJob | None:
        with self._lock:
            if self._closed:
                raise UsageError("the parameter server is being closed")
            if sum(len(each.members) for each in self._jobs.values()) >= MOST_MEMBERS:
                raise NoCapacity(f"this server is full, with {MOST_MEMBERS} workers: use another")
            job = self._jobs.get(registration.job) or new
            if not job:
                return None
            if new:
                self._jobs[registration.job] = new
                self._report(
                    "job", job=registration.job, workers=registration.workers, bytes=new.bytes
                )
            keys = job.join(registration, described, member)
            member.tell({"job": job.number, "keys": keys})
            if job.ready:
                member.tell({"ready": True})
            return job

    def _create(
        self, registration: Registration, described: Description, member: Member
    ) -> ServedJob:
        with self._lock:
            left = self._memory - self._reserved()
        self._last_number += 1
        job = ServedJob(self._last_number, registration, self._cores, left)
        try:
            self._add(registration, described, member, job)
        except InnetError:
            job.end(None)
            raise
        return job

    def _freed(self, number: int) -> None:
        """Note that a core has freed its part of a job."""
        if job := self._freeing.get(number):
            job.cores_left -= 1
            if not job.cores_left:
                del self._freeing[number]

    def _file_away(self, job: ServedJob) -> None:
        """Free an ended job's name at once. Its memory is free once all cores have freed their parts."""
        if job.ended and self._jobs.get(job.registration.job) is job:
            del self._jobs[job.registration.job]
            self._freeing[job.number] = job
            self._report("job ended", job=job.registration.job, **job.counts())

    def _reserved(self) -> int:
        return sum(job.bytes for job in (*self._jobs.values(), *self._freeing.values()))
