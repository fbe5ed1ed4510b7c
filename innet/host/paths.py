"""The path of an exchange in a term: the switch or the fallback."""

from collections.abc import Callable

from innet.host.fallback_path import FallbackPath
from innet.host.integers import Flags, Integers, Reduction
from innet.host.job import Path, Term
from innet.host.portions import Portions
from innet.host.quantizers.scaling import Scaling, Target, integers_of
from innet.host.transport import SwitchTransport
from innet.wire.layout import Operation

Inspect = Callable[[Integers], None]
"""A function that looks at the first chunk's result, (lanes,), and may raise an error to give up."""


class Paths:
    """A worker's two ways to all-reduce chunks.

    `meanwhile` raises to break off a wait for the fallback. `private` tells whether pads cover the lanes.
    """

    private = False

    def __init__(
        self, transport: SwitchTransport, fallback: FallbackPath, meanwhile: Callable[[], None]
    ) -> None:
        self._transport, self._fallback, self._meanwhile = transport, fallback, meanwhile

    def all_reduce(
        self,
        term: Term,
        number: int,
        chunks: Integers | Scaling,
        flags: Flags,
        operation: Operation,
        portions: Portions | None = None,
        into: Target = None,
        inspect: Inspect | None = None,
    ) -> Reduction:
        """All-reduce the chunks of exchange `number`; see :meth:`SwitchTransport.all_reduce`."""
        if term.path == Path.SWITCH:
            return self._transport.all_reduce(chunks, flags, operation, portions, into, inspect)
        integers = integers_of(chunks)
        whole = portions.spread(integers) if portions else integers
        result = self._fallback.all_reduce(term, number, whole, flags, operation, self._meanwhile)
        if portions:
            result = portions.received_of(result, into)
        if inspect:
            inspect(result.lanes[0])
        self._transport.progressed()
        return result
