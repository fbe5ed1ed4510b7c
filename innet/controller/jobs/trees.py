"""The trees in which several switches sum a job, of any depth.

Every switch of a tree sums the contributions below it and sends its parent the sum as one
contribution. A switch with several parents gives each of them a part of the slots. Then there are
several trees over the same workers, and every slot belongs to one of them. Nothing here
communicates.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from innet.controller.defaults import uplink_address
from innet.controller.jobs.records import Attachment, Contributor, Share, SlotRange, Uplink
from innet.wire.layout import MOST_CONTRIBUTORS


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

    If possible, trees leave out the `drained` switches, and the `lost` ones, which cannot be used.
    `contributors` is the number of bits in the bitmaps of each switch.
    """

    top: str
    uplinks: Mapping[str, tuple[Uplink, ...]]
    drained: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    contributors: int = MOST_CONTRIBUTORS

    @classmethod
    def below(
        cls,
        top: str,
        uplinks: Mapping[str, tuple[Uplink, ...]],
        contributors: Mapping[str, int] | None = None,
    ) -> "Fabric":
        """Return the fabric of a switch, all switches below it, and the other parents of those.

        `uplinks` are those of all switches. Other parents count up to the level of `top`. For
        `contributors`, see :meth:`of`.
        """
        found, before = {top}, set[str]()
        while found != before:
            before = set(found)
            found |= {
                name for name, links in uplinks.items() if found & {link.parent for link in links}
            }
        heights = _heights(uplinks)
        rising, before = found - {top}, set()
        while rising != before:
            before = set(rising)
            rising |= {
                link.parent
                for name in before
                if heights[name] < heights[top]
                for link in uplinks.get(name, ())
            }
        return cls.of((top, *sorted((found | rising) - {top})), uplinks, contributors)

    @classmethod
    def of(
        cls,
        switches: tuple[str, ...],
        uplinks: Mapping[str, tuple[Uplink, ...]],
        contributors: Mapping[str, int] | None = None,
    ) -> "Fabric":
        """Return the fabric of these switches. The first is the top, and has no uplinks in it.

        `contributors` has the most that each can tell apart. The least of them holds for all.
        """
        kept = {
            name: tuple(link for link in uplinks.get(name, ()) if link.parent in switches)
            for name in switches
        }
        most = [(contributors or {}).get(name, MOST_CONTRIBUTORS) for name in switches]
        return cls(switches[0], {**kept, switches[0]: ()}, contributors=min(most))

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

    def most_entries(self, workers: int) -> int:
        """Return the most entries for contributors that a switch has for a job of so many workers.

        A contributor may have one for each part of the slots, as many parts as :func:`shares` makes.
        """
        planes = (self._towards(top).values() for top in self.tops)
        trees = sum(max(1, *map(len, links)) for links in planes)
        return min(workers, self.contributors) << (trees - 1).bit_length()

    def port_towards(self, there: str, here: str) -> int | None:
        """Return the port of `here` behind which ordinary frames find the switch `there`, or None.

        Ordinary frames take first uplinks only, as floods do.
        """
        way = _way(self._first_uplinks, there)
        if here in way:
            return self.uplinks[way[way.index(here) - 1]][0].parent_port
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
        found: list[Tree] = []
        for top in self._tops_above(min(at)):
            for tree in self._trees_below(top, at):
                if tree not in found:
                    found.append(tree)
        return found

    def _trees_below(self, top: str, at: set[str]) -> Iterator[Tree]:
        """Yield the trees that join switches by ways that lead to one `top`."""
        towards = self._towards(top)
        if not at <= towards.keys():
            return
        for plane in range(max(1, *map(len, towards.values()))):
            ups = {name: links[plane % len(links)] for name, links in towards.items() if links}
            ways = [_way(ups, switch) for switch in sorted(at)]
            common = set.intersection(*map(set, ways))
            lowest = next(switch for switch in ways[0] if switch in common)
            used = [switch for way in ways for switch in way[: way.index(lowest)]]
            yield Tree(lowest, {switch: ups[switch] for switch in used})

    def _tops_above(self, switch: str) -> list[str]:
        """Return the switches without uplinks above this one, in the order of the uplinks."""
        found = [switch]
        for each in found:
            found += [up for link in self.uplinks.get(each, ()) if (up := link.parent) not in found]
        return [each for each in found if not self.uplinks.get(each)]

    def _towards(self, top: str) -> dict[str, list[Uplink]]:
        """Return the uplinks that lead to `top`, for every switch that has a way there."""
        found: dict[str, list[Uplink]] = {top: []}
        waiting = [top]
        for parent in waiting:
            for name, links in self.uplinks.items():
                if mine := [link for link in links if link.parent == parent]:
                    if name not in found:
                        waiting.append(name)
                    found.setdefault(name, []).extend(mine)
        return {name: sorted(links, key=self.uplinks[name].index) for name, links in found.items()}

    @cached_property
    def _first_uplinks(self) -> dict[str, Uplink]:
        return {name: links[0] for name, links in self.uplinks.items() if links}


