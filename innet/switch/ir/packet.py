"""Headers, and the stacks and unions of headers: what a packet and its metadata consist of."""

from dataclasses import dataclass

STANDARD_METADATA = "standard_metadata"
"""The name of v1model's own metadata."""

STANDARD_FIELDS = {
    **dict.fromkeys(("ingress_port", "egress_spec", "egress_port"), 9),
    **dict.fromkeys(("instance_type", "packet_length", "parser_error"), 32),
    "checksum_error": 1,
    **dict.fromkeys(("ingress_global_timestamp", "egress_global_timestamp"), 48),
    **dict.fromkeys(("mcast_grp", "egress_rid"), 16),
    "priority": 3,
    **dict.fromkeys(("enq_timestamp", "deq_timedelta"), 32),
    **dict.fromkeys(("enq_qdepth", "deq_qdepth"), 19),
}
"""The fields of standard metadata that the switch sets or reads, with their widths in v1model.

Every program has all of them, but a program from P4_14 may declare another width.
"""


@dataclass(frozen=True)
class FieldType:
    """One field of a header type. A varbit has at most `bits` bits, always a multiple of 8."""

    name: str
    bits: int
    signed: bool = False
    varbit: bool = False


@dataclass(frozen=True)
class Header:
    """A header or a metadata instance."""

    name: str
    fields: tuple[FieldType, ...]
    metadata: bool

    def field(self, name: str) -> FieldType:
        """Return the field called `name`."""
        return next(each for each in self.fields if each.name == name)

    @property
    def varbit(self) -> FieldType | None:
        """Return the field of variable length, if there is one."""
        return next((each for each in self.fields if each.varbit), None)

    @property
    def fixed_bytes(self) -> int:
        """Return the header's length in packets, without its varbit."""
        return sum(each.bits for each in self.fields if not each.varbit) // 8


@dataclass(frozen=True)
class Stack:
    """Headers of one type that can also be reached by index.

    Each stack of a `union_stack` has one header per union. All stacks of a union stack share the
    parser's counter of extracted headers.
    """

    name: str
    headers: tuple[str, ...]
    union_stack: str | None = None

    @property
    def counter(self) -> str:
        """Return the name of the counter of extracted headers, which stacks of a union stack share."""
        return self.union_stack or self.name


@dataclass(frozen=True)
class Union:
    """Headers of which at most one is valid."""

    name: str
    headers: tuple[str, ...]


@dataclass(frozen=True)
class UnionStack:
    """Unions of one type that can also be reached by index. `stacks` are the stacks of their headers."""

    name: str
    unions: tuple[str, ...]
    stacks: tuple[str, ...]
