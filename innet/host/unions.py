"""The workers' agreement on the blocks that they send, before they exchange the values.

There are two ways to choose. One takes all blocks that any worker has, as OmniReduce does
(:mod:`innet.host.blocks`). The other takes the largest of all workers, as in "SwitchTop-k: Scaling
Top-k Compression on Programmable Switches", KDD 2025, where a sketch in the switch finds them. Here the
switch's maximum does.

All workers get the same blocks, since they follow from the result of an exchange. With a quorum the
result may lack a worker. Blocks that only this worker has are then left out, as its values would be.
"""

import numpy as np

from innet.host.agreement import Call
from innet.host.blocks import Bitmap, Blocks, Mask, Positions, Values
from innet.host.exchanges import Exchanges
from innet.host.job import WorkerInfo
from innet.host.maxima import Maxima
from innet.host.quantizers import fixed_point
from innet.wire.layout import Operation

_GROUP = 64  # bits of a bitmap that make a group
_MOST_CHUNKS = 4  # of a bitmap without groups: groups take a further round trip


class Unions:
    """A worker's unions. Both methods return positions of blocks in ascending order.

    They raise WorkersDisagree if the workers' calls differ.
    """

    def __init__(self, exchanges: Exchanges, info: WorkerInfo) -> None:
        self._exchanges, self._info = exchanges, info
        self._maxima = Maxima(exchanges, info)

    def occupied(self, call: Call, own: Mask) -> Positions:
        """Return the blocks that any worker has, given whether this one has each of them."""
        self._maxima.agree(call)
        return np.flatnonzero(self._any(own))

    def _any(self, own: Mask) -> Mask:
        """Return the bits, or-ed over the workers.

        Many bits are cut into groups, as a vector is cut into blocks. The workers first agree on the
        groups that are not all zero, and exchange only these. So few occupied blocks take few bits.
        """
        bitmap = Bitmap(self._info.workers)
        if own.size <= _MOST_CHUNKS * self._info.lanes * bitmap.per_word:
            return self._exchanged(bitmap, own)
        groups = Blocks(own.size, _GROUP)
        chosen = np.flatnonzero(self._any(groups.occupied(own)))
        found = self._exchanged(bitmap, groups.packed(own, chosen))
        return groups.spread(found, chosen)

    def _exchanged(self, bitmap: Bitmap, own: Mask) -> Mask:
        chunks = fixed_point.blocks(bitmap.words(own), self._info.lanes)
        none = np.zeros(len(chunks), np.uint16)
        done = self._exchanges.all_reduce(chunks, none, Operation.SUM)
        words = -(-own.size // bitmap.per_word)
        return bitmap.any(done.lanes.reshape(-1)[:words], own.size)

    def largest(self, call: Call, own: Values, share: float) -> Positions:
        """Return a `share` of all blocks, at least one: those with the largest value of any worker.

        `own` are float32 magnitudes. Zeros are left out. NaN counts as infinity.
        """
        # Magnitudes sort as their bits do, without the sign of minus zero.
        bits = np.where(np.isfinite(own), abs(own), np.float32(np.inf)).view(np.int32)
        agreed = self._maxima.agree(call, bits)
        most = max(1, round(share * own.size))
        first = np.argsort(-agreed, kind="stable")[:most]
        return np.sort(first[agreed[first] > 0])
