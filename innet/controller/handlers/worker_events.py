"""The events that come from workers, over the streams that they hold open."""

import structlog

from innet.controller.handlers.damage import DamageLog
from innet.controller.jobs.job import Job
from innet.controller.state import validation
from innet.controller.state.messages import address_view, progress_of
from innet.controller.state.registry import Registry
from innet.controller.state.streams import Stream
from innet.errors import InnetError, NotAuthorized, NotFound, UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc.tokens import check_token, digest_for

_log = structlog.get_logger("innet.controller")


class WorkerEvents:
    """The receiver of messages from workers, and of the ends of their streams."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._damage = DamageLog(registry)

    def hear(self, stream: Stream, message: pb.WorkerMessage) -> None:
        """Take a message from a worker."""
        if message.WhichOneof("message") == "join":
            if stream.nonce:
                raise UsageError("a stream has one JoinRequest, and this is the second")
            self._join(stream, message.join)
            return
        if not stream.nonce:
            raise UsageError("a stream has to begin with a JoinRequest")
        with self._registry.lock:
            job = self._registry.members.job(stream.nonce)
            if job and self._registry.members.has(stream):  # else it has left meanwhile
                self._take(job, stream, message)

    def check_join(self, request: pb.CheckJoinRequest) -> pb.CheckJoinResponse:
        """Return what a worker needs to join, or raise the error that joining would raise."""
        with self._registry.lock:
            job = self._job_for(request)
            job.roster.check_rank(request.rank)
            service = self._registry.switches[job.spec.switch].record.service
            taken = request.rank in job.roster.workers
            return pb.CheckJoinResponse(service=address_view(service), taken=taken)

    def leave(self, stream: Stream, reason: str, problem: InnetError | None = None) -> None:
        """Remove a worker, and end its stream, with an error if there is one. May be called again."""
        with self._registry.lock:
            stream.end(problem)
            if self._registry.closed.is_set() or not self._registry.members.has(stream):
                return
            if job := self._registry.members.forget(stream.nonce):
                actions = job.leave(stream.nonce, reason, self._registry.clock())
                self._registry.commit(job, actions)

    def disconnect(self, stream: Stream) -> None:
        """Note that a worker's stream has ended: with its process, or because the network failed."""
        members = self._registry.members
        with self._registry.lock:
            if reason := members.presence.just_ended(stream, self._registry.clock()):
                self.leave(stream, reason)
            elif members.has(stream) and not self._registry.closed.is_set():
                members.lose_stream(stream.nonce)
                _log.warning(
                    "a worker's connection is lost, and may come back",
                    job=stream.job, rank=stream.rank,
                )  # fmt: skip
            stream.end()

    def _take(self, job: Job, stream: Stream, message: pb.WorkerMessage) -> None:
        now, nonce = self._registry.clock(), stream.nonce
        match message.WhichOneof("message"):
            case "heartbeat":
                progress = message.heartbeat.progress
                validation.check_progress(progress)
                job.heartbeat(nonce, progress_of(progress), now)
                if worker := job.roster.find(nonce):
                    self._damage.at_worker(job, worker, progress.corrupted)
            case "ready":
                ready = message.ready
                validation.check_ready(ready)
                self._registry.commit(job, job.ready(nonce, ready.term, ready.exchange, now))
            case "activity":
                before = job.communicates
                job.activity(nonce, now, busy=message.activity.busy)
                if job.communicates != before:
                    self._registry.lend_slots()
            case "trouble":
                trouble = message.trouble
                validation.check_reason(trouble.reason)
                self._registry.commit(job, job.trouble(nonce, trouble.term, trouble.reason, now))
            case "farewell":
                validation.check_reason(message.farewell.reason)
                self.leave(stream, f"its program has failed: {message.farewell.reason}")
            case _:
                raise UsageError("a worker's message is empty, or of a kind that is not known here")

    def _job_for(self, request: pb.JoinRequest | pb.CheckJoinRequest) -> Job:
        """Return the job that a worker asks for, if it has the job's token."""
        validation.check_join(request)
        self._registry.check_open()
        job = self._registry.jobs.get(request.job)
        if not job:
            raise NotFound(
                f"there is no job {request.job!r}: create it with `innet job create`, or name another one"
            )
        digest = digest_for(request.rank, job.spec.token_digest)
        check_token(request.token, digest, request.job)
        return job

    def _join(self, stream: Stream, request: pb.JoinRequest) -> None:
        registry = self._registry
        with registry.lock:
            job, now = self._job_for(request), registry.clock()
            nonce, fallback = request.nonce or registry.new_nonce(), request.fallback
            if request.nonce:
                worker = job.roster.find(nonce)
                if worker and worker.rank != request.rank:  # the token is that of this rank only
                    raise NotAuthorized(
                        f"the nonce is that of another rank of the job {request.job!r}: come back with "
                        "the rank's own"
                    )
                actions = job.rejoin(nonce, now, fallback=fallback)
                _log.info(
                    "a worker's connection is back",
                    job=request.job, rank=job.spec.in_group(request.rank),
                )  # fmt: skip
            else:
                holder = job.roster.workers.get(request.rank)
                unheard = registry.members.presence.unheard([holder.nonce] if holder else [])
                actions = job.join(request.rank, nonce, now, fallback=fallback, unheard=unheard)
            registry.members.add(nonce, job, request.rank, stream)
            registry.commit(job, [*actions, *registry.waits.repeat(job, nonce)])
