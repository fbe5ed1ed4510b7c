"""Light workers of one job, many in a process, through trees of real switches on lossy links."""

import math
import socket
from contextlib import closing

import pytest

from benchmarks.light_workers import Sum
from benchmarks.lossy_cables import lossy
from benchmarks.swarm import Tree, measured
from innet.errors import UsageError
from innet.host.link import parse_endpoints
from innet.local.ports import free_cables
from innet.machine.sockets import enlarge_buffers

ELEMENTS, LANES = 100_000, 256
PACKETS, END = 2000, b"end"


@pytest.mark.parametrize("levels", [(4, 1), (4, 2, 1)])
def test_every_result_of_thirty_two_workers_is_right_and_a_killed_controller_disturbs_none(
    levels: tuple[int, ...],
):
    tree = Tree(levels, 32)
    job = Sum(tree.workers, ELEMENTS, seed=3, loss=0.002, listeners=tree.branch)
    found = measured(tree, job, 64, LANES, 2, kill=True)
    assert found.workers == 32
    assert found.counts["results"] == tree.workers * math.ceil(ELEMENTS / LANES)
    assert found.counts["wrong"] == found.counts["stale"] == found.counts["corrupted"] == 0
    assert found.counts["lost"] > 0
    assert found.counts["repetitions"] > 0
    assert found.new_terms == 0


def at(link: str) -> socket.socket:
    local, remote = parse_endpoints(link)
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(local)
    made.connect(remote)
    enlarge_buffers(made)
    return made


def carried(source: socket.socket, target: socket.socket) -> list[bytes]:
    """Return the packets that come out at the other end, of packets of several sizes."""
    target.settimeout(0.05)
    found: list[bytes] = []
    for number in range(PACKETS):
        source.send(number.to_bytes(4) * (20 + number // 7 % 3))
    for _ in range(1000):
        source.send(END)
        try:
            while (packet := target.recv(2048)) != END:
                found.append(packet)
        except TimeoutError:
            continue
        return found
    raise AssertionError("no packet comes")


def test_lossy_cables_lose_the_same_packets_in_every_run_and_change_none():
    seen = []
    for seed in (1, 1, 2):
        [cable] = free_cables(1)
        with (
            lossy([cable.interface], seed, 0.1) as [near],
            closing(at(near)) as one,
            closing(at(cable.link)) as other,
        ):
            seen.append((carried(one, other), carried(other, one)))
    (there, back), again, others = seen
    sent = [number.to_bytes(4) * (20 + number // 7 % 3) for number in range(PACKETS)]
    for found in (there, back):
        assert 0.8 * PACKETS < len(found) < PACKETS
        assert found == [each for each in sent if each in set(found)]
    assert there != back
    assert (there, back) == again
    assert others[0] != there


def test_the_oracle_is_the_sum_of_all_workers_windows_of_the_pool():
    pool, right, chunks = Sum(5, 30, seed=7, loss=0.0, listeners=5).vectors(8)
    wanted = [sum(int(pool[rank + at]) for rank in range(5)) for at in range(32)]
    assert chunks == 4
    assert right.reshape(-1).tolist() == wanted


def test_workers_are_spread_evenly_and_a_switch_without_a_node_is_refused():
    tree = Tree((3, 2, 1), 8)
    assert tree.racks() == ["0-0"] * 3 + ["0-1"] * 3 + ["0-2"] * 2
    assert tree.branch == 4
    assert tree.parents == {
        "2-0": "", "1-0": "2-0", "1-1": "2-0", "0-0": "1-0", "0-1": "1-0", "0-2": "1-1",
    }  # fmt: skip
    for levels in ((3, 2), (9, 1)):
        with pytest.raises(UsageError, match="every switch needs a node"):
            Tree(levels, 8)
