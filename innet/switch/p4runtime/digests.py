"""Digests: samples that packets send to the controller in lists, which it acknowledges.

They follow "DigestEntry" and "Digest Messages" in the P4Runtime specification. All samples of a
list differ. A sample in an unacknowledged list is not sent again until that list is too old.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from p4.config.v1 import p4info_pb2
from p4.v1 import p4data_pb2
from p4.v1 import p4runtime_pb2 as p4rt

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.engine import Engine
from innet.switch.p4runtime.info import mismatch
from innet.switch.p4runtime.refusals import already_exists, invalid, not_found

_SECOND = 1_000_000_000
_NO_LIMIT = 1 << 63


@dataclass(frozen=True)
class Layout:
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


def layouts(info: p4info_pb2.P4Info, program: ir.Program) -> dict[int, Layout]:
    """Return all kinds of digests by id. Raises UnsupportedProgram."""
    numbers = {each.name: number for number, each in enumerate(program.learn_lists)}
    unnamed = [each for each in info.digests if each.preamble.name not in numbers]
    named = {each.preamble.name for each in info.digests}
    # p4c gives a digest without a struct different names in its two outputs, in the same order.
    others = (number for name, number in numbers.items() if name not in named)
    by_id = {each.preamble.id: number for each, number in zip(unnamed, others, strict=False)}
    found: dict[int, Layout] = {}
    for each in info.digests:
        name, identifier = each.preamble.name, each.preamble.id
        number = by_id.get(identifier, numbers.get(name))
        shape, bits = _members(name, each.type_spec, info.type_info)
        if number is None or bits != _bits(program, program.learn_lists[number]):
            raise mismatch(f"digest {name} differs")
        found[identifier] = Layout(identifier, name, number, shape, bits)
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


@dataclass
class _Gathering:
    """The samples of one kind of digest that are not sent or not acknowledged yet. Times are in ns."""

    layout: Layout
    entry: p4rt.DigestEntry
    next_list: int
    waiting: dict[bytes, None] = field(default_factory=dict)
    since: int = 0
    sent: dict[int, tuple[int, list[bytes]]] = field(default_factory=dict)
    known: set[bytes] = field(default_factory=set)

    def add(self, sample: bytes, now: int) -> Iterator[p4rt.DigestList]:
        """Add a sample, and yield the list that it completes, if any."""
        if sample in self.known or sample in self.waiting:
            return
        if not self.waiting:
            self.since = now
        self.waiting[sample] = None
        config = self.entry.config
        if not config.max_timeout_ns or len(self.waiting) >= (config.max_list_size or _NO_LIMIT):
            yield self._list(now)

    def sweep(self, now: int) -> Iterator[p4rt.DigestList]:
        """Yield the list that has waited long enough, and forget lists that are too old."""
        config = self.entry.config
        if self.waiting and now - self.since >= config.max_timeout_ns:
            yield self._list(now)
        for number in [n for n, (at, _) in self.sent.items() if now - at >= config.ack_timeout_ns]:
            self.forget(number)

    def forget(self, number: int) -> None:
        """Allow the samples of the list with this id to be sent again."""
        _, samples = self.sent.pop(number, (0, []))
        self.known.difference_update(samples)

    def due(self) -> Iterator[int]:
        """Yield the times at which there is something to sweep."""
        config = self.entry.config
        if self.waiting:
            yield self.since + config.max_timeout_ns
        for at, _ in self.sent.values():
            yield at + config.ack_timeout_ns

    def _list(self, now: int) -> p4rt.DigestList:
        message = p4rt.DigestList(digest_id=self.layout.id, list_id=self.next_list)
        message.timestamp = time.time_ns()
        message.data.extend(map(self.layout.data, self.waiting))
        if self.entry.config.ack_timeout_ns:
            self.sent[self.next_list] = now, list(self.waiting)
            self.known.update(self.waiting)
        self.waiting = {}
        self.next_list += 1
        return message


class Digests:
    """The digests of one program. A caller holds the device's lock."""

    def __init__(self, engine: Engine, kinds: Mapping[int, Layout]) -> None:
        self._engine, self._kinds = engine, kinds
        self._gatherings: dict[int, _Gathering] = {}
        self._next_list: dict[int, int] = {}

    def write(self, kind: p4rt.Update.Type, entry: p4rt.DigestEntry) -> None:
        """Configure, change or end the collection of a kind of digest. Raises Refusal."""
        layout = self._kinds.get(entry.digest_id)
        if not layout:
            raise not_found(f"the program has no digest with id {entry.digest_id:#x}")
        gathering = self._gatherings.get(layout.id)
        if gathering and kind == p4rt.Update.INSERT:
            raise already_exists(f"digest {layout.name} is configured already")
        if not gathering and kind != p4rt.Update.INSERT:
            raise not_found(f"digest {layout.name} is not configured")
        if gathering and kind == p4rt.Update.DELETE:
            self._next_list[layout.id] = gathering.next_list
            del self._gatherings[layout.id]
        else:
            self._set(layout, gathering, entry)
        self._engine.set_learning(layout.number, on=layout.id in self._gatherings)

    def _set(self, layout: Layout, gathering: _Gathering | None, entry: p4rt.DigestEntry) -> None:
        _check(layout, entry)
        kept = p4rt.DigestEntry()
        kept.CopyFrom(entry)
        if gathering:
            gathering.entry = kept
        else:
            first = self._next_list.get(layout.id, 1)
            self._gatherings[layout.id] = _Gathering(layout, kept, first)

    def read(self, wanted: p4rt.DigestEntry) -> list[p4rt.DigestEntry]:
        """Return the configuration of one kind of digest, or of all."""
        return [
            each.entry
            for number, each in self._gatherings.items()
            if wanted.digest_id in (0, number)
        ]

    def acknowledge(self, ack: p4rt.DigestListAck) -> None:
        """Process the acknowledgement of a list. Raises Refusal if there is no such kind of digest."""
        if ack.digest_id not in self._kinds:
            raise not_found(f"the program has no digest with id {ack.digest_id:#x}")
        gathering = self._gatherings.get(ack.digest_id)
        if gathering:
            gathering.forget(ack.list_id)

    def collect(self) -> tuple[list[p4rt.DigestList], float | None]:
        """Return the lists to send now, and the seconds until a list can be due without new packets."""
        now = time.monotonic_ns()
        by_number = {each.layout.number: each for each in self._gatherings.values()}
        lists: list[p4rt.DigestList] = []
        for number, sample in self._engine.learned():
            if number in by_number:
                lists += by_number[number].add(sample, now)
        for each in by_number.values():
            lists += each.sweep(now)
        due = [at for each in by_number.values() for at in each.due()]
        return lists, max(0, min(due) - now) / _SECOND if due else None


def _check(layout: Layout, entry: p4rt.DigestEntry) -> None:
    config = entry.config
    if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
        raise invalid(f"digest {layout.name}: times and sizes are not negative")
