"""The parser's value sets through P4Runtime: ValueSetEntry messages and the engine's members."""

from collections.abc import Iterator

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.p4runtime.entities import ValueSet
from innet.switch.p4runtime.entry_messages import shorten
from innet.switch.p4runtime.matches import match_key
from innet.switch.p4runtime.refusals import already_exists, exhausted, invalid
from innet.switch.p4runtime.schema import Schema


class ValueSets:
    """The value sets of one loaded program, with their members as clients wrote them."""

    def __init__(self, engine: Engine, schema: Schema) -> None:
        self._engine, self._schema = engine, schema
        self._members: dict[int, list[p4rt.ValueSetMember]] = {
            number: [] for number in schema.value_sets
        }

    def read(self, wanted: p4rt.ValueSetEntry) -> Iterator[p4rt.ValueSetEntry]:
        """Yield the value set that `wanted` names. Id 0 stands for all. Raises Refusal."""
        number = wanted.value_set_id
        for value_set in (
            [self._schema.value_set(number)] if number else self._schema.value_sets.values()
        ):
            members = self._members[value_set.id]
            yield p4rt.ValueSetEntry(value_set_id=value_set.id, members=members)

    def write(self, update: p4rt.Update.Type, entry: p4rt.ValueSetEntry) -> None:
        """Replace all members. Raises Refusal, and then nothing has changed."""
        if update != p4rt.Update.MODIFY:
            raise invalid("a value set can only be modified")
        value_set = self._schema.value_set(entry.value_set_id)
        if len(entry.members) > value_set.size:
            count = len(entry.members)
            raise exhausted(f"{value_set.name} has room for {value_set.size} members, not {count}")
        keys = [_key(value_set, member) for member in entry.members]
        if len(set(keys)) < len(keys):
            raise already_exists(f"{value_set.name}: a member is there twice")
        self._engine.entries.set_values(value_set.name, keys)
        self._members[value_set.id] = list(map(_canonical, entry.members))


def _canonical(member: p4rt.ValueSetMember) -> p4rt.ValueSetMember:
    """Return a copy of a member, with all byte strings in canonical form."""
    copy = p4rt.ValueSetMember()
    copy.CopyFrom(member)
    for match in copy.match:
        shorten(getattr(match, match.WhichOneof("field_match_type")))
    return copy


def _key(value_set: ValueSet, member: p4rt.ValueSetMember) -> tuple[int, int]:
    """Return the joined values and the joined masks of all fields."""
    value = mask = 0
    for field, part, of_part in zip(value_set.fields, *match_key(value_set, member), strict=True):
        value = value << field.bits | part
        mask = mask << field.bits | of_part
    return value, mask
