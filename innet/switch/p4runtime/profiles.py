"""Action profiles through P4Runtime: members, groups, and one-shot sets of actions.

The engine knows bundles, which are lists of actions from which a packet's hash chooses. A member is
a bundle with one action. A group or a set is a bundle of all its actions, each as often as its
weight. The actions stand in the order of the handles that BMv2 would have given them, so that both
switches choose the same action.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.constants import NO_ACTION, NO_BUNDLE
from innet.switch.engine import Engine
from innet.switch.p4runtime.entities import Action, Profile, Table, encode
from innet.switch.p4runtime.refusals import (
    already_exists,
    exhausted,
    failed_precondition,
    invalid,
    not_found,
    unsupported,
)
from innet.switch.p4runtime.schema import Schema

Call = tuple[int, Sequence[int]]
"""An action's number in the program, and its arguments."""

_MAX_WEIGHT = 1 << 16


class _IdPool:
    """An allocator of the smallest free numbers from 0 on."""

    def __init__(self) -> None:
        self._next = 0
        self._free: list[int] = []

    def allocate(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def free(self, number: int) -> None:
        heapq.heappush(self._free, number)


@dataclass
class _Member:
    message: p4rt.ActionProfileMember
    call: Call
    bundle: int
    handles: list[int]


@dataclass
class _Group:
    message: p4rt.ActionProfileGroup
    bundle: int

    @property
    def weights(self) -> dict[int, int]:
        return {each.member_id: each.weight for each in self.message.members}


@dataclass
class _ProfileState:
    """The contents of one profile.

    `one_shots` has the handles of each set of actions, by its bundle. `shot_sizes` are what the sets
    count for the profile's size.
    """

    profile: Profile
    members: dict[int, _Member] = field(default_factory=dict)
    groups: dict[int, _Group] = field(default_factory=dict)
    one_shots: dict[int, list[int]] = field(default_factory=dict)
    shot_sizes: dict[int, int] = field(default_factory=dict)
    handles: _IdPool = field(default_factory=_IdPool)


class Profiles:
    """The action profiles of one loaded program."""

    def __init__(self, engine: Engine, schema: Schema) -> None:
        self._engine, self._schema = engine, schema
        self._states = {
            number: _ProfileState(profile) for number, profile in schema.profiles.items()
        }
        self._bundles = _IdPool()
        self._users: Counter[int] = Counter()

    def write_member(self, update: p4rt.Update.Type, message: p4rt.ActionProfileMember) -> None:
        """Carry out one update. Raises Refusal, and then nothing has changed."""
        state = self._state(message.action_profile_id)
        where = f"{state.profile.name}: member {message.member_id}"
        member = state.members.get(message.member_id)
        if update == p4rt.Update.INSERT:
            if member:
                raise already_exists(f"{where} exists already: modify it")
            self._insert_member(state, message)
        elif not member:
            raise not_found(f"{where} does not exist")
        elif update == p4rt.Update.MODIFY:
            member.call = call(state.profile.name, state.profile.actions, message.action)
            member.message = _canonical(message)
            with self._engine.held():
                self._engine.entries.set_bundle(member.bundle, [member.call])
                for group in state.groups.values():
                    if message.member_id in group.weights:
                        self._set_group(state, group)
        else:
            self._delete_member(state, member)

    def write_group(self, update: p4rt.Update.Type, message: p4rt.ActionProfileGroup) -> None:
        """Carry out one update. Raises Refusal, and then nothing has changed."""
        state = self._state(message.action_profile_id)
        where = f"{state.profile.name}: group {message.group_id}"
        group = state.groups.get(message.group_id)
        if update == p4rt.Update.INSERT:
            if group:
                raise already_exists(f"{where} exists already: modify it")
            _check_group(state, message)
            _check_largest(state.profile, message)
            _check_not_mixed(state, one_shot=False)
            self._check_total(state, _weights(message.members))
            group = _Group(p4rt.ActionProfileGroup(), self._bundles.allocate())
            state.groups[message.group_id] = group
            self._change_group(state, group, message)
        elif not group:
            raise not_found(f"{where} does not exist")
        elif update == p4rt.Update.MODIFY:
            if message.max_size != group.message.max_size:
                raise invalid(
                    f"{where}: its max_size of {group.message.max_size} cannot be changed"
                )
            _check_group(state, message)
            self._check_total(state, _weights(message.members), group.bundle)
            self._change_group(state, group, message)
        else:
            self._check_unused(where, group.bundle)
            self._change_group(state, group, p4rt.ActionProfileGroup())
            del state.groups[message.group_id]
            self._remove_bundle(group.bundle)

    def members(self, wanted: p4rt.ActionProfileMember) -> Iterator[p4rt.ActionProfileMember]:
        """Yield the members that `wanted` describes. Ids of 0 stand for all."""
        for state in self._wanted(wanted.action_profile_id):
            for number, member in state.members.items():
                if wanted.member_id in (0, number):
                    yield member.message

    def groups(self, wanted: p4rt.ActionProfileGroup) -> Iterator[p4rt.ActionProfileGroup]:
        """Yield the groups that `wanted` describes. Ids of 0 stand for all."""
        for state in self._wanted(wanted.action_profile_id):
            for number, group in state.groups.items():
                if wanted.group_id in (0, number):
                    yield group.message

    def resolve(
        self, table: Table, action: p4rt.TableAction, replaced: int = NO_BUNDLE
    ) -> tuple[int, Sequence[int], int]:
        """Return the action, the arguments and the bundle of a table entry. Raises Refusal.

        The bundle is in use until :meth:`release`. It takes the place of the bundle `replaced`, which
        is released afterwards.
        """
        if not table.profile:
            return *_own_action(table, action), NO_BUNDLE
        return NO_ACTION, (), self._hold(table, action, replaced)

    def _hold(self, table: Table, action: p4rt.TableAction, replaced: int) -> int:
        state = self._state(table.profile)
        kind = action.WhichOneof("type")
        if kind == "action_profile_member_id":
            bundle = _bundle_of(table, "member", state.members, action.action_profile_member_id)
        elif kind == "action_profile_group_id":
            bundle = _bundle_of(table, "group", state.groups, action.action_profile_group_id)
        elif kind == "action_profile_action_set":
            bundle = self._add_one_shot(state, table, action.action_profile_action_set, replaced)
        else:
            raise invalid(
                f"{table.name}: has the action profile {state.profile.name}: give a member, a group or "
                "a set of actions"
            )
        self._users[bundle] += 1
        return bundle

    def release(self, table: Table, bundle: int) -> None:
        """Release the bundle of an entry that does not use it any more, if it had one."""
        if bundle == NO_BUNDLE:
            return
        self._users[bundle] -= 1
        state = self._state(table.profile)
        if bundle in state.one_shots:
            for handle in state.one_shots.pop(bundle):
                state.handles.free(handle)
            del state.shot_sizes[bundle]
            self._remove_bundle(bundle)

    def _state(self, number: int) -> _ProfileState:
        return self._states[self._schema.profile(number).id]

    def _wanted(self, number: int) -> Iterable[_ProfileState]:
        return [self._state(number)] if number else self._states.values()

    def _insert_member(self, state: _ProfileState, message: p4rt.ActionProfileMember) -> None:
        profile = state.profile
        if not message.member_id:
            raise invalid(f"{profile.name}: a member needs an id above 0")
        _check_not_mixed(state, one_shot=False)
        if profile.size and not profile.selects and len(state.members) >= profile.size:
            raise exhausted(
                f"{profile.name}: all {profile.size} members are in use: delete one first"
            )
        action_call = call(profile.name, profile.actions, message.action)
        bundle = self._bundles.allocate()
        member = _Member(_canonical(message), action_call, bundle, [state.handles.allocate()])
        state.members[message.member_id] = member
        self._engine.entries.set_bundle(bundle, [action_call])

    def _delete_member(self, state: _ProfileState, member: _Member) -> None:
        number = member.message.member_id
        where = f"{state.profile.name}: member {number}"
        for group in state.groups.values():
            if number in group.weights:
                raise failed_precondition(
                    f"{where} is in group {group.message.group_id}: take it out first"
                )
        self._check_unused(where, member.bundle)
        for handle in member.handles:
            state.handles.free(handle)
        del state.members[number]
        self._remove_bundle(member.bundle)

    def _change_group(
        self, state: _ProfileState, group: _Group, message: p4rt.ActionProfileGroup
    ) -> None:
        """Change a group, and the handles of the members whose weights change.

        BMv2 has n copies of a member of weight n. It makes and removes the copies in the order of
        the members' ids.
        """
        changed = sorted({*group.weights, *(each.member_id for each in message.members)})
        group.message = p4rt.ActionProfileGroup()
        group.message.CopyFrom(message)
        for number in changed:
            member = state.members[number]
            while len(member.handles) < group.weights.get(number, 0):
                member.handles.append(state.handles.allocate())
        self._set_group(state, group)
        for number in changed:
            weights = (each.weights.get(number, 0) for each in state.groups.values())
            handles, most = state.members[number].handles, max(1, *weights)
            while len(handles) > most:
                state.handles.free(handles.pop())

    def _set_group(self, state: _ProfileState, group: _Group) -> None:
        calls = [
            (handle, state.members[number].call)
            for number, weight in group.weights.items()
            for handle in state.members[number].handles[:weight]
        ]
        self._set_bundle(group.bundle, calls)

    def _add_one_shot(
        self,
        state: _ProfileState,
        table: Table,
        one_shot: p4rt.ActionProfileActionSet,
        replaced: int,
    ) -> int:
        profile, actions = state.profile, one_shot.action_profile_actions
        if not profile.selects:
            raise invalid(f"{table.name}: has no selector, so an entry has no set of actions")
        if not actions:
            raise invalid(f"{table.name}: the set of actions is empty")
        _check_not_mixed(state, one_shot=True)
        _check_weights(profile, actions)
        weights = _weights(actions)
        if profile.largest_group and profile.size_of(weights) > profile.largest_group:
            raise invalid(f"{table.name}: {_too_large(profile, profile.largest_group)}")
        self._check_total(state, weights, replaced)
        calls = [call(profile.name, profile.actions, each.action) for each in actions]
        repeated = [
            (state.handles.allocate(), action_call)
            for action_call, each in zip(calls, actions, strict=True)
            for _ in range(each.weight)
        ]
        bundle = self._bundles.allocate()
        state.one_shots[bundle] = [handle for handle, _ in repeated]
        state.shot_sizes[bundle] = profile.size_of(weights)
        self._set_bundle(bundle, repeated)
        return bundle

    def _check_total(
        self, state: _ProfileState, weights: Iterable[int], replaced: int = NO_BUNDLE
    ) -> None:
        """Raise Refusal if the selector has no room for a group with these members.

        The group takes the place of the bundle `replaced`.
        """
        profile = state.profile
        groups = (each for each in state.groups.values() if each.bundle != replaced)
        total = sum(profile.size_of(each.weights.values()) for each in groups)
        total += sum(state.shot_sizes.values()) - state.shot_sizes.get(replaced, 0)
        total += profile.size_of(weights)
        if profile.size and total > profile.size:
            problem = _too_large(profile, profile.size)
            raise exhausted(f"{profile.name}: all groups together: {problem}")

    def _set_bundle(self, bundle: int, calls: list[tuple[int, Call]]) -> None:
        in_order = sorted(calls, key=lambda each: each[0])
        self._engine.entries.set_bundle(bundle, [action_call for _, action_call in in_order])

    def _remove_bundle(self, bundle: int) -> None:
        self._engine.entries.remove_bundle(bundle)
        self._bundles.free(bundle)
        del self._users[bundle]

    def _check_unused(self, where: str, bundle: int) -> None:
        if self._users[bundle]:
            raise failed_precondition(
                f"{self._users[bundle]} table entries refer to {where}: change them first"
            )


def call(where: str, actions: Mapping[int, Action], message: p4rt.Action) -> Call:
    """Return the call that a message describes. `actions` are by P4Runtime id. Raises Refusal."""
    if message.action_id not in actions:
        raise invalid(f"{where}: there is no action with id {message.action_id:#x}")
    action = actions[message.action_id]
    given = {param.param_id: param.value for param in message.params}
    wanted = sorted(param.id for param in action.params)
    if sorted(given) != wanted or len(given) != len(message.params):
        names = ", ".join(param.name for param in action.params) or "none"
        raise invalid(f"{action.name}: give each of its parameters once: {names}")
    return action.number, [param.parse(given[param.id]) for param in action.params]


def _own_action(table: Table, message: p4rt.TableAction) -> Call:
    if not message.WhichOneof("type"):
        raise invalid(f"{table.name}: the entry has no action")
    if message.WhichOneof("type") != "action":
        raise invalid(f"{table.name}: has no action profile: give an action")
    return call(table.name, table.actions, message.action)


def _bundle_of(
    table: Table, what: str, things: dict[int, _Member] | dict[int, _Group], number: int
) -> int:
    if number not in things:
        raise not_found(f"{table.name}: there is no {what} {number}")
    return things[number].bundle


def _check_group(state: _ProfileState, message: p4rt.ActionProfileGroup) -> None:
    profile = state.profile
    if not profile.selects:
        raise invalid(f"{profile.name}: has no selector, so it has no groups")
    if not message.group_id:
        raise invalid(f"{profile.name}: a group needs an id above 0")
    _check_weights(profile, message.members)
    numbers = [each.member_id for each in message.members]
    if len({*numbers}) < len(numbers):
        raise invalid(f"{profile.name}: a group has a member twice: give the member a weight of 2")
    for number in numbers:
        if number not in state.members:
            raise not_found(f"{profile.name}: member {number} does not exist")
    most = message.max_size or profile.largest_group
    if most and profile.size_of(_weights(message.members)) > most:
        raise exhausted(f"{profile.name}: group {message.group_id}: {_too_large(profile, most)}")


def _weights(
    each_weighted: Iterable[p4rt.ActionProfileGroup.Member | p4rt.ActionProfileAction],
) -> list[int]:
    return [each.weight for each in each_weighted]


def _too_large(profile: Profile, most: int) -> str:
    if profile.by_members:
        return f"there are more than {most} members"
    return f"the weights sum to more than {most}"


def _check_largest(profile: Profile, message: p4rt.ActionProfileGroup) -> None:
    most = profile.largest_group
    if message.max_size < 0 or (most and message.max_size > most):
        raise invalid(f"{profile.name}: the max_size {message.max_size} is not from 0 to {most}")


def _check_weights(
    profile: Profile,
    each_weighted: Iterable[p4rt.ActionProfileGroup.Member | p4rt.ActionProfileAction],
) -> None:
    most = min(profile.max_weight or _MAX_WEIGHT, _MAX_WEIGHT)
    for each in each_weighted:
        if not 0 < each.weight <= most:
            raise invalid(f"{profile.name}: the weight {each.weight} is not from 1 to {most}")
        if each.watch or each.watch_port:  # a `watch` of 0 and an empty `watch_port` watch no port
            raise unsupported(f"{profile.name}: watched ports are not supported")


def _check_not_mixed(state: _ProfileState, *, one_shot: bool) -> None:
    if (state.members or state.groups) if one_shot else state.one_shots:
        raise invalid(
            f"{state.profile.name}: entries either refer to members and groups, or have sets of "
            "actions: one profile cannot have both"
        )


def _canonical(message: p4rt.ActionProfileMember) -> p4rt.ActionProfileMember:
    copy = p4rt.ActionProfileMember()
    copy.CopyFrom(message)
    for param in copy.action.params:
        param.value = encode(int.from_bytes(param.value, "big"))
    return copy
