"""Action profiles and selectors: members, groups, and the choice among the members of a group."""

import itertools
import struct
from collections.abc import Callable

import pytest
from checksums import crc16
from p4runtime_client import Names, update_errors
from switches import Switch, ask, receive
from tiny_programs import Program, program

from innet.p4runtime import code_pb2, p4info_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

# -- action profiles -------------------------------------------------------------------------------


class Profile:
    """The entities of a program with one action profile, and its tables."""

    def __init__(self, name: str) -> None:
        self.program = program(name)
        self.names = Names(self.program.p4info)
        self.id = self.program.p4info.action_profiles[0].preamble.id

    def call(self, name: str, **params: int) -> p4rt.Action:
        table = self.program.p4info.tables[0].preamble.alias
        keys = {"key": 0}
        return self.names.entry(table, keys, name, **params).table_entry.action.action

    def member(self, number: int, name: str = "", /, **params: int) -> p4rt.Entity:
        entity = p4rt.Entity()
        member = entity.action_profile_member
        member.action_profile_id, member.member_id = self.id, number
        if name:
            member.action.CopyFrom(self.call(name, **params))
        return entity

    def group(self, number: int, *members: tuple[int, int], max_size: int = 0) -> p4rt.Entity:
        entity = p4rt.Entity()
        group = entity.action_profile_group
        group.action_profile_id, group.group_id, group.max_size = self.id, number, max_size
        for member, weight in members:
            group.members.add(member_id=member, weight=weight)
        return entity

    def entry(self, table: str, match: dict, priority: int = 0, **refers: int) -> p4rt.Entity:
        entity = self.names.entry(table, match, priority=priority)
        for name, number in refers.items():
            setattr(entity.table_entry.action, f"action_profile_{name}_id", number)
        return entity

    def shot(self, key: int, *ways: tuple[int, int]) -> p4rt.Entity:
        entity = self.names.entry("routes", {"key": key})
        for way, weight in ways:
            actions = entity.table_entry.action.action_profile_action_set.action_profile_actions
            actions.add(action=self.call("send", way=way), weight=weight)
        return entity


SHARED, WAYS = Profile("match_profile"), Profile("match_selector")
PICK = struct.Struct("!BIBBB")


def picked(switch: Switch, *packets: tuple[int, int, int, int]) -> list[tuple[int, int, int]]:
    """Return first, second and hit of the answers to packets of key, flow, first and second."""
    answers = ask(switch, *(PICK.pack(*packet, 0) for packet in packets))
    return [PICK.unpack(answer)[2:] for answer in answers]


def test_tables_share_the_members_of_a_profile(switch, controller):
    controller.configure(SHARED.program)
    add, double = SHARED.member(1, "add", number=5), SHARED.member(2, "double")
    controller.insert(add, double)
    assert controller.read(SHARED.member(0)) == [add, double]
    controller.insert(
        SHARED.entry("one", {"key": 1}, member=1),
        SHARED.entry("one", {"key": 2}, member=2),
        SHARED.entry("other", {"first": (1, 1)}, 1, member=2),
    )
    packets = [(1, 0, 1, 3), (1, 0, 2, 3), (2, 0, 1, 3), (3, 0, 2, 3)]
    assert picked(switch, *packets) == [(1, 16, 1), (2, 8, 1), (1, 12, 1), (2, 3, 0)]
    controller.modify(SHARED.member(2, "add", number=100))
    assert picked(switch, *packets) == [(1, 108, 1), (2, 8, 1), (1, 203, 1), (2, 3, 0)]
    controller.modify(SHARED.entry("one", {"key": 1}, member=2))
    assert picked(switch, packets[1]) == [(2, 103, 1)]
    [entry] = controller.read(SHARED.entry("one", {"key": 1}))
    assert entry.table_entry.action.action_profile_member_id == 2


def test_a_default_entry_can_refer_to_a_member_and_be_taken_back(switch, controller):
    controller.configure(SHARED.program)
    controller.insert(SHARED.member(1, "add", number=5))
    default = SHARED.names.default("one")
    default.table_entry.action.action_profile_member_id = 1
    controller.modify(default)
    assert picked(switch, (9, 0, 0, 3)) == [(0, 8, 0)]
    assert update_errors(controller.delete, SHARED.member(1))[0][0] == code_pb2.FAILED_PRECONDITION
    controller.modify(SHARED.names.default("one"))
    assert picked(switch, (9, 0, 0, 3)) == [(0, 3, 0)]
    controller.delete(SHARED.member(1))


