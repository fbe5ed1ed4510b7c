"""The trees in which several switches sum a job, of any depth.

Every switch of a tree sums the contributions below it and sends its parent the sum as one
contribution. A switch with several parents gives each of them a part of the slots. Then there are
several trees over the same workers, and every slot belongs to one of them. Nothing here
communicates.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from innet.controller.defaults import uplink_address
from innet.controller.jobs.records import Attachment, Contributor, Share, SlotRange, Uplink
from innet.wire.layout import MAX_WORKERS


@dataclass(frozen=True)
class Tree:
    """The switches that sum some slots: `links[switch]` goes up from each switch but the `top`."""

    top: str
    links: Mapping[str, Uplink]

    @property
    def switches(self) -> tuple[str, ...]:
        """Return all switches of the tree, the top first."""
        return (self.top, *self.links)


@dataclass(frozen=True)
class Fabric:
    """The switches that a job may use, `top` first, and their uplinks among each other.

    Trees leave out the `drained` switches and the `lost` ones, which cannot be used, if they can.
    """

    top: str
    uplinks: Mapping[str, tuple[Uplink, ...]]
    drained: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()

    @classmethod
    def below(cls, top: str, uplinks: Mapping[str, tuple[Uplink, ...]]) -> "Fabric":
        """Return the fabric of a switch, all switches below it, and the other parents of those.

        `uplinks` are those of all switches.
        """
        found, before = {top}, set[str]()
        while found != before:
            before = set(found)
            found |= {
                name for name, links in uplinks.items() if found & {link.parent for link in links}
            }
        peers = {link.parent for name in found - {top} for link in uplinks[name]}
        return cls.of((top, *sorted((found | peers) - {top})), uplinks)

    @classmethod
    def of(cls, switches: tuple[str, ...], uplinks: Mapping[str, tuple[Uplink, ...]]) -> "Fabric":
        """Return the fabric of these switches. The first is the top, and has no uplinks in it."""
        kept = {
            name: tuple(link for link in uplinks.get(name, ()) if link.parent in switches)
            for name in switches
        }
        return cls(switches[0], {**kept, switches[0]: ()})

    def with_drained(self, drained: Iterable[str]) -> "Fabric":
        """Return the fabric with other drained switches. Names that it does not have are left out."""
        return replace(self, drained=frozenset(self.uplinks.keys() & {*drained}))

    def with_lost(self, lost: Iterable[str]) -> "Fabric":
        """Return the fabric with other lost switches."""
        return replace(self, lost=frozenset(lost))

    @property
    def tops(self) -> list[str]:
        """Return the switches without uplinks."""
        return [switch for switch, links in self.uplinks.items() if not links]

    def port_towards(self, there: str, here: str) -> int | None:
        """Return the port of `here` behind which ordinary frames find the switch `there`, or None.

        Ordinary frames take first uplinks only, as floods do.
        """
        way = self._way(there, 0)
        if here in way:
            return self._up(way[way.index(here) - 1], 0).parent_port
        return self.uplinks[here][0].port if self.uplinks[here] else None

    def trees(self, at: Iterable[str]) -> list[Tree]:
        """Return the trees that join these switches, or none if no switch is above them all.

        Without any switch to join, the top is a tree alone. If no tree can do without the lost
        switches, they take part, and if none can do without the drained ones, they do as well.
        """
        switches = {*at} or {self.top}
        for left_out in (self.drained | self.lost, self.drained):
            if left_out and (found := self._without(left_out, switches)):
                return found
        return self._trees(switches)

    def _without(self, left_out: frozenset[str], at: set[str]) -> list[Tree]:
        if at & left_out:
            return []
        kept = {
            name: tuple(link for link in links if link.parent not in left_out)
            for name, links in self.uplinks.items()
        }
        return Fabric(self.top, kept).trees(at)

    def _trees(self, at: set[str]) -> list[Tree]:
        planes = max(1, *(len(links) for links in self.uplinks.values()))
        found: list[Tree] = []
        for plane in range(planes):
            tree = self._tree(at, plane)
            if tree and tree not in found:
                found.append(tree)
        return found

    def _tree(self, at: set[str], plane: int) -> Tree | None:
        ways = [self._way(switch, plane) for switch in sorted(at)]
        common = set.intersection(*(set(way) for way in ways))
        top = next((switch for switch in ways[0] if switch in common), None)
        if top is None:
            return None
        links = {
            switch: self._up(switch, plane) for way in ways for switch in way[: way.index(top)]
        }
        return Tree(top, links)

    def _way(self, switch: str, plane: int) -> list[str]:
        way = [switch]
        while self.uplinks.get(way[-1]):
            way.append(self._up(way[-1], plane).parent)
        return way

    def _up(self, switch: str, plane: int) -> Uplink:
        links = self.uplinks[switch]
        return links[plane % len(links)]


def shares(
    trees: list[Tree], slot_range: SlotRange, workers: Mapping[int, Attachment], quorum: int
) -> dict[str, tuple[Share, ...]]:
    """Return the shares of every switch of the trees in a job with these workers, by rank.

    The slots are cut into aligned ranges, which are dealt to the trees in turn. A result takes
    `quorum` contributions. Where several switches sum, these are those of all workers.
    """
    pieces = 1
    while pieces < min(len(trees), slot_range.slots):
        pieces *= 2
    size = slot_range.slots // pieces
    made: dict[str, tuple[Share, ...]] = {}
    for piece in range(pieces):
        tree = trees[piece % len(trees)]
        first = slot_range.first_slot + piece * size
        for switch, contributors in _contributors(tree, workers).items():
            link = tree.links.get(switch)
            awaited = len(contributors) + bool(link) + quorum - len(workers)
            share = Share(first, size, contributors, link, quorum, awaited)
            made[switch] = (*made.get(switch, ()), share)
    return made


def _contributors(
    tree: Tree, workers: Mapping[int, Attachment]
) -> dict[str, tuple[Contributor, ...]]:
    members = dict.fromkeys(tree.switches, 0)
    found: dict[str, list[Contributor]] = {switch: [] for switch in tree.switches}
    for rank, where in sorted(workers.items()):
        found[where.switch].append(Contributor(1 << rank, rank + 1, where))
        switch = where.switch
        members[switch] |= 1 << rank
        while switch != tree.top:
            switch = tree.links[switch].parent
            members[switch] |= 1 << rank
    for switch, link in sorted(tree.links.items()):
        port = link.parent_port
        where = Attachment(port, uplink_address(port), link.parent)
        # Instances of workers are rank + 1; those of switches follow, by port.
        contributor = Contributor(members[switch], MAX_WORKERS + 1 + port, where)
        found[link.parent].append(contributor)
    return {switch: tuple(each) for switch, each in found.items()}
