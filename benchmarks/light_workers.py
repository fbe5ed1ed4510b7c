"""Light workers that sum: many of them in one process, in one thread, in C (``light_workers.c``).

A light worker is a member of its job as any worker is (:mod:`benchmarks.idle_workers`). Its I/O rounds
are those of an agent (``innet/host/round.c``). It lacks the congestion window, and it sums one vector of
integers. If a term ends, it sums that vector again in the next term.

The vector of rank r is the part of a pool of random integers that begins at element r. So a process
needs one pool for all its workers, and the right sum follows from the pool's prefix sums. Every
result of every worker is compared with the right sum when it arrives.
"""

import asyncio
import ctypes
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.idle_workers import Member, Seat, until
from benchmarks.lossy_cables import Losses
from innet.errors import InnetError
from innet.host import fastpath
from innet.host.compiled_rounds import CompiledRounds
from innet.host.integers import Reduction
from innet.host.job import Path as SumPath
from innet.host.link import Link, open_link
from innet.host.packets import Packets
from innet.host.structs import Network
from innet.host.window import Window
from innet.rpc import innet_pb2 as pb
from innet.wire.frames import Address
from innet.wire.layout import Flag, Kind, Operation
from innet.wire.records import blank, set_field

_TURNS_S = 0.05
_SLOWEST = 30.0  # seconds: many workers share the processors
_SPREAD = 12.0  # round trips over which workers spread their repetitions; 4 and more in RFC 4654
_FIRST, _GAIN = 0.1, 1 / 8  # the first round trip, and how much each measurement counts
_WAIT = np.dtype([("sequence", "u4"), ("heard", "i4"), ("heard_at", "f8"), ("ask_at", "f8")])
"""A ``struct wait``."""
_LOOK_EVERY = 0.01
_pointer, _number, _real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double

COUNTS = (
    "sent", "repetitions", "received", "corrupted", "results", "wrong", "pending", "stale", "lost",
)  # fmt: skip
"""The packets and results of a process: see ``struct swarm``."""


class _Member(ctypes.Structure):
    _fields_ = [
        ("network", Network), ("worker", _pointer), ("waits", _pointer), ("remaining", _number),
        ("due", _number), ("newest", _real), ("quiet_until", _real), ("look_at", _real),
    ]  # fmt: skip


class _Swarm(ctypes.Structure):
    _fields_ = [
        ("members", _pointer), ("count", _number), ("wanted", _pointer),
        ("contributions", _number), ("listeners", _number), ("usual", _real), ("slowest", _real),
        ("spread", _real), ("losses", Losses),
        ("stop", _number), ("unfinished", _number), *((name, _number) for name in COUNTS[:-1]),
        ("failed", _number), ("shortest", _real), ("answered", _real),
    ]  # fmt: skip


@dataclass(frozen=True)
class Sum:
    """The vectors of a job's workers: `elements` of each, from `seed`. `loss` is a share of packets.

    An answer from the top comes to `listeners` workers: all below one switch.
    """

    workers: int
    elements: int
    seed: int
    loss: float
    listeners: int

    def vectors(self, lanes: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], int]:
        """Return the pool, the right sum, (chunks, lanes), and the number of chunks."""
        chunks = -(-self.elements // lanes)
        size, bound = chunks * lanes, (1 << 31) // self.workers
        pool = np.random.default_rng(self.seed).integers(
            1 - bound, bound, size + self.workers, np.int32
        )
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(pool, dtype=np.int64)])
        right = before[self.workers : self.workers + size] - before[:size]
        return pool, right.astype(np.int32).reshape(chunks, lanes), chunks