def _way(ups: Mapping[str, Uplink], switch: str) -> list[str]:
    way = [switch]
    while way[-1] in ups:
        way.append(ups[way[-1]].parent)
    return way


def _heights(uplinks: Mapping[str, tuple[Uplink, ...]]) -> dict[str, int]:
    """Return the number of levels below each switch."""
    heights = dict.fromkeys(uplinks, 0)
    heights.update((link.parent, 0) for links in uplinks.values() for link in links)
    for _ in heights:
        for name, links in uplinks.items():
            for link in links:
                heights[link.parent] = max(heights[link.parent], heights[name] + 1)
    return heights


def shares(
    trees: list[Tree],
    slot_range: SlotRange,
    workers: Mapping[int, Attachment],
    quorum: int,
    *,
    by_rank: bool = False,
    most: int = MOST_CONTRIBUTORS,
) -> dict[str, tuple[Share, ...]]:
    """Return the shares of every switch of the trees in a job with these workers, by rank.

    The slots are cut into aligned ranges, which are dealt to the trees in turn. A result takes the
    contributions of `quorum` workers at least. Only the top of a tree can do without some of its
    contributors. Any of them may be missing, as long as the others stand for enough workers. If the bits
    at the tops do not stand for the same workers, a result takes all contributions. With `by_rank`, the
    bit of a worker is its rank, so that it does not depend on who else is there. The switches have
    bitmaps of `most` bits.
    """
    levels = _levels(trees)
    bits = _ranks(workers) if by_rank else _bits(trees, workers)
    made: dict[str, tuple[Share, ...]] = {}
    for first, slots, tree in _dealt(slot_range, trees):
        for switch, contributors in _contributors(tree, workers, bits).items():
            link = tree.links.get(switch)
            awaited = len(contributors) + 1 if link else _awaited(contributors, quorum)
            level_bit = _level_bit(levels[switch], most) if link else 0
            share = Share(first, slots, contributors, link, awaited, level_bit)
            made[switch] = (*made.get(switch, ()), share)
    meanings = {
        tuple((each.bits, each.ranks) for each in share.contributors)
        for every in made.values()
        for share in every
        if not share.uplink
    }
    if len(meanings) > 1 and quorum < len(workers):
        return shares(trees, slot_range, workers, len(workers), by_rank=by_rank, most=most)
    return made


def _dealt(slot_range: SlotRange, trees: list[Tree]) -> Iterator[tuple[int, int, Tree]]:
    """Yield aligned ranges, each as its first slot and number of slots, and their trees in turn."""
    pieces = 1
    while pieces < min(len(trees), slot_range.slots):
        pieces *= 2
    size = slot_range.slots // pieces
    for piece in range(pieces):
        yield slot_range.first_slot + piece * size, size, trees[piece % len(trees)]


def _awaited(contributors: Iterable[Contributor], quorum: int) -> int:
    """Return the smallest number of contributors that is certain to stand for `quorum` workers."""
    held, sizes = 0, sorted(len(each.ranks) for each in contributors)
    for count, size in enumerate(sizes, 1):
        held += size
        if held >= quorum:
            return count
    return len(sizes) + quorum - held


