"""Which chunk is in which slot, and which packets are due: the hosts' half of the slot protocol.

Pure logic over numpy arrays: no sockets, no clock; a whole batch of packets per call.

Chunk c of an exchange goes through slot c mod S. Every use of a slot has the next sequence number of
that slot, from 1 on, for as long as the epoch lasts. A slot's next chunk starts only when the result
before it is in: that is what makes two copies in the switch enough.
"""

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]

_IDLE = -1
_LAST_SEQUENCE = 2**32 - 1
_MOST_CHUNKS = 2**31  # of one exchange: more elements than the agent takes


class Window:
    """The state of a worker's slots, over any number of exchanges."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sequence = np.ones(slots, np.int64)
        self._chunk: Indices = np.full(slots, _IDLE, np.int64)
        self._sent_at: Times = np.zeros(slots)
        self._attempts: Indices = np.zeros(slots, np.int64)
        self._chunks = 0
        self.remaining = 0

    def start(self, chunks: int, now: float) -> tuple[Indices, Indices]:
        """Begin an exchange of `chunks` chunks. Returns (slots, chunks) to send at once."""
        self._chunks = chunks
        self.remaining = chunks
        first = np.arange(min(chunks, self.slots))
        self._chunk[first] = first
        self._mark_sent(first, now)
        return first, first

    def accept(self, slots: Indices, sequences: Indices) -> tuple[Indices, Indices]:
        """Match replies with what is outstanding; what does not match is not ours, or is late.

        Returns (positions in the batch, slots) of the accepted ones, each slot at most once.
        """
        known = np.flatnonzero((slots >= 0) & (slots < self.slots))
        waiting = known[
            (self._chunk[slots[known]] != _IDLE) & (self.sequence[slots[known]] == sequences[known])
        ]
        _, first = np.unique(slots[waiting], return_index=True)
        positions = waiting[np.sort(first)]
        return positions, slots[positions]

    def finish(self, slots: Indices, now: float) -> tuple[Indices, Indices, Indices]:
        """Take the results of accepted `slots` as received.

        Returns (finished chunks, slots to send again, their new chunks).
        """
        finished = self._chunk[slots]
        self.remaining -= len(slots)
        self.sequence[slots] += 1
        following = finished + self.slots
        more = following < self._chunks
        self._chunk[slots] = np.where(more, following, _IDLE)
        self._mark_sent(slots[more], now)
        return finished, slots[more], following[more]

    def round_trip(self, slots: Indices, now: float) -> float | None:
        """The longest time that any of the once-sent `slots` took; None if all were sent again."""
        once = slots[self._attempts[slots] == 1]
        return float(now - self._sent_at[once].min()) if once.size else None

    def overdue(self, now: float, timeout: float, longest: float) -> tuple[Indices, Indices]:
        """(slots, chunks) whose reply is late, marked as sent again; every attempt waits longer."""
        busy = np.flatnonzero(self._chunk != _IDLE)
        late = busy[now >= self._deadlines(busy, timeout, longest)]
        self._sent_at[late] = now
        self._attempts[late] += 1
        return late, self._chunk[late]

    def next_deadline(self, timeout: float, longest: float) -> float:
        """When :meth:`overdue` has something to say next."""
        busy = np.flatnonzero(self._chunk != _IDLE)
        return float(self._deadlines(busy, timeout, longest).min())

    def abandon(self) -> None:
        """Forget the exchange under way. The epoch is spoilt: the slots are out of step."""
        self._chunk[:] = _IDLE
        self.remaining = 0

    @property
    def exhausted(self) -> bool:
        """Whether another exchange might wrap sequence numbers, so that the job needs a new epoch."""
        return bool(self.sequence.max() > _LAST_SEQUENCE - _MOST_CHUNKS)

    def _mark_sent(self, slots: Indices, now: float) -> None:
        self._sent_at[slots] = now
        self._attempts[slots] = 1

    def _deadlines(self, slots: Indices, timeout: float, longest: float) -> Times:
        doublings = np.minimum(self._attempts[slots] - 1, 16)
        wait: Times = np.minimum(timeout * 2.0**doublings, longest)
        return self._sent_at[slots] + wait
