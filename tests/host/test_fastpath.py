"""The compiled I/O rounds do the same as numpy's: they send the same packets at the same times."""

import ctypes
import errno
import heapq
import itertools
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
import sanitizers

from innet.errors import CompilerError, JobEnded
from innet.host import fastpath, structs, transport
from innet.host.compiled_rounds import CompiledRounds
from innet.host.connections import Buffers, Format, Formats
from innet.host.integers import Reduction
from innet.host.job import Path as Way
from innet.host.job import Term, Timeouts, WorkerInfo
from innet.host.packets import Packets
from innet.host.portions import Portions
from innet.host.quantizers import fixed_point
from innet.host.quantizers.scaling import Scaling
from innet.host.rounds import RoundLimits, RoundOutcome
from innet.host.transport import SwitchTransport
from innet.host.window import Window
from innet.machine.sockets import FRAME_MEMORY
from innet.rpc import innet_pb2 as pb
from innet.wire.check import intact, seal
from innet.wire.layout import Ecn, Flag, Kind, Operation
from innet.wire.records import Records, blank, get_field, packet_dtype, set_field

if TYPE_CHECKING:
    from collections.abc import Callable

FRONT = bytes([*range(15), Ecn.CAPABLE, *range(16, 42)])
MARKED_FRONT = bytes([*range(15), Ecn.CONGESTED, *range(16, 42)])
OWN, SERVICE = (0x0A000001, 5000), (0x0AFFFFFE, 19790)
LANES, WORKERS = 8, 3
MARKED, CARRIED, WANTED = map(int, (Flag.MARKED, Flag.CARRIED, Flag.WANTED))
"""The flags as numbers, which are several times as fast in the simulated network."""

FOREIGN = {"version": 1, "job": 3, "term": 1, "slot": 64, "sequence": 1000}
"""Changes that make a reply one of another job, term or time."""

needs_compiler = pytest.mark.skipif(not fastpath.compiled(), reason="there is no C compiler")