def answering_only(
    slot_range: SlotRange,
    workers: Mapping[int, Attachment],
    quorum: int,
    most: int = MOST_CONTRIBUTORS,
) -> Share:
    """Return the share of a switch that answers these workers, but adds nothing any more.

    Each worker has all bits. So it counts as one that has contributed, whatever a cell holds.
    """
    contributors = tuple(
        Contributor((1 << most) - 1, frozenset({rank}), instance, where)
        for instance, (rank, where) in enumerate(sorted(workers.items()), 1)
    )
    return Share(slot_range.first_slot, slot_range.slots, contributors, None, quorum)


def most_contributors(trees: Iterable[Tree], most: int = MOST_CONTRIBUTORS) -> int:
    """Return the number of contributors that a switch of these trees can tell apart.

    Above them, its bitmap of `most` bits has a bit for each level but the highest (:class:`Share`).
    """
    return most - max(_levels(trees).values())


def loads(tree: Tree, workers: Mapping[int, Attachment]) -> dict[str, int]:
    """Return how many contributors each switch of a tree has: its own workers, and switches."""
    found = dict.fromkeys(tree.switches, 0)
    for where in workers.values():
        found[where.switch] += 1
    for link in tree.links.values():
        found[link.parent] += 1
    return found


def _contributors(
    tree: Tree, workers: Mapping[int, Attachment], bits: "_Bits"
) -> dict[str, tuple[Contributor, ...]]:
    ranks: dict[str, set[int]] = {switch: set() for switch in tree.switches}
    found: dict[str, list[Contributor]] = {switch: [] for switch in tree.switches}
    for rank, where in sorted(workers.items()):
        bit = bits[where.switch, rank]
        found[where.switch].append(Contributor(1 << bit, frozenset({rank}), 1 + bit, where))
        for switch in _way(tree.links, where.switch):
            ranks[switch].add(rank)
    for switch, link in sorted(tree.links.items()):
        port = link.parent_port
        where = Attachment(port, uplink_address(port), link.parent)
        # Instances of workers are their bit + 1; those of switches follow, by port.
        instance = MOST_CONTRIBUTORS + 1 + port
        mine = 1 << bits[link.parent, switch]
        found[link.parent].append(Contributor(mine, frozenset(ranks[switch]), instance, where))
    return {switch: tuple(each) for switch, each in found.items()}


_Bits = dict[tuple[str, int | str], int]
"""The bit of every contributor at its switch: of workers by rank, of switches by name."""


def _ranks(workers: Mapping[int, Attachment]) -> _Bits:
    return {(where.switch, rank): rank for rank, where in workers.items()}


def _bits(trees: Iterable[Tree], workers: Mapping[int, Attachment]) -> _Bits:
    """Return bits in the order of the contributors.

    Of one switch, the bits of its workers come first, in the order of their ranks. Those of switches
    below follow, in the order of the lowest ranks below them, so that parents of the same racks number
    them alike. A contributor has the same bit in all slots.
    """
    order: list[tuple[str, int | str]] = [
        (where.switch, rank) for rank, where in sorted(workers.items())
    ]
    lowest: dict[tuple[str, str], int] = {}
    for tree in trees:
        for rank, where in sorted(workers.items()):
            for switch in _way(tree.links, where.switch):
                if link := tree.links.get(switch):
                    lowest.setdefault((link.parent, switch), rank)
    below = sorted(lowest, key=lambda each: (each[0], lowest[each], each[1]))
    order += below
    bits: _Bits = {}
    taken: Counter[str] = Counter()
    for switch, each in order:
        bits[switch, each] = taken[switch]
        taken[switch] += 1
    return bits


def _level_bit(level: int, most: int) -> int:
    return 1 << most - level


def _levels(trees: Iterable[Tree]) -> dict[str, int]:
    """Return the number of levels above each switch: the most that any of the trees has."""
    levels: dict[str, int] = {}
    for tree in trees:
        for switch in tree.switches:
            above = len(_way(tree.links, switch)) - 1
            levels[switch] = max(levels.get(switch, 0), above)
    return levels