class LightWorker(Member):
    """A membership with a link to the switch, and with the rounds of its present term."""

    def __init__(
        self, controller: str, seat: Seat, counts: Any, beating: Any, link: str, stop: Any
    ) -> None:
        super().__init__(controller, seat, counts, beating)
        self._spec, self._stop_all, self.rank = link, stop, seat.rank
        self.link: Link | None = None
        self.term: pb.Resume | None = None
        self.job = self.lanes = 0

    def hello(self, invitation: pb.Invitation) -> Callable[[], object]:
        """Return a function that sends a hello packet. The first call opens the link."""
        to = invitation.service
        service = Address(to.mac, to.ip, to.udp_port)
        sealed, self.lanes = not invitation.unsealed, invitation.lanes
        link = self.link or open_link(self._spec, service, self.lanes, sealed=sealed)
        self.link = link
        hello = blank(1, 0, Kind.HELLO, link.bare_encapsulation)
        hello["sequence"] = invitation.nonce
        return lambda: link.send(hello)

    def admitted(self, admission: pb.Admission) -> None:
        """Note the job's number in packets."""
        self.job = admission.job_id

    def stop(self) -> None:
        """End the sum of the whole process: another term comes."""
        self.term = None
        self._stop_all()

    def begin(self, resume: pb.Resume) -> None:
        """Begin a term."""
        self.term = resume

    def rounds(
        self, library: ctypes.CDLL, chunks: int, inbox: "LightWorker"
    ) -> tuple[CompiledRounds, Window, Network]:
        """Return the I/O rounds of the present term, for a sum of so many chunks.

        Packets arrive in the buffers of the worker `inbox`, so that they stay in the processor's cache.
        """
        term, link = self.term, self.link
        shared = inbox.link.native if inbox.link else None
        if not term or not link or not link.native or not shared:
            raise AssertionError
        link.native.buffers = shared.buffers
        full = blank(term.slots, self.lanes, Kind.CONTRIBUTION, link.encapsulation)
        bare = blank(term.slots, 0, Kind.CONTRIBUTION, link.bare_encapsulation)
        for each in (full, bare):
            each["job"], each["term"] = self.job, term.term
            set_field(each, "operation", Operation.SUM)
        window = Window(term.slots)
        window.start(chunks)
        identity, answers = (self.job, term.term, term.first_slot), np.zeros(term.slots, np.uint64)
        rounds = CompiledRounds(library, link, window, identity, Packets(full, bare), answers)
        return rounds, window, link.native.network


class _Process:
    """The workers of one process, and the thread that runs them."""

    def __init__(self, job: Sum, number: int, said: Any) -> None:
        self._job, self._said = job, said
        source = Path(__file__).with_suffix(".c")
        files = (source, source.with_name("losses.h"))
        self._library = fastpath.compile_with({each.name: each.read_bytes() for each in files})
        self._library.innet_swarm_run.argtypes = (ctypes.POINTER(_Swarm), _real)
        self._library.innet_swarm_run.restype = None
        self._usual, self._answer = _FIRST, 0.0  # round trips
        self._swarm = _Swarm(
            contributions=job.workers, listeners=job.listeners, slowest=_SLOWEST,
            losses=Losses.seeded(job.loss, job.seed, number),
        )  # fmt: skip
        self._vectors: tuple[Any, Any, int] | None = None

    def stop(self) -> None:
        """End the sum under way, from any thread."""
        self._swarm.stop = 1

    async def serve(self, workers: Sequence[LightWorker], may_sum: Any) -> None:
        """Sum in each term, as soon as all workers know it."""
        done = 0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            terms = {each.term.term if each.term else 0 for each in workers}
            [term] = terms if len(terms) == 1 else [0]
            if not term or term == done or not may_sum.is_set():
                continue
            if any(each.term and SumPath(each.term.path) != SumPath.SWITCH for each in workers):
                raise InnetError("the job does not sum in its switches")
            if await self._sum(workers):
                done = term
                self._said[0] = term

    async def _sum(self, workers: Sequence[LightWorker]) -> bool:
        """Sum the vector in the present term. Return False if the term has ended before."""
        swarm, lanes = self._swarm, workers[0].lanes
        pool, right, chunks = self._vectors = self._vectors or self._job.vectors(lanes)
        swarm.stop = 0
        result = Reduction.empty(chunks, lanes)
        result.counts[:] = self._job.workers
        flags = np.full(chunks, Flag.CARRIED | Flag.WANTED, np.uint16)
        made = [each.rounds(self._library, chunks, workers[0]) for each in workers]
        members = (_Member * len(made))()
        waits = np.zeros((len(made), made[0][1].slots), _WAIT)
        for worker, member, (rounds, _, network), wait in zip(
            workers, members, made, waits, strict=True
        ):
            own = pool[worker.rank : worker.rank + right.size].reshape(right.shape)
            rounds.start(own, flags, result)
            member.network, member.worker, member.remaining = network, rounds.worker, chunks
            member.waits = fastpath.at(wait, _WAIT)
            member.newest = member.quiet_until = float("-inf")
            member.due = 1
        swarm.members, swarm.count = ctypes.addressof(members), len(members)
        swarm.wanted, swarm.unfinished = fastpath.at(right, np.int32), len(members)
        while swarm.unfinished and not swarm.stop:
            swarm.usual = max(self._usual, self._answer)
            swarm.spread = _SPREAD * swarm.usual
            await asyncio.to_thread(self._library.innet_swarm_run, swarm, _TURNS_S)
            if swarm.failed:
                raise OSError(swarm.failed, os.strerror(swarm.failed))
            # Only the shortest counts. Longer ones contain waits for the repetitions of other
            # workers, and would make the waits longer and longer.
            if swarm.shortest:
                self._usual += _GAIN * (swarm.shortest - self._usual)
            if swarm.answered:
                self._answer += _GAIN * (swarm.answered - self._answer)
            self._tell()
        return not swarm.unfinished

    def _tell(self) -> None:
        swarm = self._swarm
        found = [getattr(swarm, name) for name in COUNTS[:-1]]
        self._said[1:] = [*found, swarm.losses.lost]


