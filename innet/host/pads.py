"""Pads: pseudorandom lanes that hide every contribution and every sum.

Let N be the number of workers, and S(0) to S(N-1) pseudorandom vectors of an exchange, made by
AES-256 in counter mode. The worker of rank k adds its pad ``S(k) - S(k+1)``, with S(N) = 0, modulo
2**32. In the sum of all workers every vector but S(0) cancels, and each worker takes S(0) off the
result. The N pads are linear combinations of N independent vectors, and this linear map has an
inverse. So all contributions together, and with them every partial sum of a tree, look uniformly
random to whoever lacks the key. This is the masking by pairs of Bonawitz et al., "Practical Secure
Aggregation for Privacy-Preserving Machine Learning" (CCS 2017), on a chain of workers and with one
key for all.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from innet.host import memory
from innet.host.integers import Integers

KEY_BYTES = 32

_BLOCK = 1 << 16  # lanes that are padded at a time: a few of them fit a core's cache
_LANE = np.dtype("<i4")  # the same on all machines
_ZEROS = bytes(_LANE.itemsize * _BLOCK)
_CIPHER_BLOCK = 16  # bytes


class Place(NamedTuple):
    """A place where pads are used once: a term, an exchange, and a part of it.

    An exchange that begins again does so in another term. Then it gets other pads.
    """

    term: int
    exchange: int
    part: int


class PadUsedTwice(AssertionError):
    """A pad would have covered lanes at a place where it has covered others."""


class Pads:
    """The pads of one worker for one session, whose `key` of 32 bytes has never been used before."""

    def __init__(self, key: bytes, rank: int, workers: int) -> None:
        self._key, self._rank, self._workers = key, rank, workers
        self._used: set[Place] = set()

    def cover(self, term: int, exchange: int, part: int, chunks: Integers) -> "Covered":
        """Add this worker's pad to (n, lanes) int32. Raises PadUsedTwice if it has covered others."""
        place = Place(term, exchange, part)
        # A worker goes back by one exchange at most, so older places cannot come again.
        self._used = {each for each in self._used if each.exchange + 1 >= place.exchange}
        if place in self._used:
            raise PadUsedTwice(f"the pads of {place} have been used")
        self._used.add(place)
        padded = memory.empty(chunks.shape, np.int32)
        np.copyto(padded, chunks)
        last = self._rank + 1 == self._workers
        self._apply(place, padded, [self._rank], [] if last else [self._rank + 1])
        return Covered(padded, lambda sums, first: self._apply(place, sums, [], [0], first))

    def _apply(
        self,
        place: Place,
        lanes: Integers,
        plus: Sequence[int],
        minus: Sequence[int],
        first_chunk: int = 0,
    ) -> None:
        """Add vectors S to lanes, and subtract others, in place, block by block.

        `plus` and `minus` are the numbers of the vectors. The lanes begin with chunk `first_chunk`.
        """
        flat, start = lanes.reshape(-1), first_chunk * lanes.shape[-1]
        added = [self._vector(place, number, start) for number in plus]
        subtracted = [self._vector(place, number, start) for number in minus]
        for first in range(0, flat.size, _BLOCK):
            block = flat[first : first + _BLOCK]
            for vector in added:
                block += vector.next(block.size)
            for vector in subtracted:
                block -= vector.next(block.size)

    def _vector(self, place: Place, number: int, start: int) -> "_Vector":
        name = b"innet pad" + struct.pack(">QQQQ", *place, number)
        return _Vector(HKDFExpand(SHA256(), KEY_BYTES, name).derive(self._key), start)


@dataclass(frozen=True)
class Covered:
    """A padded contribution, `chunks` (n, lanes) int32, and the way back from the sum of all.

    `uncover` takes the pad off a sum's chunks, (up to n, lanes) int32, from the given one on, in place.
    """

    chunks: Integers
    uncover: Callable[[Integers, int], None]

    def showing(self, inspect: Callable[[Integers], None]) -> Callable[[Integers], None]:
        """Return a function that shows `inspect` a padded first chunk, (lanes,), without its pad."""

        def show(first: Integers) -> None:
            bare = first.copy()
            self.uncover(bare, 0)
            inspect(bare)

        return show


class _Vector:
    """A pseudorandom vector of an exchange, from lane `start` on."""

    def __init__(self, key: bytes, start: int) -> None:
        block, behind = divmod(_LANE.itemsize * start, _CIPHER_BLOCK)
        counter = block.to_bytes(_CIPHER_BLOCK)  # every vector has a key of its own
        self._cipher = Cipher(AES256(key), CTR(counter)).encryptor()
        self._cipher.update(bytes(behind))
        self._stream = bytearray(len(_ZEROS) + _CIPHER_BLOCK - 1)  # room as `update_into` asks

    def next(self, lanes: int) -> Integers:
        """Return the next lanes, (lanes,) int32, valid until the next call."""
        self._cipher.update_into(memoryview(_ZEROS)[: _LANE.itemsize * lanes], self._stream)
        return np.frombuffer(self._stream, _LANE, lanes)
