"""The I/O rounds of one term: in C if there is a compiler, and in numpy for the rest."""

from collections.abc import Callable

import numpy as np

from innet.host import fastpath
from innet.host.compiled_rounds import CompiledRounds
from innet.host.integers import Bitmaps, Flags, Integers, Reduction
from innet.host.job import Term, WorkerInfo
from innet.host.link import Link
from innet.host.numpy_rounds import NumpyRounds
from innet.host.packets import Packets
from innet.host.quantizers.scaling import Scaling, integers_of
from innet.host.rounds import IoRounds, RoundLimits, RoundOutcome
from innet.host.window import Window
from innet.wire.layout import Kind, Operation
from innet.wire.records import Records, blank, set_field


class TermRounds:
    """A worker's I/O rounds in one term.

    The bitmaps `answers` have an item for each slot. `numpy` handles what C leaves to Python, with the
    same packets and vectors.
    """

    def __init__(
        self,
        link: Link,
        info: WorkerInfo,
        term: Term,
        window: Window,
        answers: Bitmaps,
        clock: Callable[[], float],
    ) -> None:
        self._window = window
        self._packets = packets = Packets(
            _contributions(info, term, info.lanes, link.encapsulation),
            _contributions(info, term, 0, link.bare_encapsulation),
        )
        self._operation: Operation | None = None  # of these packets
        self.numpy = NumpyRounds(link, info, term, window, packets, answers, clock)
        identity = info.job, term.number, term.first_slot
        library = fastpath.compiled()
        self._compiled = library and CompiledRounds(
            library, link, window, identity, packets, answers, has_quorum=info.has_quorum
        )
        self._rounds: IoRounds = self._compiled or self.numpy
        self._scaling: Scaling | None = None  # of the exchange under way, if C makes its integers

    @property
    def in_c(self) -> bool:
        """Return whether C runs the rounds, so that a scaling can take results as they arrive."""
        return self._compiled is not None

    def start(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        result: Reduction,
        first: int,
        order: Integers | None,
    ) -> None:
        """Begin an exchange; see :meth:`innet.host.rounds.IoRounds.start`."""
        self._scaling = chunks if self._compiled and isinstance(chunks, Scaling) else None
        # Contiguous and in this machine's byte order. A quantizer's integers need not be either.
        own = (
            np.ascontiguousarray(integers_of(chunks), np.int32)
            if self._scaling is None
            else self._scaling
        )
        self.numpy.start(own, flags, result, first, order)
        if self._compiled:
            self._window.start_in_c(len(flags))
            sent = own.native if isinstance(own, Scaling) else own
            self._compiled.start(sent, flags, result, first, order)
        else:
            self._window.start(len(flags))

    def set_operation(self, operation: Operation) -> None:
        """Let the contributions from now on ask for this operation."""
        if operation != self._operation:
            for packets in (self._packets.full, self._packets.bare):
                set_field(packets, "operation", operation)
            self._operation = operation

    def run(self, limits: RoundLimits) -> RoundOutcome:
        """Send and receive until there is something to decide. Raises OSError."""
        return self._rounds.run(limits)

    def abandon(self) -> None:
        """Discard the floats that C has made in an exchange that is broken off."""
        if self._scaling is not None:
            self._scaling.forget()

    def stop(self) -> None:
        """Release the vectors of an exchange that is over."""
        self.numpy.stop()
        if self._compiled:
            self._compiled.stop()
        self._scaling = None


def _contributions(info: WorkerInfo, term: Term, lanes: int, encapsulation: bytes) -> Records:
    """Return a contribution for each slot of a term, of one length."""
    packets = blank(term.slots, lanes, Kind.CONTRIBUTION, encapsulation)
    packets["job"], packets["term"] = info.job, term.number
    return packets
