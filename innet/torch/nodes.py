"""The nodes of a group: which of its ranks run on one machine, and can sum in shared memory."""

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from innet.host.node import Place
from innet.machine.boot import boot_id

_NETWORK = Path("/proc/self/ns/net")


def node_name(environment: Mapping[str, str]) -> str:
    """Return a name that the processes of this node have in common, and no other process.

    A node is a machine, or one of the networks in it, since the links of a network are what counts.
    Where a launcher numbers its nodes, as torchrun and Slurm do, each number is a node of its own.
    """
    number = environment.get("GROUP_RANK") or environment.get("SLURM_NODEID") or ""
    with contextlib.suppress(OSError):
        if machine := boot_id():
            return f"{machine}/{_NETWORK.stat().st_ino}/{number}"
    return uuid.uuid4().hex  # nothing tells which processes are on this machine


@dataclass(frozen=True)
class Nodes:
    """The nodes of a group, which have equally many ranks: the ranks of each, in order.

    One node may have all ranks.
    """

    ranks: Sequence[Sequence[int]]

    @classmethod
    def of(cls, names: Sequence[str]) -> "tuple[Nodes | None, str]":
        """Return the nodes, given the name of each rank's node; or None and the reason.

        The reason is empty if there is nothing to explain, because every rank has a node of its own.
        """
        by_name: dict[str, list[int]] = {}
        for rank, name in enumerate(names):
            by_name.setdefault(name, []).append(rank)
        sizes = sorted({len(ranks) for ranks in by_name.values()})
        if sizes == [1]:
            return None, ""
        if len(sizes) > 1:
            return None, f"the nodes have between {sizes[0]} and {sizes[-1]} ranks"
        return cls(list(by_name.values())), ""

    @property
    def jobs(self) -> Sequence[Sequence[int]]:
        """Return the ranks of each job: one job for each slice, with one rank of each node.

        If one node has all ranks, no slice leaves it, and they have one job.
        """
        several = len(self.ranks) > 1
        return [list(ranks) for ranks in zip(*self.ranks, strict=True)] if several else self.ranks

    def place(self, rank: int) -> Place:
        """Return a rank's place in its node."""
        own, carriers = (
            next(ranks for ranks in lists if rank in ranks) for lists in (self.ranks, self.jobs)
        )
        return Place(own, own.index(rank), len(self.ranks) * len(own), carriers)
