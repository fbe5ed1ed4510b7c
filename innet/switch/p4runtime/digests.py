"""Digests: samples that the program takes of packets, and that the switch sends to the controller.

The switch sends samples in lists, and the controller acknowledges each list. This follows "DigestEntry"
and "Digest Messages" in the P4Runtime specification. All samples of a list differ. A sample in an
unacknowledged list is not sent again until that list is too old.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.p4runtime.digest_types import DigestType
from innet.switch.p4runtime.parts import MAX_PART_BYTES
from innet.switch.p4runtime.refusals import already_exists, invalid, not_found

_SECOND = 1_000_000_000
_NO_LIMIT = 1 << 63


@dataclass
class _DigestBuffer:
    """The samples of one kind of digest that are not sent or not acknowledged yet. Times are in ns."""

    digest: DigestType
    entry: p4rt.DigestEntry
    next_list: int
    waiting: dict[bytes, None] = field(default_factory=dict)
    since: int = 0
    sent: OrderedDict[int, tuple[int, list[bytes]]] = field(default_factory=OrderedDict)
    """The time and the samples of each list that is not acknowledged, the oldest list first."""
    known: set[bytes] = field(default_factory=set)

    def add(self, sample: bytes, now: int) -> Iterator[p4rt.DigestList]:
        """Add a sample, and yield the list that it completes, if any."""
        if sample in self.known or sample in self.waiting:
            return
        if not self.waiting:
            self.since = now
        self.waiting[sample] = None
        config = self.entry.config
        most = min(config.max_list_size or _NO_LIMIT, self.digest.most_in(MAX_PART_BYTES))
        if not config.max_timeout_ns or len(self.waiting) >= most:
            yield self._list(now)

    def flush(self, now: int) -> Iterator[p4rt.DigestList]:
        """Yield the list that has waited long enough, and forget lists that are too old."""
        config = self.entry.config
        if self.waiting and now - self.since >= config.max_timeout_ns:
            yield self._list(now)
        while self.sent:
            oldest, (at, _) = next(iter(self.sent.items()))
            if now - at < config.ack_timeout_ns:
                break
            self.forget(oldest)

    def forget(self, number: int) -> None:
        """Allow the samples of the list with this id to be sent again."""
        _, samples = self.sent.pop(number, (0, []))
        self.known.difference_update(samples)

    def due(self) -> Iterator[int]:
        """Yield the times at which there is something to flush."""
        config = self.entry.config
        if self.waiting:
            yield self.since + config.max_timeout_ns
        if self.sent:
            at, _ = next(iter(self.sent.values()))
            yield at + config.ack_timeout_ns

    def _list(self, now: int) -> p4rt.DigestList:
        message = p4rt.DigestList(digest_id=self.digest.id, list_id=self.next_list)
        message.timestamp = time.time_ns()
        message.data.extend(map(self.digest.data, self.waiting))
        if self.entry.config.ack_timeout_ns:
            self.sent[self.next_list] = now, list(self.waiting)
            self.known.update(self.waiting)
        self.waiting = {}
        self.next_list += 1
        return message


class Digests:
    """The digests of one program. A caller holds the device's lock."""

    def __init__(self, engine: Engine, types: Mapping[int, DigestType]) -> None:
        self._engine, self._types = engine, types
        self._buffers: dict[int, _DigestBuffer] = {}
        self._next_list: dict[int, int] = {}

    def write(self, kind: p4rt.Update.Type, entry: p4rt.DigestEntry) -> None:
        """Configure, change or end the collection of a kind of digest. Raises Refusal."""
        digest = self._types.get(entry.digest_id)
        if not digest:
            raise not_found(f"the program has no digest with id {entry.digest_id:#x}")
        buffer = self._buffers.get(digest.id)
        if buffer and kind == p4rt.Update.INSERT:
            raise already_exists(f"digest {digest.name} is configured already: modify it")
        if not buffer and kind != p4rt.Update.INSERT:
            raise not_found(f"digest {digest.name} is not configured")
        if buffer and kind == p4rt.Update.DELETE:
            self._next_list[digest.id] = buffer.next_list
            del self._buffers[digest.id]
        else:
            self._set(digest, buffer, entry)
        self._engine.set_learning(digest.number, on=digest.id in self._buffers)

    def _set(
        self, digest: DigestType, buffer: _DigestBuffer | None, entry: p4rt.DigestEntry
    ) -> None:
        _check(digest, entry)
        kept = p4rt.DigestEntry()
        kept.CopyFrom(entry)
        if buffer:
            buffer.entry = kept
        else:
            first = self._next_list.get(digest.id, 1)
            self._buffers[digest.id] = _DigestBuffer(digest, kept, first)

    def read(self, wanted: p4rt.DigestEntry) -> list[p4rt.DigestEntry]:
        """Return the configuration of one kind of digest, or of all."""
        return [
            each.entry for number, each in self._buffers.items() if wanted.digest_id in (0, number)
        ]

    def acknowledge(self, ack: p4rt.DigestListAck) -> None:
        """Process the acknowledgement of a list. Raises Refusal if there is no such kind of digest."""
        if ack.digest_id not in self._types:
            raise not_found(f"the program has no digest with id {ack.digest_id:#x}")
        buffer = self._buffers.get(ack.digest_id)
        if buffer:
            buffer.forget(ack.list_id)

    def collect(self) -> tuple[list[p4rt.DigestList], float | None]:
        """Return the lists to send now, and the seconds until :meth:`collect` has to run again.

        The time is None if nothing is due before the next sample comes.
        """
        now = time.monotonic_ns()
        by_number = {each.digest.number: each for each in self._buffers.values()}
        lists: list[p4rt.DigestList] = []
        for number, sample in self._engine.learned():
            if number in by_number:
                lists += by_number[number].add(sample, now)
        for each in by_number.values():
            lists += each.flush(now)
        due = [at for each in by_number.values() for at in each.due()]
        return lists, max(0, min(due) - now) / _SECOND if due else None


def _check(digest: DigestType, entry: p4rt.DigestEntry) -> None:
    config = entry.config
    if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
        raise invalid(f"digest {digest.name}: a time or a size is negative")
