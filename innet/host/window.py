"""The window: the hosts' half of the slot protocol, with each slot's chunk and its state.

It is pure logic over numpy arrays, without sockets or clock. Each call handles a whole batch of
packets. A method that sends only chooses chunks and notes that they are sent; its caller sends them.

Chunk c of an exchange goes through slot c mod S. If the chunks do not go in order
(:meth:`innet.host.portions.Portions.order`), c is a chunk's position in their order. Every use of a
slot has the slot's next sequence number, starting at 1 in each term. A slot's next chunk starts only
when the result before it has arrived. That is why two copies in the switch are enough.

A chunk is *due* until it is sent, and then *flying* until its result arrives. It becomes due again
when it counts as lost: when a chunk sent a reordering window later has its result (RACK, RFC 8985).
The switch may answer that it *has* the contribution while others are missing. Then results of later
chunks prove no loss. Such a chunk is sent again after a time of its own, in case its result got
lost.
"""

import enum
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


class SlotState(enum.IntEnum):
    """The state of a slot's chunk."""

    DONE = 0  # there is no chunk to send
    DUE = 1  # to be sent, for the first time or again
    FLYING = 2  # sent, without a result so far
    HAD = 3  # the switch has said that it has the contribution


_DONE, _DUE, _FLYING, _HAD = map(int, SlotState)
_LAST_SEQUENCE = 2**32 - 1
_MOST_CHUNKS = 2**31  # of one exchange: more than the largest tensor of an agent has
_MOST_DOUBLINGS = 16