class Clock:
    """A time that passes only during waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Network:
    """A link to a simulated switch with all other workers: it loses, repeats, delays, and probes.

    Everything that happens depends on the packets sent and on the seed alone.
    """

    def __init__(
        self, info: WorkerInfo, term: Term, seed: int, trouble: float, clock: Clock
    ) -> None:
        self.info, self.term, self.trouble, self.clock = info, term, trouble, clock
        self.operation = Operation.SUM
        self.queued: Callable[[], int] | None = None  # memory of what waits for the worker's link
        self.encapsulation = self.bare_encapsulation = FRONT
        self.refusal = ""
        self.dtype, self.bare_dtype = (packet_dtype(lanes, len(FRONT)) for lanes in (info.lanes, 0))
        self.leaving, self.arriving = (
            Formats(Format(self.bare_dtype, *end), Format(self.dtype, *end))
            for end in (OWN, SERVICE)
        )
        self.corrupted = 0
        self.sent: list[tuple[float, bytes]] = []
        self.chance = np.random.default_rng(seed)
        self.marking = 0.0  # of the results
        self.delay = 0.001  # seconds from a contribution to its result
        self.under_way: list[tuple[float, int, bytes]] = []
        self.native = Native(self)

    def send(self, records: Records) -> None:
        seal(records, *OWN)
        self.pass_on(records)

    def pass_on(self, records: Records) -> None:
        assert intact(records, *OWN).all()
        assert (get_field(records, "operation") == self.operation).all()
        self.sent.append((self.clock.now, records.tobytes()))
        for record in records:
            for _ in range(1 + (self.chance.random() < self.trouble / 2)):
                if self.chance.random() >= self.trouble:
                    self.answer(record.copy())

    def answer(self, record: np.void) -> None:
        waits = self.chance.random() < self.trouble
        flags = int(record["flags"])
        wanted = flags & WANTED
        if not waits and self.carried(record):
            flags |= CARRIED | WANTED  # by the others
            record["flags"] = flags
        # Some switches do not strip lanes.
        given = wanted or self.chance.random() < self.trouble / 2
        has_lanes = not waits and given and flags & CARRIED
        record = self.full(record) if has_lanes else self.bare(record)
        set_field(record, "kind", Kind.PENDING if waits else Kind.RESULT)
        record["workers"] = 0b101 if waits else 0b111
        record["count"] = 0 if waits else 3
        if self.chance.random() < max(self.marking, self.trouble / 2):
            record["flags"] = flags | MARKED
        elif self.chance.random() < self.trouble / 2:
            record["encapsulation"] = np.void(MARKED_FRONT)
        if self.chance.random() < self.trouble / 4:  # of another job
            field = self.chance.choice(list(FOREIGN))
            record[field] += FOREIGN[field]
        delay = self.delay + 0.004 * self.trouble * self.chance.random()
        arrival = self.clock.now + delay, len(self.under_way), record.tobytes()
        heapq.heappush(self.under_way, arrival)

    def carried(self, record: np.void) -> bool:
        """Return whether the other workers carry lanes of a chunk."""
        return bool((int(record["slot"]) + int(record["sequence"])) % 7)

    def bare(self, record: np.void) -> np.void:
        """Return a packet without its lanes, if it has any."""
        if record.dtype == self.bare_dtype:
            return record
        return np.frombuffer(record.tobytes()[: self.bare_dtype.itemsize], self.bare_dtype)[
            0
        ].copy()

    def full(self, record: np.void) -> np.void:
        """Return a packet with the sum of all workers' lanes: three times this one's, or the slot."""
        content = record.tobytes()
        has_lanes = len(content) == self.dtype.itemsize
        content += b"" if has_lanes else np.ones(self.info.lanes, ">i4").tobytes()
        [made] = np.frombuffer(content, self.dtype).copy()
        made["lanes"] *= 3 if has_lanes else int(made["slot"])
        return made

    def wait(self, seconds: float) -> None:
        at = self.under_way[0][0] if self.under_way else float("inf")
        self.clock.now = max(self.clock.now, min(at, self.clock.now + max(seconds, 1e-6)))

    def arrived(self) -> tuple[list[bytes], list[bytes]]:
        """Take the packets that have arrived, at most 16: those with lanes, and bare headers."""
        full: list[bytes] = []
        bare: list[bytes] = []
        while len(full) + len(bare) < 16 and self.under_way:
            if self.under_way[0][0] > self.clock.now:
                break
            content = heapq.heappop(self.under_way)[2]
            (full if len(content) == self.dtype.itemsize else bare).append(content)
        return full, bare

    def receive(self) -> Packets:
        full, bare = (bytearray().join(each) for each in self.arrived())
        return Packets(np.frombuffer(full, self.dtype), np.frombuffer(bare, self.bare_dtype))


class Native:
    """The same network for C."""

    def __init__(self, network: Network) -> None:
        self.over = network
        self.buffers = Buffers(network.arriving, 16, network.dtype.itemsize)
        number, real, place = ctypes.c_int, ctypes.c_double, ctypes.c_void_p
        self.functions = (
            ctypes.CFUNCTYPE(real, place)(lambda _: network.clock.now),
            ctypes.CFUNCTYPE(number, place, real)(self.wait),
            ctypes.CFUNCTYPE(number, place, place, ctypes.c_size_t, ctypes.c_size_t)(self.send),
            ctypes.CFUNCTYPE(number, place, ctypes.POINTER(structs.Inbox))(self.receive),
        )
        self.network = structs.Network(None, *(ctypes.cast(f, place) for f in self.functions))
        self.queued = ctypes.CFUNCTYPE(ctypes.c_int64, place)(lambda _: network.queued())
        if network.queued:
            self.network.queued = ctypes.cast(self.queued, place)

    def wait(self, _: int, seconds: float) -> int:
        self.over.wait(seconds)
        return 0

    def send(self, _: int, packets: int, count: int, size: int) -> int:
        kinds = {each.itemsize: each for each in (self.over.dtype, self.over.bare_dtype)}
        records = np.frombuffer(ctypes.string_at(packets, count * size), kinds[size])
        self.over.pass_on(records.copy())
        return 0

    def receive(self, _: int, inbox) -> int:
        full, bare = self.over.arrived()
        place = inbox.contents
        for length, packets in enumerate((bare, full)):
            content = b"".join(packets)
            ctypes.memmove(place.buffers[length], content, len(content))
            place.packets[length] = len(packets)
        return 0 if full or bare else errno.EAGAIN


class MembershipView:
    """A membership in which nobody leaves and nothing ends."""

    def check(self) -> None:
        pass

    def departed(self) -> dict[int, str]:
        return {}

    def trouble(self, reason: str) -> None:
        pass

    def in_touch(self) -> bool:
        return True

    def waits(self, seconds: float, ranks) -> None:
        pass


def chosen(way: str, chunks: int, chance: np.random.Generator) -> Portions | None:
    """Return the portions of a worker in an exchange, or None for an all-reduce."""
    every, some = range(chunks), range(*sorted(chance.integers(0, chunks + 1, 2).tolist()))
    ways = {"scatter": (every, some), "gather": (some, every), "root": (every, range(0))}
    if way == "node":  # whose ranks send and want lanes here and there
        bits = chance.integers(0, 4, chunks, np.uint16) * np.uint16(Flag.CARRIED)
        return Portions(bits, every, every)
    return Portions.of(chunks, *ways[way]) if way in ways else None


def sums_of(own: np.ndarray, portions: Portions, term: Term) -> np.ndarray:
    """Return the sums that the simulated switch makes of a term's first exchange."""
    numbers = np.argsort(portions.order(WORKERS))  # the positions of the chunks
    slots, sequences = term.first_slot + numbers % term.slots, 1 + numbers // term.slots
    carried = portions.flags & Flag.CARRIED != 0
    others = np.where((slots + sequences) % 7 != 0, slots, 0)
    return np.where(carried[:, None], 3 * own, others[:, None]).astype(np.int32)