def test_members_are_not_taken_away_from_those_that_use_them(controller):
    controller.configure(WAYS.program)
    controller.insert(WAYS.member(1, "send", way=1), WAYS.member(2, "send", way=2))
    controller.insert(WAYS.group(1, (1, 1)), WAYS.entry("routes", {"key": 1}, member=2))
    controller.insert(WAYS.entry("routes", {"key": 2}, group=1))
    for used in (WAYS.member(1), WAYS.member(2), WAYS.group(1)):
        assert update_errors(controller.delete, used)[0][0] == code_pb2.FAILED_PRECONDITION
    controller.delete(WAYS.entry("routes", {"key": 1}), WAYS.entry("routes", {"key": 2}))
    controller.delete(WAYS.group(1), WAYS.member(1), WAYS.member(2))
    assert controller.read(WAYS.member(0), WAYS.group(0)) == []


def test_members_groups_and_references_that_make_no_sense_are_refused(controller):
    controller.configure(WAYS.program)
    controller.insert(WAYS.member(1, "send", way=1), WAYS.group(1, (1, 2), max_size=5))
    watched = WAYS.group(2, (1, 1))
    watched.action_profile_group.members[0].watch_port = b"\1"
    direct = WAYS.names.entry("routes", {"key": 1}, "send", way=1)
    for call, entity, code in (
        (controller.insert, WAYS.member(1, "drop"), code_pb2.ALREADY_EXISTS),
        (controller.insert, WAYS.member(0, "drop"), code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.member(2), code_pb2.INVALID_ARGUMENT),
        (controller.modify, WAYS.member(2, "drop"), code_pb2.NOT_FOUND),
        (controller.delete, WAYS.member(2), code_pb2.NOT_FOUND),
        (controller.insert, WAYS.group(1), code_pb2.ALREADY_EXISTS),
        (controller.insert, WAYS.group(0), code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.group(2, (2, 1)), code_pb2.NOT_FOUND),
        (controller.insert, WAYS.group(2, (1, 0)), code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.group(2, (1, 1), (1, 1)), code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.group(2, (1, 3), max_size=2), code_pb2.RESOURCE_EXHAUSTED),
        (controller.insert, watched, code_pb2.UNIMPLEMENTED),
        (controller.modify, WAYS.group(1, max_size=4), code_pb2.INVALID_ARGUMENT),
        (controller.modify, WAYS.group(2), code_pb2.NOT_FOUND),
        (controller.delete, WAYS.group(2), code_pb2.NOT_FOUND),
        (controller.insert, direct, code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.entry("routes", {"key": 1}, member=3), code_pb2.NOT_FOUND),
        (controller.insert, WAYS.entry("routes", {"key": 1}, group=3), code_pb2.NOT_FOUND),
        (controller.insert, WAYS.shot(1, (1, 1)), code_pb2.INVALID_ARGUMENT),  # not mixed
    ):
        assert update_errors(call, entity)[0][0] == code, entity
    assert controller.read(WAYS.group(0)) == [WAYS.group(1, (1, 2), max_size=5)]
    controller.configure(SHARED.program)
    assert update_errors(controller.insert, SHARED.group(1))[0][0] == code_pb2.INVALID_ARGUMENT


# -- sizes and watched ports -----------------------------------------------------------------------


def limited(size: int, largest: int = 0, **semantics: object) -> Program:
    """Return the program with a selector of another size."""
    info = p4info_pb2.P4Info()
    info.CopyFrom(WAYS.program.p4info)
    profile = info.action_profiles[0]
    profile.size, profile.max_group_size = size, largest
    for name, value in semantics.items():
        getattr(profile, name).CopyFrom(value)
    return Program(WAYS.program.json, info)


def codes(call: Callable[..., object], *entities: p4rt.Entity) -> list[int]:
    return [code for code, _ in update_errors(call, *entities)]


INVALID, EXHAUSTED = [code_pb2.INVALID_ARGUMENT], [code_pb2.RESOURCE_EXHAUSTED]
SUM_OF_WEIGHTS = p4info_pb2.ActionProfile.SumOfWeights()