class Window:
    """The state of a worker's slots, over any number of exchanges."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sequence = np.ones(slots, np.int64)
        self._positions: Indices = np.arange(slots)
        self._chunk: Indices = self._positions.copy()  # the slot's first chunk that is not finished
        self._state = np.full(slots, _DONE, np.int8)
        self._attempts: Indices = np.zeros(slots, np.int64)
        self._suspect = np.zeros(slots, bool)  # counted as lost
        self._sent_at: Times = np.zeros(slots)
        self._first: Indices = np.zeros(slots, np.int64)  # position in the batch at hand
        self.chunks = 0  # of the exchange under way
        self.newest = float("-inf")  # latest sending time of all finished chunks
        self.quiet_until = float("-inf")  # results before this had to wait for other workers
        self.any_had = False  # in this exchange
        self.remaining = 0

    def start(self, chunks: int) -> None:
        """Begin an exchange of `chunks` chunks."""
        self.start_in_c(chunks)
        np.copyto(self._chunk, self._positions)
        self._state.fill(_DONE)
        self._state[:chunks] = _DUE
        self._attempts.fill(0)
        self._suspect.fill(False)

    def start_in_c(self, chunks: int) -> None:
        """Do the part of :meth:`start` that is not C's: C sets the arrays."""
        self.remaining = self.chunks = chunks
        self.any_had = False

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of slots, in the order of `struct window` in fastpath.h. They never move."""
        return {
            "sequence": self.sequence,
            "chunk": self._chunk,
            "attempts": self._attempts,
            "sent_at": self._sent_at,
            "state": self._state,
            "suspect": self._suspect,
        }

    def finish_in_c(self, finished: int, newest: float) -> None:
        """Do the part of :meth:`deliver` and :meth:`finish` that is not C's: C has set the arrays."""
        self.remaining -= finished
        self.newest = newest

    def transmit(self, most: int, now: float) -> tuple[Indices, Indices]:
        """Send due chunks, the lowest first, so that up to `most` are in flight.

        Returns (slots, chunks). The lowest unfinished chunk is sent in any case. Otherwise workers
        with different windows could wait for each other. So all workers send the lowest chunk of all.
        """
        due = np.flatnonzero(self._state == _DUE)
        if not due.size:
            return due, due
        room = max(0, most - int(np.count_nonzero(self._state == _FLYING)))
        due = due[np.argsort(self._chunk[due])]
        if len(due) > room:
            due = due[: max(room, int(self._chunk[due[0]] == self._chunk.min()))]
        return self._send(due, now)

    def probe(self, most: int, now: float) -> tuple[Indices, Indices]:
        """Send up to `most` unfinished chunks once more, the lowest first. Returns (slots, chunks)."""
        sent = np.flatnonzero(self._attempts > 0)
        slots = sent[np.argsort(self._chunk[sent])][: max(1, most)]
        self._suspect[slots] = False
        return self._send(slots, now)

    def overdue(self, age: float, now: float) -> tuple[Indices, Indices]:
        """Send the lowest chunk again, if it was sent at least `age` seconds ago.

        Returns (slots, chunks).
        """
        _, slot, _ = self.oldest()
        is_overdue = self._attempts[slot] > 0 and now - self._sent_at[slot] >= age
        return self._send(np.array([slot] if is_overdue else [], np.int64), now)

    def accept(self, slots: Indices, sequences: Indices) -> tuple[Indices, Indices]:
        """Match replies with the outstanding chunks; others are late, or not ours.

        Returns (positions in the batch, slots) of the accepted ones, each slot at most once.
        """
        known = np.flatnonzero((slots >= 0) & (slots < self.slots))
        waiting = known[
            (self._attempts[slots[known]] > 0) & (self.sequence[slots[known]] == sequences[known])
        ]
        theirs = slots[waiting]
        self._first[theirs[::-1]] = waiting[::-1]  # a slot's first reply is written last, and stays
        positions = waiting[self._first[theirs] == waiting]
        return positions, slots[positions]

    def chunk_of(self, slots: Indices) -> Indices:
        """Return the first chunk of each slot that is not finished."""
        chunks: Indices = self._chunk[slots]
        return chunks

    def finish(self, slots: Indices) -> Indices:
        """Mark the results of accepted `slots` as received. Returns the finished chunks."""
        finished = self._chunk[slots]
        self.remaining -= len(slots)
        self.sequence[slots] += 1
        self._chunk[slots] += self.slots
        self._state[slots] = np.where(self._chunk[slots] < self.chunks, _DUE, _DONE)
        self._attempts[slots] = 0
        self._suspect[slots] = False
        return finished

    def round_trip(self, slots: Indices, now: float) -> float | None:
        """Return the longest round trip of the accepted `slots`, or None if none can be measured.

        Only chunks count that were sent once, and after the last answer that others were missing.
        """
        sent_at = self._sent_at[slots]
        clear = sent_at[(self._attempts[slots] == 1) & (sent_at > self.quiet_until)]
        return float(now - clear.min()) if clear.size else None

    def deliver(self, slots: Indices, now: float, too_soon: float) -> int:
        """Note the sent packets that have arrived, as the results of accepted `slots` show.

        Updates `newest`, the latest time at which one of them was sent. Returns the number of lost
        chunks. A chunk that counted as lost and was sent again may have been only late, for example
        because another worker's contribution was lost. It was late if the result comes within
        `too_soon` seconds after the retransmission. Such chunks are not in the returned number.
        """
        sent_at = self._sent_at[slots]
        suspect = self._suspect[slots]
        late = (suspect & (now - sent_at < too_soon)) | (self._state[slots] == _HAD)
        self.newest = max(self.newest, sent_at[~late].max(initial=self.newest))
        return int(np.count_nonzero(suspect & ~late))

    def had(self, slots: Indices, now: float) -> float | None:
        """Note that the switch has the contributions of accepted `slots`, and others are missing.

        Returns the round trip, if it is known.
        """
        news = slots[self._state[slots] != _HAD]
        # Of a chunk that was sent twice, the first packet got no reply. So this answers the second.
        asked = self._sent_at[news[self._attempts[news] == 2]]
        self._state[news] = _HAD
        self._suspect[news] = False
        self.any_had = True
        self.quiet_until = now
        return float(now - asked.max()) if asked.size else None

    def lose(self, reordering: float) -> None:
        """Mark chunks as due if a packet sent `reordering` seconds later has already arrived."""
        lost = np.flatnonzero((self._state == _FLYING) & (self._sent_at + reordering < self.newest))
        self._state[lost] = _DUE
        self._suspect[lost] = True

    def remind(self, now: float, timeout: float, longest: float) -> bool:
        """Mark chunks as due if the switch has had them for long; every attempt waits longer.

        Returns whether there were any.
        """
        if not self.any_had:
            return False
        had = np.flatnonzero(self._state == _HAD)
        again = had[now >= self._reminders(had, timeout, longest)]
        self._state[again] = _DUE
        return bool(again.size)

    def next_reminder(self, timeout: float, longest: float) -> float:
        """Return the time at which :meth:`remind` has something to do next."""
        if not self.any_had:
            return float("inf")
        had = np.flatnonzero(self._state == _HAD)
        return float(self._reminders(had, timeout, longest).min(initial=float("inf")))

    def oldest(self) -> tuple[int, int, int]:
        """Return the lowest unfinished chunk, its slot and its sequence number."""
        slot = int(self._chunk.argmin())
        return int(self._chunk[slot]), slot, int(self.sequence[slot])

    def sent_at(self, slots: Indices) -> Times:
        """Return when the chunks of some slots were last sent."""
        times: Times = self._sent_at[slots]
        return times

    @property
    def has_due(self) -> bool:
        """Return whether a chunk is due."""
        return bool((self._state == _DUE).any())

    def repetitions(self, slots: Indices) -> int:
        """Return how many of the `slots` were sent more than once."""
        return int(np.count_nonzero(self._attempts[slots] > 1))

    @property
    def exhausted(self) -> bool:
        """Return whether the next exchange might wrap sequence numbers: a new term is needed."""
        # Every exchange begins with the first slot, so no other one has used more numbers.
        return self.slots > 0 and int(self.sequence[0]) > _LAST_SEQUENCE - _MOST_CHUNKS

    def _send(self, slots: Indices, now: float) -> tuple[Indices, Indices]:
        self._state[slots] = np.where(self._state[slots] == _HAD, _HAD, _FLYING)
        self._sent_at[slots] = now
        self._attempts[slots] += 1
        return slots, self._chunk[slots]

    def _reminders(self, slots: Indices, timeout: float, longest: float) -> Times:
        doublings = np.minimum(self._attempts[slots], _MOST_DOUBLINGS)
        wait: Times = np.minimum(timeout * 2.0**doublings, longest)
        return self._sent_at[slots] + wait