SMALL = (
    (1, ">i4", Operation.SUM),  # on GPUs words come swapped
    (1, "<i4", Operation.MAX),
    (1, "<i4", Operation.MAX),
    (2, "<i4", Operation.SUM),
)
"""Exchanges of few chunks: how many, their byte order, and the operation."""


def played(seed: int, trouble: float, slots: int, way: str = "all") -> tuple[object, ...]:
    """Run a long exchange of a worker, and some small ones, in each of two terms.

    Returns all packets, with their times, and the results.
    """
    info = WorkerInfo(job=0x1234, rank=0, workers=3, min_workers=3, lanes=LANES)
    clock = Clock()
    terms = [
        Term(number, Way.SWITCH, first_slot=0x0180, slots=slots) for number in (0xFEDC, 0xFEDD)
    ]
    network = Network(info, terms[0], seed, trouble, clock)
    worker = SwitchTransport(network, info, clock, MembershipView(), Timeouts(1e9, 1e9))  # type: ignore[arg-type]
    results: list[bytes] = []
    long = 5 * slots + 3, "<i4", Operation.SUM
    for term, (chunks, order, operation) in itertools.product(terms, (long, *SMALL)):
        if term is not network.term or not results:
            network.term = term
            worker.begin(term)
        network.operation = operation
        own = np.random.default_rng(seed).integers(-(2**28), 2**28, (chunks, LANES), np.int32)
        flags = np.arange(chunks, dtype=np.uint16) % 3
        portions = chosen(way, chunks, np.random.default_rng(seed)) if chunks > 2 else None
        here = portions or Portions.whole(chunks)
        done = worker.all_reduce(
            own[here.sent.start : here.sent.stop].astype(order), flags, operation,
            portions, inspect=None if portions else lambda first: results.append(first.tobytes()),
        )  # fmt: skip
        assert len(done.lanes) == len(here.received)
        assert done.first == here.received.start
        rows = np.flatnonzero(here.flags & Flag.WANTED)
        assert (done.lanes[rows - done.first] == sums_of(own, here, term)[rows]).all()
        assert (done.flags == flags).all()
        assert (done.counts == 3).all()
        assert (done.members == 0b111).all()
        results.append(done.lanes[rows - done.first].tobytes())
    arrays = {name: each.tolist() for name, each in worker._window.arrays.items()}
    return network.sent, results, worker.traffic, worker._timer, arrays, clock.now


