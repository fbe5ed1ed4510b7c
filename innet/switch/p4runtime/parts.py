"""Messages to controllers that are cut into parts, which any P4Runtime client takes."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

MAX_PART_BYTES = 1 << 20
"""The bytes of one message. By default a client takes messages of up to 4 MiB."""

_MAX_MEMBERS = 1000

Member = TypeVar("Member", bound=Any)


def parts(members: Sequence[Member]) -> Iterator[list[Member]]:
    """Yield entities or entries in parts for one message each. A large one has a part for itself."""
    part: list[Member] = []
    size = 0
    for member in members:
        size += member.ByteSize()
        if part and (size > MAX_PART_BYTES or len(part) == _MAX_MEMBERS):
            yield part
            part, size = [], member.ByteSize()
        part.append(member)
    if part:
        yield part
