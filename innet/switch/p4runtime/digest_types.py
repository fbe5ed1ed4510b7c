"""The kinds of digests that P4Info declares, bound to those of the program."""

from dataclasses import dataclass
from typing import Any

from innet.errors import UnsupportedProgram
from innet.p4runtime import p4data_pb2, p4info_pb2
from innet.switch import ir
from innet.switch.p4runtime.info import mismatch

_HEAD = 10
"""The most bytes that the keys and lengths of a member take, or those of a sample."""


@dataclass(frozen=True)
class DigestType:
    """One kind of digest: P4Runtime's id, the program's number, and the bits of each member."""

    id: int
    name: str
    number: int
    shape: str
    bits: tuple[int, ...]

    def data(self, sample: bytes) -> p4data_pb2.P4Data:
        """Return a sample of the program, with its members in whole bytes, as a message."""
        members, at = [], 0
        for bits in self.bits:
            size = (bits + 7) // 8
            members.append(sample[at : at + size].lstrip(b"\0") or b"\0")
            at += size
        message = p4data_pb2.P4Data()
        if self.shape == "bitstring":
            message.bitstring = members[0]
            return message
        several = message.struct if self.shape == "struct" else message.tuple
        for value in members:
            several.members.add(bitstring=value)
        return message

    def most_in(self, size: int) -> int:
        """Return a number of samples, at least 1, whose messages take at most so many bytes."""
        members = sum((bits + 7) // 8 + _HEAD for bits in self.bits)
        return max(1, size // (members + 2 * _HEAD))


def digest_types(info: p4info_pb2.P4Info, program: ir.Program) -> dict[int, DigestType]:
    """Return all kinds of digests by id. Raises UnsupportedProgram."""
    numbers = {each.name: number for number, each in enumerate(program.learn_lists)}
    unnamed = [each for each in info.digests if each.preamble.name not in numbers]
    named = {each.preamble.name for each in info.digests}
    # p4c's two outputs have different names for a digest without a struct, but the same order.
    others = (number for name, number in numbers.items() if name not in named)
    by_id = {each.preamble.id: number for each, number in zip(unnamed, others, strict=False)}
    found: dict[int, DigestType] = {}
    for each in info.digests:
        name, identifier = each.preamble.name, each.preamble.id
        number = by_id.get(identifier, numbers.get(name))
        shape, bits = _members(name, each.type_spec, info.type_info)
        if number is None or bits != _bits(program, program.learn_lists[number]):
            raise mismatch(f"digest {name} differs")
        found[identifier] = DigestType(identifier, name, number, shape, bits)
    return found


def _bits(program: ir.Program, digest: ir.FieldList) -> tuple[int, ...]:
    return tuple(
        1 if each.field == ir.VALID else program.header_of(each).field(each.field).bits
        for each in digest.fields
    )


def _members(name: str, spec: Any, types: Any) -> tuple[str, tuple[int, ...]]:
    shape = spec.WhichOneof("type_spec")
    if shape == "bitstring":
        members = [spec]
    elif shape == "tuple":
        members = list(spec.tuple.members)
    elif shape == "struct":
        members = [each.type_spec for each in types.structs[spec.struct.name].members]
    else:
        raise UnsupportedProgram(f"digest {name}: values of type {shape} are not supported")
    return shape, tuple(_width(name, each) for each in members)


def _width(name: str, spec: Any) -> int:
    kind = spec.bitstring.WhichOneof("type_spec")
    if kind not in ("bit", "int"):
        what = spec.WhichOneof("type_spec") if kind is None else kind
        raise UnsupportedProgram(f"digest {name}: members of type {what} are not supported")
    return int(getattr(spec.bitstring, kind).bitwidth)