@needs_compiler
@pytest.mark.parametrize("slots", [1, 4, 64])
@pytest.mark.parametrize("trouble", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(
    ("seed", "way"),
    [(1, "all"), (2, "all"), (3, "scatter"), (4, "gather"), (5, "root"), (6, "node")],
)
def test_with_and_without_a_compiler_a_worker_does_the_same(seed, trouble, slots, way, monkeypatch):
    """Compare batch by batch. Longer rounds use older knowledge, so only their sums are checked."""
    played(seed, trouble, slots, way)
    monkeypatch.setattr(transport, "RoundLimits", partial(RoundLimits, batches=1))
    compiled = played(seed, trouble, slots, way)
    if fastpath.FLAGS[-len(sanitizers.FLAGS) :] == sanitizers.FLAGS:
        return  # the comparison is not about C's memory, and it is made without sanitizers, too
    monkeypatch.setattr(fastpath, "compiled", lambda: None)
    plain = played(seed, trouble, slots, way)
    for ours, theirs in zip(compiled, plain, strict=True):
        assert ours == theirs


@needs_compiler
def test_lanes_wait_with_the_worker_while_its_link_has_a_queue_and_bare_headers_do_not():
    info = WorkerInfo(job=1, rank=0, workers=WORKERS, min_workers=WORKERS, lanes=LANES)
    term, clock, chunks = Term(2, Way.SWITCH, first_slot=0, slots=64), Clock(), 600
    network = Network(info, term, 1, 0.0, clock)
    frees_at = 0.25
    network.queued = lambda: chunks * FRAME_MEMORY * (clock.now < frees_at)
    network.native = Native(network)
    worker = SwitchTransport(network, info, clock, MembershipView(), Timeouts(1e9, 1e9))  # type: ignore[arg-type]
    worker.begin(term)
    portions = Portions.of(chunks, range(chunks // 3), range(chunks))
    own, none = np.ones((chunks // 3, LANES), np.int32), np.zeros(chunks, np.uint16)
    done = worker.all_reduce(own, none, Operation.SUM, portions)
    assert (done.lanes[: chunks // 3] == 3).all()
    full, bare = (
        [at for at, content in network.sent if len(content) % kind.itemsize == 0]
        for kind in (network.dtype, network.bare_dtype)
    )
    assert min(full) >= frees_at
    assert min(bare) == 0
    assert worker.traffic.retransmissions == 0


class Ending(MembershipView):
    """A membership that ends an exchange as soon as time has passed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def check(self) -> None:
        if self.clock.now:
            raise JobEnded("the job is over")


@pytest.mark.parametrize("compiled", [True, False])
def test_who_is_woken_takes_what_has_come_at_the_same_time(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(fastpath, "compiled", lambda: None)
    elif not fastpath.compiled():
        pytest.skip("there is no C compiler")
    info = WorkerInfo(job=1, rank=0, workers=WORKERS, min_workers=WORKERS, lanes=LANES)
    term, clock = Term(2, Way.SWITCH, first_slot=0, slots=4), Clock()
    network = Network(info, term, 1, 0.0, clock)
    monkeypatch.setattr(Native, "wait", lambda self, _, seconds: self.over.wait(seconds) or 1)
    network.native = Native(network)
    worker = SwitchTransport(network, info, clock, Ending(clock), Timeouts(1e9, 1e9))  # type: ignore[arg-type]
    worker.begin(term)
    own, none = np.ones((2, LANES), np.int32), np.zeros(2, np.uint16)
    done = worker.all_reduce(own, none, Operation.SUM)
    assert (done.lanes == 3).all()
    with pytest.raises(JobEnded):
        worker.all_reduce(np.ones((5, LANES), np.int32), np.zeros(5, np.uint16), Operation.SUM)


IN_ORDER = 64  # chunks


def rounds_of_one_slot(delay: float, monkeypatch) -> tuple[SwitchTransport, list[float]]:
    """Sum some chunks, one after the other; also return when rounds end."""
    info = WorkerInfo(job=1, rank=0, workers=WORKERS, min_workers=WORKERS, lanes=LANES)
    term, clock, chunks = Term(2, Way.SWITCH, first_slot=0, slots=1), Clock(), IN_ORDER
    network = Network(info, term, 1, 0.0, clock)
    network.delay = delay
    worker = SwitchTransport(network, info, clock, MembershipView(), Timeouts(1e9, 1e9))  # type: ignore[arg-type]
    worker.begin(term)
    ends: list[float] = []
    run = CompiledRounds.run

    def noted(rounds: CompiledRounds, limits: RoundLimits) -> RoundOutcome:
        outcome = run(rounds, limits)
        ends.append(outcome.now)
        return outcome

    monkeypatch.setattr(CompiledRounds, "run", noted)
    own, none = np.ones((chunks, LANES), np.int32), np.zeros(chunks, np.uint16)
    worker.all_reduce(own, none, Operation.SUM)
    assert len(network.sent) == chunks  # none was repeated
    return worker, ends


@needs_compiler
def test_a_round_lasts_as_long_as_results_come(monkeypatch):
    worker, ends = rounds_of_one_slot(0.001, monkeypatch)
    assert len(ends) == 2  # the first chunk's result ends a round
    assert ends[-1] - ends[0] > 5 * worker._timer.timeout


@needs_compiler
def test_results_put_off_the_end_of_a_round_by_a_tenth_of_a_second_at_most(monkeypatch):
    delay = 0.005
    _, ends = rounds_of_one_slot(delay, monkeypatch)
    lengths = np.diff(ends)
    assert lengths.sum() == pytest.approx((IN_ORDER - 1) * delay)
    first_timeout = 3 * delay  # of RFC 6298, after one measurement
    assert 0.1 <= lengths.max() <= 0.1 + first_timeout + delay


@pytest.mark.parametrize("compiled", [True, False])
def test_marks_shrink_the_window_and_leave_the_flags(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(fastpath, "compiled", lambda: None)
    elif not fastpath.compiled():
        pytest.skip("there is no C compiler")
    info = WorkerInfo(job=1, rank=0, workers=3, min_workers=3, lanes=LANES)
    term = Term(2, Way.SWITCH, first_slot=0, slots=64)
    sizes = []
    for marking in (0.0, 1.0):
        clock = Clock()
        network = Network(info, term, 1, 0.0, clock)
        network.marking = marking
        worker = SwitchTransport(network, info, clock, MembershipView(), Timeouts(1e9, 1e9))  # type: ignore[arg-type]
        worker.begin(term)
        own, flags = np.ones((100, LANES), np.int32), np.arange(100, dtype=np.uint16) % 3
        done = worker.all_reduce(own, flags, Operation.SUM)
        assert (done.lanes == 3).all()
        assert (done.flags == flags).all()
        worker.fill(progress := pb.Progress())
        sizes.append(progress.window)
    assert sizes[0] == 64
    assert sizes[1] <= 8


@needs_compiler
@pytest.mark.parametrize("lanes", [1, 7, 64, 256, 1024])
def test_vectors_are_scaled_to_the_same_bits(lanes, monkeypatch):
    chance = np.random.default_rng(lanes)
    values = chance.standard_normal((200, lanes), np.float32)
    values *= np.float32(2) ** chance.integers(-140, 120, (200, 1)).astype(np.float32)
    values[3, 0], values[5, -1], values[7, 0], values[9] = np.nan, np.inf, -np.inf, -0.0
    counts = chance.integers(1, 5, (200, 1)).astype(np.uint16)
    sums = chance.integers(-(2**31), 2**31, (200, lanes)).astype(np.int32)
    flags = np.where(chance.random(200) < 0.1, Flag.NOT_FINITE, 0).astype(np.uint16)
    found = []
    for _ in range(2):
        own = fixed_point.block_exponents(values)
        clamped = own - 2  # as for a worker that came too late
        found.append(
            [
                own.tobytes(),
                *(fixed_point.quantize(values, own, each, 4).tobytes() for each in (own, clamped)),
                fixed_point.dequantize(sums, own, 4, None, flags).tobytes(),
                fixed_point.dequantize(sums, own, 4, counts, flags).tobytes(),
                fixed_point.dequantize(sums.astype(np.int64), own, 4, counts, flags).tobytes(),
            ]
        )
        monkeypatch.setattr(fastpath, "compiled", lambda: None)
    assert found[0] == found[1]


def travelling(
    values: np.ndarray, agreed: np.ndarray, *, in_place: bool
) -> tuple[Scaling, np.ndarray]:
    """Return floats to be scaled during an exchange, and their exponents."""
    own = fixed_point.block_exponents(values)
    given = values.copy() if in_place else values
    scaling = fixed_point.on_the_way(given, own, agreed, 3, mean=True, in_place=in_place)
    assert scaling
    return scaling, own


@needs_compiler
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("trouble", [0.0, 0.3])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_what_is_scaled_on_its_way_has_the_bits_of_what_is_not(
    alone, in_place, trouble, compiled, monkeypatch
):
    chance = np.random.default_rng(7)
    values = chance.standard_normal((300, LANES), np.float32)
    values *= np.float32(2) ** chance.integers(-30, 30, (300, 1)).astype(np.float32)
    values[3, 0], values[5, -1], values[9] = np.nan, np.inf, -0.0
    agreed = fixed_point.block_exponents(values)
    agreed[20:40] += 2
    agreed[50] = fixed_point.NOT_FINITE
    scaling, own = travelling(values, agreed, in_place=in_place)
    if not compiled:
        monkeypatch.setattr(fastpath, "compiled", lambda: None)
    info = WorkerInfo(job=1, rank=0, workers=3, min_workers=3, lanes=LANES)
    term = Term(2, Way.SWITCH, first_slot=0, slots=16)
    clock = Clock()
    network = Network(info, term, 1, trouble, clock)
    worker = SwitchTransport(network, info, clock, MembershipView(), Timeouts(1e9, 1e9))  # type: ignore[arg-type]
    worker.begin(term)
    none = np.zeros(len(values), np.uint16)
    where = (Portions.whole(len(values)), scaling) if alone else ()
    done = worker.all_reduce(scaling, none, Operation.SUM, *where)
    wanted = fixed_point.quantize(values, own, agreed, 3)
    assert scaling.integers.tobytes() == wanted.tobytes()
    means = fixed_point.dequantize(3 * wanted, agreed, 3, done.counts[:, None])
    finite = agreed < fixed_point.NOT_FINITE
    if compiled and alone:
        assert not done.lanes.size
    else:
        assert (done.lanes == 3 * wanted).all()
        scaling.take(np.arange(len(values)), done.lanes, done.counts)
    assert scaling.results[finite].tobytes() == means[finite].tobytes()


@needs_compiler
@pytest.mark.parametrize("in_place", [False, True])
def test_of_an_exchange_that_was_broken_off_nothing_is_left(in_place: bool):
    def give_up(_: np.ndarray) -> None:
        raise ZeroDivisionError

    values = np.random.default_rng(8).standard_normal((40, LANES), np.float32)
    scaling, own = travelling(values, fixed_point.block_exponents(values), in_place=in_place)
    info = WorkerInfo(job=1, rank=0, workers=3, min_workers=3, lanes=LANES)
    term = Term(2, Way.SWITCH, first_slot=0, slots=16)
    clock = Clock()
    network = Network(info, term, 1, 0.0, clock)
    worker = SwitchTransport(network, info, clock, MembershipView(), Timeouts(1e9, 1e9))  # type: ignore[arg-type]
    worker.begin(term)
    none = np.zeros(len(values), np.uint16)
    with pytest.raises(ZeroDivisionError):
        worker.all_reduce(scaling, none, Operation.SUM, inspect=give_up)
    other = Reduction.empty(*values.shape)  # a result over the fallback, of other workers
    other.lanes[:], other.counts[:] = 2 * scaling.integers, 2
    means = fixed_point.dequantize(other.lanes, own, 3, other.counts[:, None])
    scaling.take(np.arange(len(values)), other.lanes, other.counts)
    assert scaling.results.tobytes() == means.tobytes()


@needs_compiler
@pytest.mark.parametrize("trouble", [0.0, 0.3])
def test_an_exchange_that_overwrites_its_values_can_begin_again(trouble: float):
    values = np.random.default_rng(9).standard_normal((60, LANES), np.float32)
    scaling, own = travelling(values, fixed_point.block_exponents(values), in_place=True)
    info = WorkerInfo(job=1, rank=0, workers=3, min_workers=3, lanes=LANES)
    clock, job = Clock(), MembershipView()
    network = Network(info, Term(2, Way.SWITCH, first_slot=0, slots=16), 1, trouble, clock)
    worker = SwitchTransport(network, info, clock, job, Timeouts(1e9, 1e9))  # type: ignore[arg-type]
    none = np.zeros(len(values), np.uint16)

    def give_up(_: np.ndarray) -> None:
        raise ZeroDivisionError

    for number in (2, 3):
        worker.begin(Term(number, Way.SWITCH, first_slot=0, slots=16))
        with pytest.raises(ZeroDivisionError):
            worker.all_reduce(scaling, none, Operation.SUM, inspect=give_up)
        network.under_way.clear()
    worker.begin(Term(4, Way.SWITCH, first_slot=0, slots=16))
    done = worker.all_reduce(scaling, none, Operation.SUM)
    wanted = fixed_point.quantize(values, own, own, 3)
    assert (done.lanes == 3 * wanted).all()
    assert (scaling.integers == wanted).all()
    means = fixed_point.dequantize(done.lanes, own, 3, done.counts[:, None])
    assert scaling.results.tobytes() == means.tobytes()


@needs_compiler
def test_c_is_given_nothing_that_it_would_take_for_something_else():
    info = WorkerInfo(job=1, rank=0, workers=3, min_workers=3, lanes=LANES)
    term = Term(2, Way.SWITCH, first_slot=0, slots=4)
    network = Network(info, term, 1, 0.0, Clock())
    packets = Packets(*(blank(4, lanes, Kind.CONTRIBUTION, FRONT) for lanes in (LANES, 0)))
    window, absent = Window(4), np.zeros(4, np.uint64)
    window.start(2)
    library = fastpath.compiled()
    assert library
    rounds = CompiledRounds(library, network, window, (1, 2, 0), packets, absent)
    chunks, flags = np.zeros((2, LANES), np.int32), Portions.whole(2).flags
    result = Reduction.empty(2, LANES)
    rounds.start(chunks, flags, result)
    for wrong in (
        (chunks.astype(np.int64), flags, result),
        (np.zeros((2, 2 * LANES), np.int32)[:, ::2], flags, result),
        (np.zeros((2, LANES + 1), np.int32), flags, result),
        (np.zeros((1, LANES), np.int32), flags, result),
        (np.zeros((1, LANES), np.int32), flags, result, 1),
        (chunks, flags[:1], result),
        (chunks, flags.astype(np.uint8), result),
        (chunks, flags, Reduction.empty(1, LANES)),
    ):
        with pytest.raises(AssertionError):
            rounds.start(*wrong)
    for place, some, lacks in (
        ((1, 2, 0), Packets(packets.full[:3], packets.bare), absent),
        ((1, 2, 0), Packets(packets.full, packets.bare[:3]), absent),
        ((1, 2, 0), Packets(packets.bare, packets.full), absent),
        ((1, 2, 0), packets, absent[:3]),
        ((1, 2, (1 << 16) - 3), packets, absent),
    ):
        with pytest.raises(AssertionError):
            CompiledRounds(library, network, window, place, some, lacks)


def test_without_a_compiler_there_are_no_compiled_steps(monkeypatch):
    def missing(*_):
        raise CompilerError("no C compiler found")

    monkeypatch.setattr(fastpath, "compile_library", missing)
    fastpath.compiled.cache_clear()
    try:
        assert fastpath.compiled() is None
    finally:
        monkeypatch.undo()
        fastpath.compiled.cache_clear()


def test_sanitizers_find_nothing():
    done = sanitizers.run_sanitized("sanitized_worker.py")
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