@pytest.mark.parametrize("semantics", [{}, {"sum_of_weights": SUM_OF_WEIGHTS}])
def test_a_selectors_size_limits_the_weights_of_all_groups_and_not_the_members(
    controller, semantics
):
    controller.configure(limited(5, 3, **semantics))
    controller.insert(*(WAYS.member(number, "send", way=number) for number in range(1, 8)))
    controller.insert(WAYS.group(1, (1, 3), max_size=3), WAYS.group(2, (2, 1), max_size=3))
    assert codes(controller.modify, WAYS.group(1, (1, 4), max_size=3)) == EXHAUSTED
    assert codes(controller.insert, WAYS.group(3, (3, 2), max_size=3)) == EXHAUSTED
    assert codes(controller.modify, WAYS.group(2, (2, 3), max_size=3)) == EXHAUSTED
    controller.modify(WAYS.group(2, (2, 2), max_size=3))
    controller.delete(WAYS.group(1))
    controller.insert(WAYS.group(3, (3, 2), (4, 1), max_size=3))


def test_with_sum_of_members_a_size_limits_the_members_of_groups(controller):
    semantics = p4info_pb2.ActionProfile.SumOfMembers(max_member_weight=100)
    controller.configure(limited(3, 2, sum_of_members=semantics))
    controller.insert(*(WAYS.member(number, "send", way=number) for number in range(1, 8)))
    controller.insert(WAYS.group(1, (1, 100), (2, 50), max_size=2))
    assert codes(controller.insert, WAYS.group(2, (3, 101), max_size=2)) == INVALID
    too_many = WAYS.group(1, (1, 1), (2, 1), (3, 1), max_size=2)
    assert codes(controller.modify, too_many) == EXHAUSTED
    assert codes(controller.insert, WAYS.group(2, (3, 1), (4, 1), max_size=2)) == EXHAUSTED
    controller.insert(WAYS.group(2, (3, 100), max_size=2))


def test_a_selectors_size_counts_the_sets_of_actions_too(controller):
    controller.configure(limited(4, 3))
    controller.insert(WAYS.shot(1, (1, 1), (2, 2)))
    assert codes(controller.insert, WAYS.shot(2, (1, 4))) == INVALID
    assert codes(controller.insert, WAYS.shot(2, (1, 2))) == EXHAUSTED
    controller.modify(WAYS.shot(1, (3, 3)))  # it takes the place of the set that it replaces
    controller.modify(WAYS.shot(1, (3, 2)))
    controller.insert(WAYS.shot(2, (1, 2)))
    semantics = p4info_pb2.ActionProfile.SumOfMembers(max_member_weight=2)
    controller.configure(limited(0, 2, sum_of_members=semantics))
    controller.insert(WAYS.shot(1, (1, 2), (1, 2)))
    for wrong in (WAYS.shot(2, (1, 3)), WAYS.shot(2, (1, 1), (2, 1), (3, 1))):
        assert codes(controller.insert, wrong) == INVALID


def test_a_profile_without_a_selector_holds_as_many_members_as_its_size(controller):
    info = p4info_pb2.P4Info()
    info.CopyFrom(SHARED.program.p4info)
    info.action_profiles[0].size = 2
    controller.configure(Program(SHARED.program.json, info))
    controller.insert(SHARED.member(1, "double"), SHARED.member(2, "double"))
    assert codes(controller.insert, SHARED.member(3, "double")) == EXHAUSTED


def test_no_port_is_watched_if_watch_is_0_or_watch_port_is_empty(switch, controller):
    controller.configure(WAYS.program)
    controller.insert(WAYS.member(1, "send", way=1), WAYS.member(2, "send", way=2))
    group = WAYS.group(1, (1, 1), (2, 1))
    group.action_profile_group.members[0].watch = 0
    group.action_profile_group.members[1].watch_port = b""
    controller.insert(group, WAYS.entry("routes", {"key": 1}, group=1))
    assert controller.read(WAYS.group(0)) == [group]
    assert ways_of(switch, 1) == [chosen(flow, [1, 2]) for flow in FLOWS]
    group.action_profile_group.group_id = 2
    for watched in ({"watch": 1}, {"watch_port": b"\1"}):
        group.action_profile_group.members[0].MergeFrom(p4rt.ActionProfileGroup.Member(**watched))
        assert codes(controller.insert, group) == [code_pb2.UNIMPLEMENTED]


# -- selectors -------------------------------------------------------------------------------------

FLOWS = range(0, 4000, 37)


def chosen(flow: int, ways: list[int]) -> int:
    """Return BMv2's choice: by the selector's CRC-16 over the flow, modulo the number of actions."""
    return ways[crc16(struct.pack("!I", flow)) % len(ways)]


