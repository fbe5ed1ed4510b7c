"""The clearing of a job's cells in a switch.

P4Runtime cannot write BMv2's registers. Packets clear the cells instead, and come back as
acknowledgements.
"""

import secrets
import threading
from collections.abc import Callable, Iterator

import numpy as np

from innet.controller.jobs.records import SlotRange
from innet.errors import SwitchError
from innet.wire.check import seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import HEADER_BYTES, Kind
from innet.wire.records import blank

_ATTEMPTS, _WAIT, _LONGEST_WAIT = 20, 0.25, 4.0

Cell = tuple[int, int]
"""One copy of a slot: (slot, copy)."""


class CellClearing:
    """The clearing of cells of a switch with this number of `slots` and this `service` address.

    It clears `burst` cells at a time. `send` sends packets to the switch. `broken` returns why that is
    impossible, or None.
    """

    def __init__(
        self,
        service: Address,
        slots: int,
        burst: int,
        send: Callable[[list[bytes]], None],
        broken: Callable[[], str | None],
    ) -> None:
        self._service, self._burst, self._send, self._broken = service, burst, send, broken
        self._unused = np.zeros(slots, bool)  # the slots whose cells are known to be clear
        self._rounds: dict[int, set[Cell]] = {}  # cells to be acknowledged, by token
        self._acknowledged = threading.Condition()

    def program_loaded(self) -> None:
        """Note that the switch has just begun to run the program, with all registers zero."""
        self._unused[:] = True

    def use(self, slot_range: SlotRange) -> None:
        """Note that packets may change these slots' cells from now on."""
        self._unused[_slice(slot_range)] = False

    def clear(self, slot_range: SlotRange) -> Iterator[None]:
        """Clear both copies of all slots, some of them in each step. Raises SwitchError.

        Slots that no job has used since the program was loaded are clear.
        """
        every = range(len(self._unused))
        slots = [slot for slot in every[_slice(slot_range)] if not self._unused[slot]]
        cells = [(slot, copy) for slot in slots for copy in (0, 1)]
        for start in range(0, len(cells), self._burst):
            left = self._clear_burst(set(cells[start : start + self._burst]))
            if left:
                raise SwitchError(
                    f"the switch did not clear {len(left)} cells: has it lost its program?"
                )
            yield

    def acknowledge(self, token: int, cell: Cell) -> None:
        """Note that a packet has come back."""
        with self._acknowledged:
            left = self._rounds.get(token, set())
            left.discard(cell)
            if not left:
                self._acknowledged.notify_all()

    def wake(self) -> None:
        """Wake whoever waits for packets: the connection has ended."""
        with self._acknowledged:
            self._acknowledged.notify_all()

    def _clear_burst(self, due: set[Cell]) -> set[Cell]:
        """Clear some cells, and return those that have not been acknowledged."""
        wait = _WAIT
        for _ in range(_ATTEMPTS):
            left = self._clear_once(due, wait)
            if left == due:
                # The switch may be slow: requests queue behind those of earlier rounds.
                wait *= 2
            due = left
            if not due or wait > _LONGEST_WAIT:
                break
        return due

    def _clear_once(self, cells: set[Cell], wait: float) -> set[Cell]:
        """Send one round of requests; return the cells not acknowledged after `wait` seconds of silence.

        Only acknowledgements of this very round count. Packets keep their order on the way through
        the switch. So when the last acknowledgement is in, no request of an earlier round is still
        in flight. Such a request might clear a cell that is in use again.
        """
        if why := self._broken():
            raise SwitchError(why)
        token, left = secrets.randbits(32), set(cells)
        with self._acknowledged:
            self._rounds[token] = left
        self._send(self._packets(token, list(cells)))
        with self._acknowledged:
            before = 0
            while left and len(left) != before:
                before = len(left)
                self._acknowledged.wait_for(lambda: not left or self._broken(), wait)
            del self._rounds[token]
        return left

    def _packets(self, token: int, cells: list[Cell]) -> list[bytes]:
        # The parity of the sequence number picks the copy.
        prefix = encapsulation(self._service, self._service, HEADER_BYTES)
        packets = blank(len(cells), 0, Kind.CLEAR, prefix)
        packets["slot"], packets["sequence"] = np.array(cells).T
        packets["workers"] = token
        seal(packets, int.from_bytes(self._service.ip_bytes), self._service.udp_port)
        return [packet.tobytes() for packet in packets]


def _slice(slot_range: SlotRange) -> slice:
    return slice(slot_range.first_slot, slot_range.first_slot + slot_range.slots)