def work(
    controller: str,
    seats: Sequence[Seat],
    links: Sequence[str],
    job: Sum,
    number: int,
    counts: Any,
    said: Any,
    beating: Any,
    may_sum: Any,
    over: Any,
) -> None:
    """Run the workers of one process until `over`; they sum once `may_sum` is set.

    `said` gets the last term in which all have all results, and the counts of COUNTS.
    """
    process = _Process(job, number, said)
    workers = [
        LightWorker(controller, seat, counts, beating, link, process.stop)
        for seat, link in zip(seats, links, strict=True)
    ]
    asyncio.run(until(over, [*(each.run() for each in workers), process.serve(workers, may_sum)]))


class Swarm:
    """Processes of light workers, which begin to join the controller at once.

    `links[rank]` is the link of the job's worker `rank`.
    """

    def __init__(
        self, controller: str, name: str, token: str, links: Sequence[str], job: Sum, processes: int
    ) -> None:
        spawning = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
        self._counts = [spawning.Array("q", 3, lock=False) for _ in range(processes)]
        self._said = [spawning.Array("q", 1 + len(COUNTS), lock=False) for _ in range(processes)]
        beating = spawning.Value("b", 1, lock=False)
        self._may_sum, self._over = spawning.Event(), spawning.Event()
        seats = [Seat(name, token, rank, rank + 1) for rank in range(len(links))]
        self._processes = [
            spawning.Process(
                target=work,
                args=(
                    controller, seats[number::processes], links[number::processes], job, number,
                    self._counts[number], self._said[number], beating, self._may_sum, self._over,
                ),
                daemon=True,
            )
            for number in range(processes)
        ]  # fmt: skip
        for each in self._processes:
            each.start()

    @property
    def going(self) -> int:
        """Return the number of workers with an open stream and a term. Raises InnetError."""
        if any(each.exitcode for each in self._processes):
            raise InnetError("a process of the swarm has failed: its error stands above")
        return sum(each[0] for each in self._counts)

    @property
    def terms(self) -> int:
        """Return how often a worker was told of a term other than its last one."""
        return sum(each[1] for each in self._counts)

    @property
    def ended(self) -> int:
        """Return how many streams of workers with a term have ended."""
        return sum(each[2] for each in self._counts)

    def sum(self) -> None:
        """Let the workers of each process sum as soon as all of them know their term."""
        self._may_sum.set()

    @property
    def done(self) -> bool:
        """Return whether all workers have all results of the same term."""
        terms = {each[0] for each in self._said}
        return len(terms) == 1 and 0 not in terms

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts so far, added up over the processes."""
        return {name: sum(each[1 + at] for each in self._said) for at, name in enumerate(COUNTS)}

    @property
    def seconds(self) -> float:
        """Return the processor time of the processes so far."""
        return processor_seconds(each.pid for each in self._processes)

    def close(self) -> None:
        """End the processes."""
        self._over.set()
        for each in self._processes:
            each.join(60.0)
            each.kill()


def processor_seconds(processes: Iterable[int | None]) -> float:
    """Return the processor time that processes have used so far."""
    stats = (
        Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in processes
    )
    return sum(int(each[11]) + int(each[12]) for each in stats) / os.sysconf("SC_CLK_TCK")