def ways_of(switch: Switch, key: int) -> list[int]:
    return [first for first, _, _ in picked(switch, *((key, flow, 0, 0) for flow in FLOWS))]


def test_a_flows_hash_chooses_among_the_members_of_a_group(switch, controller):
    controller.configure(WAYS.program)
    controller.insert(*(WAYS.member(number, "send", way=number) for number in (3, 1, 2)))
    controller.insert(WAYS.group(1, (1, 1), (2, 1), (3, 1)))
    controller.insert(WAYS.entry("routes", {"key": 1}, group=1))
    controller.insert(WAYS.entry("routes", {"key": 2}, member=2))
    # The members stand in the order in which they were inserted.
    assert ways_of(switch, 1) == [chosen(flow, [3, 1, 2]) for flow in FLOWS]
    assert ways_of(switch, 2) == [2] * len(FLOWS)
    controller.modify(WAYS.group(1, (1, 2), (3, 1)))
    # The second copy of member 1 has its own handle, behind those of 3, 1 and 2.
    assert ways_of(switch, 1) == [chosen(flow, [3, 1, 1]) for flow in FLOWS]
    controller.modify(WAYS.member(1, "send", way=9))
    assert ways_of(switch, 1) == [chosen(flow, [3, 9, 9]) for flow in FLOWS]


def test_the_copies_of_a_weighty_member_take_the_places_that_are_free(switch, controller):
    controller.configure(WAYS.program)
    controller.insert(*(WAYS.member(number, "send", way=number) for number in (1, 2, 3)))
    controller.delete(WAYS.member(1))
    controller.insert(WAYS.group(1, (2, 1), (3, 2)))
    controller.insert(WAYS.entry("routes", {"key": 1}, group=1))
    assert ways_of(switch, 1) == [chosen(flow, [3, 2, 3]) for flow in FLOWS]
    controller.modify(WAYS.group(1, (2, 1), (3, 1)))
    controller.insert(WAYS.member(4, "send", way=4))
    controller.modify(WAYS.group(1, (2, 1), (3, 1), (4, 1)))
    assert ways_of(switch, 1) == [chosen(flow, [4, 2, 3]) for flow in FLOWS]


def test_an_empty_group_does_nothing_and_is_a_hit(switch, controller):
    controller.configure(WAYS.program)
    controller.insert(WAYS.group(1), WAYS.entry("routes", {"key": 1}, group=1))
    assert picked(switch, (1, 5, 7, 7), (2, 5, 7, 7)) == [(7, 7, 1), (7, 7, 2)]


def test_a_set_of_actions_is_given_in_one_shot(switch, controller):
    controller.configure(WAYS.program)
    shot = WAYS.shot(1, (5, 1), (6, 2))
    controller.insert(shot)
    assert controller.read(WAYS.names.entry("routes")) == [shot]
    assert controller.read(WAYS.member(0), WAYS.group(0)) == []
    assert ways_of(switch, 1) == [chosen(flow, [5, 6, 6]) for flow in FLOWS]
    controller.modify(WAYS.shot(1, (7, 1), (8, 1)))
    assert ways_of(switch, 1) == [chosen(flow, [7, 8]) for flow in FLOWS]
    for wrong in (WAYS.shot(2, (1, 0)), WAYS.member(1, "drop"), WAYS.group(1)):
        assert update_errors(controller.insert, wrong)[0][0] == code_pb2.INVALID_ARGUMENT
    controller.delete(shot)
    controller.insert(WAYS.member(1, "drop"))


def test_a_group_changes_while_packets_flow_and_every_packet_meets_one_of_its_states(
    switch, controller
):
    controller.configure(WAYS.program)
    controller.insert(*(WAYS.member(number, "send", way=number) for number in (1, 2, 3, 4)))
    states = [[(1, 1), (2, 1)], [(3, 1), (4, 1)]]
    controller.insert(WAYS.group(1, *states[0]), WAYS.entry("routes", {"key": 1}, group=1))
    for state, flow in zip(itertools.cycle(states), FLOWS, strict=False):
        switch.hosts[0].send(PICK.pack(1, flow, 0, 0, 0))
        controller.modify(WAYS.group(1, *state))
        way = PICK.unpack(receive(switch.hosts[0]))[2]
        assert way in (chosen(flow, [1, 2]), chosen(flow, [3, 4]))
