"""A worker of a tree queries the switches above for results that its own switch may have missed."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from innet.host import shared_exchange
from innet.host.integers import Reduction
from innet.host.job import Path, Term, WorkerInfo
from innet.host.missing import MissingWorkers
from innet.host.queries import Queries
from innet.host.window import Window
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import Flag, Kind, Operation
from innet.wire.records import get_field

RACK, SLOTS, LEVEL = 3, 8, 1 << 63


def contributors(*ranks: range) -> list[pb.Contributor]:
    return [
        pb.Contributor(ranks=[pb.RankRange(first=each.start, count=len(each))]) for each in ranks
    ]


def bitmaps() -> pb.Bitmaps:
    """Return what bitmaps mean to a worker of the second of two racks of three."""
    own = contributors(range(3, 4), range(4, 5), range(5, 6))
    top = contributors(range(3), range(3, 6))
    return pb.Bitmaps(
        switches=[
            pb.SwitchBits(first_slot=64, slots=SLOTS, level_bit=LEVEL, contributors=own),
            pb.SwitchBits(first_slot=64, slots=SLOTS, contributors=top),
        ]
    )


@dataclass
class Sink:
    """A link that keeps the packets that are sent."""

    bare_encapsulation: bytes = b""
    sent: list[np.ndarray] = field(default_factory=list)

    def send(self, records: np.ndarray) -> None:
        self.sent.append(records.copy())


def started(min_workers: int = 3, **more):
    term = Term(7, Path.SWITCH, 64, SLOTS, bitmaps=bitmaps(), **more)
    info = WorkerInfo(5, 4, 2 * RACK, min_workers, 64)
    window, missing, link = Window(SLOTS), MissingWorkers(info), Sink()
    missing.begin_term(term)
    queries = Queries(link, info, term, window, missing)  # type: ignore[arg-type]
    queries.set_operation(Operation.MAX)
    window.start(20)
    window.transmit(SLOTS, 1.0)
    return queries, window, link


def test_a_pending_of_a_lower_switch_is_followed_by_one_query_for_each_sending():
    queries, window, link = started()
    slots = np.array([2, 5])
    arrived = np.array([LEVEL | 1, 1], np.uint64)  # of its own switch, and of the top
    assert queries.send(slots, arrived, 2.0) == 1
    [packet] = link.sent[0]
    assert (get_field(packet, "kind"), get_field(packet, "operation")) == (
        Kind.QUERY,
        Operation.MAX,
    )
    assert (packet["job"], packet["term"], packet["slot"]) == (5, 7, 66)
    assert (packet["sequence"], packet["flags"], packet["count"]) == (1, Flag.WANTED, 0)
    assert queries.send(slots, arrived, 3.0) == 0
    window.probe(SLOTS, 4.0)
    assert queries.send(slots, arrived, 5.0) == 1


@pytest.mark.parametrize("min_workers", [3, 6])
def test_where_all_workers_are_needed_there_are_no_queries(min_workers: int):
    queries, _, link = started(min_workers)
    asked = queries.send(np.array([2]), np.array([LEVEL | 1], np.uint64), 2.0)
    assert asked == len(link.sent) == (min_workers < 2 * RACK)


def test_a_result_tells_who_is_in_it_by_the_bits_of_the_highest_switch():
    missing = MissingWorkers(WorkerInfo(5, 4, 7, 3, 64))
    missing.begin_term(Term(7, Path.SWITCH, 64, SLOTS, bitmaps=bitmaps()))
    result = Reduction.into(np.zeros((3, 64), np.int32), 3, bits=missing.contributors.bits)
    result.counts[:] = 3, 3, 6
    result.members[:] = 0b01, 0b10, 0b11
    assert result.includes(0, 7).tolist() == [True, False, True]
    assert result.includes(4, 7).tolist() == [False, True, True]
    assert result.includes(6, 7).tolist() == [False] * 3  # it has left
    ranks = np.arange(7)[:, None]
    assert result.includes(ranks, 7).sum(axis=0).tolist() == result.counts.tolist()


def test_a_shared_result_tells_workers_with_other_bits_who_is_in_it():
    bits = np.array([1, 1, 0, 64], np.uint8)
    result = Reduction.into(np.arange(10, dtype=np.int32).reshape(5, 2), 5, bits=bits)
    result.counts[:], result.members[:] = 2, [2, 1, 2, 1, 3]
    given, flags = shared_exchange.with_result(result, 4)
    lacking, none = shared_exchange.without_result(5, 2, 4)
    shared = Reduction.into(np.maximum(given, lacking), len(given))
    shared.flags[:] = flags | none
    found = shared_exchange.result_in(shared, 5, 4)
    for rank in range(4):
        assert found.includes(rank, 4).tolist() == result.includes(rank, 4).tolist()
    np.testing.assert_array_equal(found.lanes, result.lanes)
