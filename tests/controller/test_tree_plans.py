"""The plan of a job's switches: with any links, every slot's sum has all workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.controller.jobs.records import Attachment, SlotRange, Uplink
from innet.controller.jobs.trees import Fabric, loads, most_contributors, shares
from innet.wire.frames import Address


def links(**parents: str) -> dict[str, tuple[Uplink, ...]]:
    """Return uplinks, as in ``low="one two"``, at separate ports."""
    ports = iter(range(1, 500))
    return {
        name: tuple(Uplink(parent, next(ports), next(ports)) for parent in above.split())
        for name, above in parents.items()
    }


RACKS = links(top="", a="top", b="top", a1="a", a2="a", b1="b", other="")
SHARED = links(one="", two="", three="", x="one two three", y="one two three")


def at(*switches: str) -> dict[int, Attachment]:
    """Return a place for one worker at each of the switches."""
    return {
        rank: Attachment(400, Address("02:00:00:00:00:01", "10.0.0.1", 4000 + rank), switch)
        for rank, switch in enumerate(switches)
    }


def test_a_fabric_is_what_is_below_and_who_shares_slots_with_it():
    assert [*Fabric.below("a", RACKS).uplinks] == ["a", "a1", "a2"]
    assert [*Fabric.below("top", RACKS).uplinks] == ["top", "a", "a1", "a2", "b", "b1"]
    assert [*Fabric.below("two", SHARED).uplinks] == ["two", "one", "three", "x", "y"]
    assert [*Fabric.below("x", SHARED).uplinks] == ["x"]
    assert [*Fabric.below("other", RACKS).uplinks] == ["other"]


@pytest.mark.parametrize(
    ("workers", "top", "switches"),
    [
        (["a1", "a2"], "a", {"a", "a1", "a2"}),
        (["a1", "b1"], "top", {"top", "a", "a1", "b", "b1"}),
        (["a1", "a"], "a", {"a", "a1"}),
        (["b1"], "b1", {"b1"}),
        (["top", "top"], "top", {"top"}),
    ],
)
def test_sums_go_up_to_the_lowest_switch_that_is_above_all(workers, top, switches):
    [tree] = Fabric.below("top", RACKS).trees(workers)
    assert tree.top == top
    assert {*tree.switches} == switches


def test_there_is_no_way_between_switches_with_nothing_above_both():
    fabric = Fabric.below("two", SHARED)
    assert not fabric.trees(["one", "two"])
    assert len(fabric.trees(["x", "y"])) == 3
    [only] = fabric.trees(["x", "two"])  # the others have no worker at `two`
    assert only.top == "two"


PODS = links(top="", side="", a="top side", b="top side", low="a b", beside="a b")


@pytest.mark.parametrize(
    ("drained", "workers", "used"),
    [
        ({"one"}, ["x", "y"], [{"two", "x", "y"}, {"three", "x", "y"}]),
        ({"one", "two"}, ["x", "y"], [{"three", "x", "y"}]),
        ({"one"}, ["x"], [{"x"}]),
        ({"x"}, ["x", "x"], [{"x"}]),  # its workers have nothing else
        ({"one"}, ["x", "one"], [{"one", "x"}]),
        ({"one", "two", "three"}, ["x"], [{"x"}]),
    ],
)
def test_trees_leave_out_drained_switches_where_they_can(drained, workers, used):
    fabric = Fabric.below("one", SHARED).with_drained({*drained, "elsewhere"})
    assert fabric.drained == drained
    assert [{*tree.switches} for tree in fabric.trees(workers)] == used


@pytest.mark.parametrize(
    ("drained", "lost", "used"),
    [
        ({"one"}, {"two"}, [{"three", "x", "y"}]),
        (set(), {"one", "two"}, [{"three", "x", "y"}]),
        ({"one"}, {"two", "three"}, [{"two", "x", "y"}, {"three", "x", "y"}]),  # none is left
        ({"one"}, {"x"}, [{"two", "x", "y"}, {"three", "x", "y"}]),
    ],
)
def test_trees_leave_out_lost_switches_where_they_can(drained, lost, used):
    fabric = Fabric.below("one", SHARED).with_drained(drained).with_lost(lost)
    assert [{*tree.switches} for tree in fabric.trees(["x", "y"])] == used


def test_trees_of_three_levels_find_the_links_that_are_left():
    fabric = Fabric.below("top", PODS)
    assert len(fabric.trees(["low", "beside"])) == 2
    found = fabric.with_drained({"b"}).trees(["low", "beside"])
    assert [{*tree.switches} for tree in found] == [{"a", "low", "beside"}]
    found = fabric.with_drained({"b", "top"}).trees(["low", "a"])
    assert [{*tree.switches} for tree in found] == [{"a", "low"}]
    with_spine = fabric.with_drained({"top"}).trees(["a", "b"])
    assert [{*tree.switches} for tree in with_spine] == [{"side", "a", "b"}]


@given(
    st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=32)
    | st.lists(st.sampled_from(["top", "a", "b", "a1", "a2", "b1"]), min_size=1, max_size=32),
    st.integers(0, 5),
)
def test_every_slot_has_one_top_where_all_workers_are(workers, size):
    shared = {*workers} <= {"x", "y"}
    fabric = Fabric.below("one", SHARED) if shared else Fabric.below("top", RACKS)
    slot_range, places = SlotRange(0, 1 << 6, 1 << size), at(*workers)
    does = shares(fabric.trees(workers), slot_range, places, len(workers))
    everybody = {*range(len(workers))}
    for slot in range(slot_range.first_slot, slot_range.first_slot + slot_range.slots):
        here = {
            switch: share
            for switch, each in does.items()
            for share in each
            if share.first_slot <= slot < share.first_slot + share.slots
        }
        assert all(share.first_slot % share.slots == 0 for share in here.values())
        [top] = [switch for switch, share in here.items() if not share.uplink]
        assert here[top].ranks == everybody
        for switch, share in here.items():
            bits = [each.bits for each in share.contributors]
            assert sorted(bits) == [1 << bit for bit in range(len(bits))]
            assert sorted(rank for each in share.contributors for rank in each.ranks) == [
                *sorted(share.ranks)
            ]
            assert share.ranks
            assert share.awaited == len(bits) + bool(share.uplink)
            assert len({each.instance for each in share.contributors}) == len(bits)
            if share.uplink:
                above = here[share.uplink.parent].contributors
                [mine] = [each for each in above if each.where.port == share.uplink.parent_port]
                assert mine.ranks == share.ranks, switch


@given(st.integers(0, 64), st.integers(1, 64))
def test_one_switch_is_a_tree_of_one_node_whoever_has_come(here, quorum):
    fabric, slot_range = Fabric.below("other", RACKS), SlotRange(0, 32, 32)
    workers = at(*["other"] * here)
    found = shares(
        fabric.trees({each.switch for each in workers.values()}), slot_range, workers, quorum,
        by_rank=True,
    )  # fmt: skip
    [(switch, [share])] = found.items()
    assert (switch, share.first_slot, share.slots, share.uplink) == ("other", 32, 32, None)
    assert share.ranks == {*range(here)}
    assert [(each.bits, {*each.ranks}) for each in share.contributors] == [
        (1 << rank, {rank}) for rank in range(here)
    ]
    assert share.awaited == quorum


# -- several parents on every level, and uneven trees ---------------------------------------------

PODS_OF_TWO = links(
    one="", two="", three="", four="",
    a="one two", b="three four", c="one two", d="three four",
    a1="a b", a2="a b", c1="c d", c2="c d",
)  # fmt: skip
"""A fat tree: two pods of two lower switches, each below two, which are below two of four."""

UNEVEN = links(top="", side="", a="top side", low="a", lower="low", b="top side")


def test_all_switches_at_the_level_of_the_top_share_the_slots():
    fabric = Fabric.below("one", PODS_OF_TWO)
    assert {*fabric.uplinks} == {*PODS_OF_TWO}
    trees = fabric.trees(["a1", "a2", "c1", "c2"])
    assert {tree.top for tree in trees} == {"one", "two", "three", "four"}
    assert {*fabric.with_drained({"b"}).trees(["a1", "c2"])[0].links} == {"a1", "a", "c", "c2"}
    in_one_pod = fabric.trees(["a1", "a2"])
    assert [{*tree.switches} for tree in in_one_pod] == [{"a", "a1", "a2"}, {"b", "a1", "a2"}]


def test_what_is_above_the_top_takes_no_part():
    assert {*Fabric.below("a", PODS_OF_TWO).uplinks} == {"a", "b", "a1", "a2"}
    assert {*Fabric.below("top", UNEVEN).uplinks} == {*UNEVEN}
    assert {*Fabric.below("a", UNEVEN).uplinks} == {"a", "low", "lower"}


@given(
    st.sampled_from([(PODS_OF_TWO, "one"), (UNEVEN, "top")]),
    st.lists(st.integers(0, 11), min_size=1, max_size=60),
    st.integers(0, 5),
)
def test_a_bit_stands_for_one_contributor_and_level_bits_differ_on_the_way_up(where, choice, size):
    network, top = where
    fabric, names = Fabric.below(top, network), sorted(network)
    places = at(*(names[each % len(names)] for each in choice))
    trees = fabric.trees({each.switch for each in places.values()})
    if not trees:
        return
    plan = shares(trees, SlotRange(0, 64, 1 << size), places, len(places))
    level_bits = {share.level_bit for each in plan.values() for share in each if share.level_bit}
    most = most_contributors(trees)
    assert all(bit >= 1 << most for bit in level_bits)
    for switch, each in plan.items():
        bits: dict[int, set[int]] = {}
        for share in each:
            for contributor in share.contributors:
                kept = bits.setdefault(contributor.bits, {contributor.where.port})
                assert contributor.where.port in kept or contributor.where.port == 400, switch
            on_the_way = [each.level_bit for each in way_up(plan, share)]
            assert len({*on_the_way}) == len(on_the_way)
            assert not on_the_way[-1]
            assert [*way_up(plan, share)][-1].ranks == {*places}


def way_up(plan, share):
    """Yield a share, and those that its sums go to."""
    yield share
    if share.uplink:
        [above] = [
            each for each in plan[share.uplink.parent] if each.first_slot == share.first_slot
        ]
        yield from way_up(plan, above)


def test_sixty_workers_need_no_more_bits_than_the_largest_switch_has_contributors():
    fabric = Fabric.below("one", PODS_OF_TWO)
    places = at(*(["a1"] * 15 + ["a2"] * 15 + ["c1"] * 15 + ["c2"] * 15))
    plan = shares(fabric.trees(["a1", "a2", "c1", "c2"]), SlotRange(0, 0, 64), places, 60)
    largest = max(
        contributor.bits
        for each in plan.values()
        for share in each
        for contributor in share.contributors
    )
    assert largest == 1 << 14


@pytest.mark.parametrize(("most", "fits"), [(64, True), (32, False)])
def test_thirty_two_racks_of_thirty_two_fit_where_bitmaps_have_64_bits(most: int, fits: bool):
    names = [f"rack{number}" for number in range(32)]
    network = links(top="", **dict.fromkeys(names, "top"))
    fabric = Fabric.below("top", network, dict.fromkeys(network, most))
    assert fabric.contributors == most
    places = at(*(name for name in names for _ in range(32)))
    trees = fabric.trees(names)
    assert (most_contributors(trees, most) >= 32) == fits
    assert {*loads(trees[0], places).values()} == {32}
    plan = shares(trees, SlotRange(0, 0, 64), places, len(places), most=most)
    for switch, (share,) in plan.items():
        bits = [each.bits for each in share.contributors]
        assert sum(bits) == (1 << 32) - 1, switch
        assert share.level_bit == (0 if switch == "top" else 1 << most - 1)
        assert len(share.ranks) == (1024 if switch == "top" else 32)


def test_the_switch_with_the_fewest_bits_decides():
    network = links(top="", a="top", b="top")
    assert Fabric.below("top", network, {"top": 64, "a": 64, "b": 32}).contributors == 32
    assert Fabric.below("top", network).contributors == 64


# -- a quorum ------------------------------------------------------------------------------------


def tops(plan):
    return [share for each in plan.values() for share in each if not share.uplink]


@pytest.mark.parametrize(
    ("sizes", "quorum", "awaited"),
    [
        ((8, 8, 2), 10, 2),
        ((8, 8, 2), 11, 3),
        ((8, 8, 2), 2, 1),
        ((8, 8, 2), 3, 2),
        ((4, 4, 4, 4), 12, 3),
        ((4, 4, 4, 4), 13, 4),
        ((1, 1, 1), 2, 2),
    ],
)
def test_the_top_awaits_as_many_racks_as_hold_the_quorum_whichever_they_are(sizes, quorum, awaited):
    network = links(spine="", **{f"rack{each}": "spine" for each in range(len(sizes))})
    places = at(*(f"rack{each}" for each, size in enumerate(sizes) for _ in range(size)))
    trees = Fabric.below("spine", network).trees({each.switch for each in places.values()})
    plan = shares(trees, SlotRange(0, 0, 16), places, quorum)
    [top] = tops(plan)
    assert top.awaited == awaited
    assert top.is_partial == (awaited < len(sizes))
    for switch, [share] in plan.items():
        if switch != "spine":
            assert share.awaited == len(share.contributors) + 1
            assert not share.is_partial


@given(st.permutations([*"xxyyy"]), st.integers(1, 5))
def test_parents_of_the_same_racks_number_them_alike(workers, quorum):
    places = at(*workers)
    trees = Fabric.below("one", SHARED).trees({*workers})
    found = tops(shares(trees, SlotRange(0, 0, 16), places, quorum))
    assert len(found) > 1
    assert len({tuple((each.bits, each.ranks) for each in top.contributors) for top in found}) == 1


def test_where_the_tops_join_different_groups_all_contributions_are_needed():
    network = links(
        one="", two="", a="one", b="one", c="two", d="two", w="a c", x="a d", y="b c", z="b d"
    )
    trees = Fabric.below("one", network).trees([*"wxyz"])
    found = tops(shares(trees, SlotRange(0, 0, 16), at(*"wxyz"), 2))
    assert {top.contributors[0].ranks for top in found} == {frozenset({0, 1}), frozenset({0, 2})}
    assert not any(top.is_partial for top in found)


def test_a_switch_has_room_for_its_workers_in_each_part_of_the_slots():
    fabric, racks = Fabric.below("one", SHARED), ["x"] * 20 + ["y"] * 20
    plan = shares(fabric.trees(racks), SlotRange(0, 0, 8), at(*racks), 40)
    entries = sum(len(share.contributors) for share in plan["x"])
    assert entries == 80
    assert entries <= fabric.most_entries(len(racks))
