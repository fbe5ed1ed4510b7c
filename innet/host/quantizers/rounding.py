"""Rounding to integers: to the nearest, or up and down at random so that the mean is kept.

Stochastic rounding takes x up to floor(x) + 1 with the probability x - floor(x), so its expectation
is x (Gupta, Agrawal, Gopalakrishnan and Narayanan, "Deep Learning with Limited Numerical
Precision", ICML 2015, section 3). The random numbers have 24 bits. They depend only on a key and on
the element's position, so there is no state, and the bits are the same in any order and on any
device. The expectation is exact where x - floor(x) is a multiple of ``2**-24``, which it is for
``|x| >= 1``. Elsewhere it is within ``2**-24`` of x. The rounded number differs from x by less
than 1.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from innet.host.quantizers.interface import Floats

Bits = npt.NDArray[np.uint32]

_MODULUS = 1 << 64
_RESOLUTION = np.float32(2.0**-24)


def nearest(scaled: Floats, first: int) -> None:  # noqa: ARG001 - a Rounding
    """Round in place, halves to even. The result differs from the number by at most 1/2."""
    np.rint(scaled, out=scaled)


@dataclass(frozen=True)
class Stochastic:
    """Stochastic rounding. Equal keys give equal bits; every call needs a different key."""

    key: int

    @classmethod
    def of(cls, seed: int, rank: int, step: int) -> "Stochastic":
        """Return the rounding of a worker's `step`-th call. If all rounded alike, errors would add up."""
        key = splitmix64(seed)
        for part in (rank, step):
            key = splitmix64(key ^ part)
        return cls(key)

    def __call__(self, scaled: Floats, first: int) -> None:
        """Round in place; `first` is the position of the first number in the vector."""
        uniform = random_bits(self.key, first, scaled.size) >> np.uint32(8)
        below = np.floor(scaled)
        np.subtract(scaled, below, out=scaled)
        up = uniform.astype(np.float32).reshape(scaled.shape) * _RESOLUTION < scaled
        np.add(below, up, out=scaled)


def random_bits(key: int, first: int, count: int) -> Bits:
    """Return 32 random bits for each position from `first` on; positions are below 2**32.

    The position is mixed with the key's lower half, then its upper, by Wellons's ``lowbias32``
    ("Prospecting for Hash Functions", 2018). This takes 32-bit multiplications, which every device
    has.
    """
    bits = np.arange(first, first + count, dtype=np.uint32)
    scratch = np.empty_like(bits)
    for half in (key & 0xFFFFFFFF, key >> 32):
        np.bitwise_xor(bits, np.uint32(half), out=bits)
        _mix(bits, scratch)
    return bits


def splitmix64(number: int) -> int:
    """Return a well mixed 64-bit function of a number (Steele, Lea and Flood, OOPSLA 2014)."""
    mixed = (number + 0x9E3779B97F4A7C15) % _MODULUS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % _MODULUS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % _MODULUS
    return mixed ^ mixed >> 31


MIXING = ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1))
"""The constants of ``lowbias32``: shift, exclusive or, multiply, three times."""


def _mix(bits: Bits, scratch: Bits) -> None:
    for shift, factor in MIXING:
        np.right_shift(bits, np.uint32(shift), out=scratch)
        np.bitwise_xor(bits, scratch, out=bits)
        if factor != 1:
            np.multiply(bits, np.uint32(factor), out=bits)


def halves(key: int) -> tuple[int, int]:
    """Return the lower and the upper half of a key of 64 bits, as int32."""
    return signed(key & 0xFFFFFFFF), signed(key >> 32)


def signed(word: int) -> int:
    """Return the int32 with the bits of a word."""
    return word - (1 << 32) if word >> 31 else word
